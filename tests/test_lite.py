"""The model that ships: it is whole, small, quick to load, and counts generated videos exactly."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from movies import bouncing, write_movie
from safetensors import safe_open

import escounts
from escounts.counter import Counter
from escounts.counting.multi_rate import MultiRateModel
from escounts.decision.rules import RULES
from escounts.decision.units import UNIT_GIVEN, unit_certainty
from escounts.models import catalogue
from escounts.nn.device import cpu_has_bf16
from escounts.synthetic import Generator, GeneratorConfig
from escounts.synthetic.coded import StillRecipe, coded_still
from escounts.video.files import Video

CALM = GeneratorConfig(
    clips=0.0,
    motion=0.0,
    procedural=1.0,
    exercise=1.0,
    negative=0.0,
    single=0.0,
    sibling=0.0,
    reverse=0.0,
    cut_inside=0.0,
    period=(24.0, 50.0),
    camera_still=1.0,
    camera_gentle=0.0,
    camera_strong=0.0,
    camera_fast=0.0,
    shake=0.0,
    pan=0.0,
    zoom=0.0,
    shot_change=0.0,
    few=0.0,
    pause=0.0,
    second_action=0.0,
    alternate_figures=0.0,
)
SAMPLE = Path(__file__).resolve().parent.parent / "examples" / "sample.mp4"


@pytest.fixture(scope="module")
def lite() -> Counter:
    return escounts.load("lite", device="cpu")


def test_lite_is_the_default_and_small() -> None:
    assert catalogue.default_name() == "lite"
    assert catalogue.LITE_WEIGHTS.stat().st_size < 16e6
    with safe_open(catalogue.LITE_WEIGHTS, "pt") as file:
        metadata = file.metadata()
    assert {"config", "sha256", "calibration", "train", "generator", "seed", "commit"} <= set(metadata)


def test_a_checkpoint_by_its_path_is_the_same_model(lite: Counter) -> None:
    by_path = escounts.load(str(catalogue.LITE_WEIGHTS), device="cpu")
    assert by_path.model.calibration == lite.model.calibration  # type: ignore[attr-defined]


def test_lite_loads_in_well_under_a_second(lite: Counter) -> None:
    began = time.process_time()
    escounts.load("lite", device="cpu")
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("index", [0, 2, 4])
def test_three_generated_videos_are_counted_exactly(lite: Counter, index: int) -> None:
    generator = Generator(CALM, seed=21)
    plan = generator.plan(index, 240)
    frames = generator.render([plan], device="cpu").frames_BTCHW[0].permute(0, 2, 3, 1).numpy()
    decision = lite.model.encode_images(frames).estimate()  # type: ignore[attr-defined]
    assert round(decision.density.count) == len(plan.spans)
    given = decision.details[UNIT_GIVEN]
    assert given > 0.9
    # All three have two sides; what is taken off is the doubt about the unit, where sides are live, and nothing else.
    assert decision.confidence == pytest.approx(min(given, unit_certainty(decision.hypotheses)), abs=1e-4)


def test_one_and_two_threads_agree(lite: Counter) -> None:
    counts = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            counts.append(lite.count(SAMPLE, start=2.0, end=10.0).raw_count)
    finally:
        torch.set_num_threads(before)
    assert counts[0] == pytest.approx(counts[1], abs=1e-3)


@pytest.mark.skipif(not cpu_has_bf16(), reason="without units for it, bf16 takes minutes and is never chosen")
def test_bf16_counts_what_float32_counts(lite: Counter) -> None:
    exact = escounts.load("lite", device="cpu")
    exact.model.precision = "float32"  # type: ignore[attr-defined]
    lite.model.precision = "auto"  # type: ignore[attr-defined]
    quick, slow = lite.encode(SAMPLE), exact.encode(SAMPLE)
    for exemplars in ([], [(3.9, 5.9)]):
        one, other = quick.count(exemplars=exemplars), slow.count(exemplars=exemplars)
        assert one.count == other.count
        assert one.raw_count != other.raw_count, "bf16 was not chosen"
        assert one.raw_count == pytest.approx(other.raw_count, abs=0.05)


def test_encode_then_count_equals_one_go_and_the_exemplar_keeps_the_phase(lite: Counter) -> None:
    encoded = lite.encode(SAMPLE)
    assert np.array_equal(encoded.count().density.values, lite.count(SAMPLE).density.values)
    result = encoded.count(exemplars=[(3.9, 5.9)])
    assert result.count == 8
    assert min(abs(r.start - 3.9) for r in result.repetitions) < 0.25


def test_a_frozen_picture_repeats_nothing(lite: Counter) -> None:
    still = np.random.default_rng(0).integers(0, 255, (128, 128, 3), dtype=np.uint8)
    estimate = lite.model.encode_images([still] * 150).estimate()  # type: ignore[attr-defined]
    assert round(estimate.density.count) == 0


def scene() -> np.ndarray:
    """The first frame of the sample, as a photograph."""
    return next(iter(Video(SAMPLE).frames())).image


@pytest.mark.parametrize("clock", [False, True], ids=["photograph", "running clock"])
@pytest.mark.parametrize("codec", ["libx264", "mpeg4", "mpeg2video", "libvpx-vp9"])
def test_a_still_through_a_codec_is_not_counted(lite: Counter, codec: str, clock: bool) -> None:
    recipe = StillRecipe(codec, height=240, rate=30, gop=12, quality=0.7, fade=0.0, clock=clock, seed=5)
    assert isinstance(lite.model, MultiRateModel)
    estimate = lite.model.encode_images(coded_still(scene(), recipe, size=128, seconds=8)).estimate()
    assert round(estimate.density.count) == 0


def test_a_slow_fade_is_not_counted(lite: Counter) -> None:
    recipe = StillRecipe("mpeg4", height=240, rate=30, gop=12, quality=0.7, fade=80.0, clock=False, seed=5)
    assert isinstance(lite.model, MultiRateModel)
    estimate = lite.model.encode_images(coded_still(scene(), recipe, size=128, seconds=8)).estimate()
    assert round(estimate.density.count) == 0


def test_a_frozen_ending_adds_nothing(lite: Counter) -> None:
    frames = [frame.image for frame in Video(SAMPLE).frames(size=(128, 128), rate=30.0)]
    recipe = StillRecipe("mpeg4", height=240, rate=30, gop=12, quality=0.7, fade=0.0, clock=False, seed=5)
    frozen = coded_still(frames[-1], recipe, size=128, seconds=10)
    assert isinstance(lite.model, MultiRateModel)
    assert round(lite.model.encode_images(np.stack([*frames, *frozen])).estimate().density.count) == 8


@pytest.mark.parametrize("change", ["mirrored", "half the frame rate", "strong compression"])
def test_what_changes_no_motion_changes_no_count(lite: Counter, change: str, tmp_path: Path) -> None:
    """On the sample; on real clips it is `benchmarks/metamorphic.py` that says how often it holds."""
    frames = np.stack([frame.image for frame in Video(SAMPLE).frames(size=(128, 128), rate=30.0)])
    assert isinstance(lite.model, MultiRateModel)
    if change == "mirrored":
        frames = frames[:, :, ::-1]
    elif change == "half the frame rate":
        frames = frames[::2].repeat(2, axis=0)
    else:
        path = write_movie(tmp_path / "coarse.mp4", frames, options={"crf": "40"})
        frames = np.stack([frame.image for frame in Video(path).frames(size=(128, 128), rate=30.0)])
    assert round(lite.model.encode_images(np.ascontiguousarray(frames)).estimate().density.count) == 8


def test_the_plain_sample_is_counted_surely(lite: Counter) -> None:
    result = lite.count(SAMPLE)
    assert result.count == 8 and not result.unsure
    first, *others = result.hypotheses
    assert first.unit == "cycle" and first.p > 0.95  # nothing in it alternates
    assert 1 - 2 * RULES.listed_from < first.p + sum(one.p for one in others) < 1.001  # less is not named


def test_one_picture_per_second_is_not_sure_and_says_what_could_be_seen(lite: Counter) -> None:
    size = lite.model.network.encoder.spec.size  # type: ignore[attr-defined]
    images = [frame.image for frame in Video(SAMPLE).frames(size=(size, size), rate=30.0, end=12.0)]
    held = [images[index // 30 * 30] for index in range(len(images))]
    decision = lite.model.encode_images(held).estimate()  # type: ignore[attr-defined]
    words = "different pictures per second: 1; a motion faster than 0.3 repetitions per second is not seen"
    assert decision.unsure and words in decision.reasons
    assert not lite.model.encode_images(images).estimate().unsure  # type: ignore[attr-defined]


def test_a_rounded_end_is_the_end_of_the_video(lite: Counter, tmp_path: Path) -> None:
    """Tables round durations: the fifth repetition, which the video cuts off, counts as without the range."""
    frames = list(bouncing(5, 10.0))
    path = write_movie(tmp_path / "cut.mp4", frames[: round(0.93 * len(frames))])
    end = Video(path).info.duration
    counts = [lite.count(path, end=to).count for to in (None, end - 0.05, end - 0.2)]
    assert counts == [4, 4, 5], "only a range that ends earlier lies between repetitions"
