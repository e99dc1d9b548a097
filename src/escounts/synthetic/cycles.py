"""Cycles: exercises that run round and end where they began, posed by code.

Each gives the parts of a pose that move, at phase (F,) 0..1; units as in `exercises`. Those in TWO_SIDED do in
their second half on the right what their first half did on the left: one turn is one repetition, of two sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from escounts.synthetic.curves import Floats

Parts = dict[str, Floats]


def _ring(phase: Floats, shift: float = 0.0) -> tuple[Floats, Floats]:
    turn = 2 * np.pi * (phase + shift)
    return np.cos(turn), np.sin(turn)


def _run(phase: Floats) -> Parts:
    cos, sin = _ring(phase)
    lift = np.maximum(sin, 0), np.maximum(-sin, 0)
    zero = np.zeros_like(phase)
    return {
        "hips": np.stack([zero, 0.51 + 0.02 * np.abs(cos), zero], -1),
        "left_foot": np.stack([zero + 0.07, 0.05 + 0.25 * lift[0], 0.10 * cos], -1),
        "right_foot": np.stack([zero - 0.07, 0.05 + 0.25 * lift[1], -0.10 * cos], -1),
        "left_arm": np.stack([25 - 45 * sin, zero + 8, zero + 0.62], -1),
        "right_arm": np.stack([25 + 45 * sin, zero + 8, zero + 0.62], -1),
    }


def _rope_jump(phase: Floats) -> Parts:
    cos, sin = _ring(phase)
    up = 0.07 * np.maximum(-cos, 0) ** 0.7
    zero = np.zeros_like(phase)
    return {
        "hips": np.stack([zero, 0.51 + up, zero], -1),
        "left_foot": np.stack([zero + 0.05, 0.05 + up, zero], -1),
        "right_foot": np.stack([zero - 0.05, 0.05 + up, zero], -1),
        "left_arm": np.stack([20 + 8 * sin, 30 + 6 * cos, zero + 0.75], -1),
        "right_arm": np.stack([20 + 8 * sin, 30 + 6 * cos, zero + 0.75], -1),
    }


def _stir(phase: Floats) -> Parts:
    cos, sin = _ring(phase)
    return {"left_arm": np.stack([60 + 14 * sin, 5 + 22 * cos, 0.75 + 0.12 * sin], -1)}


def _crawl(phase: Floats) -> Parts:
    zero = np.zeros_like(phase)
    return {
        "left_arm": np.stack([360 * phase, zero + 8, zero + 0.95], -1),
        "right_arm": np.stack([360 * phase + 180, zero + 8, zero + 0.95], -1),
    }


def _pedal(phase: Floats) -> Parts:
    cos, sin = _ring(phase)
    zero = np.zeros_like(phase)
    return {
        "hips": np.stack([zero, zero + 0.55, zero - 0.05], -1),
        "pitch": zero + 40,
        "left_foot": np.stack([zero + 0.07, 0.20 + 0.11 * sin, 0.10 + 0.11 * cos], -1),
        "right_foot": np.stack([zero - 0.07, 0.20 - 0.11 * sin, 0.10 - 0.11 * cos], -1),
        "left_arm": np.stack([zero + 70, zero + 6, zero + 0.9], -1),
        "right_arm": np.stack([zero + 70, zero + 6, zero + 0.9], -1),
    }


def _battle_rope(phase: Floats) -> Parts:
    _, sin = _ring(phase)
    zero = np.zeros_like(phase)
    return {
        "hips": np.stack([zero, 0.42 + 0.01 * np.abs(sin), zero - 0.06], -1),
        "pitch": zero + 30,
        "left_arm": np.stack([60 + 35 * sin, zero + 10, zero + 0.85], -1),
        "right_arm": np.stack([60 - 35 * sin, zero + 10, zero + 0.85], -1),
    }


def _arm_circles(phase: Floats) -> Parts:
    cos, sin = _ring(phase)
    arm = np.stack([30 * sin, 90 + 25 * cos, np.full_like(phase, 0.97)], -1)
    return {"left_arm": arm, "right_arm": arm}


def _legs(phase: Floats, height: float, lift: float, reach: float, *, behind: float = 0.0) -> Parts:
    """Feet that are lifted in turn, `lift` high and `reach` forward, from a floor at `behind`."""
    _, sin = _ring(phase)
    zero = np.zeros_like(phase)
    parts = {}
    for name, sign in (("left_foot", 1.0), ("right_foot", -1.0)):
        up = np.maximum(sign * sin, 0) ** 0.8
        parts[name] = np.stack([zero + 0.07 * sign, height + lift * up, behind + reach * up], -1)
    return parts


def _march(phase: Floats) -> Parts:
    _, sin = _ring(phase)
    zero = np.zeros_like(phase)
    return _legs(phase, 0.05, 0.28, 0.12) | {
        "left_arm": np.stack([10 - 30 * sin, zero + 8, zero + 0.9], -1),
        "right_arm": np.stack([10 + 30 * sin, zero + 8, zero + 0.9], -1),
    }


def _climb(phase: Floats) -> Parts:
    """Knees to the chest in turn, hands on the floor."""
    zero = np.zeros_like(phase)
    arm = np.stack([zero + 88, zero + 8, zero + 0.97], -1)
    return _legs(phase, 0.05, 0.03, 0.38, behind=-0.50) | {
        "hips": np.stack([zero, zero + 0.30, zero], -1), "pitch": zero + 70, "left_arm": arm, "right_arm": arm,
    }  # fmt: skip


def _flutter(phase: Floats) -> Parts:
    """On the back, legs up and down in turn."""
    _, sin = _ring(phase)
    zero = np.zeros_like(phase)
    arm = np.stack([zero + 10, zero + 15, zero + 0.9], -1)
    return {
        "hips": np.stack([zero, zero + 0.08, zero], -1),
        "pitch": zero - 80,
        "left_foot": np.stack([zero + 0.06, 0.20 + 0.12 * sin, zero + 0.50], -1),
        "right_foot": np.stack([zero - 0.06, 0.20 - 0.12 * sin, zero + 0.50], -1),
        "left_arm": arm,
        "right_arm": arm,
    }


def _cross_trainer(phase: Floats) -> Parts:
    """Feet on flat ellipses half a turn apart, hands with the opposite foot."""
    cos, sin = _ring(phase)
    zero = np.zeros_like(phase)
    return {
        "hips": np.stack([zero, 0.53 + 0.01 * np.abs(sin), zero], -1),
        "left_foot": np.stack([zero + 0.08, 0.09 + 0.04 * sin, 0.20 * cos], -1),
        "right_foot": np.stack([zero - 0.08, 0.09 - 0.04 * sin, -0.20 * cos], -1),
        "left_arm": np.stack([60 - 30 * cos, zero + 8, zero + 0.85], -1),
        "right_arm": np.stack([60 + 30 * cos, zero + 8, zero + 0.85], -1),
    }


def _box(phase: Floats) -> Parts:
    """Straight punches, left and right in turn, the shoulders turning with them."""
    _, sin = _ring(phase)
    zero = np.zeros_like(phase)
    out = np.maximum(sin, 0) ** 1.5, np.maximum(-sin, 0) ** 1.5
    return {
        "hips": np.stack([zero, zero + 0.50, zero], -1),
        "yaw": -25 * sin,
        "left_foot": np.stack([zero + 0.12, zero + 0.05, zero], -1),
        "right_foot": np.stack([zero - 0.12, zero + 0.05, zero], -1),
        "left_arm": np.stack([70 + 20 * out[0], zero + 8, 0.5 + 0.48 * out[0]], -1),
        "right_arm": np.stack([70 + 20 * out[1], zero + 8, 0.5 + 0.48 * out[1]], -1),
    }


def _pull(phase: Floats) -> Parts:
    """Hand over hand, as on a rope that is hauled in."""
    cos, sin = _ring(phase)
    zero = np.zeros_like(phase)
    return {
        "pitch": 12 + 4 * np.abs(sin),
        "left_arm": np.stack([75 + 30 * sin, zero + 5, 0.72 + 0.22 * cos], -1),
        "right_arm": np.stack([75 - 30 * sin, zero + 5, 0.72 - 0.22 * cos], -1),
    }


CYCLES: Mapping[str, Callable[[Floats], Parts]] = {
    "run": _run, "rope-jump": _rope_jump, "stir": _stir, "crawl": _crawl, "pedal": _pedal,
    "battle-rope": _battle_rope, "arm-circles": _arm_circles, "march": _march, "climb": _climb,
    "flutter": _flutter, "cross-trainer": _cross_trainer, "box": _box, "pull": _pull,
}  # fmt: skip

TWO_SIDED = ("run", "crawl", "pedal", "battle-rope", "march", "climb", "flutter", "cross-trainer", "box", "pull")
"""Cycles whose second half is the first half on the other side."""
