"""Repetitions and the map they are taken from, every way in which their borders are moved afterwards, and sets: what
the timeline of a workout is made of.

`spans.py` finds where the repetitions of a map lie. A person may then put a border elsewhere, or count in another
unit; live, each repetition is found as the running sum passes the next whole number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from string import ascii_uppercase
from typing import Literal, NamedTuple

import numpy as np

from escounts.decision.rules import RULES
from escounts.decision.spans import align, spans_from_peaks, spans_from_rate
from escounts.decision.units import whole
from escounts.system.arrays import Array, Array32

DensityKind = Literal["peaks", "rate"]


@dataclass(frozen=True)
class Repetition:
    """One repetition: start and end in seconds; score in 0..1: how much speaks for it, None where a model says
    nothing of single repetitions."""

    start: float
    end: float
    score: float | None = None


@dataclass(frozen=True, repr=False)
class DensityMap:
    """Repetitions per cell over time; the sum is the count.

    values: one float per cell. start: time of the left edge of cell 0. step: seconds a cell lasts.
    kind: "peaks" has one bump per repetition (the paper's map), "rate" is 1/period inside repetitions.
    """

    values: Array32
    start: float
    step: float
    kind: DensityKind = "peaks"

    @property
    def times(self) -> Array:
        """Centre of every cell, in seconds."""
        centres = np.arange(len(self.values), dtype=np.float64) + 0.5
        return np.asarray(self.start + centres * self.step, dtype=np.float64)

    @property
    def end(self) -> float:
        """Time of the right edge of the last cell."""
        return self.start + len(self.values) * self.step

    @property
    def count(self) -> float:
        """The real-valued count: the sum of the map."""
        return float(self.values.sum(dtype=np.float64))

    @property
    def period(self) -> float:
        """Mean seconds of a repetition where there are any; 0 where there is none."""
        return self.step * float((self.values > 0).sum()) / self.count if self.count > 0 else 0.0

    def __repr__(self) -> str:
        return f"<DensityMap {self.kind}, {len(self.values)} cells of {self.step:.3g} s, sum {self.count:.2f}>"

    def repetitions(self, count: int | None = None, *, anchors: Sequence[float] = ()) -> tuple[Repetition, ...]:
        """Where `count` repetitions lie (None: the map's own count, rounded half to even), in order.

        anchors: seconds at which a repetition is known to begin or end (an exemplar's); they set the phase. A map
        alone says nothing of single repetitions: they have no score. `spans.py` explains the two kinds.
        """
        values = np.asarray(self.values, dtype=np.float64)
        wanted = whole(self.count) if count is None else count
        cells = [(time - self.start) / self.step for time in anchors]
        if self.kind == "rate":
            spans = spans_from_rate(values, wanted, cells)
        else:
            spans = spans_from_peaks(values, wanted)
            if spans and cells:
                spans = align(spans, cells[0])
        return tuple(Repetition(self.start + low * self.step, self.start + high * self.step) for low, high in spans)

    def scaled(self, factor: float) -> DensityMap:
        """The same map in another unit: `factor` repetitions for one."""
        return replace(self, values=self.values * np.float32(factor))


def halves(cycles: Sequence[Repetition]) -> tuple[Repetition, ...]:
    """The two sides of every cycle."""
    found: list[Repetition] = []
    for one in cycles:
        middle = (one.start + one.end) / 2
        found += (replace(one, end=middle), replace(one, start=middle))
    return tuple(found)


def pairs(sides: Sequence[Repetition]) -> tuple[Repetition, ...]:
    """Two sides that follow one another as one cycle; an odd last one stays alone."""
    both = zip_longest(sides[::2], sides[1::2])
    return tuple(replace(first, end=(second or first).end) for first, second in both)


def scored_as(spans: Sequence[tuple[float, float]], before: Sequence[Repetition]) -> tuple[Repetition, ...]:
    """Spans as repetitions; each takes the score of the one before that it shares most time with."""
    found = []
    for start, end in spans:
        most = max(before, key=lambda one: min(one.end, end) - max(one.start, start))
        found.append(Repetition(start, end, most.score))
    return tuple(found)


def with_border_at(
    at: float, density: DensityMap, before: Sequence[Repetition], inside: tuple[float, float]
) -> tuple[Repetition, ...]:
    """As many repetitions as before, all borders moved by one phase, so that one lies at `at`; what is cut off at an
    end of `inside` (first and last second) is shorter."""
    spans = [(one.start, one.end) for one in before]
    low, high = min(spans, key=lambda span: max(span[0] - at, at - span[1]))
    # A border that was dragged out of a stretch has the same phase as one a whole repetition further inside.
    length = max(high - low, 1e-6)
    missing = max(low - at, 0.0) - max(at - high, 0.0)
    anchor = at + math.copysign(math.ceil(abs(missing) / length) * length, missing)
    found = [(one.start, one.end) for one in density.repetitions(len(before), anchors=[anchor])]
    near = min((border for span in found for border in span), key=lambda border: abs(border - at))
    if abs(near - at) < 0.25 * length:
        found = [(at if start == near else start, at if end == near else end) for start, end in found]
    else:  # the density holds too few repetitions at that phase
        found = align(spans, at)
    first, last = inside
    clipped = [(min(max(start, first), last), min(max(end, first), last)) for start, end in found]
    return scored_as(clipped, before)


def next_one(running: Array, number: int, density: DensityMap, after: float) -> Repetition:
    """Live: where the running sum of a map passes from `number` to the next whole number, not before `after`."""
    low = max(int(np.searchsorted(running, number + RULES.trace, side="right")) - 1, 0)
    high = min(int(np.searchsorted(running, number + 1 - RULES.trace, side="left")), len(running) - 1)
    start = max(after, density.start + low * density.step)
    end = max(start, density.start + high * density.step)
    mass = float(running[high] - running[low])
    return Repetition(start, end, float(np.clip(1 - abs(mass - 1), 0.0, 1.0)))


class Stretch(NamedTuple):
    """Seconds start to end show one motion, which is told from the others by its number."""

    start: float
    end: float
    motion: int


@dataclass(frozen=True)
class RepetitionSet:
    """`count` repetitions from start to end, in seconds.

    motion: "A" for the first motion of the video, "B" for the next unlike it, and so on. rest_before: seconds since
    the set before; None for the first. tempo: mean seconds of a repetition; spread: their standard deviation.
    """

    start: float
    end: float
    count: int
    motion: str
    rest_before: float | None
    tempo: float
    spread: float


def into_sets(repetitions: Sequence[Repetition], stretches: Sequence[Stretch] = ()) -> tuple[RepetitionSet, ...]:
    """Repetitions, in order, as sets: one ends with a pause, and where another motion begins.

    stretches: where the video shows which motion; none: all is taken for one. A repetition that lies in none belongs
    to the nearest.
    """
    if not repetitions:
        return ()
    lengths = [one.end - one.start for one in repetitions]
    pause = max(RULES.pause_seconds, RULES.pause_repetitions * float(np.median(lengths)))
    motions = [_motion((one.start + one.end) / 2, stretches) for one in repetitions]
    begins = [0]
    for place in range(1, len(repetitions)):
        rest = repetitions[place].start - repetitions[place - 1].end
        if rest > pause or motions[place] != motions[place - 1]:
            begins.append(place)
    known = list(dict.fromkeys(motions[begin] for begin in begins))
    found: list[RepetitionSet] = []
    for begin, end in zip(begins, [*begins[1:], len(repetitions)], strict=True):
        first, last = repetitions[begin], repetitions[end - 1]
        rest_before = max(0.0, first.start - found[-1].end) if found else None
        name = _letter(known.index(motions[begin]))
        tempo, spread = float(np.mean(lengths[begin:end])), float(np.std(lengths[begin:end]))
        found.append(RepetitionSet(first.start, last.end, end - begin, name, rest_before, tempo, spread))
    return tuple(found)


def typical(repetitions: Sequence[Repetition], one: RepetitionSet) -> Repetition:
    """The repetition of a set that lasts most nearly as long as they do on average, as an exemplar of the set."""
    inside = [repetition for repetition in repetitions if one.start <= repetition.start < one.end]
    return min(inside, key=lambda repetition: abs(repetition.end - repetition.start - one.tempo))


def regrouped(sets: Sequence[RepetitionSet], repetitions: Sequence[Repetition]) -> tuple[RepetitionSet, ...]:
    """Other repetitions of the same video as sets: their motions are those of the sets that were found there."""
    names = list(dict.fromkeys(one.motion for one in sets))
    return into_sets(repetitions, [Stretch(one.start, one.end, names.index(one.motion)) for one in sets])


def _motion(time: float, stretches: Sequence[Stretch]) -> int:
    if not stretches:
        return 0
    return min(stretches, key=lambda one: max(one.start - time, time - one.end, 0.0)).motion


def _letter(number: int) -> str:
    """A … Z, then A2, B2 and so on."""
    lap, place = divmod(number, len(ascii_uppercase))
    return ascii_uppercase[place] + (str(lap + 1) if lap else "")
