"""Sliding windows over a video, K time shifts, and stitching the windows' maps by coverage.

Two ways to sample a window:
- frames: every n-th raw frame (the paper: 64 raw frames sampled every 4, at any frame rate);
- seconds: at a fixed rate in time, so that a motion filmed at 24 and at 60 frames a second looks the same.

Both number their samples 0, 1, 2 … from the first; a window is a start and a size in samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Samples start .. start + size - 1; the first `real` of them exist, the rest is padding."""

    start: int
    size: int
    real: int

    @property
    def share(self) -> float:
        """How much of the window is video, 0..1."""
        return self.real / self.size


@dataclass(frozen=True)
class FrameSampling:
    """Every `every`-th raw frame, starting with frame 0."""

    every: int = 4

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"got every={self.every}; sampling takes every n-th frame with n ≥ 1")

    def samples(self, frames: int) -> int:
        """How many samples a video of so many frames has."""
        return -(-frames // self.every)

    def frames(self, window: Window) -> npt.NDArray[np.int64]:
        """Raw frame of every sample of a window; padding repeats the last real one."""
        index = np.arange(window.start, window.start + window.size)
        return np.minimum(index, window.start + max(window.real, 1) - 1) * self.every


@dataclass(frozen=True)
class TimeSampling:
    """`rate` samples a second, starting at `start` seconds."""

    rate: float
    start: float = 0.0

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ValueError(f"got a rate of {self.rate}; samples a second must be above 0")

    def samples(self, end: float) -> int:
        """How many samples lie in start <= time < end."""
        return max(0, int(np.ceil((end - self.start) * self.rate - 1e-9)))

    def times(self, window: Window) -> Array:
        """Seconds of every sample of a window; padding repeats the last real one."""
        index = np.arange(window.start, window.start + window.size)
        return self.start + np.minimum(index, window.start + max(window.real, 1) - 1) / self.rate


def windows(samples: int, *, size: int, stride: int | None = None, first: int = 0) -> Iterator[Window]:
    """Windows from sample `first` on until every sample is covered; the last may hold padding.

    stride: samples from one window to the next, `size` (no overlap) unless said.
    """
    stride = size if stride is None else stride
    if size < 1 or not 1 <= stride <= size or first < 0:
        raise ValueError(f"got size {size}, stride {stride}, first {first}; need 1 ≤ stride ≤ size, first ≥ 0")
    start = first
    while start < samples:
        yield Window(start, size, min(size, samples - start))
        if start + size >= samples:
            return
        start += stride


def shift_starts(size: int, shifts: int, *, multiple: int = 1) -> list[int]:
    """Starts of the K time-shifted sequences of section 3.3, in samples: evenly over one window.

    multiple: samples a cell of the map lasts; starts are rounded down to it so that the maps align.
    """
    if shifts < 1 or size // multiple < shifts:
        raise ValueError(f"got {shifts} shifts of a window of {size // multiple} cells; need 1 to that many")
    return [k * (size // multiple) // shifts * multiple for k in range(shifts)]


class Stitcher:
    """Averages overlapping maps by how many of them cover a cell; fed piece by piece.

    Holds two numbers a cell, so hours of video fit. Cells outside 0 .. cells - 1 (a padded tail) are dropped.

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

    def result(self, *, maps: int | None = None) -> Array:
        """The mean of every cell over the maps that cover it; 0 where none does.

        maps: divide by this number everywhere instead, as the released code does: cells that fewer maps cover
        then count less.
        """
        if maps is not None:
            return self._sum / maps
        return np.divide(self._sum, self._cover, out=np.zeros_like(self._sum), where=self._cover > 0)


def triangle(size: int) -> Array:
    """Weights that fall linearly from a window's middle to its ends, all above 0, largest 1 or just below."""
    place = np.arange(size) + 0.5
    weights: Array = np.minimum(place, size - place) / (size / 2)
    return weights
