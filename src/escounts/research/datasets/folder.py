"""Your own videos with a labels.csv, or any table of that form with the videos beside it.

Three forms, told apart by their columns:

- one row per repetition: `file, start_s, end_s`; a video without repetitions is a row without times.
- one row per video: `file, count`, when nobody marked the times; repetitions are then an even division. Such a row
  may state `duration_s`, so that the video need not be opened for it, and one marked repetition, `exemplar_start_s`
  and `exemplar_end_s`.
- one row per set of repetitions, `file, count, t_start, t_end`. With `rep_times` ("9.4-11.6 12.0-13.7", seconds)
  every repetition is known; a file whose sets are of one motion is then one video from its first frame to its last.
  Otherwise each set is a video of its own, from t_start to t_end. A set may have a marked repetition, too.

Each may have a `split` (`val` is `valid`) and a `class` (or `set`; of sets `motion` or `action`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import escounts
from escounts.counting.maps import pseudo_spans
from escounts.errors import DataError, VideoError
from escounts.research.datasets.annotation_formats.tables import class_of, file_of, spans_of
from escounts.research.datasets.annotations import (
    Dataset,
    Problem,
    Row,
    Span,
    VideoAnnotation,
    assemble,
    number,
    overlap_problem,
    read_rows,
    whole_count,
)

LABELS = "labels.csv"
HELD_OUT = 5
"""Without a split column, one video in this many is held out for validation (by its name, so it stays put)."""
SET_TIMES = {"t_start", "t_end"}
"""Columns by which a table of sets is told from others."""

Found = Iterator[VideoAnnotation | Problem]


def load_folder(root: Path, *, only: str | None = None) -> Dataset:
    """Own videos under `root` with their labels.csv, or a table of that form itself, the videos beside it.

    only: of the rows, those of this class.
    """
    if not root.exists():
        raise DataError(f"no folder {root}: give the place of your videos with --root")
    path = root if root.is_file() else root / LABELS
    root = path.parent
    rows = read_rows(path, need=("file",))
    if not rows:
        raise DataError(f"{path} has no rows")
    columns = rows[0].keys()
    of_sets, by_time = columns >= SET_TIMES, {"start_s", "end_s"} <= columns
    if not of_sets and not by_time and "count" not in columns:
        raise DataError(f"{path} needs columns start_s and end_s, or count; it has {', '.join(columns)}")
    action = _motion if of_sets else _action
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        if only is None or action(row) == only:
            grouped.setdefault(file_of(row).strip(), []).append(row)
    if only is not None and not grouped:
        there = sorted(set(map(action, rows)))
        raise DataError(f"there is no class {only!r}; there are {', '.join(map(repr, there))}")
    splits = _splits(grouped, stated=of_sets or "split" in columns)
    read = _of_sets if of_sets else _timed if by_time else partial(_counted, root=root)
    found = [one for file, group in grouped.items() for one in read(file, group, splits[file])]
    of = [one.split for one in found] if of_sets else list(splits.values())
    counts = {split: of.count(split) for split in dict.fromkeys(of)}
    return assemble("folder", found, counts, video_folders=("{file}", "videos/{file}"))


def video_seconds(path: Path) -> float:
    """Seconds of a video file, by opening it."""
    return float(escounts.Video(path).info.duration)


def _timed(file: str, rows: list[Row], split: str) -> Found:
    spans: list[Span] = []
    problems: list[str] = []
    for row in rows:
        try:
            spans.extend(spans_of(row))
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
    yield VideoAnnotation(file, file, _action(rows[0]), len(spans), tuple(sorted(spans)), split=split)


def _counted(file: str, rows: list[Row], split: str, root: Path) -> Found:
    row, path = rows[0], root / file
    if len(rows) > 1:
        yield Problem(split, file, f"appears {len(rows)} times in {LABELS}; the first is kept", unusable=True)
    try:
        count, seconds = whole_count(row), number(row, "duration_s")
        if seconds is None and not os.path.exists(path):
            raise DataError("no such video")
        seconds = video_seconds(path) if seconds is None else seconds
    except (DataError, VideoError) as error:
        what = f"cannot be read: {error}" if isinstance(error, VideoError) else str(error)
        yield Problem(split, file, what, unusable=True)
        return
    yield VideoAnnotation(
        name=file,
        file=file,
        action=_action(row),
        count=count,
        spans=tuple(pseudo_spans(count, 0.0, seconds)),
        duration=seconds,
        split=split,
        pseudo=True,
        marked=_marked(row),
    )


def _marked(row: Row) -> tuple[Span, ...]:
    """The one repetition that a row of counts or of a set may mark."""
    start, end = number(row, "exemplar_start_s"), number(row, "exemplar_end_s")
    return ((start, end),) if start is not None and end is not None and 0 <= start < end else ()


def _action(row: Row) -> str:
    return (class_of(row) or row.get("set") or "").strip() or "mine"


def _splits(grouped: dict[str, list[Row]], *, stated: bool) -> dict[str, str]:
    """The split of every file: as stated, else one in five held out; at least one when there are two."""
    if stated:
        return {file: _split(rows[0]) for file, rows in grouped.items()}
    ranked = sorted(grouped, key=lambda file: crc32(file.encode()))
    held = len(ranked) // HELD_OUT or (1 if len(ranked) > 1 else 0)
    return {file: "valid" if file in ranked[:held] else "train" for file in grouped}


def _of_sets(file: str, rows: Sequence[Row], _: str) -> Found:
    """Each set has a split of its own."""
    whole = "rep_times" in rows[0] and len({_motion(row) for row in rows}) == 1
    for place, group in enumerate([rows] if whole else [[row] for row in rows], start=1):
        name = file if whole or len(rows) == 1 else f"{file}#{place}"
        try:
            yield _set_video(name, file, group, whole=whole)
        except (DataError, ValueError) as error:
            yield Problem(_split(group[0]), name, str(error), unusable=True)


def _set_video(name: str, file: str, rows: Sequence[Row], *, whole: bool) -> VideoAnnotation:
    begin, duration = 0.0, None
    count = sum(map(whole_count, rows))
    if not whole:
        start, end = number(rows[0], "t_start"), number(rows[0], "t_end")
        if start is None or end is None or not 0 <= start < end:
            raise DataError(f"t_start {rows[0]['t_start']!r} and t_end {rows[0]['t_end']!r} are no range")
        begin, duration = start, end - start
    known = "rep_times" in rows[0]
    spans = sorted(span for row in rows for span in _times(row.get("rep_times", ""), begin))
    if (overlap := overlap_problem(spans)) is not None:
        raise DataError(overlap)
    marked = tuple((start - begin, end - begin) for start, end in _marked(rows[0]))
    return VideoAnnotation(
        name=name,
        file=file,
        action=_motion(rows[0]) or None,
        count=count,
        spans=tuple(spans) if known else tuple(pseudo_spans(count, 0.0, duration or 0.0)),
        duration=duration,
        split=_split(rows[0]),
        pseudo=not known,
        begin=begin,
        marked=marked,
    )


def _times(text: str, begin: float) -> Iterator[Span]:
    for part in text.split():
        start, _, end = part.partition("-")
        yield float(start) - begin, float(end) - begin


def _motion(row: Row) -> str:
    return (row.get("motion") or row.get("action") or "").strip()


def _split(row: Row) -> str:
    split = row.get("split", "").strip() or "train"
    return "valid" if split == "val" else split
