"""What a file says of its time is not believed further than what is in it bears out."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from movies import bouncing, endless_gif, levels, says_two_seconds, write_movie

from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import View
from escounts.errors import ExemplarError, VideoError
from escounts.nn.network import LITE_TINY, Network
from escounts.video.files import Video, video_files


def slides(path: Path, times: list[float]) -> Path:
    """A few pictures, each shown from its time on: a small file of any length."""
    return write_movie(path, levels(len(times), step=40), times=times, codec="ffv1")


@pytest.fixture(scope="module")
def model() -> MultiRateModel:
    return MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=())


def test_hours_of_stills_cost_next_to_nothing(
    tmp_path: Path, model: MultiRateModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour in 31 pictures: what goes through the network is bounded by them, not by the time."""
    path = slides(tmp_path / "long.mkv", [59.0 * index for index in range(31)])
    assert path.stat().st_size < 20_000
    through: list[int] = []
    encoder = model.network.encoder
    original: Any = encoder.image_features

    def counted(images: Any, count: int) -> Any:
        through.append(count)
        return original(images, count)

    monkeypatch.setattr(encoder, "image_features", counted)
    result = model.encode(Video(path)).estimate()
    assert len(result.density.values) / 30 > 1700
    # A picture that changes takes a chunk of eight at each of the two rates; 1,770 s have 26,550 cells.
    assert sum(through) <= 31 * 2 * 20


def test_a_still_has_no_repetitions_and_no_exemplar(model: MultiRateModel) -> None:
    still = np.full((600, 64, 64, 3), 90, np.uint8)
    encoding = model.encode_images(still)
    assert encoding.estimate().density.count == 0.0
    with pytest.raises(ExemplarError, match="stands still"):
        encoding.encode_exemplar(4.0, 5.0)


def test_a_frozen_ending_is_not_counted(model: MultiRateModel) -> None:
    """What a network says of a picture that does not move is rounding error made large."""
    moving = np.stack([np.roll(np.eye(64, dtype=np.uint8) * 200, 3 * t, 1) for t in range(150)])[..., None]
    images = np.concatenate([moving, np.repeat(moving[-1:], 1500, 0)]).repeat(3, axis=3)
    density = model.encode_images(images).estimate().density.values
    slow_window = LITE_TINY_WINDOW * 6
    assert density[150 + slow_window :].sum() == 0.0


LITE_TINY_WINDOW = Network(LITE_TINY).encoder.spec.window_frames


def test_a_longer_gap_than_any_pause_is_a_broken_clock(tmp_path: Path) -> None:
    path = slides(tmp_path / "gap.mkv", [0.0, 0.1, 120.1, 120.2])
    times = [frame.time for frame in Video(path).frames()]
    assert times[-1] < 1.0
    last = endless_gif(tmp_path / "last.gif", 3, delay=65_535)
    assert Video(last).info.duration > 1000
    assert max(frame.time for frame in Video(last).frames(rate=1)) < 200


def test_the_limit_holds_for_what_is_decoded(tmp_path: Path) -> None:
    """A header may say anything: this one says nothing, so that the time is known only from the frames."""
    path = says_two_seconds(tmp_path / "unsaid.mkv")
    video = Video(path, max_duration=60.0)
    assert video.info.duration == pytest.approx(2.0)
    with pytest.raises(VideoError, match=r"lasts 70 s or more; up to 60 s .*--max-duration"):
        list(video.frames(rate=1))
    with pytest.raises(VideoError, match="up to 1 s"):
        Video(path, max_duration=1.0)
    assert len(list(Video(path, max_duration=60.0).frames(end=30.0, rate=1))) == 30


def test_a_gif_of_a_million_frames_stops_at_the_limit(tmp_path: Path) -> None:
    path = endless_gif(tmp_path / "many.gif", 200_000, delay=2)
    with pytest.raises(VideoError, match="up to 60 s"):
        list(Video(path, max_duration=60.0).frames(size=(16, 16), rate=5))


def test_sound_that_begins_later(tmp_path: Path) -> None:
    """A transport stream may get its sound at any time; PyAV stumbled over the new stream."""
    parts = []
    for name, start, sound in (("a.ts", 0, False), ("b.ts", 8, True)):
        # The table of streams stands at the beginning of a part alone: FFmpeg looks at the end of the file, too.
        with av.open(str(tmp_path / name), "w", format="mpegts", options={"pat_period": "100"}) as container:
            picture: Any = container.add_stream("libx264", rate=10, options={"preset": "ultrafast", "crf": "1"})
            picture.width, picture.height, picture.pix_fmt = 320, 240, "yuv420p"
            audio: list[Any] = [container.add_stream("aac", rate=44100) for _ in range(3 if sound else 0)]
            rng = np.random.default_rng(start)
            for index in range(80 if not sound else 10):
                frame = av.VideoFrame.from_ndarray(rng.integers(0, 255, (240, 320, 3), np.uint8), format="rgb24")
                frame.pts, frame.time_base = 10 * start + index, Fraction(1, 10)
                container.mux(picture.encode(frame))
            container.mux(picture.encode(None))
            for stream, index in ((stream, index) for stream in audio for index in range(40)):
                tone = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), format="fltp", layout="stereo")
                tone.sample_rate, tone.pts, tone.time_base = 44100, 44100 * start + 1024 * index, Fraction(1, 44100)
                container.mux(stream.encode(tone))
        parts.append((tmp_path / name).read_bytes())
    late = tmp_path / "late.ts"
    late.write_bytes(b"".join(parts))
    with av.open(str(late)) as container:
        assert len(container.streams) == 1
    assert len(list(Video(late).frames(size=(8, 8)))) == 90


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.mp4", "ffconcat version 1.0\nfile 'secret.mp4'\n"),
        ("list.mkv", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret.mp4\n#EXT-X-ENDLIST\n"),
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret.mp4\n#EXT-X-ENDLIST\n"),
        ("list.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"),
        ("art.ans", "hello\n" * 200),
    ],
)
def test_playlists_are_not_opened(tmp_path: Path, name: str, text: str) -> None:
    write_movie(tmp_path / "secret.mp4", bouncing(2, 1.0))
    (tmp_path / name).write_text(text)
    with pytest.raises(VideoError, match=r"a playlist, or another kind of file|no video FFmpeg can read"):
        Video(tmp_path / name)


def test_a_percent_sign_in_an_image_name_opens_that_image_alone(tmp_path: Path) -> None:
    for index, picture in enumerate(levels(3, step=80)):
        write_movie(
            tmp_path / f"{index}%d.png", [picture], codec="png", pixel_format="rgb24", container_format="image2",
            container_options={"update": "1"},
        )  # fmt: skip
    assert [round(float(frame.image.mean())) for frame in Video(tmp_path).frames()] == [0, 80, 160]


def test_pipes_devices_and_loops_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "loop.mp4").symlink_to(tmp_path / "loop.mp4")
    with pytest.raises(VideoError, match="a pipe or a device"):
        Video(tmp_path / "pipe.mp4")
    with pytest.raises(VideoError, match="too many levels of symbolic links"):
        Video(tmp_path / "loop.mp4")
    with pytest.raises(VideoError, match="a pipe or a device"):
        Video("/dev/null")
    assert video_files(tmp_path) == [tmp_path / "loop.mp4"]
