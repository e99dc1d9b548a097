"""Your own videos: a folder with a labels.csv.

Two forms, told apart by their columns. One row per repetition: `file, start_s, end_s` (and `class`, `split`). One
row per video: `file, count` (and `class`, `split`), when nobody marked the times; repetitions are then an even
division. Such a row may state `duration_s`, so that the video need not be opened for it, and one marked repetition,
`exemplar_start_s` and `exemplar_end_s`. A video with no repetition is a row with empty start and end, or count 0.
`set` is taken for `class` where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

from escounts.datasets.annotations import (
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
from escounts.density import pseudo_spans
from escounts.errors import DataError

LABELS = "labels.csv"
HELD_OUT = 5
"""Without a split column, one video in this many is held out for validation (by its name, so it stays put)."""

Duration = Callable[[Path], float]


def load(root: Path, *, duration: Duration | None = None) -> Dataset:
    """Own videos under `root` with their labels.csv, or a table of that form itself, the videos beside it.

    duration: seconds of a video file, for counts only.
    """
    path = root if root.is_file() else root / LABELS
    root = path.parent
    rows = read_rows(path, need=("file",))
    if not rows:
        raise DataError(f"{path} has no rows")
    by_time = {"start_s", "end_s"} <= rows[0].keys()
    if not by_time and "count" not in rows[0]:
        raise DataError(f"{path} needs columns start_s and end_s, or count; it has {', '.join(rows[0])}")
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["file"].strip(), []).append(row)
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
    from escounts.video import Video  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    return float(Video(path).info.duration)


def _timed(file: str, rows: list[Row], split: str) -> Iterable[VideoAnnotation | Problem]:
    spans: list[Span] = []
    problems: list[str] = []
    for row in rows:
        start, end = number(row, "start_s"), number(row, "end_s")
        if start is None and end is None and not row["start_s"].strip():
            continue
        if start is None or end is None:
            problems.append(f"start {row['start_s']!r}, end {row['end_s']!r} are not numbers: row left out")
        elif end <= start:
            problems.append(f"end {end:g} s is not after start {start:g} s: row left out")
        else:
            spans.append((start, end))
    if problems and not spans:
        yield from (Problem(split, file, what, unusable=True) for what in problems)
        return
    if (overlap := overlap_problem(spans)) is not None:
        yield Problem(split, file, overlap, unusable=True)
        return
    yield _video(file, rows, split, len(spans), tuple(sorted(spans)), problems=tuple(problems))


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
    if seconds is None and not path.exists():
        yield Problem(split, file, "no such video", unusable=True)
        return
    seconds = duration(path) if seconds is None else seconds
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
    problems: tuple[str, ...] = (),
) -> VideoAnnotation:
    action = (rows[0].get("class") or rows[0].get("set") or "").strip() or "mine"
    return VideoAnnotation(
        name=file,
        file=file,
        action=action,
        count=count,
        spans=spans,
        fps=None,
        duration=seconds,
        split=split,
        pseudo=pseudo,
        marked=marked,
        problems=problems,
    )


def _splits(grouped: dict[str, list[Row]], *, stated: bool) -> dict[str, str]:
    """The split of every file: as stated, else one in five held out; at least one when there are two."""
    if stated:
        return {file: rows[0].get("split", "").strip() or "train" for file, rows in grouped.items()}
    ranked = sorted(grouped, key=lambda file: crc32(file.encode()))
    held = len(ranked) // HELD_OUT or (1 if len(ranked) > 1 else 0)
    return {file: "valid" if file in ranked[:held] else "train" for file in grouped}
