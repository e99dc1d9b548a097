"""How good counts are: MAE, RMSE, OBO, OBZ (eqs. 7 to 10), off-by-N, each with a bootstrap interval.

truth and predicted are counts, one per video. Predicted counts are real numbers (sums of density maps); OBO, OBZ
and off-by-N round them half to even, MAE and RMSE are given for both. MAE divides by the true count, so it leaves
out videos whose true count is 0; all other metrics keep them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from escounts.system.arrays import Array

RESAMPLES, LEVEL = 2000, 0.95
VALUES_AT_ONCE = 1 << 22
"""Resampled values held in memory at a time."""


@dataclass(frozen=True)
class Score:
    """A metric over a set of videos. low, high: bootstrap interval. videos: how many it is made of."""

    value: float
    low: float
    high: float
    videos: int
    left_out: int = 0

    def __str__(self) -> str:
        aside = f", {self.left_out} with count 0 left out" if self.left_out else ""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] ({self.videos} videos{aside})"


def rounded_counts(predicted: npt.ArrayLike) -> Array:
    """Counts as whole numbers, half to even."""
    return np.rint(np.asarray(predicted, dtype=np.float64))


def mae(truth: npt.ArrayLike, predicted: npt.ArrayLike, *, rounded: bool = True) -> float:
    """Eq. 7: mean of |c − c̃| / c over videos with c > 0; NaN when there are none."""
    return _mean_of("mae" if rounded else "mae_unrounded", truth, predicted)


def rmse(truth: npt.ArrayLike, predicted: npt.ArrayLike, *, rounded: bool = True) -> float:
    """Eq. 9: root of the mean of (c − c̃)²."""
    return _mean_of("rmse" if rounded else "rmse_unrounded", truth, predicted)


def obo(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Eq. 8: share of videos at most one off."""
    return _mean_of("obo", truth, predicted)


def obz(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Eq. 10: share of videos counted exactly. A true count that is not whole is rounded, too."""
    return _mean_of("obz", truth, predicted)


def off_by(truth: npt.ArrayLike, predicted: npt.ArrayLike, most: int) -> float:
    """Share of videos at most `most` off."""
    true, raw = _counts(truth, predicted)
    near = np.abs(true - rounded_counts(raw)) <= most
    return float(near.mean()) if len(near) else float("nan")


def auc(scores: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Probability that a true case scores higher than a false one, ties counting half; NaN without both kinds."""
    score, true = np.asarray(scores, np.float64), np.asarray(truth, bool)
    if true.all() or not true.any():
        return float("nan")
    apart = score[true][:, None] - score[~true][None]
    return float((apart > 0).mean() + 0.5 * (apart == 0).mean())


def off_by_curve(truth: npt.ArrayLike, predicted: npt.ArrayLike, *, most: int = 10) -> Array:
    """Share of videos at most 0, 1 … `most` off, (most + 1,)."""
    return np.array([off_by(truth, predicted, n) for n in range(most + 1)])


def released_mae(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """MAE as the released code computes it: rounded counts, divided by c + 0.1, no video left out."""
    return _mean_of("released_mae", truth, predicted)


def evaluate(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> dict[str, Score]:
    """All metrics with bootstrap intervals over videos, always the same ones.

    Keys: mae, rmse, obz, obo, mae_unrounded, rmse_unrounded, released_mae.
    """
    true, raw = _counts(truth, predicted)
    return {
        name: bootstrap(values, finish=finish, left_out=len(raw) - len(values))
        for name, (values, finish) in _terms(true, raw).items()
    }


def bootstrap(values: npt.ArrayLike, *, finish: Callable[[Array], Array] = np.asarray, left_out: int = 0) -> Score:
    """The mean of per-video values and its interval at LEVEL; finish: applied to the means (np.sqrt for RMSE)."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) == 0:
        return Score(float("nan"), float("nan"), float("nan"), 0, left_out)
    rng = np.random.default_rng(0)
    at_once = max(1, VALUES_AT_ONCE // len(values))
    means = np.concatenate(
        [
            values[rng.integers(0, len(values), (min(at_once, RESAMPLES - done), len(values)))].mean(1)
            for done in range(0, RESAMPLES, at_once)
        ]
    )
    low, high = np.quantile(finish(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = finish(np.array([values.mean()]))[0]
    return Score(float(value), float(low), float(high), len(values), left_out)


def _terms(true: Array, raw: Array) -> dict[str, tuple[Array, Callable[[Array], Array]]]:
    """Metric → its value for each video, and what is applied to their mean."""
    counted, some = rounded_counts(raw), true > 0
    error, raw_error = np.abs(true - counted), np.abs(true - raw)
    return {
        "mae": (error[some] / true[some], np.asarray),
        "rmse": (error**2, np.sqrt),
        "obz": ((rounded_counts(true) == counted).astype(np.float64), np.asarray),
        "obo": ((error <= 1).astype(np.float64), np.asarray),
        "mae_unrounded": (raw_error[some] / true[some], np.asarray),
        "rmse_unrounded": (raw_error**2, np.sqrt),
        "released_mae": (error / (true + 0.1), np.asarray),
    }


def _mean_of(name: str, truth: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    values, finish = _terms(*_counts(truth, predicted))[name]
    return float(finish(np.array(values.mean()))) if len(values) else float("nan")


def _counts(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> tuple[Array, Array]:
    """Both as float arrays of one length; raises ValueError that says what is wrong with them."""
    true = np.atleast_1d(np.asarray(truth, dtype=np.float64))
    counted = np.atleast_1d(np.asarray(predicted, dtype=np.float64))
    if true.shape != counted.shape or true.ndim != 1:
        raise ValueError(f"got {true.shape} true and {counted.shape} predicted counts; need one of each per video")
    if not (np.isfinite(true).all() and np.isfinite(counted).all()):
        raise ValueError("a count is not a finite number; leave such videos out by name before scoring")
    if (true < 0).any():
        raise ValueError(f"got a true count of {true.min():g}; counts are 0 or more")
    return true, counted
