"""Folders that are made here: your own videos with a labels.csv, and generated ones.

Two forms, told apart by their columns. One row per repetition: `file, start_s, end_s` (and `class`, `split`). One
row per video: `file, count` (and `class`, `split`), when nobody marked the times; repetitions are then an even
division. Such a row may state `duration_s`, so that the video need not be opened for it, and one marked repetition,
`exemplar_start_s` and `exemplar_end_s`. A video with no repetition is a row with empty start and end, or count 0.
`set` is taken for `class` where there is none. A table of sets, with `t_start` and `t_end`, is read by `sets.py`.

`synthetic` are generated videos on disk in the form of RepCount, so that the whole chain runs anywhere. They come
from the project's one generator (`escounts.synthetic`), drawn by code alone; each split has a seed of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import escounts
from escounts.counting.density import pseudo_spans
from escounts.errors import DataError, VideoError
from escounts.output.text import csv_text
from escounts.research.datasets import sets, timed
from escounts.research.datasets.annotation_formats.tables import class_of, file_of, span_of
from escounts.research.datasets.annotations import (
    MOST_REPETITIONS,
    Dataset,
    Problem,
    Row,
    Span,
    VideoAnnotation,
    assemble,
    number,
    overlap_problem,
    read_rows,
)
from escounts.synthetic import Generator, synthetic_videos
from escounts.synthetic.generator import DATASET
from escounts.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from escounts.synthetic import SyntheticVideo

SEEDS = {"train": 11, "valid": 22, "test": 33}
MADE = "made.json"
LABELS = "labels.csv"
HELD_OUT = 5
"""Without a split column, one video in this many is held out for validation (by its name, so it stays put)."""

Duration = Callable[[Path], float]


def load_folder(root: Path, *, duration: Duration | None = None, only: str | None = None) -> Dataset:
    """Own videos under `root` with their labels.csv, or a table of that form itself, the videos beside it.

    duration: seconds of a video file, for counts only. only: of the rows, those of this class.
    """
    if not root.exists():
        raise DataError(f"no folder {root}: give the place of your videos with --root")
    path = root if root.is_file() else root / LABELS
    root = path.parent
    rows = read_rows(path, need=("file",))
    if not rows:
        raise DataError(f"{path} has no rows")
    if rows[0].keys() >= sets.TIMES:
        return sets.load_sets(rows, only=only)
    by_time = {"start_s", "end_s"} <= rows[0].keys()
    if not by_time and "count" not in rows[0]:
        raise DataError(f"{path} needs columns start_s and end_s, or count; it has {', '.join(rows[0])}")
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        if only is None or _action(row) == only:
            grouped.setdefault(file_of(row).strip(), []).append(row)
    if only is not None and not grouped:
        there = sorted(set(map(_action, rows)))
        raise DataError(f"there is no class {only!r}; there are {', '.join(map(repr, there))}")
    splits = _splits(grouped, stated="split" in rows[0])
    found: list[VideoAnnotation | Problem] = []
    for file, group in grouped.items():
        if by_time:
            found.extend(_timed(file, group, splits[file]))
        else:
            found.extend(_counted(file, group, splits[file], root, duration or video_seconds))
    counts = {split: sum(s == split for s in splits.values()) for split in dict.fromkeys(splits.values())}
    return assemble("folder", found, counts, video_folders=("{file}", "videos/{file}"))


def video_seconds(path: Path) -> float:
    """Seconds of a video file, by opening it."""
    return float(escounts.Video(path).info.duration)


def _timed(file: str, rows: list[Row], split: str) -> Iterable[VideoAnnotation | Problem]:
    spans: list[Span] = []
    problems: list[str] = []
    for row in rows:
        try:
            spans.extend([span] if (span := span_of(row)) is not None else [])
        except DataError as error:
            problems.append(str(error))
    if len(classes := dict.fromkeys(_action(row) for row in rows)) > 1:
        what = f"its rows are of several classes ({', '.join(classes)}), and all are counted as {_action(rows[0])}"
        yield Problem(split, file, what)
    yield from (Problem(split, file, what, unusable=True) for what in problems)
    if problems and not spans:
        return
    if (overlap := overlap_problem(spans)) is not None:
        yield Problem(split, file, overlap, unusable=True)
        return
    yield _video(file, rows, split, len(spans), tuple(sorted(spans)))


def _counted(
    file: str, rows: list[Row], split: str, root: Path, duration: Duration
) -> Iterable[VideoAnnotation | Problem]:
    if len(rows) > 1:
        yield Problem(split, file, f"appears {len(rows)} times in {LABELS}; the first is kept", unusable=True)
    count = number(rows[0], "count", most=MOST_REPETITIONS)
    if count is None or count < 0 or count != round(count):
        yield Problem(split, file, f"count {rows[0]['count']!r} is not a whole number", unusable=True)
        return
    path = root / file
    seconds = number(rows[0], "duration_s") if "duration_s" in rows[0] else None
    if seconds is None and not os.path.exists(path):
        yield Problem(split, file, "no such video", unusable=True)
        return
    try:
        seconds = duration(path) if seconds is None else seconds
    except VideoError as error:
        yield Problem(split, file, f"cannot be read: {error}", unusable=True)
        return
    spans = tuple(pseudo_spans(int(count), 0.0, seconds))
    yield _video(file, rows, split, int(count), spans, seconds=seconds, pseudo=True, marked=_marked(rows[0]))


def _marked(row: Row) -> tuple[Span, ...]:
    """The one repetition that a row of counts may mark."""
    if not {"exemplar_start_s", "exemplar_end_s"} <= row.keys():
        return ()
    start, end = number(row, "exemplar_start_s"), number(row, "exemplar_end_s")
    return ((start, end),) if start is not None and end is not None and 0 <= start < end else ()


def _video(
    file: str,
    rows: list[Row],
    split: str,
    count: int,
    spans: tuple[Span, ...],
    *,
    seconds: float | None = None,
    pseudo: bool = False,
    marked: tuple[Span, ...] = (),
) -> VideoAnnotation:
    return VideoAnnotation(
        name=file,
        file=file,
        action=_action(rows[0]),
        count=count,
        spans=spans,
        fps=None,
        duration=seconds,
        split=split,
        pseudo=pseudo,
        marked=marked,
    )


def _action(row: Row) -> str:
    return (class_of(row) or row.get("set") or "").strip() or "mine"


def _splits(grouped: dict[str, list[Row]], *, stated: bool) -> dict[str, str]:
    """The split of every file: as stated, else one in five held out; at least one when there are two."""
    if stated:
        return {file: rows[0].get("split", "").strip() or "train" for file, rows in grouped.items()}
    ranked = sorted(grouped, key=lambda file: crc32(file.encode()))
    held = len(ranked) // HELD_OUT or (1 if len(ranked) > 1 else 0)
    return {file: "valid" if file in ranked[:held] else "train" for file in grouped}


@dataclass(frozen=True)
class SyntheticSet:
    """What to draw: videos of each split, frames a second, height and width, shortest and longest in seconds.

    period: shortest and longest repetition in frames. calm: a still or gentle camera and one action per video.
    """

    train: int = 160
    valid: int = 16
    test: int = 48
    fps: float = 15.0
    size: tuple[int, int] = (128, 160)
    seconds: tuple[float, float] = (5.0, 12.0)
    period: tuple[float, float] = (6.0, 60.0)
    calm: bool = False
    seed: int = 0


QUICK = SyntheticSet(
    train=144, valid=8, test=40, fps=10.0, size=(96, 96), seconds=(8.0, 8.0), period=(4.0, 30.0), calm=True
)
"""Small, calm, and of one length, so that a quick table is quick."""

CALM: Mapping[str, Any] = {
    "camera_still": 0.6,
    "camera_gentle": 0.4,
    "camera_strong": 0.0,
    "camera_fast": 0.0,
    "shake": 0.1,
    "pan": 0.0,
    "zoom": 0.0,
    "second_action": 0.0,
}


def load_generated(root: Path) -> Dataset:
    """The generated dataset under root; make it first with create()."""
    if not (root / MADE).exists():
        raise DataError(
            f"{root} holds no generated dataset; make one with: escounts data make synthetic --root {root}"
        )
    return replace(timed.load_repcount(root), name="synthetic", published={})


def create(root: Path, what: SyntheticSet | None = None) -> Dataset:
    """Draw the videos and write them with their label tables; a finished set of the same kind is kept."""
    what = what or SyntheticSet()
    made = (json.dumps(asdict(what), sort_keys=True) + "\n").encode()
    if (root / MADE).exists() and (root / MADE).read_bytes() == made:
        return load_generated(root)
    begun = root / f"{MADE}.begun"
    if root.exists() and any(root.iterdir()) and not (root / MADE).exists() and not begun.exists():
        raise DataError(
            f"{root} holds files and no generated dataset; nothing was changed. Choose a new or empty folder"
        )
    write_bytes(begun, made)  # a run that was stopped goes on; somebody's own dataset has no such file
    (root / "annotation").mkdir(parents=True, exist_ok=True)
    for split in timed.REPCOUNT_SPLITS:
        folder = root / "video" / split
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for video in _drawn(what, split):
            name = f"{split}_{video.name}.mp4"
            write_video(folder / name, video)
            rows.append(_row(name, video))
        write_bytes(root / "annotation" / f"{split}.csv", _table(rows))
    write_bytes(root / MADE, made)
    begun.unlink()
    return load_generated(root)


def _drawn(what: SyntheticSet, split: str) -> Iterator[SyntheticVideo]:
    number: int = getattr(what, split)
    seed = SEEDS[split] + 1000 * what.seed
    config = replace(DATASET, period=what.period, **(CALM if what.calm else {}))
    generator = Generator(config, seed=seed)
    return synthetic_videos(number, seed, generator=generator, fps=what.fps, size=what.size, seconds=what.seconds)


def write_video(path: Path, video: SyntheticVideo) -> None:
    """An H.264 file of the frames, whole or absent: the same bytes every time.

    x264's fastest instructions are not the same twice on noisy frames; "cpu-independent" does without them.
    """
    from escounts.output.mp4 import write_movie  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    height, width = video.frames.shape[1:3]
    write_movie(
        path,
        video.frames,
        size=(width, height),
        rate=Fraction(video.fps).limit_denominator(1001),
        options={"crf": "20", "preset": "veryfast", "threads": "1", "x264-params": "cpu-independent=1"},
    )


def _row(name: str, video: SyntheticVideo) -> dict[str, object]:
    frames = len(video.frames)
    row: dict[str, object] = {"type": video.action, "name": name, "count": len(video.spans)}
    edges = [edge for span in video.spans for edge in span]
    row |= {f"L{place}": round(edge * video.fps, 3) for place, edge in enumerate(edges, start=1)}
    return row | {"fps": video.fps, "duration": frames / video.fps, "num_frames": frames}


def _table(rows: list[dict[str, object]]) -> bytes:
    most = max((len([key for key in row if key.startswith("L")]) for row in rows), default=0)
    labels = [f"L{place}" for place in range(1, most + 1)]
    columns = ["type", "name", "count", *labels, "fps", "duration", "num_frames"]
    return csv_text(columns, ([row.get(column) for column in columns] for row in rows)).encode()
