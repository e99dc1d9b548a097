"""Parametric exercises: a body posed by code alone, from where hips, feet and hands go.

Units are body heights; x to the body's left, y up, z forward. Angles in degrees. An exercise goes there and back
between two poses, or round in a cycle that ends where it began. Cycles in TWO_SIDED do in their second half on the
right what their first half did on the left: one turn is one repetition, of two sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from escounts.synthetic.motion import Joints
from escounts.synthetic.timeline import Floats, ring

THIGH, SHIN, UPPER_ARM, FOREARM = 0.245, 0.245, 0.165, 0.155
SHOULDER, HIP = 0.105, 0.055


Pose = Mapping[str, float | tuple[float, float, float]]
"""Where things are. arm: forward and sideways angle from hanging down, and how straight (0..1)."""

STAND: Pose = {
    "hips": (0.0, 0.53, 0.0),
    "pitch": 4.0,
    "roll": 0.0,
    "yaw": 0.0,
    "left_foot": (0.08, 0.05, 0.0),
    "right_foot": (-0.08, 0.05, 0.0),
    "left_arm": (5.0, 8.0, 0.97),
    "right_arm": (5.0, 8.0, 0.97),
}


def both(pose: Pose = STAND, arms: tuple[float, float, float] | None = None, **changes: Any) -> Pose:
    """A pose with both arms alike and some other changes."""
    both_arms = {} if arms is None else {"left_arm": arms, "right_arm": arms}
    return {**pose, **changes, **both_arms}


_PLANK = both(arms=(88.0, 8.0, 0.97), hips=(0.0, 0.27, 0.0), pitch=72.0,
              left_foot=(0.06, 0.05, -0.50), right_foot=(-0.06, 0.05, -0.50))  # fmt: skip
_LYING = both(arms=(10.0, 15.0, 0.9), hips=(0.0, 0.08, 0.0), pitch=-86.0,
              left_foot=(0.08, 0.06, 0.47), right_foot=(-0.08, 0.06, 0.47))  # fmt: skip
_GUARD = both(arms=(70.0, 10.0, 0.5), hips=(0.0, 0.50, 0.0),
              left_foot=(0.10, 0.05, 0.10), right_foot=(-0.10, 0.05, -0.10))  # fmt: skip
_SEAT = both(arms=(75.0, 4.0, 0.95), hips=(0.0, 0.25, 0.0), pitch=25.0,
             left_foot=(0.09, 0.06, 0.42), right_foot=(-0.09, 0.06, 0.42))  # fmt: skip

# Name: from rest to the other end; played there and back.
THERE_AND_BACK: Mapping[str, tuple[Pose, Pose]] = {
    "squat": (STAND, both(arms=(85.0, 5.0, 0.97), hips=(0.0, 0.29, -0.13), pitch=38.0)),
    "push-up": (_PLANK, both(_PLANK, arms=(70.0, 40.0, 0.45), hips=(0.0, 0.13, 0.0), pitch=86.0)),
    "jumping-jack": (STAND, both(arms=(0.0, 168.0, 0.98), hips=(0.0, 0.52, 0.0),
                                 left_foot=(0.24, 0.05, 0.0), right_foot=(-0.24, 0.05, 0.0))),
    "lunge": (STAND, both(hips=(0.0, 0.33, 0.12), left_foot=(0.09, 0.05, 0.32), right_foot=(-0.08, 0.08, -0.2))),
    "curl": (STAND, both(arms=(48.0, 6.0, 0.42))),
    "press": (both(arms=(150.0, 25.0, 0.42)), both(arms=(176.0, 8.0, 0.98))),
    "lateral-raise": (STAND, both(arms=(5.0, 95.0, 0.97))),
    "front-raise": (STAND, both(arms=(98.0, 5.0, 0.97))),
    "sit-up": (both(_LYING, arms=(150.0, 20.0, 0.5)), both(_LYING, arms=(100.0, 15.0, 0.7), pitch=-12.0)),
    "leg-raise": (both(_LYING, left_foot=(0.06, 0.06, 0.54), right_foot=(-0.06, 0.06, 0.54)),
                  both(_LYING, left_foot=(0.06, 0.54, 0.14), right_foot=(-0.06, 0.54, 0.14))),
    "side-bend": (both(arms=(5.0, 12.0, 0.97)), both(arms=(5.0, 60.0, 0.9), roll=32.0)),
    "twist": (both(arms=(80.0, 20.0, 0.6)), both(arms=(80.0, 20.0, 0.6), yaw=60.0)),
    "bow": (STAND, both(arms=(60.0, 6.0, 0.97), pitch=85.0, hips=(0.0, 0.51, -0.08))),
    "knee-raise": (STAND, both(left_foot=(0.08, 0.36, 0.10), right_arm=(70.0, 8.0, 0.6))),
    "kick": (STAND, both(left_foot=(0.08, 0.42, 0.42), pitch=-8.0)),
    "jump": (both(hips=(0.0, 0.44, -0.04), pitch=20.0, arms=(-25.0, 8.0, 0.9)),
             both(hips=(0.0, 0.70, 0.0), left_foot=(0.08, 0.22, 0.0), right_foot=(-0.08, 0.22, 0.0),
                  arms=(150.0, 15.0, 0.95))),
    "hammer": (both(left_arm=(150.0, 5.0, 0.75)), both(left_arm=(45.0, 5.0, 0.95), pitch=14.0)),
    "saw": (both(pitch=35.0, left_arm=(20.0, 5.0, 0.55)), both(pitch=35.0, left_arm=(65.0, 5.0, 0.97))),
    "wave": (both(left_arm=(10.0, 130.0, 0.8)), both(left_arm=(10.0, 170.0, 0.8))),
    "punch": (_GUARD, both(_GUARD, left_arm=(92.0, 2.0, 0.99), yaw=-25.0)),
    "row": (_SEAT, both(_SEAT, arms=(20.0, 10.0, 0.5), pitch=-22.0)),
    "dead-lift": (both(arms=(10.0, 8.0, 0.97)), both(arms=(52.0, 8.0, 0.97), hips=(0.0, 0.40, -0.16), pitch=72.0)),
    "clap": (both(arms=(80.0, 45.0, 0.9)), both(arms=(85.0, -14.0, 0.8))),
    "calf-raise": (STAND, both(hips=(0.0, 0.575, 0.0), left_foot=(0.08, 0.095, 0.0), right_foot=(-0.08, 0.095, 0.0))),
    "chest-fly": (both(arms=(88.0, 85.0, 0.9)), both(arms=(88.0, 0.0, 0.9))),
    "shovel": (both(pitch=50.0, hips=(0.0, 0.44, -0.05), arms=(40.0, 0.0, 0.95), yaw=25.0),
               both(pitch=8.0, arms=(75.0, 5.0, 0.8), yaw=-45.0)),
}  # fmt: skip


ONE_SIDED = ("knee-raise", "kick", "punch", "side-bend", "twist", "lunge", "hammer", "wave", "shovel")
"""Exercises that make sense done to the left and then to the right."""


Parts = dict[str, Floats | float | tuple[float, float, float]]
"""The parts of a pose that a cycle decides, at phase (F,) 0..1: moving ones (F, …), or where they stay."""


def _at(*parts: Floats | float) -> Floats:
    """Parts of a limb, each constant or (F,), side by side: (F, parts)."""
    return np.stack(np.broadcast_arrays(*parts), -1)


def _run(phase: Floats) -> Parts:
    cos, sin = ring(phase)
    lift = np.maximum(sin, 0), np.maximum(-sin, 0)
    return {
        "hips": _at(0.0, 0.51 + 0.02 * np.abs(cos), 0.0),
        "left_foot": _at(0.07, 0.05 + 0.25 * lift[0], 0.10 * cos),
        "right_foot": _at(-0.07, 0.05 + 0.25 * lift[1], -0.10 * cos),
        "left_arm": _at(25 - 45 * sin, 8, 0.62),
        "right_arm": _at(25 + 45 * sin, 8, 0.62),
    }


def _rope_jump(phase: Floats) -> Parts:
    cos, sin = ring(phase)
    up = 0.07 * np.maximum(-cos, 0) ** 0.7
    return {
        "hips": _at(0.0, 0.51 + up, 0.0),
        "left_foot": _at(0.05, 0.05 + up, 0.0),
        "right_foot": _at(-0.05, 0.05 + up, 0.0),
        "left_arm": _at(20 + 8 * sin, 30 + 6 * cos, 0.75),
        "right_arm": _at(20 + 8 * sin, 30 + 6 * cos, 0.75),
    }


def _stir(phase: Floats) -> Parts:
    cos, sin = ring(phase)
    return {"left_arm": _at(60 + 14 * sin, 5 + 22 * cos, 0.75 + 0.12 * sin)}


def _crawl(phase: Floats) -> Parts:
    return {
        "left_arm": _at(360 * phase, 8, 0.95),
        "right_arm": _at(360 * phase + 180, 8, 0.95),
    }


def _pedal(phase: Floats) -> Parts:
    cos, sin = ring(phase)
    return {
        "hips": (0.0, 0.55, -0.05),
        "pitch": 40,
        "left_foot": _at(0.07, 0.20 + 0.11 * sin, 0.10 + 0.11 * cos),
        "right_foot": _at(-0.07, 0.20 - 0.11 * sin, 0.10 - 0.11 * cos),
        "left_arm": (70, 6, 0.9),
        "right_arm": (70, 6, 0.9),
    }


def _battle_rope(phase: Floats) -> Parts:
    _, sin = ring(phase)
    return {
        "hips": _at(0.0, 0.42 + 0.01 * np.abs(sin), -0.06),
        "pitch": 30,
        "left_arm": _at(60 + 35 * sin, 10, 0.85),
        "right_arm": _at(60 - 35 * sin, 10, 0.85),
    }


def _arm_circles(phase: Floats) -> Parts:
    cos, sin = ring(phase)
    arm = _at(30 * sin, 90 + 25 * cos, 0.97)
    return {"left_arm": arm, "right_arm": arm}


def _legs(phase: Floats, height: float, lift: float, reach: float, *, behind: float = 0.0) -> Parts:
    """Feet that are lifted in turn, `lift` high and `reach` forward, from a floor at `behind`."""
    _, sin = ring(phase)
    parts: Parts = {}
    for name, sign in (("left_foot", 1.0), ("right_foot", -1.0)):
        up = np.maximum(sign * sin, 0) ** 0.8
        parts[name] = _at(0.07 * sign, height + lift * up, behind + reach * up)
    return parts


def _march(phase: Floats) -> Parts:
    _, sin = ring(phase)
    return _legs(phase, 0.05, 0.28, 0.12) | {
        "left_arm": _at(10 - 30 * sin, 8, 0.9),
        "right_arm": _at(10 + 30 * sin, 8, 0.9),
    }


def _climb(phase: Floats) -> Parts:
    """Knees to the chest in turn, hands on the floor."""
    arm = (88, 8, 0.97)
    return _legs(phase, 0.05, 0.03, 0.38, behind=-0.50) | {
        "hips": (0.0, 0.30, 0.0), "pitch": 70, "left_arm": arm, "right_arm": arm,
    }  # fmt: skip


def _flutter(phase: Floats) -> Parts:
    """On the back, legs up and down in turn."""
    _, sin = ring(phase)
    arm = (10, 15, 0.9)
    return {
        "hips": (0.0, 0.08, 0.0),
        "pitch": -80,
        "left_foot": _at(0.06, 0.20 + 0.12 * sin, 0.50),
        "right_foot": _at(-0.06, 0.20 - 0.12 * sin, 0.50),
        "left_arm": arm,
        "right_arm": arm,
    }


def _cross_trainer(phase: Floats) -> Parts:
    """Feet on flat ellipses half a turn apart, hands with the opposite foot."""
    cos, sin = ring(phase)
    return {
        "hips": _at(0.0, 0.53 + 0.01 * np.abs(sin), 0.0),
        "left_foot": _at(0.08, 0.09 + 0.04 * sin, 0.20 * cos),
        "right_foot": _at(-0.08, 0.09 - 0.04 * sin, -0.20 * cos),
        "left_arm": _at(60 - 30 * cos, 8, 0.85),
        "right_arm": _at(60 + 30 * cos, 8, 0.85),
    }


def _box(phase: Floats) -> Parts:
    """Straight punches, left and right in turn, the shoulders turning with them."""
    _, sin = ring(phase)
    out = np.maximum(sin, 0) ** 1.5, np.maximum(-sin, 0) ** 1.5
    return {
        "hips": (0.0, 0.50, 0.0),
        "yaw": -25 * sin,
        "left_foot": (0.12, 0.05, 0.0),
        "right_foot": (-0.12, 0.05, 0.0),
        "left_arm": _at(70 + 20 * out[0], 8, 0.5 + 0.48 * out[0]),
        "right_arm": _at(70 + 20 * out[1], 8, 0.5 + 0.48 * out[1]),
    }


def _pull(phase: Floats) -> Parts:
    """Hand over hand, as on a rope that is hauled in."""
    cos, sin = ring(phase)
    return {
        "pitch": 12 + 4 * np.abs(sin),
        "left_arm": _at(75 + 30 * sin, 5, 0.72 + 0.22 * cos),
        "right_arm": _at(75 - 30 * sin, 5, 0.72 - 0.22 * cos),
    }


CYCLES: Mapping[str, Callable[[Floats], Parts]] = {
    "run": _run, "rope-jump": _rope_jump, "stir": _stir, "crawl": _crawl, "pedal": _pedal,
    "battle-rope": _battle_rope, "arm-circles": _arm_circles, "march": _march, "climb": _climb,
    "flutter": _flutter, "cross-trainer": _cross_trainer, "box": _box, "pull": _pull,
}  # fmt: skip

TWO_SIDED = ("run", "crawl", "pedal", "battle-rope", "march", "climb", "flutter", "cross-trainer", "box", "pull")
"""Cycles whose second half is the first half on the other side."""


def exercise_poses(name: str, along: Floats) -> Joints:
    """(F, 20, 3) joints of an exercise at progress `along` (F,), 0..1."""
    if name in THERE_AND_BACK:
        rest, end = THERE_AND_BACK[name]
        values = {}
        for limb in STAND:
            first, last = np.asarray(rest[limb]), np.asarray(end[limb])
            part = along[:, None] if first.ndim else along
            values[limb] = first + (last - first) * part
    elif name in CYCLES:
        parts: Mapping[str, Any] = {**STAND, **CYCLES[name](along)}
        values = {limb: np.broadcast_to(parts[limb], (len(along), *np.shape(STAND[limb]))) for limb in STAND}
    else:
        raise ValueError(f"exercise {name!r} is unknown, expected one of {', '.join((*THERE_AND_BACK, *CYCLES))}")
    return _joints(values)


def _joints(value: Mapping[str, Floats]) -> Joints:
    """Solve the chains: torso by its angles, legs by the feet, arms by their angles."""
    hips = value["hips"]
    pitch, roll, yaw = (np.radians(value[name])[:, None] for name in ("pitch", "roll", "yaw"))
    up = np.concatenate([np.sin(roll), np.cos(pitch) * np.cos(roll), np.sin(pitch) * np.cos(roll)], 1)
    left = np.concatenate([np.cos(yaw) * np.cos(roll), -np.sin(roll), np.sin(yaw)], 1)
    left -= up * (left * up).sum(1, keepdims=True)
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    ahead = np.cross(left, up)
    joints = np.zeros((len(hips), 20, 3))
    joints[:, 0] = hips
    for joint, high in ((9, 0.09), (10, 0.18), (11, 0.28), (12, 0.335), (13, 0.40)):
        joints[:, joint] = hips + high * up
    across = np.array([1.0, 0.0, 0.0])
    for sign, foot, first in ((1, "left_foot", 1), (-1, "right_foot", 5)):
        hip = hips + sign * HIP * across - 0.02 * up
        ankle = value[foot]
        knee, ankle = _two_bones(hip, ankle, THIGH, SHIN, np.array([0.15 * sign, 0.3, 1.0]))
        joints[:, first], joints[:, first + 1], joints[:, first + 2] = hip, knee, ankle
        # Toes point away from the shin: forward for a standing leg, down for a plank.
        shin = (ankle - knee) / SHIN
        toe = np.array([0.0, -0.25, 1.0]) - 0.8 * shin * (shin @ np.array([0.0, -0.25, 1.0]))[:, None]
        joints[:, first + 3] = ankle + 0.09 * toe / np.linalg.norm(toe, axis=1, keepdims=True)
    for sign, arm, first in ((1, "left_arm", 14), (-1, "right_arm", 17)):
        shoulder = hips + 0.265 * up + sign * SHOULDER * left
        forward, aside = (np.radians(value[arm][:, i])[:, None] for i in range(2))
        way = (
            sign * np.sin(aside) * left
            - np.cos(aside) * np.cos(forward) * up
            + np.cos(aside) * np.sin(forward) * ahead
        )
        hand = shoulder + way * value[arm][:, 2:3] * (UPPER_ARM + FOREARM)
        elbow, hand = _two_bones(shoulder, hand, UPPER_ARM, FOREARM, 0.5 * sign * left - 0.5 * up - 0.7 * ahead)
        joints[:, first], joints[:, first + 1], joints[:, first + 2] = shoulder, elbow, hand
    return joints


def _two_bones(root: Floats, target: Floats, first: float, second: float, bend: Floats) -> tuple[Floats, Floats]:
    """(F, 3) middle joint and end of a chain of two bones that reaches for the target, bent towards `bend`."""
    line = target - root
    far = np.linalg.norm(line, axis=1, keepdims=True)
    way = line / np.maximum(far, 1e-6)
    far = np.clip(far, abs(first - second) + 1e-3, first + second - 1e-3)
    along = (far**2 + first**2 - second**2) / (2 * far)
    bend = np.broadcast_to(bend, root.shape)
    aside = bend - way * (bend * way).sum(1, keepdims=True)
    aside /= np.linalg.norm(aside, axis=1, keepdims=True) + 1e-6
    middle = root + along * way + np.sqrt(np.maximum(first**2 - along**2, 0)) * aside
    return middle, root + far * way
