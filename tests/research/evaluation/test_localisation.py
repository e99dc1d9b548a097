"""The appendix's Jaccard index by hand."""

from __future__ import annotations

import numpy as np
import pytest

from escounts.research.evaluation.report import THRESHOLDS, jaccard, localise, threshold
from escounts.results import DensityMap

#        cell  0    1    2    3    4    5    6    7    8    9
VALUES = [0.0, 1.0, 0.0, 0.6, 0.0, 0.5, 0.0, 0.2, 0.0, 0.0]
SPANS = [(0.0, 4.0), (8.0, 10.0)]


def density(values: list[float], step: float = 1.0) -> DensityMap:
    return DensityMap(np.array(values, np.float32), 0.0, step)


def test_by_hand() -> None:
    # θ = 0.1: peaks at 1.5 and 3.5 are in one repetition, counted once; 5.5 and 7.5 are wrong; the second is missed.
    assert jaccard(density(VALUES), SPANS, 0.1) == pytest.approx(1 / (1 + 2 + 1))
    assert jaccard(density(VALUES), SPANS, 0.4) == pytest.approx(1 / (1 + 1 + 1))
    assert jaccard(density(VALUES), SPANS, 0.9) == pytest.approx(1 / (1 + 0 + 1))


def test_times_are_seconds() -> None:
    assert jaccard(density([0.0, 1.0, 0.0], step=10.0), [(14.0, 16.0)], 0.5) == 1.0
    assert jaccard(density([0.0, 1.0, 0.0], step=10.0), [(1.0, 2.0)], 0.5) == 0.0


def test_threshold_is_a_share_of_the_range() -> None:
    assert threshold([2.0, 4.0, 3.0], 0.5) == pytest.approx(1.0)  # literally θ (max − min)


def test_nothing_to_find() -> None:
    assert jaccard(density([0.0] * 5), [], 0.5) == 1.0
    assert jaccard(density(VALUES), [], 0.5) == 0.0
    assert jaccard(density([0.0] * 5), SPANS, 0.5) == 0.0


def test_table_row() -> None:
    videos = [(density(VALUES), SPANS), (density([0.0, 1.0, 0.0, 0.0]), [(1.0, 2.0)])]
    at_threshold, average = localise(videos)
    assert tuple(at_threshold) == THRESHOLDS and len(at_threshold) == 9
    assert at_threshold[THRESHOLDS[0]] == pytest.approx((1 / 4 + 1) / 2)
    assert average.value == pytest.approx(np.mean(list(at_threshold.values())))
    assert average.low <= average.value <= average.high
    with pytest.raises(ValueError, match="no videos"):
        localise([])
