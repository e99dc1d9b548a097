"""OVR (open-vocabulary repetitions) of Ego4D and Kinetics: counts of stretches, no times of repetitions.

A release is one JSON list of clips. A clip carries several annotators' stretches; each stretch that states a
count becomes pseudo-labels, its time divided evenly, as for Countix.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from escounts.datasets.annotations import LISTS, MOST, MOST_REPETITIONS, Dataset, Problem, VideoAnnotation, assemble
from escounts.density import pseudo_spans
from escounts.errors import DataError

Source = Literal["ego4d", "kinetics"]

CLIP_SECONDS = 10.0
UNSPLIT = "unsplit"
SPLIT_NAMES = {"val": "valid", "validation": "valid"}
PUBLISHED: Mapping[Source, Mapping[str, int]] = {"ego4d": {"train": 41_900, "test": 8_700}, "kinetics": {}}
VIDEO_FOLDERS = ("video/{split}/{file}", "videos/{split}/{file}", "{split}/{file}", "video/{file}", "{file}")


def load(root: Path, *, source: Source = "ego4d") -> Dataset:
    """OVR from `ovr_<source>_release.json` in the root; clips are `<video_id>_<second>.mp4`, 10 s long.

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
    return assemble(f"ovr-{source}", found, rows, published=PUBLISHED[source], video_folders=VIDEO_FOLDERS)


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
    video, second = str(entry.get("video_id")), _number(entry.get("timestamp_sec"))
    return video if second is None else f"{video}_{second:.3f}"


def _number(value: object, most: float = MOST) -> float | None:
    """A finite number not further from 0 than `most`, else None."""
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and abs(found) <= most else None


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
    if second is not None and _number(second) is None:
        yield Problem(split, clip, f"timestamp_sec {second!r:.40} is not a number of seconds", unusable=True)
        return
    stretches = _stretches(entry)
    if not stretches:
        yield Problem(split, clip, "no annotations", unusable=True)
    for order, stretch in enumerate(stretches):
        name = clip if order == 0 else f"{clip}#{order + 1}"
        if not isinstance(stretch, dict):
            yield Problem(split, name, f"stretch {stretch!r:.40} has no start_time, end_time or count", unusable=True)
            continue
        start, end = _number(stretch.get("start_time")), _number(stretch.get("end_time"))
        stated = _number(stretch.get("count"), MOST_REPETITIONS)
        if start is None or end is None or stated is None:
            what = f"no start_time, end_time or count (0 to {MOST_REPETITIONS})"
            yield Problem(split, name, what, unusable=True)
            continue
        count = round(stated)
        if end <= start or count < 0:
            what = f"stretch {start:g}–{end:g} s with count {count} cannot be"
            yield Problem(split, name, what, unusable=True)
            continue
        yield VideoAnnotation(
            name=name,
            file=f"{clip}.mp4",
            action=str(stretch.get("description") or "").strip().lower() or None,
            count=count,
            spans=tuple(pseudo_spans(count, start, end)),
            fps=None,
            duration=CLIP_SECONDS,
            split=split,
            pseudo=True,
        )
