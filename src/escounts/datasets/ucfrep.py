"""UCFRep: trimmed stretches of UCF-101 videos with the start and end of every repetition.

Frame numbers are 1-based and of the original UCF-101 file, at 25 frames a second; the annotated stretch starts
at start_frame.
"""

from __future__ import annotations

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

TABLES = {"train": "train.csv", "valid": "val.csv"}
PUBLISHED = {"train": 420, "valid": 106}
LABEL_FOLDERS = ("ucfrep", "annotation", "annotations", "")
VIDEO_FOLDERS = ("{file}", "video/{file}", "videos/{file}")
FPS = 25.0


def load(root: Path) -> Dataset:
    """UCFRep from its label tables; the paper reports on `valid`, there is no test split."""
    need = ("name", "counts", "num_frames", "start_frame")
    tables = {split: read_rows(label_file(root, LABEL_FOLDERS, table), need=need) for split, table in TABLES.items()}
    found = [_video(row, split) for split, rows in tables.items() for row in rows]
    counts = {split: len(rows) for split, rows in tables.items()}
    return assemble("ucfrep", found, counts, published=PUBLISHED, video_folders=VIDEO_FOLDERS)


def _video(row: Row, split: str) -> VideoAnnotation | Problem:
    name = row["name"]
    count = number(row, "counts", most=MOST_REPETITIONS)
    frames, first = (number(row, column) for column in ("num_frames", "start_frame"))
    if count is None or frames is None or first is None:
        return Problem(split, name, "no count, num_frames or start_frame in the table", unusable=True)
    folders = name.split("/")
    return VideoAnnotation(
        name=name,
        file=name,
        action=folders[-2] if len(folders) > 1 else None,
        count=round(count),
        spans=to_seconds(frame_pairs(row), FPS, first=first),
        fps=FPS,
        duration=frames / FPS,
        split=split,
        begin=(first - 1) / FPS,
    )
