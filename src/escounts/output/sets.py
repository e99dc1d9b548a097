"""Sets as text: one sentence, and a table."""

from __future__ import annotations

from collections.abc import Sequence

from escounts.decision.sets import RepetitionSet
from escounts.output.text import clock

MUCH = 0.1
"""Share by which the last set's tempo differs from the first's of the same motion before it is spoken of."""

SHORT_REST = 1.0
"""Seconds from which rests are spoken of: across a cut there is none."""


def in_words(sets: Sequence[RepetitionSet]) -> str:
    """`3 sets: 8, 8, 6; rests 45 s and 52 s; the last set 20 % slower`; counts with letters where motions differ."""
    if not sets:
        return "no sets"
    several = len({one.motion for one in sets}) > 1
    counts = ", ".join(f"{one.count} {one.motion}" if several else str(one.count) for one in sets)
    said = [f"{len(sets)} {'set' if len(sets) == 1 else 'sets'}: {counts}"]
    waited = [one.rest_before for one in sets if one.rest_before is not None]
    rests = [f"{seconds:.0f} s" for seconds in waited]
    if max(waited, default=0.0) >= SHORT_REST:
        noun = "rest" if len(rests) == 1 else "rests"
        said.append(f"{noun} {_listed(rests)}")
    change = _change(sets)
    if abs(change) >= MUCH:
        said.append(f"the last set {abs(change):.0%} {'slower' if change > 0 else 'faster'}".replace("%", " %"))
    return "; ".join(said)


def rows(sets: Sequence[RepetitionSet]) -> list[tuple[str, ...]]:
    """A heading and one row per set: number, motion, count, times, rest before it, seconds per repetition."""
    found: list[tuple[str, ...]] = [("set", "motion", "count", "from", "to", "rest before", "s per repetition")]
    for number, one in enumerate(sets, 1):
        rest = "" if one.rest_before is None else f"{one.rest_before:.1f} s"
        tempo = f"{one.tempo:.2f} ± {one.spread:.2f}"
        found.append((str(number), one.motion, str(one.count), clock(one.start), clock(one.end), rest, tempo))
    return found


def lines(sets: Sequence[RepetitionSet]) -> list[str]:
    """The sentence, and the table in columns."""
    if not sets:
        return [f"  {in_words(sets)}"]
    table = rows(sets)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    body = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return [f"  {in_words(sets)}", *(f"  {line}" for line in body)]


def _change(sets: Sequence[RepetitionSet]) -> float:
    """By what share the last set's repetitions take longer than those of the first set of its motion."""
    first = next(one for one in sets if one.motion == sets[-1].motion)
    return sets[-1].tempo / first.tempo - 1 if first.tempo > 0 else 0.0


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
