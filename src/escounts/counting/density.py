"""Repetition times to density maps (eq. 1). `DensityMap.repetitions` (results.py) is the way back.

Times in seconds (any unit will do, as long as spans, step and start share it). A map has `cells` cells of
`step` seconds, the first beginning at `start`; its values sum to the number of repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from escounts.system.arrays import Array, IntArray

Span: TypeAlias = tuple[float, float]
Sigma: TypeAlias = float | Literal["variable"]

KAPPA = 0.25
"""Width of a "variable" bump: sigma is this share of the repetition's length (Table 3e names no value)."""


def density_map(
    spans: Iterable[Span],
    *,
    cells: int,
    step: float,
    start: float = 0.0,
    sigma: Sigma = 0.5,
    kappa: float = KAPPA,
    outside: Literal["drop", "keep"] = "drop",
) -> Array:
    """Eq. 1: one bump of mass 1 at the middle of every repetition, (cells,).

    sigma: width in cells; 0 puts all mass in one cell; "variable" makes it kappa times the length of the
    repetition. Bumps add up, and mass that would fall over the border is mirrored back, so the sum is the
    number of repetitions. outside: a repetition whose middle lies outside the map is left out (a stretch of a
    video), or kept in the nearest cell (a whole video whose annotation runs past its end).
    """
    values = np.zeros(cells)
    for low, high in check_spans(spans):
        middle = ((low + high) / 2 - start) / step
        if outside == "keep":
            middle = min(max(middle, 0.0), math.nextafter(cells, 0))
        if not 0 <= middle < cells:
            continue
        width = kappa * (high - low) / step if sigma == "variable" else sigma
        index, mass = bump(middle, width)
        np.add.at(values, mirrored(index, cells), mass)
    return values


def rate_map(spans: Iterable[Span], *, cells: int, step: float, start: float = 0.0) -> Array:
    """Repetitions per cell when each is spread evenly over its span, (cells,).

    Exact: the share of a repetition that overlaps a cell. A repetition cut by the map's border counts with
    the share inside. One without length counts in the cell it lies in.
    """
    pairs = np.array(check_spans(spans), dtype=np.float64).reshape(-1, 2)
    edges = start + np.arange(cells + 1) * step
    length = np.maximum(pairs[:, 1] - pairs[:, 0], 1e-9 * step)
    done = np.clip((edges[:, None] - pairs[None, :, 0]) / length[None], 0.0, 1.0).sum(1)
    return np.diff(done)


def period_map(spans: Iterable[Span], *, cells: int, step: float, start: float = 0.0) -> Array:
    """Length in cells of the repetition that covers a cell's middle, 0 outside repetitions, (cells,)."""
    values = np.zeros(cells)
    for low, high in check_spans(spans):
        first, last = (math.ceil((t - start) / step - 0.5) for t in (low, high))
        values[max(first, 0) : max(last, 0)] = (high - low) / step
    return values


def pseudo_spans(count: int, start: float, end: float) -> list[Span]:
    """Pseudo-labels where only a count is known: `count` equal repetitions between start and end."""
    if count < 0 or not 0 <= start <= end:
        raise ValueError(f"got {count} repetitions from {start} to {end}; count must be ≥ 0 and 0 ≤ start ≤ end")
    edges = np.linspace(start, end, count + 1).tolist()
    return list(pairwise(edges))


def check_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans as floats; raises ValueError that names the first one that is not a stretch of time."""
    checked = []
    for number, (low, high) in enumerate(spans, start=1):
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"repetition {number} runs from {low} to {high}: both must be finite numbers")
        if low < 0:
            raise ValueError(f"repetition {number} starts at {low}: a time cannot be negative")
        if high < low:
            raise ValueError(f"repetition {number} ends at {high}, before its start at {low}")
        checked.append((float(low), float(high)))
    return checked


def bump(middle: float, sigma: float) -> tuple[IntArray, Array]:
    """Cells and masses (summing to 1) of a Gaussian at `middle` (in cells; cell i spans i to i + 1)."""
    cell = math.floor(middle)
    if sigma <= 0:
        return np.array([cell]), np.ones(1)
    reach = max(1, int(4 * sigma + 0.5))
    index = np.arange(cell - reach, cell + reach + 1)
    energy = ((index + 0.5 - middle) / sigma) ** 2 / 2
    mass = np.exp(energy.min() - energy)
    return index, mass / mass.sum()


def mirrored(index: IntArray, cells: int) -> IntArray:
    """Cells beyond a border folded back into the map, as often as needed."""
    index = index % (2 * cells)
    return np.where(index < cells, index, 2 * cells - 1 - index)
