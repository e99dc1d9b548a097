"""Where a film was cut: from one picture to the next everything changes at once, and much more than before and after.

Nothing repeats across a cut. A clip that is shown a second time, as looped videos are, would else be one long
repetition that comes twice, and a set that follows another one at another place its continuation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from escounts.counting.views import BASE_RATE, View, ViewEncoder, Window
from escounts.decision.rules import RULES
from escounts.system.arrays import Image

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
        changes.append(_change(waiting[-1], image) if waiting else 0.0)
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


def _change(before: Image, after: Image) -> float:
    """Levels by which pixels differ, on average; a still costs nothing."""
    if before is after:
        return 0.0
    return float(np.abs(after[::4, ::4, 1].astype(np.int16) - before[::4, ::4, 1]).mean())


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


class SceneEncoder:
    """Encodes the views of a video scene by scene: no window reaches over a cut.

    encoder: makes the encoder of a view, anew for each scene.
    """

    def __init__(self, views: Sequence[View], encoder: Callable[[View], ViewEncoder]) -> None:
        assert not any(GRID % view.divisor for view in views), "scenes begin where every view has a cell"
        self._views, self._encoder = views, encoder
        self.frames = 0
        self.begins: list[int] = []
        self._encoders: list[ViewEncoder] = []
        self._windows: dict[View, list[Window]] = {view: [] for view in views}

    def push(self, image: Image, *, begins: bool) -> None:
        """The next base frame. begins: a scene does so with it."""
        if begins:
            self._end_scene()
            self.begins.append(self.frames)
            self._encoders = [self._encoder(view) for view in self._views]
        for encoder in self._encoders:
            encoder.push(image)
        self.frames += 1

    def finish(self) -> dict[View, list[Window]]:
        """The video is over: the windows of every view, by cells of the whole video."""
        self._end_scene()
        return self._windows

    def _end_scene(self) -> None:
        for encoder in self._encoders:
            encoder.finish()
        for encoder in self._encoders:
            before = self.begins[-1] // encoder.view.divisor
            self._windows[encoder.view] += [replace(one, start=one.start + before) for one in encoder.windows]
