"""What changes from one picture to the next: whether anything moves, how often a picture is a new one, where a film
was cut.

A codec refreshes a photograph at every key frame, and a network that looks for returning change may take that for a
rhythm. But compression changes the brightest details of a picture by a few levels only; a motion uncovers something
else. Measured over half a second on 128 × 128 pixels: what the most changed thousandth of the pixels changes by at
least is up to 29 levels in 70 photographs through seven codec settings (15 in dark ones), and 61 or more half of the
time in each of 134 real clips that repeat. The first pictures of a stream are coarser, until the encoder has found
its rate: mpeg4 changes small photographs by 35 to 51 levels once, half a second after the start.

Nothing repeats across a cut: there everything changes at once, and much more than before and after. A clip that is
shown a second time, as looped videos are, would else be one long repetition that comes twice, and a set that follows
another one at another place its continuation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from escounts.counting.views import BASE_RATE, View, ViewEncoder, Window
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
        self._changes.append(_change(self._last, image, every=2))
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


def _change(before: Image | None, after: Image, *, every: int) -> float:
    """Mean difference in levels, of every second (or n-th) pixel each way; a still costs nothing."""
    if before is None or before is after:
        return 0.0
    return float(np.abs(after[::every, ::every, 1].astype(np.int16) - before[::every, ::every, 1]).mean())


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


GRID = 12
"""Base frames: a scene begins where a cell of every view does, at most 0.2 s from the cut."""
SHORTEST = round(RULES.shortest_scene * BASE_RATE)
"""Frames of a scene."""


def by_scenes(images: Iterable[Image], known: Collection[int] = ()) -> Iterator[tuple[Image, bool]]:
    """Every image, (S, S, 3) RGB at the base rate, and whether a scene begins with it, as one does with the first.

    Images come SHORTEST later than they are read. known: frames that scenes begin with, where they were looked for.
    """
    if known:
        begins = frozenset(known)
        yield from ((image, frame in begins) for frame, image in enumerate(images))
        return
    waiting: deque[Image] = deque()
    begin, given = 0, 0  # first frame of the present scene, and frames handed out
    changes: list[float] = []  # of frame `oldest` and those after it
    oldest = 0
    for read, image in enumerate(images, 1):
        changes.append(_change(waiting[-1], image, every=4) if waiting else 0.0)
        waiting.append(image)
        at = read - SHORTEST - GRID  # a frame that has more than a scene after it, wherever the grid puts its begin
        if at > 0 and _is_cut(changes, at - oldest) and on_grid(at) - begin >= SHORTEST:
            begin = on_grid(at)
        while given < at - GRID:
            yield waiting.popleft(), given == begin
            given += 1
        del changes[: max(0, at - SHORTEST - oldest)]
        oldest = max(oldest, at - SHORTEST)
    for image in waiting:
        yield image, given == begin
        given += 1


def on_grid(frame: int) -> int:
    """The frame nearest to this one at which every view has a cell."""
    return GRID * round(frame / GRID)


def cuts_within(begins: Iterable[int], first: int, last: int) -> list[int]:
    """The begins of scenes between two frames; not one just at either of them, where the grid may have put it."""
    return [frame for frame in begins if first + GRID / 2 < frame < last - GRID / 2]


def _is_cut(changes: list[float], at: int) -> bool:
    if changes[at] < RULES.cut_levels:
        return False
    around = _largest(changes, at, round(RULES.cut_around * BASE_RATE))
    if around < RULES.cut_still:
        around = _largest(changes, at, SHORTEST)
    return changes[at] >= RULES.cut_times * (1 + around)


def _largest(changes: list[float], at: int, reach: int) -> float:
    """The largest change of so many frames before and after one."""
    return max(changes[max(0, at - reach) : at] + changes[at + 1 : at + 1 + reach], default=0.0)


def encode_scenes(
    images: Iterable[tuple[Image, bool]], views: Sequence[View], encoder: Callable[[View], ViewEncoder]
) -> tuple[dict[View, list[Window]], list[int], int]:
    """The views of a video encoded scene by scene, so that no window reaches over a cut: the windows of each by cells
    of the whole video, the frames that scenes begin with, and how many frames there are.

    images: see `by_scenes`. encoder: makes the encoder of a view, anew for each scene.
    """
    assert not any(GRID % view.divisor for view in views), "scenes begin where every view has a cell"
    windows: dict[View, list[Window]] = {view: [] for view in views}
    encoders: list[ViewEncoder] = []
    scenes: list[int] = []
    frames = 0

    def end_scene() -> None:
        for each in encoders:
            each.finish()
        for each in encoders:
            before = scenes[-1] // each.view.divisor
            windows[each.view] += [replace(one, start=one.start + before) for one in each.windows]

    for image, begins in images:
        if begins:
            end_scene()
            scenes.append(frames)
            encoders = [encoder(view) for view in views]
        for each in encoders:
            each.push(image)
        frames += 1
    end_scene()
    return windows, scenes, frames
