"""Results by group (figure 6): by count, by length of a repetition, by duration, by action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from escounts.metrics import mae, obo, obz, rmse
from escounts.training.predictions import Prediction

SIZES = ("XS", "S", "M", "L", "XL")
LENGTH_EDGES = (0.96, 1.53, 2.29, 3.09)
"""Seconds of a repetition between the paper's groups on RepCount."""
DURATION_EDGES = (11.0, 26.0, 33.9, 45.9)
"""Seconds of a video between the paper's groups on RepCount."""

Value = Callable[[Prediction], float]


@dataclass(frozen=True)
class GroupResult:
    """Metrics of one group: videos is how many are in it; MAE is nan where every true count is 0."""

    name: str
    videos: int
    rmse: float
    mae: float
    obz: float
    obo: float


def score(name: str, rows: Sequence[Prediction]) -> GroupResult:
    """All four metrics of some videos."""
    if not rows:
        nan = float("nan")
        return GroupResult(name, 0, nan, nan, nan, nan)
    truth = np.array([row.count for row in rows], dtype=np.float64)
    counted = np.array([row.predicted for row in rows], dtype=np.float64)
    relative = mae(truth, counted) if (truth > 0).any() else float("nan")
    return GroupResult(name, len(rows), rmse(truth, counted), relative, obz(truth, counted), obo(truth, counted))


def by_edges(rows: Sequence[Prediction], value: Value, edges: Sequence[float], unit: str) -> list[GroupResult]:
    """Groups between fixed edges, smallest first; a value on an edge falls in the lower group."""
    bounds = [float("-inf"), *edges, float("inf")]
    names = SIZES if len(edges) + 1 == len(SIZES) else tuple(str(i + 1) for i in range(len(edges) + 1))
    results = []
    for name, low, high in zip(names, bounds[:-1], bounds[1:], strict=True):
        members = [row for row in rows if low < value(row) <= high]
        results.append(score(f"{name} {_between(low, high, unit)}", members))
    return results


def by_equal_size(rows: Sequence[Prediction], value: Value, groups: int = 5, unit: str = "") -> list[GroupResult]:
    """Groups of about equal size; videos of one value stay together."""
    values = np.sort([value(row) for row in rows])
    edges = np.unique(np.quantile(values, np.arange(1, groups) / groups, method="lower"))
    return by_edges(rows, value, [float(edge) for edge in edges if edge < values[-1]], unit)


def by_count(rows: Sequence[Prediction], groups: int = 5) -> list[GroupResult]:
    """By the true number of repetitions, equally sized groups (the paper does not state its edges)."""
    return by_equal_size(rows, lambda row: float(row.count), groups)


def by_repetition_length(rows: Sequence[Prediction], *, paper: bool = True) -> list[GroupResult]:
    """By the mean length of a repetition; videos without repetitions have none and are left out."""
    known = [row for row in rows if row.repetition_length > 0]
    if paper:
        return by_edges(known, lambda row: row.repetition_length, LENGTH_EDGES, "s")
    return by_equal_size(known, lambda row: row.repetition_length, unit="s")


def by_duration(rows: Sequence[Prediction], *, paper: bool = True) -> list[GroupResult]:
    """By the duration of the video."""
    if paper:
        return by_edges(rows, lambda row: row.duration, DURATION_EDGES, "s")
    return by_equal_size(rows, lambda row: row.duration, unit="s")


def by_action(rows: Sequence[Prediction]) -> list[GroupResult]:
    """By action class, in alphabetical order."""
    actions = sorted({row.action for row in rows})
    return [score(action or "not labelled", [r for r in rows if r.action == action]) for action in actions]


def _between(low: float, high: float, unit: str) -> str:
    unit = f" {unit}" if unit else ""
    if low == float("-inf"):
        return f"≤ {high:g}{unit}"
    return f"> {low:g}{unit}" if high == float("inf") else f"{low:g}–{high:g}{unit}"
