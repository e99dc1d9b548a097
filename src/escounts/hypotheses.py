"""Which counts are possible: by cycles, by sides of a motion that alternates, or none at all.

A motion of two opposite sides (battle ropes, running on the spot) can be counted by full cycles or by sides; both are
right, and people do both. What is known is said with its probability instead of one bare number.
"""

from __future__ import annotations

import math

from escounts.results import Hypothesis

SIDES = 0.5
"""Of the people who count a motion that alternates, the share who count sides: public labels do about as often."""
LEAST = 0.01
"""Less probable answers are not listed."""

SHORT_EXEMPLAR = 0.45
"""Seconds below which a mark that is a frame off changes an exemplar's length by much …"""
BETWEEN_UNITS = 0.15
"""… and a count this far, in log, from half, once and twice the one without it follows the mark, not the motion …"""
SEEN_WITHOUT, FEW = 0.4, 3.0
"""… if that count is at least this certain, and this large."""

LONG_EXEMPLAR = 0.5
"""Share of what is counted above which a mark leaves no room for another like it, …"""
UNCHECKED = 0.5
"""… so that a count unlike the one without it is the mark's word alone: as likely right as wrong."""


def possible_counts(cycles: float, *, repeats: float, alternates: float) -> tuple[Hypothesis, ...]:
    """What a video may hold, the most useful first.

    cycles: the density's sum. repeats: probability that there is a repetition at all; alternates: that the motion has
    two sides, if there is one. "No repetitions" comes first only where it is the likelier; otherwise the count with
    the least expected relative error does.
    """
    side = SIDES * alternates * repeats
    found = [
        Hypothesis(max(1, round(cycles)), "cycle", round(repeats - side, 4)),
        Hypothesis(max(1, round(2 * cycles)), "side", round(side, 4)),
        Hypothesis(0, None, round(1 - repeats, 4)),
    ]

    def expected_error(answer: Hypothesis) -> float:
        return sum(other.p * abs(answer.count - other.count) / max(1, other.count) for other in found)

    best = found[2] if repeats < 0.5 else min(found[:2], key=expected_error)
    others = sorted((one for one in found if one is not best and one.p >= LEAST), key=lambda one: -one.p)
    return (best, *others)


def unit_certainty(hypotheses: tuple[Hypothesis, ...]) -> float:
    """The most a confidence can be: 1 where one unit is live, else the share of the first among the live ones."""
    live = [one.p for one in hypotheses if one.unit is not None and one.live]
    return live[0] / sum(live) if len(live) > 1 else 1.0


def mark_certainty(counted: float, without: float, *, share: float) -> float:
    """The most a confidence can be beside an exemplar that lasts this share of what is counted.

    Somebody who marks nearly the whole video gets one repetition, and nothing in the video speaks for or against it;
    only where the count without the mark is within one of it do two ways of looking agree.
    """
    return UNCHECKED if share > LONG_EXEMPLAR and abs(counted - without) > 1 else 1.0


def known_unit(counted: float, without: float, *, certainty: float) -> float:
    """The count with a SHORT_EXEMPLAR, put to half, once or twice the count without it where it lies between them.

    certainty: of the count without. A mark that is a frame off makes a repetition of seven frames a seventh longer:
    its length alone must not decide.
    """
    if certainty < SEEN_WITHOUT or without < FEW or counted <= 0:
        return counted
    nearest = min((0.5 * without, without, 2 * without), key=lambda unit: abs(math.log(counted / unit)))
    return nearest if abs(math.log(counted / nearest)) > BETWEEN_UNITS else counted
