"""Whole counts and their units: sums rounded, cycles or sides, and one unit turned into the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from escounts.decision.rules import RULES
from escounts.system.arrays import Array

Unit = Literal["cycle", "side"]
"""What one repetition is: a full cycle, or one side of a motion that alternates (left, right). A cycle has two."""
UNIT_GIVEN = "unit_given"
"""In the details of a decision: its confidence before the doubt about the unit."""


@dataclass(frozen=True)
class Hypothesis:
    """One answer that a model holds possible: a count, what it counts, and how probable it is (0..1).

    unit: None for "no repetitions", and where a model does not tell cycles from sides.
    """

    count: int
    unit: Unit | None
    p: float

    @property
    def live(self) -> bool:
        """Whether it is probable enough to be spoken of."""
        return self.p >= RULES.live_from


def whole(total: float, least: int = 0) -> int:
    """A sum of repetitions as a count: rounded half to even, `least` at least."""
    return max(least, round(total))


def counted_so_far(total: float) -> int:
    """Live: the count that an estimate of what has been seen holds, before the video is over."""
    return math.floor(total + RULES.counted_early)


def cut_ends(values: Array) -> tuple[bool, bool]:
    """Whether a video begins, and whether it ends, within a repetition, by its map of repetitions per cell."""
    if float(values.sum()) < 1:
        return False, False
    typical = float(np.median(values[values > RULES.silent * np.percentile(values[values > 0], 90)]))
    edge = max(1, round(RULES.edge_share / typical))
    return bool(values[:edge].mean() >= typical / 2), bool(values[-edge:].mean() >= typical / 2)


def rest_factor(values: npt.ArrayLike) -> float:
    """What a map of repetitions per cell is multiplied by, so that its sum is rounded as people count.

    A video that ends within repetitions holds whole ones and a rest. A rest of rest_counts is worth a half, a smaller
    one less, a larger one more; a map with a pause at its end stays as it is (1).
    """
    values = np.asarray(values, dtype=np.float64)
    _, ends_inside = cut_ends(values)
    if not ends_inside:
        return 1.0
    total = float(values.sum())
    rest, enough = total - int(total), RULES.rest_counts
    worth = 0.5 * rest / enough if rest < enough else 0.5 + 0.5 * (rest - enough) / (1 - enough)
    return (int(total) + worth) / total


def factor(unit: Unit | None, wanted: Unit | None) -> float:
    """Repetitions of the wanted unit in one of `unit`: a cycle has two sides."""
    if unit == wanted:
        return 1.0
    return 2.0 if wanted == "side" else 0.5


def in_other_unit(total: float, hypotheses: Sequence[Hypothesis], unit: Unit) -> tuple[int, tuple[Hypothesis, ...]]:
    """The count in a unit that a person chose, and the hypotheses with it first. total: the density's sum in it.

    A unit so improbable that the model left it out has the probability 0.
    """
    held = [hypothesis for hypothesis in hypotheses if hypothesis.unit == unit]
    count = held[0].count if held else whole(total)
    if hypotheses and not held:
        held = [Hypothesis(count, unit, 0.0)]
    return count, (*held, *(hypothesis for hypothesis in hypotheses if hypothesis.unit != unit))


def without_unit_doubt(
    confidence: float, details: Mapping[str, float], reasons: Sequence[str], hypotheses: Sequence[Hypothesis]
) -> tuple[float, tuple[str, ...]]:
    """Confidence and reasons once a person chose the unit: what spoke against the unit speaks no longer."""
    about_unit = unit_reason(hypotheses)
    return max(confidence, details.get(UNIT_GIVEN, 0.0)), tuple(reason for reason in reasons if reason != about_unit)


def possible_counts(cycles: float, *, repeats: float, alternates: float, rest: float = 1.0) -> tuple[Hypothesis, ...]:
    """What a video may hold, the most useful first.

    cycles: the density's sum. repeats: probability that there is a repetition at all; alternates: that the motion has
    two sides, if there is one; rest: what the sum is multiplied by for a cycle that the end of the video cuts off,
    of which a side may be whole. "No repetitions" comes first only where it is the likelier; otherwise cycles do: at
    most half of the people who count an alternating motion count sides.
    """
    side = RULES.sides_share * alternates * repeats
    found = [
        Hypothesis(whole(rest * cycles, 1), "cycle", round(repeats - side, 4)),
        Hypothesis(whole(2 * cycles, 1), "side", round(side, 4)),
        Hypothesis(0, None, round(1 - repeats, 4)),
    ]

    best = found[2] if repeats < 0.5 else found[0]
    others = sorted((one for one in found if one is not best and one.p >= RULES.listed_from), key=lambda one: -one.p)
    return (best, *others)


def unit_certainty(hypotheses: Sequence[Hypothesis]) -> float:
    """The most a confidence can be: 1 where one unit is live, else the share of the first among the live ones, and
    two_units at most."""
    live = [one.p for one in hypotheses if one.unit is not None and one.p >= RULES.live_from]
    return min(RULES.two_units, live[0] / sum(live)) if len(live) > 1 else 1.0


def unit_reason(hypotheses: Sequence[Hypothesis]) -> str:
    """`two units are possible: 4 as cycles (0.93), 8 as sides (0.06)`, in this order whichever is first."""
    named = sorted((one for one in hypotheses if one.unit is not None), key=lambda one: str(one.unit))
    return "two units are possible: " + ", ".join(f"{one.count} as {one.unit}s ({one.p:.2f})" for one in named)
