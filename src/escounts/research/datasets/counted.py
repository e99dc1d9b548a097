"""Datasets that say how often, not when: Countix and OVR. Repetitions are pseudo-labels: a stretch divided evenly by
its count (section 4.1 of the paper).

Countix: segments of Kinetics videos. Three public forms: the dataset's own tables (seconds), the audio-visual subset
in the same form, and the paper authors' frames form, whose repetitions are evenly divided.

OVR (open-vocabulary repetitions) of Ego4D and Kinetics: a release is one JSON list of clips. A clip carries several
annotators' stretches; each stretch that states a count is divided evenly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from escounts.counting.maps import pseudo_spans
from escounts.errors import DataError
from escounts.research.datasets.annotations import (
    LISTS,
    MOST_REPETITIONS,
    VIDEO_FOLDERS,
    Dataset,
    Problem,
    Row,
    VideoAnnotation,
    assemble,
    from_tables,
    number,
    read_rows,
    read_tables,
)

Form = Literal["seconds", "frames", "av"]

COUNTIX_TABLES = {"train": "train.csv", "valid": "val.csv", "test": "test.csv"}
COUNTIX_PUBLISHED = {"train": 4588, "valid": 1450, "test": 2719}
PLAUSIBLE_FPS = (4.0, 121.0)
_SEGMENT = re.compile(r"^(?P<id>.+)_(?P<start>\d+\.\d+)_(?P<end>\d+\.\d+)\.mp4$")


def load_countix(root: Path, *, form: Form = "seconds") -> Dataset:
    """Countix in one of its forms.

    Videos of the seconds form are Kinetics clips `<id>_<start, six digits>_<end>.mp4` with the segment inside;
    those of the frames form are the segments cut out, `<id>_<start in the clip>_<end>.mp4`.
    """
    name = {"seconds": "countix", "frames": "countix-frames", "av": "countix-av"}[form]
    need = ("video_id", "counts", "num_frames") if form == "frames" else ("video_id", "count")
    tables = read_tables(root, name.replace("-", "_"), COUNTIX_TABLES, need=need)
    actions = _actions(root) if form == "frames" else {}
    return from_tables(
        name,
        tables,
        lambda row, split: _from_frames(row, split, actions) if form == "frames" else _from_seconds(row, split),
        key="video_id",
        published={} if form == "av" else COUNTIX_PUBLISHED,
    )


def _from_seconds(row: Row, split: str) -> VideoAnnotation:
    key = row["video_id"]
    columns = ("kinetics_start", "kinetics_end", "repetition_start", "repetition_end", "count")
    values = [number(row, column, most=MOST_REPETITIONS) for column in columns]
    if any(value is None for value in values):
        empty = [column for column, value in zip(columns, values, strict=True) if value is None]
        raise DataError(f"no {', '.join(empty)} in the table")
    clip, clip_end, start, end, count = (float(value) for value in values if value is not None)
    if end <= start:
        raise DataError(f"segment ends at {end} before it starts at {start}")
    # Clips of one video and segments of one clip repeat the id: only id and start together are a key.
    video = _segment(f"{key}_{start:.5f}", row.get("class") or None, round(count), end - start, None, split)
    file = f"{key}_{clip:06.0f}_{clip_end:06.0f}.mp4"
    return replace(video, file=file, begin=max(start - clip, 0.0), footage=key)


def _from_frames(row: Row, split: str, actions: Mapping[str, str]) -> VideoAnnotation:
    name = row["video_id"]
    match = _SEGMENT.match(name)
    count, frames = number(row, "counts", most=MOST_REPETITIONS), number(row, "num_frames")
    if match is None or count is None or frames is None:
        raise DataError("name is not <id>_<start>_<end>.mp4, or no count or length")
    duration = float(match["end"]) - float(match["start"])
    if duration <= 0:
        raise DataError("segment ends before it starts")
    fps = frames / duration
    if not PLAUSIBLE_FPS[0] <= fps <= PLAUSIBLE_FPS[1]:
        raise DataError(
            f"{frames:g} frames in {duration:.2f} s cannot be: the file was cut short or the name is wrong"
        )
    video = _segment(name, actions.get(match["id"]), round(count), duration, fps, split)
    return replace(video, footage=match["id"])


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
    return (folder / table for folder in folders for table in COUNTIX_TABLES.values() if (folder / table).is_file())


Source = Literal["ego4d", "kinetics"]

CLIP_SECONDS = 10.0
UNSPLIT = "unsplit"
SPLIT_NAMES = {"val": "valid", "validation": "valid"}
OVR_PUBLISHED: Mapping[Source, Mapping[str, int]] = {"ego4d": {"train": 41_900, "test": 8_700}, "kinetics": {}}


def load_ovr(root: Path, *, source: Source = "ego4d") -> Dataset:
    """OVR from `ovr_<source>_release.json` in the root. Clips are 10 s long: `<video_id>_<second>.mp4` of Ego4D,
    `<video_id>.mp4` or `<video_id>_000017_000027.mp4` of Kinetics.

    A clip's split is stated by its stretches (or by the clip). Where a release states none, it comes from lists of
    your own beside it, `ovr_<source>_train.txt` and so on, one video_id (or clip) in a line; without them the clip is
    in the split `unsplit`, and the missing lists are named.
    """
    path = root if root.is_file() else root / f"ovr_{source}_release.json"
    found: list[VideoAnnotation | Problem] = []
    rows: dict[str, int] = {}
    listed = _lists(path.parent, source)
    for index, entry in enumerate(_entries(path)):
        split = _split(entry, listed)
        rows[split] = rows.get(split, 0) + 1
        found.extend(_videos(entry, index, split))
    if UNSPLIT in rows:
        lists = " and ".join(f"ovr_{source}_{split}.txt" for split in ("train", "test"))
        what = (
            f"{path.name} states no split for {rows[UNSPLIT]} clips: put {lists}, one video_id in a line, beside it"
        )
        found.append(Problem(UNSPLIT, LISTS, what))
    made = assemble(f"ovr-{source}", found, rows, published=OVR_PUBLISHED[source], video_folders=VIDEO_FOLDERS)
    return replace(made, timed_files=source == "kinetics")


def _lists(folder: Path, source: Source) -> dict[str, str]:
    """Video or clip → split, from the lists that are there."""
    found: dict[str, str] = {}
    for split in ("train", "valid", "val", "test"):
        path = folder / f"ovr_{source}_{split}.txt"
        if path.is_file():
            found |= dict.fromkeys(path.read_text(encoding="utf-8").split(), SPLIT_NAMES.get(split, split))
    return found


def _split(entry: Mapping[str, Any], listed: Mapping[str, str]) -> str:
    """The split of a clip: as stated, as listed, or none."""
    stretches = [part for part in _stretches(entry) if isinstance(part, dict)]
    stated = next((part["split"] for part in (entry, *stretches) if part.get("split")), None)
    if stated is not None:
        return SPLIT_NAMES.get(str(stated), str(stated))
    return listed.get(_clip(entry)) or listed.get(str(entry.get("video_id"))) or UNSPLIT


def _stretches(entry: Mapping[str, Any]) -> list[Any]:
    stretches = entry.get("ovr_annotations")
    return stretches if isinstance(stretches, list) else []


def _clip(entry: Mapping[str, Any]) -> str:
    """The name of a clip: its video and, where a number states it, the second."""
    video, second = str(entry.get("video_id")), number(entry, "timestamp_sec")
    return video if second is None else f"{video}_{second:.3f}"


def _entries(path: Path) -> list[Mapping[str, Any]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no OVR release {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read OVR release {path}: {error}") from error
    if isinstance(entries, dict):
        lists = [value for value in entries.values() if isinstance(value, list)]
        entries = lists[0] if len(lists) == 1 else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{path} is not an OVR release: expected one list of clips")
    return entries


def _videos(entry: Mapping[str, Any], index: int, split: str) -> Iterator[VideoAnnotation | Problem]:
    """The stretches of one clip; the name carries the clip and, past the first, the stretch."""
    video = entry.get("video_id")
    if not video:
        yield Problem(split, f"entry {index}", "no video_id", unusable=True)
        return
    clip, second = _clip(entry), entry.get("timestamp_sec")
    if second is not None and number(entry, "timestamp_sec") is None:
        yield Problem(split, clip, f"timestamp_sec {second!r:.40} is not a number of seconds", unusable=True)
        return
    stretches = _stretches(entry)
    if not stretches:
        yield Problem(split, clip, "no annotations", unusable=True)
    for order, stretch in enumerate(stretches):
        name = clip if order == 0 else f"{clip}#{order + 1}"
        try:
            yield _stretch_video(stretch, name, f"{clip}.mp4", split)
        except DataError as error:
            yield Problem(split, name, str(error), unusable=True)


def _stretch_video(stretch: Any, name: str, file: str, split: str) -> VideoAnnotation:
    if not isinstance(stretch, dict):
        raise DataError(f"stretch {stretch!r:.40} has no start_time, end_time or count")
    start, end = number(stretch, "start_time"), number(stretch, "end_time")
    stated = number(stretch, "count", most=MOST_REPETITIONS)
    if start is None or end is None or stated is None:
        raise DataError(f"no start_time, end_time or count (0 to {MOST_REPETITIONS})")
    count = round(stated)
    if end <= start or count < 0:
        raise DataError(f"stretch {start:g}–{end:g} s with count {count} cannot be")
    return VideoAnnotation(
        name=name,
        file=file,
        action=str(stretch.get("description") or "").strip().lower() or None,
        count=count,
        spans=tuple(pseudo_spans(count, start, end)),
        duration=CLIP_SECONDS,
        split=split,
        pseudo=True,
    )
