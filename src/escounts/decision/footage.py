"""What the pictures show without a network, and what it takes from a certainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from escounts.decision.evidence import Evidence, choose_views, features, is_zero, logistic
from escounts.decision.reasons import runs
from escounts.decision.rules import RULES, Calibration, CountingRules
from escounts.system.arrays import Array32, BoolArray


@dataclass(frozen=True)
class Footage:
    """What the pictures show without a network.

    Args:
        moving: of each frame, whether something moves near it.
        pictures: different ones per second.
        scenes: frames that scenes begin with, but for the first.
    """

    moving: BoolArray
    pictures: float
    scenes: tuple[int, ...] = ()


def few_pictures(pictures: float, marked: Sequence[float], rules: CountingRules) -> list[tuple[float, str]]:
    """Whether the pictures are too few for the marked repetitions (seconds each), or for what people bring."""
    enough = min(marked) * pictures >= rules.seen_cells if marked else pictures >= rules.pictures_wanted
    if enough:
        return []
    fastest = pictures / rules.seen_cells
    shown = f"different pictures per second: {pictures:.0f}"
    return [
        (rules.too_few_pictures, f"{shown}; a motion faster than {fastest:.1f} repetitions per second is not seen")
    ]


def unanswered(
    views: Sequence[Evidence],
    density: Array32,
    footage: Footage,
    calibration: Calibration,
    base_rate: float,
    *,
    start: float = 0.0,
    rules: CountingRules = RULES,
) -> list[tuple[float, str]]:
    """Long stretches in which something moves and nothing is counted, and scenes that are no repetitions when they
    are counted by themselves: how sure that is of each, and the reason that it is."""
    quiet = (density < rules.silent * np.percentile(density[density > 0], 90)) & footage.moving
    words = "from {} to {} s something moves and nothing is counted"
    stretches = [(first, last, words) for first, last in runs(quiet)]
    if footage.scenes:
        words = "the scene from {} to {} s has no repetitions by itself, but not surely"
        scenes = pairwise([0, *footage.scenes, len(density)])
        stretches += [(first, last, words) for first, last in scenes if footage.moving[first:last].any()]
    found = []
    for first, last, words in stretches:
        parts = [view.part(first, last) for view in views]
        long = last - first >= rules.unanswered_seconds * base_rate
        if (
            long
            and (nothing := _nothing(parts, bool(quiet[first:last].all()), calibration, base_rate, rules)) is not None
        ):
            begin, end = (f"{start + frame / base_rate:.1f}" for frame in (first, last))
            found.append((nothing, words.format(begin, end)))
    return found


def _nothing(
    views: Sequence[Evidence], quiet: bool, calibration: Calibration, base_rate: float, rules: CountingRules
) -> float | None:
    """How sure "no repetitions" is of a stretch by itself; None where it is not quiet and something is counted."""
    density, chosen = choose_views(views, base_rate, calibration, rules=rules)
    if not quiet and not is_zero(density):
        return None
    values = features(views, np.zeros_like(density), chosen, base_rate, rules=rules)
    return logistic(float(np.dot(calibration.nothing_weights, values)))
