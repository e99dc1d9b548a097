"""What is repeated: an action is drawn once and can be staged many times, which makes siblings.

Actions of footage and of motion capture are stretches of it, found by the distances between their frames. One stretch
holds one motion: it changes enough, has no cut, and does not come back to an earlier state half way. numpy only;
deterministic.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.timeline import Clock, Floats, chance, seeded, smooth_noise, there_and_back, warp_phase

Rows = npt.NDArray[np.int64]
Distances = npt.NDArray[np.float32]
T = TypeVar("T")


@dataclass(frozen=True)
class Mining:
    """Thresholds, as parts of the typical size of a frame's features."""

    moves: float = 0.25
    """A stretch moves if two of its frames are at least this far apart."""
    still: float = 0.12
    """A stretch is quiet if no two of its frames are further apart than this."""
    jump: float = 0.75
    """A step this large, as a part of the stretch's whole reach, is a cut."""
    apart: float = 0.40
    """Frames of a there-and-back stretch more than 0.4 of its length apart differ by this part of its reach."""
    returns: float = 0.45
    """A cycle closes when it comes back to within this part of its reach."""
    longest: int = 75
    per_recording: int = 50


@dataclass(frozen=True)
class Segments:
    """Rows of (recording, first frame within it, length): frames first..first + length belong to it.

    back: one motion, to be played there and back. cycle: ends where it began. quiet: hardly anything moves.
    once: something happens that does not come back, to be played as it is. coded: a still picture that went through
    a codec, see `coded`. filmed: repetitions as they were filmed, one row each, those of a recording in order.
    """

    back: Rows
    cycle: Rows
    quiet: Rows
    once: Rows
    coded: Rows = field(default_factory=lambda: _rows([]))
    filmed: Rows = field(default_factory=lambda: _rows([]))

    @staticmethod
    def joined(found: Iterable[Segments]) -> Segments:
        """All rows of several recordings' segments."""
        parts = list(found)
        names = [each.name for each in fields(Segments)]
        return Segments(
            **{name: np.concatenate([_rows([]), *(getattr(part, name) for part in parts)]) for name in names}
        )


def _rows(found: list[tuple[int, int, int]]) -> Rows:
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def distances(features: npt.NDArray[np.float32]) -> tuple[Distances, float]:
    """(n, n) Euclidean distances of the rows of features (n, d), and the typical length of a row."""
    square = (features * features).sum(1)
    apart = square[:, None] + square[None] - 2 * features @ features.T
    return np.sqrt(np.maximum(apart, 0)).astype(np.float32), float(np.sqrt(square).mean())


def mine(recording: int, features: npt.NDArray[np.float32], mining: Mining, scale: float | None = None) -> Segments:
    """Segments of one recording. features (n, d): one row per frame. scale: typical row length, if known."""
    far, typical = distances(features)
    typical = typical if scale is None else scale
    rng = seeded(recording, len(features))
    back, quiet = _strokes(recording, far, typical, mining, rng)
    return Segments(
        back=_rows(back),
        cycle=_rows(_cycles(recording, far, typical, mining)),
        quiet=_rows(quiet),
        once=_rows(_once(recording, far, typical, mining, rng)),
    )


