"""Countix: segments of Kinetics videos with a count and no times of single repetitions.

Three public forms: the dataset's own tables (seconds), the audio-visual subset in the same form, and the
paper authors' frames form, whose repetitions are evenly divided. In all of them repetitions are pseudo-labels:
the segment divided evenly by its count (section 4.1 of the paper).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from escounts.datasets.annotations import (
    MOST_REPETITIONS,
    Dataset,
    Problem,
    Row,
    VideoAnnotation,
    assemble,
    label_file,
    number,
    read_rows,
)
from escounts.density import pseudo_spans

Form = Literal["seconds", "frames", "av"]

TABLES = {"train": "train.csv", "valid": "val.csv", "test": "test.csv"}
PUBLISHED = {"train": 4588, "valid": 1450, "test": 2719}
LABEL_FOLDERS: Mapping[Form, tuple[str, ...]] = {
    "seconds": ("countix", "annotation", "annotations", ""),
    "frames": ("countix_frames", "annotation", "annotations", ""),
    "av": ("countix_av", "annotation", "annotations", ""),
}
VIDEO_FOLDERS = ("video/{split}/{file}", "videos/{split}/{file}", "{split}/{file}", "video/{file}", "{file}")
PLAUSIBLE_FPS = (4.0, 121.0)
_SEGMENT = re.compile(r"^(?P<id>.+)_(?P<start>\d+\.\d+)_(?P<end>\d+\.\d+)\.mp4$")


def load(root: Path, *, form: Form = "seconds") -> Dataset:
    """Countix in one of its forms.

    Videos of the seconds form are Kinetics clips `<id>_<start, six digits>_<end>.mp4` with the segment inside;
    those of the frames form are the segments cut out, `<id>_<start in the clip>_<end>.mp4`.
    """
    need = ("video_id", "counts", "num_frames") if form == "frames" else ("video_id", "count")
    tables = {
        split: read_rows(label_file(root, LABEL_FOLDERS[form], table), need=need) for split, table in TABLES.items()
    }
    actions = _actions(root) if form == "frames" else {}
    found = [
        _from_frames(row, split, actions) if form == "frames" else _from_seconds(row, split)
        for split, rows in tables.items()
        for row in rows
    ]
    return assemble(
        {"seconds": "countix", "frames": "countix-frames", "av": "countix-av"}[form],
        found,
        {split: len(rows) for split, rows in tables.items()},
        published={} if form == "av" else PUBLISHED,
        video_folders=VIDEO_FOLDERS,
    )


def _from_seconds(row: Row, split: str) -> VideoAnnotation | Problem:
    key = row["video_id"]
    columns = ("kinetics_start", "kinetics_end", "repetition_start", "repetition_end", "count")
    values = [number(row, column, most=MOST_REPETITIONS) for column in columns]
    if any(value is None for value in values):
        empty = [column for column, value in zip(columns, values, strict=True) if value is None]
        return Problem(split, key, f"no {', '.join(empty)} in the table", unusable=True)
    clip, clip_end, start, end, count = (float(value) for value in values if value is not None)
    if end <= start:
        return Problem(split, key, f"segment ends at {end} before it starts at {start}", unusable=True)
    # Clips of one video and segments of one clip repeat the id: only id and start together are a key.
    video = _segment(f"{key}_{start:.5f}", row.get("class") or None, round(count), end - start, None, split)
    file = f"{key}_{clip:06.0f}_{clip_end:06.0f}.mp4"
    return replace(video, file=file, begin=max(start - clip, 0.0), footage=key)


def _from_frames(row: Row, split: str, actions: Mapping[str, str]) -> VideoAnnotation | Problem:
    name = row["video_id"]
    match, count, frames = (
        _SEGMENT.match(name),
        number(row, "counts", most=MOST_REPETITIONS),
        number(row, "num_frames"),
    )
    if match is None or count is None or frames is None:
        return Problem(split, name, "name is not <id>_<start>_<end>.mp4, or no count or length", unusable=True)
    duration = float(match["end"]) - float(match["start"])
    if duration <= 0:
        return Problem(split, name, "segment ends before it starts", unusable=True)
    fps = frames / duration
    video = _segment(name, actions.get(match["id"]), round(count), duration, fps, split)
    if PLAUSIBLE_FPS[0] <= fps <= PLAUSIBLE_FPS[1]:
        return replace(video, footage=match["id"])
    what = f"{frames:g} frames in {duration:.2f} s cannot be: the file was cut short or the name is wrong"
    return Problem(split, name, what, unusable=True)


def _segment(
    name: str, action: str | None, count: int, duration: float, fps: float | None, split: str
) -> VideoAnnotation:
    return VideoAnnotation(
        name=name,
        file=name,
        action=action,
        count=count,
        spans=tuple(pseudo_spans(count, 0.0, duration)),
        fps=fps,
        duration=duration,
        split=split,
        pseudo=True,
    )


def _actions(root: Path) -> dict[str, str]:
    """Classes by video id from the seconds form, when it lies beside; the frames form carries none."""
    found: dict[str, str] = {}
    for table in _tables_beside(root):
        found |= {row["video_id"]: row["class"] for row in read_rows(table) if row.get("class")}
    return found


def _tables_beside(root: Path) -> Iterable[Path]:
    folders = (root / "countix", root.parent / "countix")
    return (folder / table for folder in folders for table in TABLES.values() if (folder / table).is_file())
