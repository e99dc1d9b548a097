"""Real clips whose repetitions are labelled, shown as they were filmed: another tempo, crop, light and codec, but the
motion, its irregularity and what happens beside it are real.

A reel is a row of frames of the bank: a piece of a clip, and where that is too short for the video, the same clip
again or backwards, another clip, or its last picture standing still. Pieces are cut where no repetition is under way;
only the border of the video cuts one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from escounts.errors import DataError
from escounts.synthetic.camera import STILL_CAMERA, compose, draw_camera, draw_finish, place
from escounts.synthetic.coded import draw_squeeze
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.plan import Backdrop, Footage, Plan, draw_backdrop
from escounts.synthetic.timeline import Floats, Ints, Span, chance, halves, log_uniform, smooth_noise

if TYPE_CHECKING:
    from escounts.synthetic.clips import ClipBank

CLASSES = ("none", "one", "two", "more")
CLASS_SHARES = (0.16, 0.16, 0.16, 0.52)
"""How often a clip of no, one, two or more repetitions begins a reel."""
VIEW_STEPS = {3.0: 0.35, 1.5: 0.4, 1.0: 0.25}
"""Frames of a clip (15 a second) per frame shown, and how often: the model looks at 5, 10 and 15 a second."""
TEMPO = 0.35
"""How far, in log, the tempo is moved from that."""
UNSTEADY = 0.12
"""Spread of the tempo within a video, in log: a period that varies."""
LEAST_FRAMES = 2.5
"""Frames shown per repetition, at least."""
FILL = {"another": 0.34, "again": 0.18, "back": 0.18, "freeze": 0.3}
"""What follows a clip that is over, and how often."""
JOIN = 0.12
"""Share of the videos that show a second clip although the first is long enough."""
MOST_PIECES = 5
TRIM = 0.7
"""Share of the clips without the motion before (after) the labelled repetitions, where that takes less than one: it
may be a repetition that the film cuts off, which the labels do not count."""
NO_CAMERA = 0.45
"""Share shown from where they were filmed; the others move a little more."""
SMALL = 0.2
"""Share shown small, before something else: a small part of a busy picture."""
SMALL_SIZE = (0.35, 0.9)


@dataclass(frozen=True)
class LabelledSet:
    """Repetitions of one motion in one clip, (start, end) in frames of the clip. alternates: each has two sides."""

    spans: tuple[Span, ...]
    alternates: bool


@dataclass(frozen=True)
class LabelledClip:
    """Where a clip lies in its bank, and its repetitions. motion: in words; clips of one motion are siblings."""

    first: int
    frames: int
    sets: tuple[LabelledSet, ...]
    motion: str

    @property
    def count(self) -> int:
        """Repetitions of all its motions."""
        return sum(len(one.spans) for one in self.sets)


def read_labels(rows: Sequence[Mapping[str, str]], rate: float) -> dict[str, tuple[tuple[LabelledSet, ...], str]]:
    """File → its sets and its motion, of the rows of a label table (file, motion, count, rep_times, alternates,
    sure); files with a label that is `unsure` are left out. rate: frames per second of the spans."""
    doubted = {row["file"] for row in rows if row["sure"] == "unsure"}
    found: dict[str, tuple[tuple[LabelledSet, ...], str]] = {}
    for row in rows:
        if row["file"] in doubted:
            continue
        spans = []
        for written in row["rep_times"].split():
            start, _, end = written.partition("-")
            spans.append((float(start) * rate, float(end) * rate))
        if len(spans) != int(row["count"]):
            raise DataError(f"{row['file']}: count is {row['count']}, but {len(spans)} repetitions have times")
        sets, motion = found.get(row["file"], ((), row["motion"]))
        if spans:
            sets += (LabelledSet(tuple(spans), bool(row["alternates"])),)
        found[row["file"]] = sets, motion
    return found


@dataclass(frozen=True)
class _Piece:
    """A part of a clip in a reel: frames low..high of it, forwards or backwards, or its last one standing still."""

    clip: LabelledClip
    low: float
    high: float
    way: str = "forward"


def labelled_plan(
    rng: np.random.Generator,
    config: GeneratorConfig,
    bank: ClipBank,
    length: int,
    *,
    clip: LabelledClip | None = None,
) -> Plan:
    """A video of `length` frames of labelled clips. clip: what it begins with; drawn where None."""
    clip = clip or draw_clip(rng, bank.labelled)
    step = _draw_step(rng, clip)
    pace = np.exp(
        UNSTEADY * smooth_noise(rng, np.arange(length, dtype=np.float64) + 0.5, 1, rng.uniform(0.1, 1.0) * length)[0]
    )
    edges = np.concatenate([[0.0], np.cumsum(step * pace)])
    pieces = _draw_pieces(rng, bank.labelled, clip, float(edges[-1]))
    frames, spans, parts, sides = _reel(pieces, edges)
    shown = frames[((edges[:-1] + edges[1:]) / 2).astype(np.int64).clip(0, len(frames) - 1)]
    seen = {part for part, (start, end) in zip(parts, spans, strict=True) if end > 0 and start < length}
    told = {sides[part] for part in seen}
    alternates = told.pop() if len(told) == 1 else None if told else False
    period = float(np.median([end - start for start, end in spans])) if spans else 8.0
    plan = _shoot(rng, config, bank, shown, period)
    plan = replace(
        plan,
        kind="labelled" if spans else "negative:labelled",
        action=f"labelled:{clip.motion}",
        spans=tuple(spans),
        parts=tuple(parts),
        side_spans=halves(spans) if alternates else (),
        alternates=alternates,
    )
    return plan.reversed() if chance(rng, config.reverse) else plan


def draw_clip(rng: np.random.Generator, clips: Sequence[LabelledClip]) -> LabelledClip:
    """A clip, of a class that CLASS_SHARES draws from those that there are."""
    classes: list[list[LabelledClip]] = [[] for _ in CLASSES]
    for clip in clips:
        classes[min(clip.count, 3)].append(clip)
    shares = np.array([share * bool(found) for share, found in zip(CLASS_SHARES, classes, strict=True)])
    chosen = classes[int(rng.choice(len(CLASSES), p=shares / shares.sum()))]
    return chosen[int(rng.integers(len(chosen)))]


def siblings_of(clip: LabelledClip, clips: Sequence[LabelledClip]) -> list[LabelledClip]:
    """Other clips of the same single motion."""
    if len(clip.sets) != 1:
        return []
    alike = [one for one in clips if one.motion == clip.motion and one is not clip and len(one.sets) == 1]
    return [one for one in alike if one.sets[0].alternates == clip.sets[0].alternates]


def _draw_step(rng: np.random.Generator, clip: LabelledClip) -> float:
    """Frames of the clip per frame shown."""
    step = float(rng.choice(list(VIEW_STEPS), p=list(VIEW_STEPS.values()))) * float(
        np.exp(rng.uniform(-TEMPO, TEMPO))
    )
    lengths = [end - start for one in clip.sets for start, end in one.spans]
    return min(step, float(np.median(lengths)) / LEAST_FRAMES) if lengths else step


def _playable(rng: np.random.Generator, clip: LabelledClip) -> tuple[float, float]:
    """First and last frame of a clip that may be shown, see TRIM."""
    low, high = 0.0, float(clip.frames)
    spans = sorted(span for one in clip.sets for span in one.spans)
    if spans and chance(rng, TRIM):
        first, last = spans[0], spans[-1]
        low = first[0] if first[0] < first[1] - first[0] else low
        high = last[1] if high - last[1] < last[1] - last[0] else high
    return low, min(high, float(clip.frames))


def _draw_pieces(
    rng: np.random.Generator, clips: Sequence[LabelledClip], clip: LabelledClip, need: float
) -> list[_Piece]:
    """Pieces that fill `need` frames; one that is long enough begins anywhere."""
    low, high = _playable(rng, clip)
    joined = chance(rng, JOIN) and need > 30
    if high - low >= need and not joined:
        start = rng.uniform(low, high - need)
        return [_Piece(clip, start, start + need)]
    if joined and high - low > 0.6 * need:  # a part of it that ends between repetitions
        low = _between(clip, rng.uniform(low, high - 0.6 * need), low, high)
        high = _between(clip, low + rng.uniform(0.35, 0.6) * need, low, high)
    pieces, filled = [_Piece(clip, low, high)], high - low
    while filled < need:
        way = "another" if joined else str(rng.choice(list(FILL), p=list(FILL.values())))
        joined = False
        last = pieces[-1]
        if len(pieces) == MOST_PIECES:
            way = "freeze"
        if way in ("again", "back") and clip.count == 1:
            way = "freeze"  # a motion that is shown once stays one
        if way == "another":
            other = draw_clip(rng, clips)
            begin, end = _playable(rng, other)
            pieces.append(_Piece(other, begin, end))
        elif way == "again":
            pieces.append(_Piece(last.clip, *_playable(rng, last.clip)))
        elif way == "back" and last.way != "still":
            pieces.append(replace(last, way="forward" if last.way == "backward" else "backward"))
        else:
            end = last.low if last.way == "backward" else last.high
            still = need - filled if chance(rng, 0.6) else rng.uniform(0.05, 0.5) * need
            pieces.append(_Piece(last.clip, end, end + still, "still"))
        filled += pieces[-1].high - pieces[-1].low
    if chance(rng, 0.35) and pieces[-1].way == "still":  # it stands still before it begins, instead
        first = pieces[0]
        pieces = [replace(pieces[-1], clip=first.clip, low=first.low, high=first.low + need), *pieces[:-1]]
        spare = sum(piece.high - piece.low for piece in pieces) - need
        pieces[0] = replace(pieces[0], high=max(pieces[0].low, pieces[0].high - spare))
    return pieces


def _between(clip: LabelledClip, near: float, low: float, high: float) -> float:
    """The frame nearest to `near` at which no repetition is under way."""
    at = near
    for one in clip.sets:
        for start, end in one.spans:
            if start < near < end:
                at = start if near - start < end - near and start > low + 1 else end
    return min(max(at, low + 1), high)


def _reel(pieces: Sequence[_Piece], edges: Floats) -> tuple[Ints, list[Span], list[int], dict[int, bool]]:
    """Frames of the bank one after another, the spans of the repetitions in frames of the video, which motion each
    is of, and whether that motion alternates. edges: where in the reel each frame of the video begins."""
    frames: list[Ints] = []
    found: list[tuple[float, float, int]] = []
    sides: dict[int, bool] = {}
    numbers: dict[tuple[int, int], int] = {}
    begun = 0.0
    for piece in pieces:
        lasts = piece.high - piece.low
        at = np.arange(int(np.ceil(begun)), int(np.ceil(begun + lasts))) - begun
        way = piece.way
        inside = piece.low + at if way == "forward" else piece.high - at if way == "backward" else 0 * at + piece.low
        frames.append(piece.clip.first + inside.astype(np.int64).clip(0, piece.clip.frames - 1))
        for number, one in enumerate(piece.clip.sets if way != "still" else ()):
            part = numbers.setdefault((piece.clip.first, number), len(numbers))
            sides[part] = one.alternates
            for start, end in one.spans:
                if way == "forward":
                    span = begun + start - piece.low, begun + end - piece.low
                else:
                    span = begun + piece.high - end, begun + piece.high - start
                # Within the reel a piece shows whole repetitions; the first and the last may be cut by the border.
                whole = span[0] >= begun - 0.5 and span[1] <= begun + lasts + 0.5
                only = len(pieces) == 1 and min(span[1], lasts) - max(span[0], 0.0) > 0
                if whole or only:
                    found.append((*span, part))
        begun += lasts
    reel = np.concatenate(frames)
    spans, parts = [], []
    for start, end, part in sorted(found):
        if end > edges[0] and start < edges[-1]:
            spans.append((_place(start, edges), _place(end, edges)))
            parts.append(part)
    return reel, spans, parts, sides


def _place(at: float, edges: Floats) -> float:
    """Where a point of the reel lies in the video, in frames; beyond its borders at the pace there."""
    if at < edges[0]:
        return float((at - edges[0]) / (edges[1] - edges[0]))
    if at > edges[-1]:
        return float(len(edges) - 1 + (at - edges[-1]) / (edges[-1] - edges[-2]))
    return float(np.interp(at, edges, np.arange(len(edges))))


def _shoot(rng: np.random.Generator, config: GeneratorConfig, bank: ClipBank, shown: Ints, period: float) -> Plan:
    """A plan without repetitions yet that shows these frames of the bank."""
    length = len(shown)
    times = np.arange(length, dtype=np.float64) + 0.5
    camera = STILL_CAMERA if chance(rng, NO_CAMERA) else config
    back, front = draw_camera(rng, camera, times, aspect=float(np.exp(rng.uniform(-0.3, 0.3))), calm=True)
    seed = int(rng.integers(2**62))
    finish = draw_finish(rng, config, length, period=period, squeeze=draw_squeeze(rng, config))
    backdrop, footage = Backdrop(back, frames=shown), None
    if chance(rng, SMALL):
        size = log_uniform(rng, *SMALL_SIZE)
        x, y = rng.uniform(-1, 1, 2) * (1 - size) * 0.9
        lens = compose(place(size, 0.0, x, y, length), front.astype(np.float64)).astype(np.float32)
        still = np.zeros(length, np.float32)
        footage = Footage(lens=lens, first=shown, part=still, other=shown, fade=still, mask=int(rng.integers(1, 3)))
        around = draw_clip(rng, bank.labelled)
        if chance(rng, 0.3):
            backdrop = Backdrop(back, image=draw_backdrop(rng))
        else:  # a still, or what does not repeat going on once
            begin = int(rng.integers(max(1, around.frames - length)))
            moves = around.count == 0
            track = around.first + begin + (np.arange(length) if moves else np.zeros(length)).astype(np.int64)
            backdrop = Backdrop(back, frames=track.clip(around.first, around.first + around.frames - 1))
    return Plan(
        length=length, subframes=1, kind="", action="", seed=seed, spans=(), side_spans=(), alternates=None,
        backdrop=backdrop, footage=footage, shapes=None, finish=finish,
    )  # fmt: skip
