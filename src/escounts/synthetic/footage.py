"""Staging an action of a clip: which frames of the bank are shown when."""

from __future__ import annotations

import numpy as np

from escounts.synthetic.actions import Action, pick_segment, progress, reaches
from escounts.synthetic.camera import compose, mirror, place
from escounts.synthetic.clips import ClipBank
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import Floats, chance, log_uniform, smooth_noise
from escounts.synthetic.plan import Array, Footage
from escounts.synthetic.timeline import AFTER, BEFORE, Clock

Track = tuple[Floats, Floats, Floats]
"""Position in the bank, the position faded to, and how much: each (F,)."""
CODED_STEPS = (1, 3, 6)
"""Frames of a coded still from one drawn moment to the next."""


def action_track(
    rng: np.random.Generator, config: GeneratorConfig, bank: ClipBank, action: Action, clock: Clock
) -> Track:
    """The bank's frames that show the action, driven by the clock."""
    clip, start, length = action.segment
    low, high = float(bank.offsets[clip]), float(bank.offsets[clip + 1] - 1)
    begin = low + start
    along = progress(action, clock)
    if action.way == "filmed" and clock.position is None:
        at = low + _filmed_frames(bank, action, clock)
        return at, at.copy(), np.zeros(len(at))
    if action.way == "back":
        along = along * reaches(rng, config, clock)
    at = begin + length * along
    fade = np.zeros(len(at))
    other = at.copy()
    if action.way != "back" and clock.position is None:
        # The seam: hard for half of the loops, else faded into the frames before the segment.
        overlap = 0.0 if action.way == "loop" and action.recipe % 2 else 0.08 + 0.17 * (action.recipe % 97) / 97
        closing = (clock.rep >= 0) & (clock.phase > 1 - overlap)
        fade = np.where(closing, (clock.phase - (1 - overlap)) / max(overlap, 1e-6), 0.0)
        other = np.where(closing, np.clip(at - length, low, high), at)
    return np.clip(at, low, high), other, fade


def _filmed_frames(bank: ClipBank, action: Action, clock: Clock) -> Floats:
    """(F,) frames of the clip: repetition after repetition from the action's own on, each in the time that the clock
    gives it; after the last one (before the first) the film runs the other way, so that it has no seam."""
    rows = bank.segments.filmed
    rows = rows[rows[:, 0] == action.segment[0]]
    borders = np.append(rows[:, 1], rows[-1, 1] + rows[-1, 2]).astype(np.float64)
    first = int(np.searchsorted(rows[:, 1], action.segment[1]))
    # At rest: where the last repetition ended, or the first one begins.
    begun = np.maximum.accumulate(np.where(clock.rep >= 0, clock.rep, -1))
    done = np.where(clock.rep >= 0, clock.rep + clock.phase, begun + 1.0)
    turn = 2.0 * len(rows)
    unrolled = (first + done) % turn
    return np.interp(np.minimum(unrolled, turn - unrolled), np.arange(len(borders)), borders)


def passing_track(rng: np.random.Generator, bank: ClipBank, count: int, *, moving: bool = False) -> Floats:
    """(count,) frames of something that does not repeat: a still, a slow pass, or a scene played once.

    moving: never a still.
    """
    quiet, once = (0.1, 0.7) if moving else (0.3, 0.6)
    draw = rng.random()
    rows = bank.segments.quiet if draw < quiet else bank.segments.once if draw < once else bank.segments.back
    rows = rows if len(rows) else bank.segments.back
    clip, start, length = pick_segment(rng, rows, count)
    begin = float(bank.offsets[clip] + start)
    if chance(rng, 0.35) and not moving:
        return np.full(count, begin + rng.uniform(0, length))
    part = np.linspace(0, 1, count) ** rng.uniform(0.5, 2.0)
    played: Floats = begin + length * (part if chance(rng, 0.5) else 1 - part)
    return played


def with_surroundings(
    rng: np.random.Generator, config: GeneratorConfig, bank: ClipBank, action: Action, clock: Clock, track: Track
) -> Track:
    """Put something before the first and after the last repetition: a still, the same clip, another clip."""
    at, other, fade = (values.copy() for values in track)
    low = float(bank.offsets[action.segment[0]])
    high = float(bank.offsets[action.segment[0] + 1] - 1)
    rest = low + action.segment[1]
    for stage in (BEFORE, AFTER):
        where = np.flatnonzero(clock.stage == stage)
        draw = rng.random()
        if len(where) < 2 or chance(rng, config.lead_still):
            continue
        fade[where] = 0
        if draw < 0.5 and action.way != "filmed":  # the clip as it goes on before (after) the rest pose
            away = (
                (clock.times[where[-1]] - clock.times[where])
                if stage == BEFORE
                else (clock.times[where] - clock.times[where[0]])
            )
            sign = -1.0 if stage == BEFORE else 1.0
            at[where] = np.clip(rest + sign * away * rng.uniform(0.15, 1.2), low, high)
        else:
            at[where] = passing_track(rng, bank, len(where))
        other[where] = at[where]
    return at, other, fade


def coded_track(rng: np.random.Generator, bank: ClipBank, count: int) -> Floats:
    """(count,) frames of a coded still, as a view at 30, 10 or 5 frames per second sees it."""
    clip, _, length = bank.segments.coded[int(rng.integers(len(bank.segments.coded)))]
    every = int(rng.choice([step for step in CODED_STEPS if step * count <= length] or [1]))
    begin = int(rng.integers(max(1, length - every * count)))
    at = np.minimum(begin + every * np.arange(count), length - 1)
    played: Floats = (bank.offsets[clip] + at).astype(np.float64)
    return played


def cut_track(rng: np.random.Generator, bank: ClipBank, times: Floats) -> Track:
    """One shot after another, none of them repeating."""
    cuts = np.sort(rng.uniform(times.min(), times.max(), int(rng.integers(1, 6))))
    shot = np.searchsorted(cuts, times)
    at = np.zeros(len(times))
    for number in range(len(cuts) + 1):
        where = np.flatnonzero(shot == number)
        if len(where):
            at[where] = passing_track(rng, bank, len(where))
    return at, at.copy(), np.zeros(len(at))


def place_footage(
    rng: np.random.Generator,
    config: GeneratorConfig,
    track: Track,
    front: Array,
    clock: Clock,
    *,
    composite: bool,
    period: float,
) -> Footage:
    """The layer that shows a track: the whole screen, or small before a background. front: see `draw_camera`."""
    at, other, fade = track
    count = len(at)
    smooth = chance(rng, 0.5)
    first = np.floor(at) if smooth else np.round(at)
    part = at - first if smooth else np.zeros(count)
    lens = front.astype(np.float64)
    mask = 0
    if composite:
        mask = int(rng.integers(1, 3))
        scale = log_uniform(rng, *config.composite_size)
        sway = smooth_noise(rng, clock.times, 4, max(period, 6.0)) * rng.choice([0.0, 0.01, 0.04])
        x, y = rng.uniform(-1, 1, 2) * (1 - scale) * 0.9
        lens = compose(place(scale * np.exp(sway[0]), sway[1], x + sway[2], y + sway[3], count), lens)
    if clock.side.any():
        lens = compose(mirror(clock.side), lens)
    return Footage(
        lens=lens.astype(np.float32),
        first=first.astype(np.int64),
        part=part.astype(np.float32),
        other=np.round(np.where(fade > 0, other, first)).astype(np.int64),
        fade=fade.astype(np.float32),
        mask=mask,
    )
