"""Where in the picture something repeats: in one place, or in several that are counted by themselves.

What one body does has one rhythm, wherever in the picture its parts are, and whatever they do in it. So each cell of
a coarse grid is compared with itself some time later, at every time and for many lags: the map of these differences
says when the cell returns to an earlier state, and nothing of its phase. Cells of one motion have like maps. A
straight line is looked for that leaves like maps on either side, and unlike ones across; then each side is looked at
in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from escounts.decision.rules import RULES
from escounts.regions import Region
from escounts.system.arrays import Array32, Image

RATE = 10.0
"""Pictures a second: enough for four repetitions a second."""
SIDE = 128
"""Pixels of a side that pictures are squashed to."""
GRID = 8
"""Cells of a side: those that the encoder's frame features have."""
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
NARROWEST = 2
"""Cells of a place's sides at least."""

FrameFeatures = Callable[[Sequence[Image]], Array32]
"""Images (SIDE, SIDE, 3) → features (T, GRID, GRID, C): the model's first look at each."""
Cells = tuple[int, int, int, int]
"""First column and row, and the ones behind the last."""


@dataclass(frozen=True)
class Places:
    """regions: boxes in percent that together are the whole picture; one where it is not divided. travels: something
    goes from one part of the picture to another, so that it was not divided there."""

    regions: tuple[Region, ...]
    travels: bool = False


WHOLE = Region(0.0, 0.0, 100.0, 100.0, percent=True)
"""The place of a video that has no other."""


def find_places(images: Iterable[Image], features: FrameFeatures, *, seconds: float) -> Places:
    """The places of a video, from left to right and from top to bottom.

    Args:
        images: (SIDE, SIDE, 3) RGB, RATE a second.
        features: of the model that counts.
        seconds: how long the video is, about.
    """
    windows = [
        # (difference maps, power of a cell's motion that is its weight) of what the model sees, and of the pixels
        ((_differences(features(window)), RULES.place_seen), (_differences(_blocks(window)), RULES.place_pixels))
        for window in _windows(images, seconds)
    ]
    if not windows:
        return Places((WHOLE,))
    found = [(0, 0, GRID, GRID)]
    travels, done = False, list[Cells]()
    while found:
        box = found.pop()
        parts, moved = _divided(windows, box)
        travels |= moved
        found += parts
        if not parts:
            done.append(box)
    done.sort(key=lambda box: (box[1], box[0]) if _above(done) else (box[0], box[1]))
    cell = 100.0 / GRID
    boxes = [Region(x * cell, y * cell, (right - x) * cell, (low - y) * cell, percent=True) for x, y, right, low in done]
    return Places(tuple(boxes), travels)


def _above(boxes: Sequence[Cells]) -> bool:
    """Whether all places are as wide as the picture, one above the other."""
    return all(box[2] - box[0] == GRID for box in boxes)


def _windows(images: Iterable[Image], seconds: float) -> Iterator[list[Image]]:
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


def _blocks(images: Sequence[Image]) -> Array32:
    """Brightness of blocks of pixels, (T, GRID, GRID, blocks of a cell)."""
    each = SIDE // GRID // BLOCK
    grey = np.stack([image @ np.array([0.299, 0.587, 0.114], np.float32) for image in images])
    means = grey.reshape(len(grey), GRID, each, BLOCK, GRID, each, BLOCK).mean((3, 6))
    return np.asarray(means.transpose(0, 1, 3, 2, 4).reshape(len(grey), GRID, GRID, each * each), np.float32)


