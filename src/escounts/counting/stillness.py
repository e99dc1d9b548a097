"""Whether anything in the picture moves by more than a codec makes of a still one, and how often it is a new picture.

A codec refreshes a photograph at every key frame, and a network that looks for returning change may take that for a
rhythm. But compression changes the brightest details of a picture by a few levels only; a motion uncovers something
else. Measured over half a second on 128 × 128 pixels: what the most changed thousandth of the pixels changes by at
least is up to 29 levels in 70 photographs through seven codec settings (15 in dark ones), and 61 or more half of the
time in each of 134 real clips that repeat. The first pictures of a stream are coarser, until the encoder has found
its rate: mpeg4 changes small photographs by 35 to 51 levels once, half a second after the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from escounts.counting.views import BASE_RATE
from escounts.decision.rules import RULES
from escounts.system.arrays import BoolArray, Image

EVERY = 3
"""Base frames between two looks."""
LAG = 5
"""Looks between the two pictures that are compared: half a second."""
START = 10
"""Looks at the beginning whose pictures may be coarse: what differs from them has moved only if more moves after."""
SLOWEST = 3
"""Base frames per frame of the slowest view that takes a fast one's place."""


class MotionMeter:
    """Takes base frames one by one and says near which of them something moved."""

    def __init__(self) -> None:
        self._seen, self._looked = 0, 0
        self._last: Image | None = None
        self._new, self._most = 0, 0  # pictures unlike the one before: in this second, and in the one that had most
        self._changes: list[float] = []  # of each picture of this second from the one before
        self._weighted = self._weight = 0.0  # of all seconds: different pictures × how much moved, and that alone
        self._looks: deque[Image] = deque(maxlen=LAG + 1)
        self._moved: list[int] = []  # frames at which something had moved since LAG looks before
        self._first: list[int] = []  # the same where the picture before was one of the first

    def push(self, image: Image) -> None:
        """The next base frame, (S, S, 3) RGB."""
        if self._seen % round(BASE_RATE) == 0:
            self._most, self._new = max(self._most, self._new), 0
            pictures, moved = _different(self._changes)
            self._weighted, self._weight = self._weighted + pictures * moved, self._weight + moved
            self._changes = []
        self._new += self._last is None or not (image is self._last or np.array_equal(image, self._last))
        self._changes.append(_change(self._last, image))
        self._last = image
        if self._seen % EVERY == 0:
            self._looks.append(image)
            if len(self._looks) > LAG and has_moved(self._looks[0], image):
                (self._moved if self._looked >= START + LAG else self._first).append(self._seen)
            self._looked += 1
        self._seen += 1

    def forget(self, frames: int) -> None:
        """Count frames from so many later on."""
        first = frames - round(RULES.motion_reach * BASE_RATE)
        self._first, self._moved = (
            [moved - frames for moved in found[bisect_left(found, first) :]] for found in (self._first, self._moved)
        )
        self._seen -= frames

    @property
    def pictures(self) -> float:
        """Different pictures per second, the mean of all seconds weighted by how much moves in each: a still part
        does not count, nor a picture that a codec repeats with its own noise."""
        if self._seen >= BASE_RATE:
            return self._weighted / self._weight if self._weight else BASE_RATE
        return _different(self._changes)[0] * BASE_RATE / max(1, self._seen)

    def divisor(self) -> int:
        """Base frames per frame of a view that misses no picture: 2 where a video of 15 frames per second is read at
        30. By the second in which most is new, so that a still part of a video does not count."""
        whole = self._seen >= BASE_RATE
        rate = max(self._most, self._new) if whole else self._new * BASE_RATE / max(1, self._seen)
        return int(min(SLOWEST, max(1, BASE_RATE // (RULES.same_rate * max(1, rate)))))

    def moving(self, first: int, last: int) -> BoolArray:
        """Of frames first..last, whether something moves near each."""
        reach = round(RULES.motion_reach * BASE_RATE)
        going_on = self._first and self._moved and self._moved[0] <= self._first[-1] + reach
        # A video too short to tell is taken at its word.
        whole = going_on or self._looked <= START + 2 * LAG
        moved = np.array([*(self._first if whole else ()), *self._moved], dtype=np.int64)
        frames = np.arange(first, last)
        # What had moved at a frame moved in the half second before it.
        begin = np.searchsorted(moved, frames - reach)
        end = np.searchsorted(moved, frames + reach + LAG * EVERY, side="right")
        near: BoolArray = end > begin
        return near


def _change(before: Image | None, after: Image) -> float:
    """Mean difference in levels, of every other pixel."""
    if before is None or before is after:
        return 0.0
    return float(np.abs(after[::2, ::2, 1].astype(np.int16) - before[::2, ::2, 1]).mean())


def _different(changes: Sequence[float]) -> tuple[float, float]:
    """How many pictures of a second are different ones (all where the changes are equal, those that stand out where
    most are tiny), and the sum of their changes. The largest may be a cut, beside which every other is tiny: it
    counts as one and adds nothing."""
    *others, largest = sorted(changes) or [0.0]
    moved, squares = sum(others), sum(change**2 for change in others)
    return (1.0 + moved**2 / squares, moved) if squares else (float(largest > 0), largest)


def has_moved(before: Image, after: Image) -> bool:
    """Whether two pictures differ by more than compression makes them."""
    if before is after:
        return False
    one, other = before[..., 1].astype(np.int16), after[..., 1].astype(np.int16)
    change = np.abs(other - one)
    changed = np.count_nonzero(change > RULES.motion_levels + RULES.motion_contrast * _contrast(other[::8, ::8]))
    return bool(changed >= RULES.motion_pixels * change.size)


def _contrast(levels: NDArray[np.int16]) -> float:
    """From the first to the last hundredth of some levels: numpy's percentiles, in a tenth of their time."""
    ordered = np.sort(levels, axis=None).tolist()
    place = 0.01 * (len(ordered) - 1)
    low = int(place)
    share = place - low
    if len(ordered) == 1:
        return 0.0
    first, second, last, before = ordered[low], ordered[low + 1], ordered[-1 - low], ordered[-2 - low]
    return float((last - share * (last - before)) - (first + share * (second - first)))
