"""Label Studio's JSON: tasks whose annotations hold timeline regions of a video, in frames counted from 1."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from escounts.datasets.annotation_formats.labelled_file import LabelError, LabelledFile, base_name, chosen

LABEL = "Repetition"
FROM_NAME = "repetitions"
TO_NAME = "video"
MOST_FRAMES = 1e9
USUAL_RATE = 25.0
"""Frames a second where neither the video nor the reader states them."""


def write(videos: Sequence[LabelledFile]) -> str:
    """A list of tasks, one per video."""
    return json.dumps([task(video) for video in videos], indent=1) + "\n"


def task(video: LabelledFile) -> dict[str, Any]:
    """One task whose annotation has a timeline region for every repetition; fps is kept in the task's data."""
    fps = video.fps or USUAL_RATE
    regions = [
        {
            "id": hashlib.sha256(f"{video.file}:{start:.3f}-{end:.3f}".encode()).hexdigest()[:10],
            "type": "timelinelabels",
            "from_name": FROM_NAME,
            "to_name": TO_NAME,
            "origin": "manual",
            "value": {
                "ranges": [{"start": round(start * fps) + 1, "end": round(end * fps) + 1}],
                "timelinelabels": [video.action or LABEL],
            },
            "meta": {"start_s": round(start, 3), "end_s": round(end, 3)},
        }
        for start, end in video.spans
    ]
    data = {"video": video.file, "fps": fps, "duration": video.duration}
    return {
        "data": {name: value for name, value in data.items() if value is not None},
        "annotations": [{"result": regions, "was_cancelled": False, "ground_truth": False}],
    }


def read(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """An export: one task or a list of them. only: the label that is meant. fps: where a task states none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabelError(f"not JSON: {error}") from error
    return read_tasks(document, only, fps)


def read_tasks(document: object, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The same from JSON values."""
    tasks: list[Any] = document if isinstance(document, list) else [document]
    if not tasks or not all(isinstance(item, dict) for item in tasks):
        raise LabelError("expected Label Studio tasks: objects with annotations")
    regions = [_regions(item) for item in tasks]
    label = chosen((_label(region) for group in regions for region in group), only, "label")
    return [_video(item, group, label or LABEL, fps) for item, group in zip(tasks, regions, strict=True)]


def _video(item: dict[str, Any], regions: Sequence[dict[str, Any]], label: str, fps: float | None) -> LabelledFile:
    data = item.get("data")
    data = data if isinstance(data, dict) else {}
    own = _number(data.get("fps"))
    rate = own if own is not None and 1 <= own <= 1000 else fps or USUAL_RATE
    duration = _number(data.get("duration"))
    spans = [
        _span(mark, rate)
        for region in regions
        if _label(region) == label
        for mark in (region["value"].get("ranges") if isinstance(region["value"].get("ranges"), list) else [])
    ]
    name = next((value for value in (data.get("video"), item.get("file_upload")) if isinstance(value, str)), "")
    action = "" if label == LABEL else label.encode("utf-8", "ignore").decode()[:80]
    kept = tuple(sorted(span for span in spans if span[1] > span[0]))
    return LabelledFile(base_name(name), kept, action if kept else "", rate, duration)


def _regions(item: dict[str, Any]) -> list[dict[str, Any]]:
    groups = item.get("annotations") or item.get("predictions")
    if not isinstance(groups, list):
        raise LabelError("expected a Label Studio task with a list called annotations (or predictions)")
    regions: list[dict[str, Any]] = []
    for group in groups:
        result = group.get("result") if isinstance(group, dict) else None
        if not isinstance(result, list):
            raise LabelError("annotations: expected objects with a list called result")
        regions += [
            region
            for region in result
            if isinstance(region, dict)
            and region.get("type") == "timelinelabels"
            and isinstance(region.get("value"), dict)
        ]
    return regions


def _label(region: dict[str, Any]) -> str:
    names = region["value"].get("timelinelabels")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else LABEL


def _span(mark: object, fps: float) -> tuple[float, float]:
    start, end = (_number(mark.get(name)) if isinstance(mark, dict) else None for name in ("start", "end"))
    if start is None or end is None:
        raise LabelError("ranges: expected objects with start and end, in frames counted from 1")
    return round(max(start - 1, 0.0) / fps, 3), round(max(end - 1, 0.0) / fps, 3)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MOST_FRAMES:
        return None
    return float(value)
