"""How each cell of the picture differs from itself some time later: what repeats returns to what it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from escounts.system.arrays import Array32, Image

RATE = 10.0
"""Pictures a second: enough for four repetitions a second."""
SIDE = 128
"""Pixels of a side that pictures are squashed to."""
BLOCK = 4
"""Pixels of a block whose mean stands for it."""
WINDOW_SECONDS = 20.0
"""Seconds that are compared with one another."""
MOST_WINDOWS = 12
"""Of a longer video so many windows are looked at, evenly spread."""
LONGEST_LAG = 6.0
"""Seconds."""
DRIFT_SECONDS = 5.0
"""What changes more slowly is no repetition: the mean over this time is taken out."""
SHORTEST_SECONDS = 2.0
"""In less, no rhythm is told from another."""


def windows_of(images: Iterable[Image], seconds: float) -> Iterator[list[Image]]:
    """Stretches of WINDOW_SECONDS, the last one shorter; of many, every so many-th."""
    length = round(WINDOW_SECONDS * RATE)
    every = max(1, round(seconds / WINDOW_SECONDS / MOST_WINDOWS))
    held: list[Image] = []
    number = 0
    for image in images:
        held.append(image)
        if len(held) == length:
            if number % every == 0:
                yield held
            held, number = [], number + 1
    if len(held) >= SHORTEST_SECONDS * RATE and (number == 0 or len(held) > length // 2):
        yield held


def blocks(images: Sequence[Image], grid: int) -> Array32:
    """Brightness of blocks of pixels of (SIDE, SIDE, 3) images, (T, grid, grid, blocks of a cell)."""
    each = SIDE // grid // BLOCK
    grey = np.stack([image @ np.array([0.299, 0.587, 0.114], np.float32) for image in images])
    means = grey.reshape(len(grey), grid, each, BLOCK, grid, each, BLOCK).mean((3, 6))
    return np.asarray(means.transpose(0, 1, 3, 2, 4).reshape(len(grey), grid, grid, each * each), np.float32)


def lag_maps(values_THWC: Array32) -> Array32:
    """How much each cell differs from itself one lag later, squared: (H, W, T - L, L); lag l stands at l - 1."""
    frames, high, wide = values_THWC.shape[:3]
    lags = min(round(LONGEST_LAG * RATE), frames // 2)
    x_NTC = _without_drift(values_THWC).reshape(frames, high * wide, -1).transpose(1, 0, 2)
    squares_NT = (x_NTC * x_NTC).sum(2)
    products_NTT = x_NTC @ x_NTC.transpose(0, 2, 1)
    times, first = np.arange(frames - lags), squares_NT[:, : frames - lags]
    found_NTL = np.empty((high * wide, frames - lags, lags), np.float32)
    for lag in range(1, lags + 1):
        later = squares_NT[:, lag : frames - lags + lag]
        found_NTL[:, :, lag - 1] = first + later - 2.0 * products_NTT[:, times, times + lag]
    return np.maximum(found_NTL, 0.0).reshape(high, wide, frames - lags, lags)


def _without_drift(values: Array32) -> Array32:
    """Minus the mean over DRIFT_SECONDS around each time."""
    frames, half = len(values), round(DRIFT_SECONDS * RATE) // 2
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, 0, dtype=np.float32)])
    low, high = np.clip(np.arange(frames) - half, 0, frames), np.clip(np.arange(frames) + half + 1, 0, frames)
    return np.asarray(values - (sums[high] - sums[low]) / (high - low)[:, None, None, None], np.float32)
