"""Sets: repetitions of one motion, done without a longer pause. What the timeline of a workout is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np

from escounts.decision.repetitions import Repetition
from escounts.decision.rules import RULES


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
