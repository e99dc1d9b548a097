"""Time: smooth curves over it, the schedule of a video's repetitions, and the clock that drives a motion by it.

Times are in frames; frame i covers the time from i to i + 1 and is drawn at i + 0.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from escounts.synthetic.config import GeneratorConfig

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


Span = tuple[float, float]

BEFORE, DURING, AFTER = 0, 1, 2
LEAD_STILL = 0.3
"""Share of leads and tails in which the performer stands still; in the others something else happens."""
SHORTEST = 2.2
"""Frames; a shorter repetition cannot be seen at the video's frame rate."""


@dataclass(frozen=True)
class Timeline:
    """The repetitions of one video. sides: where each of an alternating motion's two halves lies, or empty."""

    length: int
    period: float
    spans: tuple[Span, ...]
    sides: tuple[Span, ...] = ()

    @property
    def first(self) -> float:
        """Start of the first repetition; the end of the video where there is none."""
        return self.spans[0][0] if self.spans else float(self.length)

    @property
    def last(self) -> float:
        """End of the last repetition; the end of the video where there is none."""
        return self.spans[-1][1] if self.spans else float(self.length)

    def shifted(self, by: float) -> Timeline:
        """The same schedule, later by some frames."""
        return Timeline(
            self.length,
            self.period,
            tuple((start + by, end + by) for start, end in self.spans),
            tuple((start + by, end + by) for start, end in self.sides),
        )


@dataclass(frozen=True)
class Clock:
    """What a motion is driven by, for every drawn moment F.

    phase: 0..1 within the motion's unit (a side, where sides alternate), 0 at rest. rep: which unit, -1 at
    rest. side: 0 or 1. stage: BEFORE, DURING, AFTER the repetitions. position: set where there are no repetitions; a
    position 0..1 along the motion that replaces the phase.
    """

    times: Floats
    phase: Floats
    rep: Ints
    side: Ints
    stage: Ints
    units: int
    position: Floats | None = None

    def away(self, stage: int) -> Floats:
        """(F,) frames from the moment where the stage, BEFORE or AFTER, borders on the repetitions."""
        there = self.times[self.stage == stage]
        border = float(there.max() if stage == BEFORE else there.min())
        return np.abs(self.times - border)


def draw_timeline(
    rng: np.random.Generator,
    config: GeneratorConfig,
    length: int,
    *,
    period: float,
    alternating: bool = False,
    single: bool = False,
) -> Timeline:
    """A schedule of repetitions of about `period` frames for a video of `length` frames."""
    high = config.period[1]
    if single:
        period = log_uniform(rng, 0.08 * length, 0.6 * length)
    lead = _margin(rng, config.lead, length)
    tail = _margin(rng, config.tail, length)
    if single:
        lead = rng.uniform(0, max(length - period, 0.0))
        tail = 0.0
    elif lead + tail > length - period:
        lead = tail = 0.0
    most = int(rng.integers(1, config.few_most + 1)) if chance(rng, config.few) else 10**6
    most = 1 if single else most
    jitter = rng.uniform(*((0.22, 0.5) if chance(rng, config.irregular) else config.jitter))
    drift = rng.normal() * 0.25 if chance(rng, config.drift) else 0.0
    pausing = chance(rng, config.pause)
    start = lead
    if lead == 0 and not single and chance(rng, config.cut_inside):
        start = -rng.uniform(0, 0.9) * period
    cut_end = tail == 0 and not single and chance(rng, config.cut_inside)
    slow = smooth_noise(rng, np.arange(256.0), 1, 6.0)[0]
    spans: list[Span] = []
    while len(spans) < most:
        bend = jitter * (0.7 * rng.normal() + 0.7 * slow[len(spans) % 256]) + drift * (start / length - 0.5)
        lasts = period if single else float(np.clip(period * np.exp(bend), SHORTEST, 1.2 * high))
        if start + lasts > length - tail + 1e-6:
            if cut_end and start < length - 1:
                spans.append((start, start + lasts))
            break
        if start + lasts > 0.5:
            spans.append((start, start + lasts))
        start += lasts
        if pausing and chance(rng, 0.7):
            start += rng.uniform(0.05, 1.0) * period
    sides: list[Span] = []
    if alternating:
        for begin, end in spans:
            middle = begin + (end - begin) * float(np.clip(0.5 + 0.04 * rng.normal(), 0.4, 0.6))
            sides += [(begin, middle), (middle, end)]
    return Timeline(length, period, tuple(spans), tuple(sides))


