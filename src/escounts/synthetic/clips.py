"""A bank of real clips: small frames in one array, the stretches of them that can be repeated, and which of its
frames are shown when."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from escounts.errors import DataError
from escounts.synthetic.actions import (
    Action,
    Mining,
    Segments,
    by_processes,
    mine,
    pick_segment,
    progress,
    reaches,
)
from escounts.synthetic.coded import coded_still, draw_recipe
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.labelled import LabelledClip, read_labels
from escounts.synthetic.timeline import AFTER, BEFORE, LEAD_STILL, Clock, Floats, chance, seeded

Frames = npt.NDArray[np.uint8]
PERMISSIVE = ("Apache", "MIT", "BSD", "Attribution 4.0", "CC0", "Unlicense")
"""What a licence must mention for a clip to be used in shipped weights."""
LABEL_COLUMNS = ("file", "split", "motion", "count", "rep_times", "alternates", "sure")
RATE = 15.0
"""Frames of a clip per second."""
LEAST_FRAMES = 6
"""Of a clip; of fewer nothing can be cut."""
ONCE_LONGEST = 120
"""Frames of a stretch of a clip that does not repeat."""


def pool_rows(table: str | Path, need: tuple[str, ...] = ("file", "licence")) -> list[dict[str, str]]:
    """The rows of a clip table (file, kind, type, duration_s, source, source_path, licence).

    need: columns it must have.
    """
    path = Path(table)
    if not path.is_file():
        raise DataError(f"no clip table at {path}: expected a CSV with the columns {' and '.join(need)}")
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if rows and not set(need) <= set(rows[0]):
        raise DataError(f"{path} has the columns {', '.join(rows[0])}, expected {' and '.join(need)} among them")
    return rows


def _name(path: str | Path) -> str:
    """FOLDER/NAME of a file."""
    return "/".join(Path(path).parts[-2:])


def permissive(rows: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The rows whose licence lets weights trained on the clip be shipped."""
    return [row for row in rows if any(name in row["licence"] for name in PERMISSIVE)]