def _differences(values_THWC: Array32) -> Array32:
    """How much each cell differs from itself one lag later, squared: (GRID, GRID, T - L, L)."""
    frames = len(values_THWC)
    lags = min(round(LONGEST_LAG * RATE), frames // 2)
    x_NTC = _without_drift(values_THWC).reshape(frames, GRID * GRID, -1).transpose(1, 0, 2)
    squares_NT = (x_NTC * x_NTC).sum(2)
    products_NTT = x_NTC @ x_NTC.transpose(0, 2, 1)
    times, first = np.arange(frames - lags), squares_NT[:, : frames - lags]
    found_NTL = np.empty((GRID * GRID, frames - lags, lags), np.float32)
    for lag in range(1, lags + 1):
        later = squares_NT[:, lag : frames - lags + lag]
        found_NTL[:, :, lag - 1] = first + later - 2.0 * products_NTT[:, times, times + lag]
    return np.maximum(found_NTL, 0.0).reshape(GRID, GRID, frames - lags, lags)


def _without_drift(values: Array32) -> Array32:
    """Minus the mean over DRIFT_SECONDS around each time."""
    frames, half = len(values), round(DRIFT_SECONDS * RATE) // 2
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, 0, dtype=np.float32)])
    low, high = np.clip(np.arange(frames) - half, 0, frames), np.clip(np.arange(frames) + half + 1, 0, frames)
    return np.asarray(values - (sums[high] - sums[low]) / (high - low)[:, None, None, None], np.float32)


Windows = Sequence[tuple[tuple[Array32, float], ...]]


def _divided(windows: Windows, box: Cells) -> tuple[list[Cells], bool]:
    """The two halves of a box between which the rhythm changes most, none where it is one; and whether there would
    be two, but one moves only when the other does not: then something goes from here to there."""
    x, y, right, low = box
    best, halves = 0.0, list[Cells]()
    for axis, least in ((1, RULES.places_beside), (0, RULES.places_above)):
        gains = sum(_gains(windows, box, axis, source) for source in range(2))
        for index, gain in enumerate(np.asarray(gains)[NARROWEST - 1 : 1 - NARROWEST], start=NARROWEST):
            if gain - least > best:
                best = float(gain - least)
                cut = (x + index, low) if axis == 1 else (right, y + index)
                rest = (x + index, y) if axis == 1 else (x, y + index)
                halves = [(x, y, *cut), (*rest, right, low)]
    if not halves:
        return [], False
    moves = [np.concatenate([_inside(maps[0][0], half).mean((0, 1, 3)) for maps in windows]) for half in halves]
    shares = [move / max(float(move.sum()), 1e-9) for move in moves]
    if np.minimum(*shares).sum() < RULES.places_together:
        return [], True
    return halves, False


def _inside(maps: Array32, box: Cells) -> Array32:
    x, y, right, low = box
    return maps[y:low, x:right]


def _gains(windows: Windows, box: Cells, axis: int, source: int) -> Array32:
    """For every line across a box, how much liker its columns' (axis 1; rows': 0) maps are on either side than all
    are to one another: 0 (a line changes nothing) to 1."""
    alike, motion = 0.0, 0.0
    for window in windows:
        lines_KTL = _inside(window[source][0], box).sum(1 - axis)
        mean_KT1 = lines_KTL.mean(2, keepdims=True)
        maps_KN = ((lines_KTL - mean_KT1) / np.sqrt(mean_KT1 + 1e-3)).reshape(len(lines_KTL), -1)
        alike = alike + maps_KN @ maps_KN.T
        motion = motion + mean_KT1.mean((1, 2))
    alike, motion = np.asarray(alike), np.asarray(motion)
    size = np.sqrt(np.diagonal(alike) + 1e-9)
    weight = motion ** windows[0][source][1]
    weight = weight / max(float(weight.sum()), 1e-9)
    common = alike / size / size[:, None] * weight * weight[:, None]

    def likeness(first: int, last: int) -> float:
        part = slice(first, last)
        return float(common[part, part].sum() / max(float(weight[part].sum()), 1e-9))

    count = len(weight)
    whole = likeness(0, count)
    return np.array([likeness(0, k) + likeness(k, count) - whole for k in range(1, count)], np.float32)
