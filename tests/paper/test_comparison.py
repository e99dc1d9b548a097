"""Orders with intervals: a clear difference is seen, noise is not taken for one, the paper decides which side."""

from __future__ import annotations

import numpy as np
import pytest

from escounts.research.training.predictions import Prediction
from paper.rendering import SeedSpread, compare, interval, relative_errors


def row(name: str, count: int, predicted: float) -> Prediction:
    return Prediction("d", "test", name, "a", count, predicted, 1.0, 1.0, 0.0, 1.0, (predicted,), ())


def test_errors_leave_out_videos_without_repetitions() -> None:
    seeds = [
        [row("a", 4, 5.4), row("b", 0, 3.0), row("c", 10, 7.0)],
        [row("a", 4, 4.0), row("b", 0, 0.0), row("c", 10, 10.0)],
    ]
    np.testing.assert_allclose(relative_errors(seeds), [[0.25, 0.3], [0.0, 0.0]])


def test_a_clear_difference_is_decided_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    reference = rng.uniform(0, 0.4, (3, 200))
    worse = reference + 0.1 + rng.normal(0, 0.02, (3, 200))
    assert compare(worse, reference, paper=+0.05).verdict == "confirmed"
    assert compare(worse, reference, paper=-0.05).verdict == "contradicted"
    assert compare(worse, reference, paper=0.0).verdict == "undecided"
    assert compare(worse, reference, paper=None).verdict == "undecided"
    noise = rng.permuted(reference, axis=1)
    same = compare(noise, reference, paper=+0.05)
    assert same.verdict == "undecided"
    assert same.low < 0 < same.high


def test_an_interval_over_three_seeds_holds_the_truth_as_often_as_it_says() -> None:
    """Drawing three seeds again, with replacement, held it three times in four."""
    rng = np.random.default_rng(0)
    held = {"own": 0, "together": 0, "paired": 0}
    for _ in range(400):
        rows = [0.4 + rng.normal(0, 0.05, (3, 1)) + rng.normal(0, 0.2, (1, 80)) for _ in range(2)]
        others = [0.4 + rng.normal(0, 0.05, (3, 1)) + np.zeros((1, 80)) for _ in range(8)]
        spread = SeedSpread.over([*rows, *others])
        held["own"] += compare(rows[0], rows[1], paper=1.0).verdict == "undecided"
        held["together"] += compare(rows[0], rows[1], paper=1.0, spread=spread).verdict == "undecided"
        changed = rows[0] + rng.normal(0, 0.05, (3, 1))
        held["paired"] += compare(changed, rows[0], paper=1.0, paired=True).verdict == "undecided"
    assert all(0.92 <= share / 400 <= 0.995 for share in held.values()), held


def test_one_seed_decides_nothing() -> None:
    errors = np.random.default_rng(0).uniform(0, 0.4, (1, 200))
    alone = compare(errors + 0.2, errors, paper=1.0)
    assert alone.verdict == "undecided" and alone.low == -np.inf
    assert compare(errors + 0.2, errors, paper=1.0, spread=SeedSpread(0.01, 20)).verdict == "confirmed"


def test_seeds_that_disagree_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    errors = rng.uniform(0, 0.4, (3, 300))
    agreeing = interval(errors)
    apart = interval(errors + np.array([[-0.15], [0.0], [0.15]]))
    assert apart[0] == pytest.approx(agreeing[0])
    assert apart[2] - apart[1] > 3 * (agreeing[2] - agreeing[1])
