"""Are the peaks of a map where the repetitions are? Jaccard index at relative thresholds (the paper's appendix).

Peaks above a threshold are kept. A repetition with at least one peak inside is found (TP; further peaks in it
change nothing), one without is missed (FN), a peak in no repetition is wrong (FP): J = TP / (TP + FP + FN).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from escounts.density import find_peaks
from escounts.metrics import Score, bootstrap
from escounts.results import DensityMap

Span: TypeAlias = tuple[float, float]
ThresholdRule: TypeAlias = Literal["paper", "above-minimum"]

THRESHOLDS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class LocalisationScore:
    """Mean Jaccard index over videos at every threshold, and the mean over thresholds with its interval."""

    thresholds: tuple[float, ...]
    at_threshold: tuple[float, ...]
    average: Score


def threshold(values: npt.ArrayLike, theta: float, *, rule: ThresholdRule = "paper") -> float:
    """Height a peak must exceed: θ (max − min) as the paper writes it, or min + θ (max − min)."""
    values = np.asarray(values, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    return theta * (high - low) + (low if rule == "above-minimum" else 0.0)


def jaccard(density: DensityMap, spans: Sequence[Span], theta: float, *, rule: ThresholdRule = "paper") -> float:
    """The index of one video at one threshold, 0..1; 1 when there is nothing to find and nothing is found.

    spans: annotated repetitions in seconds. A peak is at the middle of its cell and inside a repetition when
    start <= time < end.
    """
    if len(density.values) == 0:
        return 0.0 if spans else 1.0
    above = threshold(density.values, theta, rule=rule)
    times = density.times[find_peaks(density.values, above=above)]
    edges = np.array(spans, dtype=np.float64).reshape(-1, 2)
    inside = (times[:, None] >= edges[None, :, 0]) & (times[:, None] < edges[None, :, 1])
    found = int(inside.any(0).sum())
    wrong = int((~inside.any(1)).sum())
    total = len(edges) + wrong
    return found / total if total else 1.0


def localise(
    videos: Iterable[tuple[DensityMap, Sequence[Span]]],
    *,
    thresholds: tuple[float, ...] = THRESHOLDS,
    rule: ThresholdRule = "paper",
    seed: int = 0,
) -> LocalisationScore:
    """The table of the appendix: mean over videos of the index at nine thresholds, and their mean."""
    rows = [[jaccard(density, spans, theta, rule=rule) for theta in thresholds] for density, spans in videos]
    if not rows:
        raise ValueError("got no videos to localise in; give at least one (density map, spans) pair")
    table = np.array(rows)
    return LocalisationScore(
        thresholds=thresholds,
        at_threshold=tuple(table.mean(0).tolist()),
        average=bootstrap(table.mean(1), seed=seed),
    )
