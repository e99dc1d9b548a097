"""labels.csv, the form that `escounts train folder` and `escounts data check folder` read: one row per repetition."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from escounts.atomic_files import write_text
from escounts.csv_text import csv_text, guarded, unguarded
from escounts.datasets.annotation_formats.labelled_file import LabelError, LabelledFile, chosen
from escounts.datasets.annotations import number

COLUMNS = ("file", "start_s", "end_s", "class")


def write(videos: Sequence[LabelledFile]) -> str:
    """file, start_s, end_s, class. A video without repetitions is one row without times."""
    rows = [
        (guarded(video.file, "./"), *times, video.action)
        for video in videos
        for times in [(f"{start:.3f}", f"{end:.3f}") for start, end in video.spans] or [("", "")]
    ]
    return csv_text(COLUMNS, rows)


def write_file(path: Path, videos: Sequence[LabelledFile]) -> None:
    """labels.csv beside the videos, replaced whole."""
    write_text(path, write(videos))


def read(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The inverse of write. only: a class. fps is not needed."""
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in COLUMNS[:3] if name not in (reader.fieldnames or ())]
    if missing:
        raise LabelError(f"no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    found: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    rows = [row for row in reader if only is None or unguarded(row.get("class") or "") == only]
    if only is not None and not rows:
        chosen([], only, "class")
    for place, row in enumerate(rows, start=2):
        known = found.setdefault(unguarded(row["file"] or "", "./"), (unguarded(row.get("class") or ""), []))
        if not (row["start_s"] or "").strip() and not (row["end_s"] or "").strip():
            continue
        start, end = number(row, "start_s"), number(row, "end_s")
        if start is None or end is None or not 0 <= start < end:
            times = f"start {row['start_s']!r}, end {row['end_s']!r}"
            raise LabelError(f"line {place}: {times}; two rising numbers of seconds from 0 on are needed")
        known[1].append((start, end))
    return [LabelledFile(file, tuple(sorted(spans)), action) for file, (action, spans) in found.items()]
