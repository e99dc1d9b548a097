"""Every frame with its right time, whatever the container does."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from movies import level, levels, write_movie

from escounts.errors import VideoError
from escounts.video.decoding import FileSource, scaling_threads
from escounts.video.files import Video, video_files


def levels_of(video: Video, **options: object) -> list[int]:
    return [level(frame.image) for frame in video.frames(**options)]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("video") / "plain.mp4", levels(30), rate=10)


def test_header(plain: Path) -> None:
    info = Video(plain).info
    assert (info.width, info.height, info.fps, info.rotation, info.codec) == (64, 48, 10.0, 0, "h264")
    assert info.duration == pytest.approx(3.0, abs=0.01)


def test_all_frames_with_their_times(plain: Path) -> None:
    frames = list(Video(plain).frames())
    assert [level(frame.image) for frame in frames] == list(range(30))
    assert [frame.time for frame in frames] == pytest.approx([index / 10 for index in range(30)])
    assert frames[0].image.shape == (48, 64, 3) and frames[0].image.dtype == np.uint8


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (10, list(range(30))),
        (5, [*range(1, 30, 2)]),  # the middle of each 0.2 s is where the second frame of two begins
        (20, [index // 2 for index in range(60)]),
        (4, [1, 3, 6, 8, 11, 13, 16, 18, 21, 23, 26, 28]),
    ],
)
def test_fixed_rate(plain: Path, rate: float, expected: list[int]) -> None:
    frames = list(Video(plain).frames(rate=rate))
    assert [level(frame.image) for frame in frames] == expected
    assert [frame.time for frame in frames] == pytest.approx([(k + 0.5) / rate for k in range(len(expected))])


def test_variable_frame_rate_is_sampled_by_time(tmp_path: Path) -> None:
    times = [0.0, 0.1, 0.2, 1.2, 1.3, 2.9]
    path = write_movie(tmp_path / "variable.mkv", levels(6), times=times, codec="ffv1", pixel_format="yuv420p")
    video = Video(path)
    assert [frame.time for frame in video.frames()] == pytest.approx(times, abs=2e-3)
    by_time = levels_of(video, rate=4, end=3.0)  # at 0.125, 0.375, … 2.875
    assert by_time[:11] == [1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4]


def test_every_nth_frame(plain: Path) -> None:
    assert levels_of(Video(plain), every=7) == [0, 7, 14, 21, 28]


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "ts"])
def test_range_by_seeking_is_the_range_by_reading(tmp_path: Path, suffix: str) -> None:
    path = write_movie(tmp_path / f"long.{suffix}", levels(120, step=2), rate=20, options={"g": "12"})
    video = Video(path)
    whole = [(frame.time, frame.image) for frame in video.frames(rate=20)]
    part = [(frame.time, frame.image) for frame in video.frames(rate=20, start=2.5, end=4.0)]
    assert len(part) == 30
    for (time, image), (expected_time, expected) in zip(part, whole[50:80], strict=True):
        assert time == pytest.approx(expected_time) and np.array_equal(image, expected)
    assert [frame.time for frame in video.frames(start=2.5, end=2.7)] == pytest.approx([2.5, 2.55, 2.6, 2.65])


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_rotation_is_undone(tmp_path: Path, rotation: int) -> None:
    picture = np.zeros((48, 80, 3), np.uint8)
    picture[:16, :32] = 255  # a bright patch in the upper left corner
    # Shown turned by `rotation` counterclockwise: the stored picture is turned the other way round.
    stored = np.rot90(picture, -rotation // 90)
    path = write_movie(tmp_path / "turned.mp4", [stored] * 5, rotation=rotation)
    video = Video(path)
    assert (video.info.width, video.info.height, video.info.rotation) == (80, 48, rotation)
    for size in (None, (40, 24)):
        image = next(video.frames(size=size)).image
        rows, columns = image.shape[:2]
        assert (columns, rows) == (size or (80, 48))
        assert image[: rows // 4, : columns // 4].mean() > 230
        assert image[rows // 2 :].mean() < 20 and image[:, columns // 2 :].mean() < 20


def test_area_average_of_the_whole_frame(tmp_path: Path) -> None:
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:, ::2] = 200  # stripes finer than the target's pixels
    path = write_movie(tmp_path / "stripes.mkv", [picture] * 3, codec="ffv1", pixel_format="bgr0")
    image = next(Video(path).frames(size=(8, 8))).image
    assert image.shape == (8, 8, 3) and np.abs(image.astype(int) - 100).max() <= 4


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ten_bit.mkv", {"codec": "ffv1", "pixel_format": "yuv420p10le"}),
        ("odd.mkv", {"codec": "ffv1", "pixel_format": "yuv444p", "size": (63, 47)}),
        ("odd_subsampled.webm", {"codec": "libvpx-vp9", "size": (63, 47)}),
        ("motion.avi", {"codec": "mjpeg", "pixel_format": "yuvj420p"}),
        ("film.mov", {"codec": "libx264"}),
    ],
)
def test_codecs_and_sizes(tmp_path: Path, name: str, options: dict) -> None:  # type: ignore[type-arg]
    size = options.pop("size", (64, 48))
    video = Video(write_movie(tmp_path / name, levels(12, size=size, step=16), rate=10, **options))
    assert (video.info.width, video.info.height) == size
    assert [level(frame.image, step=16) for frame in video.frames(size=(16, 16))] == list(range(12))


def test_transparent_pixels_are_black(tmp_path: Path) -> None:
    pictures = []
    for index in range(4):
        picture = np.full((32, 32, 4), 255, np.uint8)
        picture[:, 16:, :3] = 37 * index  # what hides under transparency must not show
        picture[:, 16:, 3] = 0
        pictures.append(picture)
    path = tmp_path / "alpha.mov"
    write_movie(path, pictures, codec="png", pixel_format="rgba", source_format="rgba")
    for frame in Video(path).frames():
        assert frame.image[:, :16].min() == 255 and frame.image[:, 16:].max() == 0


def test_an_animated_avif_is_its_animation_and_not_the_still_before_it(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "loop.avif", levels(12, step=20), rate=10, codec="libsvtav1")
    video = Video(path)
    assert len(list(video.frames())) == 12 and video.info.duration == pytest.approx(1.2)


def test_an_animated_webp_is_named(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "loop.webp", levels(12, step=20), rate=10, codec="libwebp_anim")
    with pytest.raises(VideoError, match="an animated WebP, which FFmpeg does not read; convert it to GIF or MP4"):
        Video(path)


def test_animated_gif(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "loop.gif", levels(12, step=20), rate=10, codec="gif", pixel_format="rgb8")
    video = Video(path)
    assert video.info.duration == pytest.approx(1.2, abs=0.11)
    assert len(list(video.frames(rate=10))) in (12, 13)


def test_folder_of_images_in_natural_order(tmp_path: Path) -> None:
    for index, picture in enumerate(levels(12)):
        write_movie(
            tmp_path / f"frame{index}.png",
            [picture],
            codec="png",
            pixel_format="rgb24",
            container_format="image2",
            container_options={"update": "1"},
        )
    (tmp_path / "notes.txt").write_text("not a picture")
    video = Video(tmp_path, image_rate=5)
    assert video.info.duration == pytest.approx(2.4)
    assert levels_of(video) == list(range(12))
    assert levels_of(video, start=1.0, end=1.6) == [5, 6, 7]
    assert video_files(tmp_path) == [tmp_path]


def test_missing_duration_is_measured(tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        """A target that cannot seek: the header keeps no duration."""

        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.data += bytes(data)
            return len(data)

    pipe = Pipe()
    write_movie(pipe, levels(30), rate=10, codec="ffv1", container_format="matroska")
    path = tmp_path / "streamed.mkv"
    path.write_bytes(bytes(pipe.data))
    video = Video(path)
    assert video.info.duration == pytest.approx(3.0, abs=0.11)
    assert levels_of(video) == list(range(30))


def test_raw_stream_without_times_or_index(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "raw.h264", levels(40, step=6), rate=20, codec="libx264", container_format="h264")
    video = Video(path)
    frames = list(video.frames())
    assert len(frames) == 40
    steps = np.diff([frame.time for frame in frames])
    assert steps == pytest.approx([1 / video.info.fps] * 39) and video.info.duration == pytest.approx(
        40 / video.info.fps
    )
    late = next(video.frames(start=1.2))
    assert late.time <= 1.2 < late.time + 2 / video.info.fps


def test_first_frame_is_second_zero(tmp_path: Path) -> None:
    """Containers may start their clock anywhere; the video starts at its first frame."""
    times = [5.0 + index / 10 for index in range(20)]
    path = write_movie(tmp_path / "late.mkv", levels(20), times=times, codec="ffv1", pixel_format="yuv420p")
    assert [frame.time for frame in Video(path).frames()] == pytest.approx([t - 5.0 for t in times], abs=2e-3)


def test_truncated_file_is_an_error_but_its_beginning_can_be_counted(tmp_path: Path) -> None:
    path = write_movie(
        tmp_path / "cut.mp4",
        [np.random.default_rng(i).integers(0, 255, (48, 64, 3), np.uint8) for i in range(60)],
        rate=10,
        container_options={"movflags": "+faststart"},
    )
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    video = Video(path)
    with pytest.raises(VideoError, match=r"truncated: breaks off at [23]\.\d s of 6\.0 s"):
        list(video.frames())
    assert len(list(video.frames(end=2.0))) == 20


def test_wrong_options_say_what_is_allowed(plain: Path) -> None:
    video = Video(plain)
    for options in ({"rate": 0}, {"every": 0}, {"rate": 5, "every": 2}, {"start": 2, "end": 1}, {"size": (0, 4)}):
        with pytest.raises(ValueError, match=r"."):
            next(video.frames(**options))


def test_no_more_decoding_threads_than_cores_it_may_use(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert FileSource(plain).threads == 1
    assert FileSource(plain, threads=2).threads == 2


@pytest.mark.parametrize(("cores", "decoding", "scaling"), [(1, 1, 1), (2, 1, 1), (4, 3, 2), (64, 8, 4)])
def test_cores_are_left_to_whoever_takes_the_frames(
    plain: Path, monkeypatch: pytest.MonkeyPatch, cores: int, decoding: int, scaling: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert (FileSource(plain).threads, scaling_threads()) == (decoding, scaling)


def test_folders_are_searched_for_videos(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("z.MP4", "a.mkv", "b/c.webm", "b/readme.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert [str(path.relative_to(tmp_path)) for path in video_files(tmp_path)] == ["a.mkv", "z.MP4", "b/c.webm"]


def test_threads_of_the_scaler_change_no_pixel(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write_movie(tmp_path / "noise.mp4", [rng.integers(0, 256, (180, 320, 3), dtype=np.uint8) for _ in range(4)])
    one, many = (list(Video(tmp_path / "noise.mp4", threads=n).frames(size=(33, 50))) for n in (1, None))
    assert len(one) == 4 and all(np.array_equal(a.image, b.image) for a, b in zip(one, many, strict=True))
