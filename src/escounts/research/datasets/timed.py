"""Datasets that say when every repetition starts and ends: RepCount, UCFRep and QUVA.

RepCount Part A, benchmark and open-set splits: workouts. Labels are frame numbers of the original video. The open-set
tables carry no frame rate; it is joined by name from the benchmark tables of the same release.

UCFRep: trimmed stretches of UCF-101 videos. Frame numbers are 1-based and of the original UCF-101 file, at 25 frames
a second; the annotated stretch starts at start_frame.

QUVA Repetition: 100 videos, each with a `.npy` of the frames at which its repetitions end. As published:
`QUVARepetitionDataset/videos/000_rope_beach.mp4` and `annotations/000_rope_beach.npy`, one whole number per
repetition. The dataset is for testing only: every video is in the split `test`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

import escounts
from escounts.errors import DataError, VideoError
from escounts.research.datasets.annotations import (
    MOST_REPETITIONS,
    VIDEO_FOLDERS,
    Dataset,
    Problem,
    Row,
    VideoAnnotation,
    assemble,
    frame_pairs,
    from_tables,
    label_file,
    number,
    read_rows,
    read_tables,
    to_seconds,
)

REPCOUNT_SPLITS = ("train", "valid", "test")
REPCOUNT_PUBLISHED = {"train": 758, "valid": 131, "test": 152}
REPCOUNT_OPEN_LABEL_FOLDERS = ("open_set", "annotation_open_set", "repcount_open_set", "")

# The open set draws its videos from all benchmark splits, so a video may lie in any split's folder.
REPCOUNT_OPEN_VIDEO_FOLDERS = (
    *VIDEO_FOLDERS,
    *(f"{folder}/{split}/{{file}}" for folder in ("video", "videos") for split in REPCOUNT_SPLITS),
)

REPCOUNT_ALIASES = {
    "squant": "squat",
    "pullups": "pull_up",
    "pushups": "push_up",
    "jumpjacks": "jump_jack",
    "benchpressing": "bench_pressing",
    "frontraise": "front_raise",
}
"""Two spellings of one class, as the tables have them."""

REPCOUNT_FALLBACK_FPS = 30.0


def load_repcount(root: Path, *, open_set: bool = False) -> Dataset:
    """RepCount-A from its label tables (root, or root/annotation), the benchmark or the open-set split."""
    files = {split: f"{split}.csv" for split in REPCOUNT_SPLITS}
    benchmark = read_tables(root, "repcount", files, need=("type", "name", "count", "fps"))
    if not open_set:
        return from_tables(
            "repcount",
            benchmark,
            lambda row, split: _repcount_video(row, row, split),
            published=REPCOUNT_PUBLISHED,
        )
    # Beside the benchmark tables, as in the release, or under the same root.
    tables = {split: read_rows(_open_table(root, split), need=("type", "name", "count")) for split in REPCOUNT_SPLITS}
    known = {row["name"]: row for rows in benchmark.values() for row in rows}
    return from_tables(
        "repcount-open",
        tables,
        lambda row, split: _repcount_video(row, known.get(row["name"], row), split),
        video_folders=REPCOUNT_OPEN_VIDEO_FOLDERS,
    )


def _open_table(root: Path, split: str) -> Path:
    benchmark = label_file(root, "repcount", f"{split}.csv")
    for folder in REPCOUNT_OPEN_LABEL_FOLDERS:
        path = root / folder / f"{split}.csv"
        if path.is_file() and path != benchmark:
            return path
    looked = ", ".join(REPCOUNT_OPEN_LABEL_FOLDERS[:-1])
    raise DataError(f"no open-set table {split}.csv in {root} (looked in {looked})")


def _repcount_video(row: Row, rates: Row, split: str) -> VideoAnnotation:
    count = number(row, "count", most=MOST_REPETITIONS)
    if count is None:
        raise DataError("no count and no repetitions in the table")
    fps, frames = number(rates, "fps"), number(rates, "num_frames")
    problems = () if fps else (f"no frame rate in the tables: {REPCOUNT_FALLBACK_FPS:g} assumed",)
    rate = fps or REPCOUNT_FALLBACK_FPS
    action = row["type"].strip()
    return VideoAnnotation(
        name=row["name"],
        file=row["name"],
        action=REPCOUNT_ALIASES.get(action, action) or None,
        count=round(count),
        spans=to_seconds(frame_pairs(row), rate),
        fps=rate,
        duration=frames / rate if frames else None,
        split=split,
        problems=problems,
    )


UCFREP_TABLES = {"train": "train.csv", "valid": "val.csv"}
UCFREP_PUBLISHED = {"train": 420, "valid": 106}
UCFREP_FPS = 25.0


def load_ucfrep(root: Path) -> Dataset:
    """UCFRep from its label tables; the paper reports on `valid`, there is no test split."""
    need = ("name", "counts", "num_frames", "start_frame")
    tables = read_tables(root, "ucfrep", UCFREP_TABLES, need=need)
    return from_tables("ucfrep", tables, _ucfrep_video, published=UCFREP_PUBLISHED)


def _ucfrep_video(row: Row, split: str) -> VideoAnnotation:
    name = row["name"]
    count = number(row, "counts", most=MOST_REPETITIONS)
    frames, first = (number(row, column) for column in ("num_frames", "start_frame"))
    if count is None or frames is None or first is None:
        raise DataError("no count, num_frames or start_frame in the table")
    folders = name.split("/")
    return VideoAnnotation(
        name=name,
        file=name,
        action=folders[-2] if len(folders) > 1 else None,
        count=round(count),
        spans=to_seconds(frame_pairs(row), UCFREP_FPS, first=first),
        fps=UCFREP_FPS,
        duration=frames / UCFREP_FPS,
        split=split,
        begin=(first - 1) / UCFREP_FPS,
    )


QUVA_LABEL_FOLDERS = ("annotations", "annotation", "")
QUVA_PUBLISHED = {"test": 100}
QUVA_FALLBACK_FPS = 25.0
"""Of a video that is not here; its labels are then listed and never used."""


def load_quva(root: Path) -> Dataset:
    """QUVA from `annotations/NAME.npy` and `videos/NAME.mp4`.

    A video repeats from its first frame on: the first repetition starts at 0, each following one at the end before.
    """
    folder = next((root / name for name in QUVA_LABEL_FOLDERS if _label_files(root / name)), None)
    if folder is None:
        looked = ", ".join(str(root / name) for name in QUVA_LABEL_FOLDERS)
        raise DataError(f"no QUVA annotations (NAME.npy); looked in {looked}")
    files = _label_files(folder)
    found = [_quva_video(path, root) for path in files]
    return assemble("quva", found, {"test": len(files)}, published=QUVA_PUBLISHED, video_folders=VIDEO_FOLDERS)


def video_fps(path: Path) -> float:
    """Frames a second of a video file, by opening it."""
    return float(escounts.Video(path).info.fps)


def _label_files(folder: Path) -> list[Path]:
    """The annotations of a folder, without the `._NAME` files that macOS put into the published archive."""
    return sorted(path for path in folder.glob("*.npy") if not path.name.startswith("."))


def _quva_video(path: Path, root: Path) -> VideoAnnotation | Problem:
    try:
        with path.open("rb") as opened:  # np.load would also take a zip, and look into it
            ends = np.sort(np.lib.format.read_array(opened, allow_pickle=False).astype(np.float64).ravel())
    except Exception as error:  # of a damaged header numpy raises whatever its parser of Python text meets
        return Problem("test", path.stem, f"{path.name} cannot be read: {error}", unusable=True)
    if not np.isfinite(ends).all() or (ends < 0).any():
        return Problem("test", path.stem, f"{path.name} holds a frame number that cannot be", unusable=True)
    file = f"{path.stem}.mp4"
    places = (root / pattern.format(split="test", file=file) for pattern in VIDEO_FOLDERS)
    here = next((place for place in places if place.exists()), None)
    problems: tuple[str, ...] = ()
    fps = QUVA_FALLBACK_FPS
    if here is not None:
        try:
            fps = video_fps(here)
        except VideoError as error:
            problems = (f"its frame rate cannot be read ({error}): {QUVA_FALLBACK_FPS:g} assumed",)
    edges = [0.0, *(float(end) / fps for end in ends)]
    return VideoAnnotation(
        name=path.stem,
        file=file,
        action=path.stem.split("_", 1)[-1],
        count=len(ends),
        spans=tuple(pairwise(edges)),
        fps=fps,
        problems=problems,
    )
