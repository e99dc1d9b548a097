"""Windows over a video's sampled frames, K time shifts of them, and stitching their maps by coverage.

Frames are sampled by `Video.frames` (every n-th, or at a rate); a window is `size` samples in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from escounts.system.arrays import Array, Image

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