def halves(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The two sides of each cycle of a motion that alternates by itself."""
    return tuple(half for start, end in spans for half in ((start, 0.5 * (start + end)), (0.5 * (start + end), end)))


def draw_period(rng: np.random.Generator, config: GeneratorConfig, length: int, *, alternating: bool) -> float:
    """How long one repetition takes, in frames."""
    low, high = config.period
    # A side of an alternating motion must itself be visible, so a cycle of two is slower.
    low = low * 2 if alternating else low
    return log_uniform(rng, low, max(low * 1.05, min(high, 0.8 * length)))


def _margin(rng: np.random.Generator, share: float, length: int) -> float:
    return rng.uniform(0.03, 0.4) * length if chance(rng, share) else 0.0


def frame_times(length: int, subframes: int, shutter: float) -> Floats:
    """(length · subframes,) the moments to draw; sub-frames spread over `shutter` of a frame's duration."""
    inside = (np.arange(subframes) + 0.5) / subframes - 0.5
    times: Floats = (np.arange(length)[:, None] + 0.5 + shutter * inside[None]).reshape(-1)
    return times


def clock_of(timeline: Timeline, times: Floats) -> Clock:
    """The clock of a schedule at the given moments."""
    units = timeline.sides or timeline.spans
    phase = np.zeros(len(times))
    rep = np.full(len(times), -1)
    if units:
        starts = np.array([start for start, _ in units])
        ends = np.array([end for _, end in units])
        at = np.clip(np.searchsorted(starts, times, side="right") - 1, 0, len(units) - 1)
        inside = (times >= starts[at]) & (times < ends[at])
        phase = np.where(inside, (times - starts[at]) / (ends[at] - starts[at]), 0.0)
        rep = np.where(inside, at, -1)
    side = np.where(rep >= 0, rep % 2, 0) if timeline.sides else np.zeros(len(times), dtype=np.int64)
    stage = np.where(times < timeline.first, BEFORE, np.where(times < timeline.last, DURING, AFTER))
    return Clock(times, phase, rep.astype(np.int64), side.astype(np.int64), stage, max(len(units), 1))


WITHOUT_REPETITIONS = ("pass", "wander", "frozen")
"""Ways a motion can go on without repeating."""


def clock_without_repetitions(rng: np.random.Generator, times: Floats, way: str) -> Clock:
    """The clock of a video with no repetitions: one pass, a walk without rhythm, or a standstill."""
    length = float(times.max() - times.min()) + 1.0
    rest = np.zeros(len(times), dtype=np.int64)
    if way == "pass":
        begin = rng.uniform(-0.2, 0.5) * length
        end = max(begin, 0.0) + rng.uniform(0.2, 1.1) * length
        part = np.clip((times - begin) / (end - begin), 0, 1)
        position: Floats = part ** rng.uniform(0.6, 1.7)
        if chance(rng, 0.5):
            position = 1 - position
    elif way == "wander":
        position = wander(rng, times, log_uniform(rng, 5.0, 0.5 * length + 6.0))
    elif way == "frozen":
        position = np.full(len(times), rng.random())
    else:
        raise ValueError(
            f"a video without repetitions by {way!r} is unknown, expected one of {', '.join(WITHOUT_REPETITIONS)}"
        )
    return Clock(times, np.zeros(len(times)), rest - 1, rest, rest, 1, position)
