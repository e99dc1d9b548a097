"""Eqs. 7 to 10 by hand, and intervals that behave."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escounts.research.metrics import (
    bootstrap,
    evaluate,
    mae,
    obo,
    obz,
    off_by_curve,
    released_mae,
    rmse,
)

TRUTH = [10, 4, 0, 2]
COUNTED = [9.4, 4.5, 1.2, 5.0]  # rounded half to even: 9, 4, 1, 5


def test_by_hand() -> None:
    assert mae(TRUTH, COUNTED) == pytest.approx((1 / 10 + 0 + 3 / 2) / 3)  # the video without repetitions is out
    assert mae(TRUTH, COUNTED, rounded=False) == pytest.approx((0.6 / 10 + 0.5 / 4 + 3 / 2) / 3)
    assert rmse(TRUTH, COUNTED) == pytest.approx(math.sqrt((1 + 0 + 1 + 9) / 4))
    assert rmse(TRUTH, COUNTED, rounded=False) == pytest.approx(math.sqrt((0.36 + 0.25 + 1.44 + 9) / 4))
    assert obo(TRUTH, COUNTED) == 0.75
    assert obz(TRUTH, COUNTED) == 0.25
    assert released_mae(TRUTH, COUNTED) == pytest.approx((1 / 10.1 + 0 + 1 / 0.1 + 3 / 2.1) / 4)
    assert off_by_curve(TRUTH, COUNTED, most=3).tolist() == [0.25, 0.75, 0.75, 1.0]


def test_evaluate_agrees_with_the_single_metrics() -> None:
    scores = evaluate(TRUTH, COUNTED)
    assert scores["mae"].value == pytest.approx(mae(TRUTH, COUNTED))
    assert (scores["mae"].videos, scores["mae"].left_out) == (3, 1)
    assert scores["mae_unrounded"].value == pytest.approx(mae(TRUTH, COUNTED, rounded=False))
    assert scores["rmse"].value == pytest.approx(rmse(TRUTH, COUNTED))
    assert scores["rmse_unrounded"].value == pytest.approx(rmse(TRUTH, COUNTED, rounded=False))
    assert scores["obo"].value == obo(TRUTH, COUNTED)
    assert scores["obz"].value == obz(TRUTH, COUNTED)
    assert scores["released_mae"].value == pytest.approx(released_mae(TRUTH, COUNTED))
    for score in scores.values():
        assert score.low <= score.value <= score.high
    assert evaluate(TRUTH, COUNTED) == scores
    assert "1 with count 0 left out" in str(scores["mae"])


def test_interval_is_that_of_the_mean() -> None:
    """For many values the bootstrap interval is the normal one: mean ± 1.96 standard errors."""
    values = np.random.default_rng(1).normal(3.0, 2.0, size=4000)
    score = bootstrap(values)
    error = 1.96 * values.std() / math.sqrt(len(values))
    assert score.low == pytest.approx(values.mean() - error, abs=0.01)
    assert score.high == pytest.approx(values.mean() + error, abs=0.01)


def test_only_zero_counts() -> None:
    score = evaluate([0, 0], [0.2, 3.0])["mae"]
    assert math.isnan(score.value) and score.videos == 0 and score.left_out == 2
    assert math.isnan(mae([0], [1]))


@pytest.mark.parametrize(
    ("truth", "counted", "message"),
    [([1, 2], [1], "one of each"), ([1], [math.nan], "not a finite number"), ([-1], [1], "true count of -1")],
)
def test_bad_counts_are_named(truth: list[float], counted: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(truth, counted)
