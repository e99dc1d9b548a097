"""What is repeated: an action is drawn once and can be staged many times, which makes siblings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import Floats, chance, smooth_noise, there_and_back, warp_phase
from escounts.synthetic.segments import Rows, Segments
from escounts.synthetic.timeline import Clock

Row = tuple[int, int, int]


@dataclass(frozen=True)
class Action:
    """source: clips, sprite, motion, exercise or mechanism. way: back (there and back), cycle or loop.

    segment: recording, first frame, length, where there is a recording. recipe: seed of what the action itself
    is made of. period: typical frames a repetition takes. turn, ease, warp: how it goes within a repetition.
    """

    source: str
    name: str
    way: str
    period: float
    recipe: int
    alternating: bool
    turn: float
    ease: float
    warp: tuple[float, float]
    segment: Row = (0, 0, 0)

    def reversed_name(self) -> str:
        """Backwards in time it is another action."""
        return f"{self.name}:reversed"


def draw_pace(rng: np.random.Generator, config: GeneratorConfig) -> tuple[float, float, tuple[float, float]]:
    """turn, ease and warp of an action."""
    first = rng.uniform(*config.phase_warp)
    return rng.uniform(0.25, 0.75), rng.random(), (first, rng.uniform(-1, 1) * (0.95 - abs(first)))


def pick_segment(rng: np.random.Generator, rows: Rows, natural: float, tries: int = 8, offset: int = 0) -> Row:
    """A segment about `natural` frames long: recordings are equally likely, whatever they hold."""
    recordings = rows[:, 0]
    best, badness = rows[0], np.inf
    for _ in range(tries):
        # A random row's recording is biased to rich ones; drawing the recording number first is not.
        at = int(np.searchsorted(recordings, rng.integers(recordings[0], recordings[-1] + 1)))
        at = min(at, len(rows) - 1)
        same = np.searchsorted(recordings, [recordings[at], recordings[at] + 1])
        row = rows[int(rng.integers(same[0], same[1]))]
        off = abs(float(np.log(row[2] / max(natural, 1.0) / 1.3)))
        if off < badness:
            best, badness = row, off
        if off < 1.0:
            break
    return int(best[0]) + offset, int(best[1]), int(best[2])


def choose_way(rng: np.random.Generator, config: GeneratorConfig, segments: Segments) -> str:
    """back, cycle or loop, as far as the recordings allow."""
    draw = rng.random()
    if draw < config.there_and_back or not len(segments.cycle):
        return "back"
    return "cycle" if draw < config.there_and_back + config.natural_cycle else "loop"


def recorded_action(
    rng: np.random.Generator,
    config: GeneratorConfig,
    segments: Segments,
    *,
    source: str,
    period: float,
    alternating: bool,
    way: str | None = None,
) -> Action:
    """An action from a stretch of a recording whose own tempo is not too far from the period."""
    way = way or choose_way(rng, config, segments)
    if alternating:
        way = "back"
    unit = period / 2 if alternating else period
    rows = segments.cycle if way == "cycle" else segments.back
    segment = pick_segment(rng, rows, unit / 2 if way == "back" else unit)
    turn, ease, warp = draw_pace(rng, config)
    name = f"{source}:{way}:{segment[0]}:{segment[1]}:{segment[2]}" + (":alternating" if alternating else "")
    return Action(source, name, way, period, int(rng.integers(2**31)), alternating, turn, ease, warp, segment)


def progress(action: Action, clock: Clock) -> Floats:
    """(F,) how far along the motion: 0 at rest; back: 0 → 1 → 0 a repetition; cycle and loop: 0 → 1."""
    if clock.position is not None:
        return clock.position
    phase = np.clip(warp_phase(clock.phase, *action.warp), 0.0, 1.0)
    return there_and_back(phase, action.turn, action.ease) if action.way == "back" else phase


def reaches(rng: np.random.Generator, config: GeneratorConfig, clock: Clock) -> Floats:
    """(F,) how far each repetition goes, as a part of the full reach; 1 at rest."""
    short = config.reach * rng.random()
    each = 1 - short * np.abs(np.tanh(smooth_noise(rng, np.arange(clock.units + 1.0), 1, 1.5)[0]))
    reach: Floats = np.where(clock.rep >= 0, each[np.clip(clock.rep, 0, clock.units)], 1.0)
    return reach


def may(rng: np.random.Generator, share: float, allowed: bool) -> bool:
    """chance(share) where allowed; draws either way, so that later draws stay the same."""
    return chance(rng, share) and allowed
