"""What speaks against an answer, in words and numbers: in what the views say, and in what the pictures show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from escounts.decision.evidence import Evidence, choose_views, features, is_zero, logistic, main_view
from escounts.decision.rules import BASE_RATE, RULES, Calibration
from escounts.system.arrays import Array32, BoolArray

Cap: TypeAlias = tuple[float, str]
"""The most that a confidence can be, and why."""


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


def why_vague(
    views: Sequence[Evidence],
    density: Array32,
    chosen: Sequence[int],
    *,
    start: float = 0.0,
    without: float | None = None,
) -> tuple[str, ...]:
    """What in the evidence speaks against a density.

    Args:
        views: what each view says.
        density: the answer, repetitions per frame.
        chosen: the view that each block chose.
        start: seconds of the video at the first frame.
        without: the count without the exemplar, where there is one.
    """
    main, total = views[main_view(chosen)], float(density.sum())
    reasons = []
    if without is not None and _differ(total, without):
        reasons.append(f"with the exemplar the sum is {total:.1f}, without it {without:.1f}")
    counts = [view.count() for view in views]
    furthest = max(counts, key=lambda count: abs(count - main.count()))
    if _differ(furthest, main.count()):
        low, high = sorted((main.count(), furthest))
        reasons.append(f"the views disagree: {low:.1f} and {high:.1f}")
    half_open = (main.gate > RULES.half_open[0]) & (main.gate < RULES.half_open[1])
    first, last = max(runs(half_open), key=lambda run: run[1] - run[0], default=(0, 0))
    if last - first >= RULES.half_open_seconds * BASE_RATE:
        gate = float(main.gate[first:last].mean())
        begin, end = start + first / BASE_RATE, start + last / BASE_RATE
        reasons.append(f"from {begin:.1f} to {end:.1f} s it is unclear whether the motion repeats (gate {gate:.2f})")
    sharpness = float((main.sharpness * density).sum()) / max(total, 1e-6)
    if total > 0 and sharpness < RULES.vague:
        reasons.append(f"the period is vague (sharpness {sharpness:.2f} of 1)")
    return tuple(reasons)


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > max(1.0, RULES.apart * max(one, other))


def runs(true: BoolArray) -> list[tuple[int, int]]:
    """First and last (exclusive) place of every stretch that is true."""
    change = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]]).astype(int)))
    return [(first, last) for first, last in change.reshape(-1, 2).tolist()]


def few_pictures(pictures: float, marked: Sequence[float]) -> list[Cap]:
    """Whether the pictures are too few for the marked repetitions (seconds each), or for what people bring."""
    enough = min(marked) * pictures >= RULES.seen_cells if marked else pictures >= RULES.pictures_wanted
    if enough:
        return []
    fastest = pictures / RULES.seen_cells
    shown = f"different pictures per second: {pictures:.0f}"
    return [
        (RULES.too_few_pictures, f"{shown}; a motion faster than {fastest:.1f} repetitions per second is not seen")
    ]


def unanswered(
    views: Sequence[Evidence],
    density: Array32,
    footage: Footage,
    calibration: Calibration,
    *,
    start: float = 0.0,
) -> list[Cap]:
    """Long stretches in which something moves and nothing is counted, and scenes that are no repetitions when they
    are counted by themselves: how sure that is of each, and the reason that it is."""
    quiet = (density < RULES.silent * np.percentile(density[density > 0], 90)) & footage.moving
    words = "from {} to {} s something moves and nothing is counted"
    stretches = [(first, last, words) for first, last in runs(quiet)]
    if footage.scenes:
        words = "the scene from {} to {} s has no repetitions by itself, but not surely"
        scenes = pairwise([0, *footage.scenes, len(density)])
        stretches += [(first, last, words) for first, last in scenes if footage.moving[first:last].any()]
    found = []
    for first, last, words in stretches:
        parts = [view.part(first, last) for view in views]
        long = last - first >= RULES.unanswered_seconds * BASE_RATE
        if long and (nothing := _nothing(parts, bool(quiet[first:last].all()), calibration)) is not None:
            begin, end = (f"{start + frame / BASE_RATE:.1f}" for frame in (first, last))
            found.append((nothing, words.format(begin, end)))
    return found


def _nothing(views: Sequence[Evidence], quiet: bool, calibration: Calibration) -> float | None:
    """How sure "no repetitions" is of a stretch by itself; None where it is not quiet and something is counted."""
    density, chosen = choose_views(views, calibration)
    if not quiet and not is_zero(density):
        return None
    values = features(views, np.zeros_like(density), chosen)
    return logistic(float(np.dot(calibration.nothing_weights, values)))
