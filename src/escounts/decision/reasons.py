"""Why the evidence itself leaves a count open, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from escounts.decision.evidence import Evidence, main_view
from escounts.system.arrays import Array32, BoolArray

HALF_OPEN = (0.25, 0.75)
"""Gates between these say neither that the motion repeats nor that it does not …"""
HALF_OPEN_SECONDS = 1.0
"""… and are worth a sentence from this length on."""
VAGUE = 0.5
"""Mean sharpness, where the motion repeats, below which its period is called vague."""
APART = 0.1
"""Two counts disagree that are further apart than this share of the larger one, and than one."""


def why_vague(
    views: Sequence[Evidence],
    density: Array32,
    chosen: Sequence[int],
    base_rate: float,
    *,
    start: float = 0.0,
    without: float | None = None,
) -> tuple[str, ...]:
    """What in the evidence speaks against a density.

    Args:
        views: what each view says.
        density: the answer, repetitions per frame.
        chosen: the view that each block chose.
        base_rate: frames per second.
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
    half_open = (main.gate > HALF_OPEN[0]) & (main.gate < HALF_OPEN[1])
    first, last = max(runs(half_open), key=lambda run: run[1] - run[0], default=(0, 0))
    if last - first >= HALF_OPEN_SECONDS * base_rate:
        gate = float(main.gate[first:last].mean())
        begin, end = start + first / base_rate, start + last / base_rate
        reasons.append(f"from {begin:.1f} to {end:.1f} s it is unclear whether the motion repeats (gate {gate:.2f})")
    sharpness = float((main.sharpness * density).sum()) / max(total, 1e-6)
    if total > 0 and sharpness < VAGUE:
        reasons.append(f"the period is vague (sharpness {sharpness:.2f} of 1)")
    return tuple(reasons)


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > max(1.0, APART * max(one, other))


def runs(true: BoolArray) -> list[tuple[int, int]]:
    """First and last (exclusive) place of every stretch that is true."""
    change = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]]).astype(int)))
    return [(first, last) for first, last in change.reshape(-1, 2).tolist()]
