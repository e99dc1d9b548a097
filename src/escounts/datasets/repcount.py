"""RepCount Part A, benchmark and open-set splits: workouts with the start and end of every repetition.

Labels are frame numbers of the original video. The open-set tables carry no frame rate; it is joined by name
from the benchmark tables of the same release.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from escounts.datasets.annotations import (
    MOST_REPETITIONS,
    Dataset,
    Problem,
    Row,
    VideoAnnotation,
    assemble,
    frame_pairs,
    label_file,
    number,
    read_rows,
    to_seconds,
)
from escounts.errors import DataError

SPLITS = ("train", "valid", "test")
PUBLISHED = {"train": 758, "valid": 131, "test": 152}
LABEL_FOLDERS = ("annotation", "annotations", "repcount", "")
OPEN_LABEL_FOLDERS = ("open_set", "annotation_open_set", "repcount_open_set", "")
VIDEO_FOLDERS = ("video/{split}/{file}", "videos/{split}/{file}", "{split}/{file}", "video/{file}", "{file}")

# The open set draws its videos from all benchmark splits, so a video may lie in any split's folder.
OPEN_VIDEO_FOLDERS = (
    *VIDEO_FOLDERS,
    *(f"{folder}/{split}/{{file}}" for folder in ("video", "videos") for split in SPLITS),
)

ALIASES = {
    "squant": "squat",
    "pullups": "pull_up",
    "pushups": "push_up",
    "jumpjacks": "jump_jack",
    "benchpressing": "bench_pressing",
    "frontraise": "front_raise",
}
"""Two spellings of one class, as the tables have them."""

FALLBACK_FPS = 30.0


def load(root: Path, *, open_set: bool = False) -> Dataset:
    """RepCount-A from its label tables (root, or root/annotation), the benchmark or the open-set split."""
    benchmark = {
        split: read_rows(label_file(root, LABEL_FOLDERS, f"{split}.csv"), need=("type", "name", "count", "fps"))
        for split in SPLITS
    }
    if not open_set:
        return _assemble("repcount", benchmark, {}, PUBLISHED, VIDEO_FOLDERS)
    # Beside the benchmark tables, as in the release, or under the same root.
    tables = {split: read_rows(_open_table(root, split), need=("type", "name", "count")) for split in SPLITS}
    known = {row["name"]: row for rows in benchmark.values() for row in rows}
    return _assemble("repcount-open", tables, known, {}, OPEN_VIDEO_FOLDERS)


def _open_table(root: Path, split: str) -> Path:
    benchmark = label_file(root, LABEL_FOLDERS, f"{split}.csv")
    for folder in OPEN_LABEL_FOLDERS:
        path = root / folder / f"{split}.csv"
        if path.is_file() and path != benchmark:
            return path
    raise DataError(f"no open-set table {split}.csv in {root} (looked in {', '.join(OPEN_LABEL_FOLDERS[:-1])})")


def _assemble(
    name: str,
    tables: Mapping[str, list[Row]],
    known: Mapping[str, Row],
    published: Mapping[str, int],
    folders: tuple[str, ...],
) -> Dataset:
    found = [_video(row, known.get(row["name"], row), split) for split, rows in tables.items() for row in rows]
    counts = {split: len(rows) for split, rows in tables.items()}
    return assemble(name, found, counts, published=published, video_folders=folders)


def _video(row: Row, rates: Row, split: str) -> VideoAnnotation | Problem:
    name, count = row["name"], number(row, "count", most=MOST_REPETITIONS)
    pairs = frame_pairs(row)
    if count is None:
        return Problem(split, name, "no count and no repetitions in the table", unusable=True)
    fps, frames = number(rates, "fps"), number(rates, "num_frames")
    problems = () if fps else (f"no frame rate in the tables: {FALLBACK_FPS:g} assumed",)
    rate = fps or FALLBACK_FPS
    action = row["type"].strip()
    return VideoAnnotation(
        name=name,
        file=name,
        action=ALIASES.get(action, action) or None,
        count=round(count),
        spans=to_seconds(pairs, rate),
        fps=rate,
        duration=frames / rate if frames else None,
        split=split,
        problems=problems,
    )
