"""What moves, and what only a codec changes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from escounts.counting import changes
from escounts.counting.changes import MotionMeter, has_moved
from escounts.counting.views import BASE_RATE
from escounts.synthetic.coded import StillRecipe, coded_still
from escounts.system.arrays import Image
from escounts.video.files import Video


def photograph(contrast: float = 1.0) -> Image:
    """Edges, slopes and grain, as in a street."""
    rng = np.random.default_rng(3)
    picture = np.linspace(30, 200, 160)[:, None] * np.ones(160)
    for _ in range(40):
        y, x = rng.integers(0, 140, 2)
        picture[y : y + rng.integers(4, 40), x : x + rng.integers(4, 40)] = rng.integers(0, 255)
    picture = picture[..., None] + rng.normal(0, 6, (160, 160, 3))
    return np.asarray((picture * contrast + 8).clip(0, 255), np.uint8)


def metered(frames: Iterable[Image]) -> MotionMeter:
    meter = MotionMeter()
    for frame in frames:
        meter.push(frame)
    return meter


def ball(scene: Image, length: int, contrast: float = 1.0) -> Iterator[Image]:
    """Something small that goes to and fro before a scene."""
    for number in range(length):
        frame = scene.copy()
        x = int(60 + 30 * np.sin(number / 10))
        frame[60:68, x : x + 8] = np.uint8(250 * contrast)
        yield frame


@pytest.mark.parametrize("contrast", [1.0, 0.3])
@pytest.mark.parametrize("codec", ["libx264", "mpeg4", "mpeg2video", "libvpx-vp9"])
def test_a_coded_photograph_does_not_move(codec: str, contrast: float) -> None:
    recipe = StillRecipe(codec, height=240, rate=30, gop=12, quality=0.9, fade=0.0, clock=False, seed=4)
    frames = coded_still(photograph(contrast), recipe, size=128, seconds=4)
    assert (frames[1:] != frames[:-1]).any(), "the codec does change it"
    assert not metered(frames).moving(0, len(frames)).any()


def test_an_encoder_that_has_yet_to_find_its_rate_moves_nothing(tmp_path: Path) -> None:
    """mpeg4 at its default rate: half a second after the start a small picture becomes finer at once."""
    path = tmp_path / "still.mkv"
    picture = np.ascontiguousarray(photograph()[:144, :144])
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 144, 144, "yuv420p"
        for _ in range(90):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode(None))
    frames = [frame.image for frame in Video(path).frames(size=(128, 128))]
    meter = metered(frames)
    assert has_moved(frames[0], frames[60]), "the first picture is that coarse"
    assert not meter.moving(0, 90).any()


def test_what_moves_from_the_start_is_seen_there() -> None:
    scene = photograph()[:128, :128]
    for length in (24, 60, 90, 300):  # a video of under a second, and longer ones
        assert metered(ball(scene, length)).moving(0, length).all(), length


@pytest.mark.parametrize("contrast", [1.0, 0.25])
def test_a_small_thing_that_moves_is_seen(contrast: float) -> None:
    scene = np.asarray(photograph()[:128, :128] * contrast, np.uint8)
    assert metered(ball(scene, 150, contrast)).moving(0, 150).all()


def test_it_says_where() -> None:
    scene = photograph()[:128, :128]
    moved = scene.copy()
    moved[40:60, 40:60] = 255 - moved[40:60, 40:60]
    meter = MotionMeter()
    for number in range(600):
        meter.push(moved if 300 <= number < 330 else scene)
    moving = meter.moving(0, 600)
    assert moving[285:345].all() and not moving[:250].any() and not moving[400:].any()
    meter.forget(270)
    assert np.array_equal(meter.moving(0, 330), moving[270:])


@pytest.mark.parametrize(("rate", "divisor"), [(30, 1), (25, 1), (20, 1), (15, 2), (12, 2), (10, 3), (1, 3)])
def test_it_knows_how_often_a_new_picture_comes(rate: int, divisor: int) -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (90, 16, 16, 3), dtype=np.uint8)
    meter, short = MotionMeter(), MotionMeter()
    for frame in range(90):
        meter.push(pictures[frame * rate // 30])
    for frame in range(12):
        short.push(pictures[frame])
    assert meter.divisor() == divisor and short.divisor() == 1
    for _ in range(300):
        meter.push(pictures[0])
    assert meter.divisor() == divisor, "that it stands still later changes nothing"


def test_the_same_picture_costs_nothing() -> None:
    scene = photograph()
    assert not has_moved(scene, scene)
    assert BASE_RATE == 30.0, "looks and lag are given in base frames"


@pytest.mark.parametrize("size", [1, 2, 9, 256])
def test_the_contrast_is_between_percentiles(size: int) -> None:
    levels = np.random.default_rng(size).integers(0, 256, size).astype(np.int16)
    low, high = np.percentile(levels, (1, 99))
    assert changes._contrast(levels) == pytest.approx(high - low, abs=1e-9)


@pytest.mark.parametrize("noise", [0, 1])
@pytest.mark.parametrize("rate", [3, 5, 15, 30])
def test_a_video_says_how_many_different_pictures_it_has(rate: int, noise: int) -> None:
    """Pictures that are held until the next one, with a codec's noise on each: the header still says 30 a second."""
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 200, (64, 64, 3), dtype=np.uint8)
    meter = MotionMeter()
    for frame in range(150):
        image = np.roll(texture, frame * rate // 30, axis=1)
        meter.push(image + rng.integers(0, noise + 1, image.shape, dtype=np.uint8))
    assert meter.pictures == pytest.approx(rate, rel=0.25)
