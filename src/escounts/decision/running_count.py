"""Live counting: a count that never goes back, from estimates that may, and the events that tell of it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from escounts.decision.repetitions import DensityMap, Repetition, next_one
from escounts.decision.rules import RULES
from escounts.decision.units import counted_so_far, rest_factor, whole
from escounts.system.arrays import Array

EventKind = Literal["repetition", "update", "gap", "exemplar", "end"]


@dataclass(frozen=True)
class LiveEvent:
    """Something that happened while watching; times in seconds since the source was opened.

    kind: "repetition" one more is counted; "update" none is; "gap" nothing was seen from start to end;
    "exemplar" repetitions above `count` are void, those that are counted anew follow; "end" the source is over.
    time: how far the source has been seen. open: share of the repetition that is going on, 0..1. rate: repetitions
    a second, now. start, end: of the repetition, the gap or the exemplar. delay: seconds from the repetition's end to
    this event. dropped: frames that came too fast to be looked at, in all.
    """

    kind: EventKind
    time: float
    count: int
    open: float
    rate: float
    confidence: float
    start: float | None = None
    end: float | None = None
    delay: float | None = None
    dropped: int = 0
    reason: str | None = None


class RunningCount:
    """Follows the estimates of a video that goes on. What they have held for a while is counted.

    An estimate that holds fewer than were counted takes none back: the next ones are not counted until it holds more.
    """

    def __init__(self) -> None:
        self.count = 0
        self.open = 0.0
        """Share of the repetition that is going on, 0..1."""
        self._final = 0.0  # repetitions before the estimate's first cell
        self._last_end = 0.0
        self._recent: deque[Repetition] = deque()  # counted, and of what is still remembered
        self._before = (0, 0.0)  # how many were counted before these, and the end of the last one
        self._held: deque[tuple[float, int]] = deque()  # by the estimates before, and until when they saw

    def update(self, density: DensityMap, *, over: bool = False) -> list[Repetition]:
        """The repetitions that an estimate adds. over: nothing more will come, and what is left over is rounded."""
        running = self._final + np.concatenate([[0.0], np.cumsum(density.values, dtype=np.float64)])
        total = float(running[-1])
        held = counted_so_far(total)
        if over:
            held = whole(total if self._final else total * rest_factor(density.values))
        sure = held if over else min([held, *self._held_before(density.end)])
        self._held.append((density.end, held))
        found = self._count_up_to(sure, running, density)
        self.open = min(1.0, max(0.0, total - self.count))
        return found

    def make_final(self, density: DensityMap, cells: int) -> None:
        """The first cells of this estimate will not be estimated again."""
        self._final += float(density.values[:cells].sum(dtype=np.float64))
        self._forget(density.start + cells * density.step)

    def close(self) -> None:
        """What follows is estimated apart: it begins with the count as it is."""
        self._final, self.open = float(self.count), 0.0
        self._held.clear()
        self._forget(math.inf)

    def restart(self, density: DensityMap) -> list[Repetition]:
        """Count what is remembered anew: the estimate means something else from now on. All repetitions in it.

        Those that lie before it (half of them, or more) stay as they are; the first new one begins where the last of
        these ends.
        """
        self._forget(density.start)
        self.count, self._last_end = self._before
        self._recent.clear()
        self._held.clear()
        values = density.values.astype(np.float64)
        first = min(max(0, round((self._last_end - density.start) / density.step)), len(values))
        self._final = self.count - float(values[:first].sum())
        running = self._final + np.concatenate([[0.0], np.cumsum(values)])
        total = float(running[-1])
        found = self._count_up_to(counted_so_far(total), running, density)
        self.open = min(1.0, max(0.0, total - self.count))
        return found

    def _count_up_to(self, number: int, running: Array, density: DensityMap) -> list[Repetition]:
        found = []
        while self.count < number:
            found.append(next_one(running, self.count, density, self._last_end))
            self._last_end = found[-1].end
            self.count += 1
        self._recent.extend(found)
        return found

    def _forget(self, start: float) -> None:
        """Nothing before this time is counted again."""
        while self._recent and self._recent[0].start + self._recent[0].end < 2 * start:
            self._before = (self._before[0] + 1, self._recent.popleft().end)

    def _held_before(self, now: float) -> list[int]:
        """What the estimates of the last RULES.agree_seconds seconds held, from the first one before that on."""
        while len(self._held) > 1 and self._held[1][0] <= now - RULES.agree_seconds:
            self._held.popleft()
        began = bool(self._held) and self._held[0][0] <= now - RULES.agree_seconds
        return [held for _, held in self._held] if began else [self.count]
