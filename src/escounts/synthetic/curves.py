"""Random numbers over time: seeds, smooth curves, easing. numpy only, so that plans are cheap to make."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def seeded(*key: int) -> np.random.Generator:
    """A generator that is a pure function of the key."""
    return np.random.default_rng(np.random.SeedSequence([part & 0xFFFFFFFF for part in key]))


def chance(rng: np.random.Generator, share: float) -> bool:
    """True with probability share."""
    return bool(rng.random() < share)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number between low and high, all ratios equally likely."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def eased(part: Floats) -> Floats:
    """0..1 onto 0..1 without a jolt at either end."""
    smooth: Floats = part * part * (3 - 2 * part)
    return smooth


def ring(phase: Floats, shift: float = 0.0) -> tuple[Floats, Floats]:
    """Where a point on the unit circle is at a phase: cosine and sine."""
    turn = 2 * np.pi * (phase + shift)
    return np.cos(turn), np.sin(turn)


def smooth_noise(rng: np.random.Generator, times: Floats, count: int, spacing: float) -> Floats:
    """(count, F) smooth curves of about unit spread; spacing: frames from one knot to the next."""
    spacing = max(spacing, 1e-3)
    start = float(times.min())
    knots = int((float(times.max()) - start) / spacing) + 3
    values = rng.normal(size=(count, knots))
    at = (times - start) / spacing
    left = at.astype(np.int64)
    part = eased(at - left)
    smooth: Floats = values[:, left] * (1 - part) + values[:, left + 1] * part
    return smooth


def wander(rng: np.random.Generator, times: Floats, pace: float) -> Floats:
    """(F,) a walk within 0..1 that goes back and forth without a rhythm; pace: frames per leg, roughly."""
    legs: list[float] = [float(times.min()) - 1.0]
    while legs[-1] < times.max() + 1:
        legs.append(legs[-1] + pace * log_uniform(rng, 0.3, 3.5))
    heights = rng.random(len(legs))
    for _ in range(2):  # two passes of pushing neighbours apart make every leg worth seeing
        near = np.abs(np.diff(heights)) < 0.15
        heights[1:][near] = rng.random(int(near.sum()))
    at = np.interp(times, legs, np.arange(len(legs)))
    left = np.minimum(at.astype(np.int64), len(legs) - 2)
    part = eased(at - left)
    walk: Floats = heights[left] * (1 - part) + heights[left + 1] * part
    return walk


def warp_phase(phase: Floats, first: float, second: float) -> Floats:
    """Bend phase 0..1 onto 0..1, monotonically for |first| + |second| < 1."""
    turn = 2 * np.pi * phase
    bent: Floats = phase + 0.9 * (first * np.sin(turn) + 0.5 * second * np.sin(2 * turn)) / (2 * np.pi)
    return bent


def there_and_back(phase: Floats, turn: float, ease: float) -> Floats:
    """Phase 0..1 to 0 → 1 → 0, turning at phase `turn`; ease 0 is linear, 1 is a cosine."""
    rise = np.where(phase < turn, phase / turn, (1 - phase) / (1 - turn))
    along: Floats = (1 - ease) * rise + ease * (0.5 - 0.5 * np.cos(np.pi * rise))
    return along
