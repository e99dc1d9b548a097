"""An exemplar counts the marked motion only: the shipped model on a film of squats and something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from movies import write_movie

import escounts
from escounts.counter import EncodedVideo
from escounts.errors import EscountsError
from escounts.system.arrays import Image
from escounts.video.files import Video

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample.mp4"
SQUATS = 8
OTHERS = 10


def pendulum(frames: int, side: int) -> Iterator[Image]:
    """A bright disc that swings over dark stripes, once a second at 15 frames per second."""
    y, x = np.mgrid[:side, :side]
    ground = np.stack([40 + 30 * (x // 8 % 2)] * 3, -1).astype(np.uint8)
    for frame in range(frames):
        middle = side * (0.5 + 0.3 * np.sin(2 * np.pi * frame / 15))
        picture = ground.copy()
        picture[(x - middle) ** 2 + (y - side / 2) ** 2 < (side / 6) ** 2] = (240, 200, 40)
        yield picture


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> EncodedVideo:
    squats = [frame.image for frame in Video(SAMPLE).frames(size=(128, 128), rate=15.0)]
    film = tmp_path_factory.mktemp("film") / "two.mp4"
    write_movie(film, [*squats, *pendulum(15 * OTHERS, 128)], rate=15)
    return escounts.load("lite", device="cpu").encode(film)


def test_only_the_marked_motion_is_counted(encoded: EncodedVideo) -> None:
    cut = encoded.info.duration - OTHERS
    squats = encoded.count(exemplars=[(3.7, 5.7)])
    assert squats.count == pytest.approx(SQUATS, abs=1)
    assert len(squats.left_out) == pytest.approx(OTHERS, abs=2)
    assert all(one.end <= cut + 1.0 for one in squats.repetitions)
    assert all(one.start >= cut - 1.0 for one in squats.left_out)
    assert max(one.score or 0 for one in squats.left_out) < 0.5
    swings = encoded.count(exemplars=[(cut + 3.0, cut + 4.0)])
    assert swings.count == pytest.approx(OTHERS, abs=1)
    assert len(swings.left_out) == pytest.approx(SQUATS, abs=1)


def test_what_is_left_out_on_either_side_of_the_marked_set_leaves_it_alone(tmp_path: Path) -> None:
    squats = [frame.image for frame in Video(SAMPLE).frames(size=(128, 128), rate=15.0)]
    before, film = 82 / 15, tmp_path / "between.mp4"  # half a swing is under way where the squats begin
    write_movie(film, [*pendulum(82, 128), *squats[27:261], *pendulum(84, 128)], rate=15)
    result = escounts.count(film, exemplars=[(before + 2.0, before + 3.9)], device="cpu")
    assert result.count == pytest.approx(SQUATS, abs=1)
    after = before + 234 / 15
    assert any(one.end < before + 1 for one in result.left_out)
    assert any(one.start > after - 1 for one in result.left_out)
    for other in result.left_out:
        assert all(other.end <= one.start + 1e-6 or other.start >= one.end - 1e-6 for one in result.repetitions)


def test_where_it_does_not_occur_the_answer_is_none(encoded: EncodedVideo) -> None:
    cut = encoded.info.duration - OTHERS
    result = encoded.count(exemplars=[(3.7, 5.7)], start=cut + 0.5)
    assert result.count == 0 and len(result.left_out) > 5


def test_sets_have_a_letter_for_each_motion_and_serve_as_exemplars(encoded: EncodedVideo) -> None:
    counted = encoded.count()
    assert [one.motion for one in counted.sets] == ["A", "B"]
    again = encoded.count(like_set=2)
    assert again.count == pytest.approx(OTHERS, abs=1) and len(again.left_out) == pytest.approx(SQUATS, abs=1)
    with pytest.raises(EscountsError, match="set 3 is asked for; sets 1 to 2 are found"):
        encoded.count(like_set=3)


def test_an_exemplar_of_another_video_is_not_sure_where_nothing_looks_like_it(encoded: EncodedVideo) -> None:
    sample = encoded.count(exemplars=[f"{SAMPLE}@3.7-5.7"], end=8.0)
    assert sample.unsure == any("looks like the reference" in reason for reason in sample.reasons)
    swings = escounts.load("lite", device="cpu").encode([*pendulum(150, 128)], fps=15)
    unlike = encoded.count(exemplars=[(swings, 2.0, 3.0)], end=8.0)
    assert unlike.unsure and any("nothing here looks like the reference" in reason for reason in unlike.reasons)
    assert unlike.count == sample.count and not unlike.left_out
    alike = encoded.count(exemplars=[(swings, 2.0, 3.0)])
    assert alike.count == pytest.approx(OTHERS, abs=1) and len(alike.left_out) == pytest.approx(SQUATS, abs=1)
    assert not alike.unsure
    both = encoded.count(exemplars=[(3.7, 5.7), (swings, 2.0, 3.0)])
    assert both.count == pytest.approx(SQUATS + OTHERS, abs=2) and not both.left_out


def test_frames_of_two_programs_are_two_videos() -> None:
    counter = escounts.load("lite", device="cpu")
    slow, fast = (counter.encode([*pendulum(150, 64)], fps=fps) for fps in (15.0, 30.0))
    own, other = (one.encoding.encode_exemplar(2.0, 3.0) for one in (slow, fast))
    assert own.video != other.video
    assert slow.encoding.encode_exemplar(5.0, 6.0).video == own.video
