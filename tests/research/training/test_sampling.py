"""Exemplar sampling and batches by length: the paper's probabilities, and nothing that depends on the process."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from escounts.research.datasets.annotations import VideoAnnotation
from escounts.research.training.batches import ExemplarSampler, ExemplarSampling, LengthBatches, share


def annotated(name: str, action: str | None) -> VideoAnnotation:
    return VideoAnnotation(name, name, action, 3, ((0.0, 1.0),) * 3, 30.0, 3.0, "train")


VIDEOS = [annotated(f"a{k}", "a") for k in range(4)] + [annotated("b0", "b"), annotated("n0", None)]
OFFERED = {video.name: 3 for video in VIDEOS}


def test_other_videos_come_as_often_as_stated() -> None:
    sampler = ExemplarSampler(VIDEOS, OFFERED, ExemplarSampling((0, 1, 2), 0.4))
    rng = np.random.default_rng(0)
    single = [choice for _ in range(3000) for choice in sampler.choose(VIDEOS[0], 2, rng)]
    assert len(single) == 6000 and sampler.choose(VIDEOS[0], 0, rng) == []
    assert np.mean([name != "a0" for name, _ in single]) == pytest.approx(0.4, abs=0.02)
    others = Counter(name for name, _ in single if name != "a0")
    assert set(others) == {"a1", "a2", "a3"}, "really another video, and of the same action"
    assert {index for name, index in single if name == "a0"} == {0, 1, 2}


def test_any_class_is_a_setting() -> None:
    sampler = ExemplarSampler(VIDEOS, OFFERED, ExemplarSampling((1,), 1.0, same_class=False))
    rng = np.random.default_rng(0)
    seen = {sampler.choose(VIDEOS[0], 1, rng)[0][0] for _ in range(300)}
    assert seen == {"a1", "a2", "a3", "b0", "n0"}


def test_without_another_video_of_the_action_it_draws_from_itself() -> None:
    sampler = ExemplarSampler(VIDEOS, OFFERED, ExemplarSampling((2,), 1.0))
    rng = np.random.default_rng(0)
    for lonely in (VIDEOS[4], VIDEOS[5]):
        choices = sampler.choose(lonely, 2, rng)
        assert [name for name, _ in choices] == [lonely.name] * 2
        assert len({index for _, index in choices}) == 2, "two different repetitions"


def test_a_video_without_repetitions_takes_others_or_none() -> None:
    sampler = ExemplarSampler(VIDEOS, OFFERED | {"a0": 0, "b0": 0}, ExemplarSampling((1,), 0.0))
    rng = np.random.default_rng(0)
    assert sampler.choose(VIDEOS[0], 1, rng)[0][0] != "a0"
    assert sampler.choose(VIDEOS[4], 1, rng) == []


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        ExemplarSampling((0,), 1.5)
    with pytest.raises(ValueError, match="numbers from 0"):
        ExemplarSampling(())


def test_an_epoch_shows_every_video_and_wastes_little() -> None:
    lengths = np.random.default_rng(0).integers(20, 300, 101).tolist()
    batches = LengthBatches(lengths, 8, seed=3)
    epoch = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    shown = Counter(index for batch in epoch for index in batch)
    assert set(shown) == set(range(101))
    assert sum(shown.values()) == 13 * 8
    padded = sum(8 * max(lengths[i] for i in batch) for batch in epoch)
    real = sum(lengths[i] for batch in epoch for i in batch)
    assert padded / real < 1.15, "at random it is about 1.6"
    following = [batches.batch(13 + step) for step in range(13)]
    met = {frozenset(batch) for batch in epoch}
    assert sum(frozenset(batch) in met for batch in following) < 7, "others should meet in another epoch"
    assert [LengthBatches(lengths, 8, seed=3).batch(step) for step in range(13)] == epoch


def test_processes_share_a_batch_without_overlap() -> None:
    parts = [share(list(range(10, 18)), rank, 4) for rank in range(4)]
    assert sorted(item for part in parts for _, item in part) == list(range(10, 18))
    assert all(item == place + 10 for part in parts for place, item in part)
    with pytest.raises(ValueError, match="that 3 divides"):
        share(list(range(8)), 0, 3)