def _strokes(
    recording: int, far: Distances, typical: float, mining: Mining, rng: np.random.Generator
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """There-and-back stretches and quiet ones, by drawing stretches at random and testing them."""
    count = len(far)
    back: list[tuple[int, int, int]] = []
    quiet: list[tuple[int, int, int]] = []
    wanted = min(mining.per_recording, 4 + count // 4)
    for _ in range(4 * wanted):
        length = int(np.exp(rng.uniform(np.log(4), np.log(max(6, min(50, count - 1))))))
        if length >= count or len(back) >= wanted:
            continue
        start = int(rng.integers(0, count - length))
        inside = far[start : start + length + 1, start : start + length + 1]
        reach = float(inside.max())
        if reach < mining.still * typical:
            if len(quiet) < wanted // 3:
                quiet.append((recording, start, length))
            continue
        if reach < mining.moves * typical:
            continue
        if length > 5 and float(np.diagonal(inside, 1).max()) > mining.jump * reach:
            continue
        gap = max(2, int(0.4 * length))
        if float(inside[np.triu_indices(length + 1, gap)].min()) > mining.apart * reach:
            back.append((recording, start, length))
    return back, quiet


def _cycles(recording: int, far: Distances, typical: float, mining: Mining) -> list[tuple[int, int, int]]:
    """Natural cycles: from a frame to its first clear return."""
    count = len(far)
    found = []
    for start in range(0, count - 6, max(1, count // 120)):
        row = far[start, start : start + mining.longest + 1]
        peak = np.maximum.accumulate(row)
        lags = np.arange(len(row))
        close = (row < mining.returns * peak) & (peak > mining.moves * typical) & (lags >= 5)
        close[1:-1] &= (row[1:-1] <= row[:-2]) & (row[1:-1] <= row[2:])
        close[-1] = False
        for lag in np.flatnonzero(close):
            middle = row[max(2, lag // 4) : max(3, (3 * lag) // 4 + 1)]
            steps = np.diagonal(far, 1)[start : start + lag]
            if middle.min() > 0.5 * peak[lag] and steps.max() < mining.jump * peak[lag]:
                found.append((recording, start, int(lag)))
                break
    return found


def _once(
    recording: int, far: Distances, typical: float, mining: Mining, rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    """Stretches that move but in which no lag brings the recording back."""
    count = len(far)
    found = []
    for _ in range(min(12, 1 + count // 20)):
        length = int(rng.integers(min(20, count - 1), min(128, count - 1) + 1))
        if length < 12:
            continue
        start = int(rng.integers(0, count - length))
        inside = far[start : start + length + 1, start : start + length + 1]
        if float(inside.max()) < mining.moves * typical:
            continue
        mean = np.array([np.diagonal(inside, lag).mean() for lag in range(1, int(0.7 * length))])
        peak = np.maximum.accumulate(mean)
        if float(((peak - mean) / peak).max()) < 0.08:
            found.append((recording, start, length))
    return found


Row = tuple[int, int, int]


@dataclass(frozen=True)
class Action:
    """source: clips, sprite, motion, exercise or mechanism. way: back (there and back), cycle, loop, or filmed (one
    repetition after another as a clip shows them).

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


def draw_pace(rng: np.random.Generator) -> tuple[float, float, tuple[float, float]]:
    """turn, ease and warp of an action."""
    first = rng.uniform(-0.6, 0.6)
    return rng.uniform(0.25, 0.75), rng.random(), (first, rng.uniform(-1, 1) * (0.95 - abs(first)))


def pick_segment(rng: np.random.Generator, rows: Rows, natural: float) -> Row:
    """A segment about `natural` frames long: recordings are equally likely, whatever they hold."""
    recordings = rows[:, 0]
    best, badness = rows[0], np.inf
    for _ in range(8):
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
    return int(best[0]), int(best[1]), int(best[2])


def choose_way(rng: np.random.Generator, segments: Segments) -> str:
    """back, cycle or loop (with a hard or a cross-faded seam), as far as the recordings allow."""
    draw = rng.random()
    if draw < 0.5 or not len(segments.cycle):
        return "back"
    return "cycle" if draw < 0.8 else "loop"


def recorded_action(
    rng: np.random.Generator,
    segments: Segments,
    *,
    source: str,
    period: float,
    alternating: bool,
    way: str | None = None,
) -> Action:
    """An action from a stretch of a recording whose own tempo is not too far from the period."""
    way = way or choose_way(rng, segments)
    if alternating:
        way = "back"
    unit = period / 2 if alternating else period
    rows = segments.cycle if way == "cycle" else segments.back
    segment = pick_segment(rng, rows, unit / 2 if way == "back" else unit)
    turn, ease, warp = draw_pace(rng)
    name = f"{source}:{way}:{segment[0]}:{segment[1]}:{segment[2]}" + (":alternating" if alternating else "")
    return Action(source, name, way, period, int(rng.integers(2**31)), alternating, turn, ease, warp, segment)


def progress(action: Action, clock: Clock) -> Floats:
    """(F,) how far along the motion: 0 at rest; back: 0 → 1 → 0 a repetition; the others: 0 → 1."""
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


def by_processes(job: Callable[[int], T], number: int, workers: int) -> list[T]:
    """job(0) … job(number - 1), in forked processes, which see the recordings without a copy."""
    global _job
    if workers <= 1 or number <= 1:
        return [job(index) for index in range(number)]
    _job = job
    with forked_pool(workers) as pool:
        return list(pool.map(_run_job, range(number), chunksize=2))


def forked_pool(workers: int, begin: Callable[[], None] | None = None) -> ProcessPoolExecutor:
    """Processes that share what this one holds without a copy; to be forked before a GPU is first used."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), begin)


_job: Callable[[int], Any]


def _run_job(index: int) -> Any:
    return _job(index)
