"""A video's time cells: density maps of repetitions (eq. 1; `DensityMap.repetitions` is the way back), windows over
sampled frames and K time shifts of them, and stitching their maps by coverage.

Times in seconds (any unit will do, as long as spans, step and start share it). A map has `cells` cells of `step`
seconds, the first beginning at `start`; its values sum to the number of repetitions. Frames are sampled by
`Video.frames` (every n-th, or at a rate); a window is `size` samples in a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, pairwise
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from escounts.system.arrays import Array, Image, IntArray

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


Sample = TypeVar("Sample")


def windows(samples: Iterable[Sample], *, size: int, starts: Sequence[int]) -> Iterator[tuple[int, list[Sample]]]:
    """(sequence, its samples) of every window in order of time, from one pass that holds little more than one.

    starts: where each sequence's first window begins, ascending, all inside one window; a sequence's windows
    follow one another without a gap. The last window of a sequence has the samples that are left.

    >>> list(windows("abcde", size=4, starts=[0, 2]))
    [(0, ['a', 'b', 'c', 'd']), (1, ['c', 'd', 'e']), (0, ['e'])]
    """
    if not starts or sorted(starts) != list(starts) or not 0 <= starts[0] <= starts[-1] < size:
        raise ValueError(f"got starts {list(starts)}; need ascending starts of 0 to {size - 1}, inside one window")
    source = iter(samples)
    held: list[Sample] = []
    first = 0  # place of the first sample that is held
    for turn in count():
        follower, sequence = divmod(turn, len(starts))
        start = starts[sequence] + follower * size
        held.extend(islice(source, start + size - first - len(held)))
        held, first = held[start - first :], start
        if not held:
            return
        yield sequence, held[:size]


def filled(images: Sequence[Image], size: int) -> Image:
    """A window (size, ...) of at most that many images: theirs, then the last one again."""
    return np.stack([*images, *[images[-1]] * (size - len(images))])


def shift_starts(size: int, shifts: int, *, multiple: int = 1) -> list[int]:
    """Starts of the K time-shifted sequences of section 3.3, in samples: evenly over one window.

    multiple: samples per cell of the map lasts; starts are rounded down to it so that the maps align.
    """
    if shifts < 1 or size // multiple < shifts:
        raise ValueError(f"got {shifts} shifts of a window of {size // multiple} cells; need 1 to that many")
    return [k * (size // multiple) // shifts * multiple for k in range(shifts)]


def stretches(cells: int, length: int, hop: int) -> list[tuple[int, int]]:
    """(first, last) cells of overlapping stretches that cover a sequence, `hop` from one to the next; the last one
    ends with it."""
    if cells <= length:
        return [(0, cells)] if cells else []
    starts = [*range(0, cells - length, hop), cells - length]
    return [(start, start + length) for start in starts]


class Stitcher:
    """Averages overlapping maps by how many of them cover a cell; fed piece by piece.

    Holds two numbers per cell, so hours of video fit. Cells outside 0 .. cells - 1 (a padded tail) are dropped.

    >>> stitcher = Stitcher(4)
    >>> stitcher.add([1.0, 1.0, 1.0], 0)
    >>> stitcher.add([3.0, 3.0, 9.0], 2)
    >>> stitcher.result().tolist()
    [1.0, 1.0, 2.0, 3.0]
    """

    def __init__(self, cells: int) -> None:
        if cells < 0:
            raise ValueError(f"got {cells} cells; a map has 0 or more")
        self._sum = np.zeros(cells)
        self._cover = np.zeros(cells)

    def add(self, values: npt.ArrayLike, start: int, weights: npt.ArrayLike | None = None) -> None:
        """Add a map whose first cell is `start` (may be negative). weights: how much each cell counts."""
        values = np.asarray(values, dtype=np.float64)
        weight = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64)
        if weight.shape != values.shape:
            raise ValueError(f"got {values.shape} values and {weight.shape} weights; they must match")
        low, high = max(start, 0), min(start + len(values), len(self._sum))
        if low < high:
            part = slice(low - start, high - start)
            self._sum[low:high] += values[part] * weight[part]
            self._cover[low:high] += weight[part]

    @property
    def coverage(self) -> Array:
        """Summed weight of every cell."""
        return self._cover.copy()

    def result(self) -> Array:
        """The mean of every cell over the maps that cover it; 0 where none does."""
        return np.divide(self._sum, self._cover, out=np.zeros_like(self._sum), where=self._cover > 0)


def triangle(size: int, *, edge: float = 0.5) -> Array:
    """Weights that fall linearly from a window's middle to its ends, all above 0.

    edge: the outermost weight, in steps from one weight to the next; half a step makes the largest 1 or just below.
    """
    place = np.arange(size) + edge
    weights: Array = np.minimum(place, place[::-1]) / (size / 2)
    return weights
