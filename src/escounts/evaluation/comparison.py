"""Is one row better than another? Paired over videos and seeds, with an interval; and what the paper says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from escounts.arrays import Array
from escounts.training.predictions import Prediction, true_counts

Errors = Array
"""(seeds, videos): relative count errors, the terms of MAE; videos whose true count is 0 are left out."""
Verdict = Literal["confirmed", "contradicted", "undecided"]
RESAMPLES = 4000


@dataclass(frozen=True)
class Difference:
    """Ours less the reference's in MAE, with a 95 % interval; verdict: what that says of the paper's order."""

    value: float
    low: float
    high: float
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]: {self.verdict}"


def relative_errors(seeds: Sequence[Sequence[Prediction]]) -> Errors:
    """|c − c̃| / c of every video, rounded counts, one line per seed."""
    lines = []
    for rows in seeds:
        truth, counted = true_counts(rows), np.rint([row.predicted for row in rows])
        some = truth > 0
        lines.append(np.abs(truth[some] - counted[some]) / truth[some])
    return np.stack(lines)


def resampled(errors_SV: Errors, *, seed: int = 0) -> Errors:
    """Means of the errors over seeds and videos drawn again, both with replacement, (RESAMPLES,)."""
    rng = np.random.default_rng(seed)
    seeds, videos = errors_SV.shape
    means = np.empty(RESAMPLES)
    for turn in range(RESAMPLES):
        by_seed = errors_SV[rng.integers(seeds, size=seeds)].mean(0)
        means[turn] = by_seed[rng.integers(videos, size=videos)].mean()
    return means


def interval(errors_SV: Errors) -> tuple[float, float, float]:
    """MAE over all seeds and its 95 % interval over seeds and videos."""
    low, high = np.quantile(resampled(errors_SV), [0.025, 0.975])
    return float(errors_SV.mean()), float(low), float(high)


def compare(row_SV: Errors, reference_SV: Errors, *, paper: float | None) -> Difference:
    """A row against the reference on the same videos. paper: the published difference of the two in MAE.

    The paper's order is confirmed where our interval lies on its side of 0, contradicted where on the other,
    undecided where it holds 0 or the paper sees no difference.
    """
    seeds = min(len(row_SV), len(reference_SV))
    means = resampled(row_SV[:seeds] - reference_SV[:seeds])
    low, high = (float(value) for value in np.quantile(means, [0.025, 0.975]))
    value = float(row_SV.mean() - reference_SV.mean())
    verdict: Verdict = "undecided"
    if paper and (low > 0 or high < 0):
        verdict = "confirmed" if (value > 0) == (paper > 0) else "contradicted"
    return Difference(value, low, high, verdict)