class ClipBank:
    """frames (N, size, size, 3) uint8 RGB at one rate; clip i is frames[offsets[i]:offsets[i + 1]]."""

    def __init__(
        self,
        frames: Frames,
        offsets: Sequence[int],
        names: Sequence[str],
        segments: Segments | None = None,
        labelled: Sequence[LabelledClip] = (),
    ):
        self.frames = frames
        self.labelled = tuple(labelled)
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.names = list(names)
        if len(self.offsets) != len(self.names) + 1 or self.offsets[-1] != len(frames):
            raise DataError(
                f"{len(self.names)} clips need {len(self.names) + 1} offsets that end at {len(frames)} frames, "
                f"got {len(self.offsets)} that end at {self.offsets[-1]}"
            )
        self.segments = segments if segments is not None else self._mine(1)
        self._on: dict[str, Tensor] = {}

    @classmethod
    def from_files(cls, paths: Sequence[str | Path], *, size: int = 144, workers: int = 4) -> ClipBank:
        """Decode clips (PyAV) and mine them.

        A clip is called FOLDER/NAME: two folders may have a 0035.mp4 each. Clips that do not decode or have fewer
        than LEAST_FRAMES are left out.
        """
        kept = _decoded([(_name(path), path) for path in paths], size, workers)
        if not kept:
            raise DataError(
                f"none of {len(paths)} clips could be decoded: check the paths and that PyAV is installed"
            )
        empty = cls(np.zeros((0, size, size, 3), np.uint8), [0], [], Segments.joined([]))
        bank = empty._changed(empty.segments, kept)
        bank.segments = bank._mine(workers)
        return bank

    def without_negatives_of(self, names: Iterable[str]) -> ClipBank:
        """This bank, in which no stretch of the clips of those names, in whatever folder, counts as one that does not
        repeat."""
        listed = set(names)
        recordings = [index for index, name in enumerate(self.names) if Path(name).name in listed]
        once = self.segments.once
        return self._changed(replace(self.segments, once=once[~np.isin(once[:, 0], recordings)]))

    def with_coded_stills(self, number: int, *, workers: int = 4) -> ClipBank:
        """This bank and, after its clips, single frames of them that went through real codecs as still videos."""
        filmed = self.filmed

        def one(index: int) -> Frames:
            picture = self.frames[int(seeded(index, 40).integers(filmed))]
            return coded_still(picture, draw_recipe(index), size=self.frames.shape[1])

        stills = by_processes(one, number, workers)
        rows = [(len(self.names) + index, 0, len(still)) for index, still in enumerate(stills)]
        segments = replace(self.segments, coded=np.array(rows, np.int64).reshape(-1, 3))
        return self._changed(segments, [(f"coded:{index}", still) for index, still in enumerate(stills)])

    def with_filmed_repetitions(self, table: str | Path) -> ClipBank:
        """This bank and what a table says was filmed: `file`, and `borders_s`, the seconds at which one repetition
        ends and the next begins, with blanks between them, or nothing where the clip does not repeat.

        Of a clip that does not repeat every stretch is one, also those that the miner thinks come back. Clips that
        are not in the bank are passed over; raises DataError where none is.
        """
        numbers = {name: index for index, name in enumerate(self.names)}
        rows: list[tuple[int, int, int]] = []
        once: list[tuple[int, int, int]] = []
        there = 0
        for listed in pool_rows(table, need=("file", "borders_s")):
            file = Path(listed["file"])
            clip = numbers.get(_name(file), numbers.get(file.name))  # the latter where a clip has no folder
            if clip is None:
                continue
            there += 1
            last = int(self.offsets[clip + 1] - self.offsets[clip]) - 1
            borders = [min(round(float(at) * RATE), last) for at in listed["borders_s"].split()]
            rows += [(clip, begin, end - begin) for begin, end in pairwise(borders) if end > begin]
            if not borders:
                lasts = min(last, ONCE_LONGEST)
                once += [(clip, begin, lasts) for begin in range(0, last - lasts + 1, max(1, lasts // 2))]
        if not there:
            raise DataError(f"{table} names no clip of the {len(self.names)} that there are: FOLDER/NAME is compared")
        filmed, more = (np.array(found, np.int64).reshape(-1, 3) for found in (sorted(rows), once))
        once_all = np.concatenate([self.segments.once, more])
        return self._changed(
            replace(self.segments, filmed=filmed, once=once_all[np.lexsort(once_all.T[::-1])]),
        )

    def with_labelled(self, table: str | Path, *, workers: int = 4) -> ClipBank:
        """This bank and, at its end, the clips of a label table's split `train`, whose `file` lies beside the table.

        They are shown as they were filmed; no motion is cut from them. Clips that do not decode are left out.
        """
        rows = [row for row in pool_rows(table, need=LABEL_COLUMNS) if row["split"] == "train"]
        labels = read_labels(rows, RATE)
        kept = _decoded([(file, Path(table).parent / file) for file in labels], self.frames.shape[1], workers)
        if not kept:
            raise DataError(f"{table}: none of {len(labels)} clips of split 'train' could be decoded")
        ends = np.cumsum([len(clip) for _, clip in kept]) + len(self.frames)
        labelled = [
            LabelledClip(int(end) - len(clip), len(clip), *labels[file])
            for (file, clip), end in zip(kept, ends, strict=True)
        ]
        return self._changed(self.segments, [(f"labelled:{file}", clip) for file, clip in kept], labelled)

    def _changed(
        self,
        segments: Segments,
        more: Sequence[tuple[str, Frames]] = (),
        labelled: Sequence[LabelledClip] = (),
    ) -> ClipBank:
        """This bank with other segments, and more clips, (name, frames) each, behind its own."""
        ends = np.cumsum([0, *(len(clip) for _, clip in more)])[1:] + self.offsets[-1]
        frames = np.concatenate([self.frames, *(clip for _, clip in more)]) if more else self.frames
        names = [*self.names, *(name for name, _ in more)]
        return ClipBank(frames, [*self.offsets.tolist(), *ends.tolist()], names, segments, labelled)

    @property
    def filmed(self) -> int:
        """Frames of clips; what follows in the array are coded stills and labelled clips."""
        coded = self.segments.coded
        if len(coded):
            return int(self.offsets[coded[0, 0]])
        return self.labelled[0].first if self.labelled else len(self.frames) or int(self.offsets[-1])

    def on(self, device: torch.device | str) -> Tensor:
        """The frames as a tensor on a device; moved there once."""
        key = str(device)
        if key not in self._on:
            self._on[key] = torch.from_numpy(self.frames).to(device)
        return self._on[key]

    def __getstate__(self) -> dict[str, object]:
        """Worker processes plan, they do not render: the frames stay behind."""
        state = dict(self.__dict__)
        state["_on"] = {}
        state["frames"] = np.zeros((0, *self.frames.shape[1:]), np.uint8)
        return state

    def _mine(self, workers: int) -> Segments:
        bounds = list(pairwise(self.offsets))

        def one(clip: int) -> Segments:
            first, last = bounds[clip]
            return mine(clip, appearance(self.frames[first:last]), Mining())

        return Segments.joined(by_processes(one, len(bounds), workers))


def appearance(frames: Frames, cells: int = 24) -> npt.NDArray[np.float32]:
    """(n, cells²) brightness of a coarse grid, each cell against its surroundings: what moves, not how bright."""
    n, height, width, _ = frames.shape
    step = (height // cells, width // cells)
    cut = frames[:, : step[0] * cells, : step[1] * cells]
    grid = cut.reshape(n, cells, step[0], cells, step[1], 3).mean((2, 4, 5), dtype=np.float32)
    padded = np.pad(grid, ((0, 0), (3, 3), (3, 3)), mode="edge")

    def box(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        total = values.cumsum(1, dtype=np.float64)
        total = np.concatenate([total[:, 6:7], total[:, 7:] - total[:, :-7]], 1).cumsum(2)
        total = np.concatenate([total[:, :, 6:7], total[:, :, 7:] - total[:, :, :-7]], 2)
        return (total / 49).astype(np.float32)

    mean = box(padded)
    spread = np.sqrt(np.maximum(box(padded * padded) - mean * mean, 0))
    against: npt.NDArray[np.float32] = ((grid - mean) / (spread + 12.0)).reshape(n, -1).astype(np.float32)
    return against


def _decoded(clips: Sequence[tuple[str, str | Path]], size: int, workers: int) -> list[tuple[str, Frames]]:
    """(name, frames) of the clips, (name, path) each, that decode and have LEAST_FRAMES."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        frames = pool.map(lambda clip: _decode(clip[1], size), clips)
        return [(name, one) for (name, _), one in zip(clips, frames, strict=True) if len(one) >= LEAST_FRAMES]


def _decode(path: str | Path, size: int) -> Frames:
    """(n, size, size, 3) frames, RATE a second, squashed to a square; none where the file does not decode."""
    import av  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    frames: list[Frames] = []
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            begin: float | None = None
            for frame in container.decode(stream):
                at = float(frame.time) if frame.time is not None else len(frames) / RATE
                begin = at if begin is None else begin
                while len(frames) <= (at - begin) * RATE + 0.25:
                    small = frame.reformat(width=size, height=size, format="rgb24", interpolation="AREA")
                    frames.append(np.asarray(small.to_ndarray(), dtype=np.uint8))
    except (av.error.FFmpegError, OSError, IndexError):
        return np.zeros((0, size, size, 3), np.uint8)
    return np.stack(frames) if frames else np.zeros((0, size, size, 3), np.uint8)


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


def with_surroundings(rng: np.random.Generator, bank: ClipBank, action: Action, clock: Clock, track: Track) -> Track:
    """Put something before the first and after the last repetition: a still, the same clip, another clip."""
    at, other, fade = (values.copy() for values in track)
    low = float(bank.offsets[action.segment[0]])
    high = float(bank.offsets[action.segment[0] + 1] - 1)
    rest = low + action.segment[1]
    for stage in (BEFORE, AFTER):
        where = np.flatnonzero(clock.stage == stage)
        draw = rng.random()
        if len(where) < 2 or chance(rng, LEAD_STILL):
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
