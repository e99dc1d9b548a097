"""Corrected repetitions as files: the labels.csv of `escounts train folder`, and Label Studio timelines."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from escounts.atomic_files import write_text
from escounts.errors import EscountsError

Spans = Sequence[tuple[float, float]]
LABEL = "Repetition"
FROM_NAME = "repetitions"
TO_NAME = "video"
MOST_FRAMES = 1e9


class LabelError(EscountsError):
    """Labels that cannot be read; the text says what was expected."""


def to_csv(labelled: Iterable[tuple[str, str, Spans]]) -> str:
    """(file, action, spans) rows as labels.csv: file, start_s, end_s, class.

    A video in which nothing repeats is one row without times.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "start_s", "end_s", "class"])
    for file, action, spans in labelled:
        times = [(f"{start:.3f}", f"{end:.3f}") for start, end in spans] or [("", "")]
        for start_s, end_s in times:
            writer.writerow([_plain(file, "./"), start_s, end_s, _plain(action, "'")])
    return text.getvalue()


def _plain(text: str, guard: str) -> str:
    """A cell that no spreadsheet takes for a formula: with a guard that leaves a path the same path."""
    return f"{guard}{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def write_csv(path: Path, labelled: Iterable[tuple[str, str, Spans]]) -> None:
    """labels.csv beside the videos, replaced whole."""
    write_text(path, to_csv(labelled))


def to_label_studio(
    name: str, spans: Spans, *, fps: float, duration: float, action: str = ""
) -> list[dict[str, Any]]:
    """One Label Studio task whose annotation has a timeline region for every repetition.

    Label Studio counts frames from 1; fps turns seconds into frames and is kept in the task's data.
    """
    frames = max(round(duration * fps), 1)
    regions = [
        {
            "id": hashlib.sha256(f"{name}:{start:.3f}-{end:.3f}".encode()).hexdigest()[:10],
            "type": "timelinelabels",
            "from_name": FROM_NAME,
            "to_name": TO_NAME,
            "origin": "manual",
            "value": {
                "ranges": [{"start": _frame(start, fps, frames), "end": _frame(end, fps, frames)}],
                "timelinelabels": [action or LABEL],
            },
            "meta": {"start_s": round(start, 3), "end_s": round(end, 3)},
        }
        for start, end in spans
    ]
    return [
        {
            "data": {"video": name, "fps": fps, "duration": duration},
            "annotations": [{"result": regions, "was_cancelled": False, "ground_truth": False}],
        }
    ]


def _frame(seconds: float, fps: float, frames: int) -> int:
    return min(max(round(seconds * fps) + 1, 1), frames + 1)


def from_label_studio(document: object, *, fps: float, duration: float) -> tuple[str, list[tuple[float, float]]]:
    """(action, spans in seconds, sorted) of a Label Studio export: one task, or a list that holds one.

    The task's own fps is used when it has one. Times outside the video are cut to it.
    """
    task = document[0] if isinstance(document, list) and len(document) == 1 else document
    if not isinstance(task, dict):
        raise LabelError("expected one Label Studio task: an object with annotations, or a list that holds one")
    data = task.get("data")
    own = _number(data.get("fps")) if isinstance(data, dict) else None
    rate = own if own is not None and 1 <= own <= 1000 else fps
    action, spans = "", []
    for region in _regions(task):
        value = region.get("value")
        if not isinstance(value, dict):
            continue
        names = value.get("timelinelabels")
        if isinstance(names, list) and names and isinstance(names[0], str) and names[0] != LABEL:
            action = names[0]
        ranges = value.get("ranges")
        for item in ranges if isinstance(ranges, list) else []:
            spans.append(_span(item, rate, duration))
    return action.encode("utf-8", "ignore").decode()[:80], sorted(span for span in spans if span[1] > span[0])


def _regions(task: dict[str, Any]) -> list[dict[str, Any]]:
    groups = task.get("annotations") or task.get("predictions")
    if not isinstance(groups, list):
        raise LabelError("expected a Label Studio task with a list called annotations (or predictions)")
    regions: list[dict[str, Any]] = []
    for group in groups:
        result = group.get("result") if isinstance(group, dict) else None
        if not isinstance(result, list):
            raise LabelError("annotations: expected objects with a list called result")
        regions += [r for r in result if isinstance(r, dict) and r.get("type") == "timelinelabels"]
    return regions


def _span(item: object, fps: float, duration: float) -> tuple[float, float]:
    start, end = (_number(item.get(name)) if isinstance(item, dict) else None for name in ("start", "end"))
    if start is None or end is None:
        raise LabelError("ranges: expected objects with start and end, in frames counted from 1")
    return _seconds(start, fps, duration), _seconds(end, fps, duration)


def _seconds(frame: float, fps: float, duration: float) -> float:
    return round(min(max((frame - 1) / fps, 0.0), duration), 3)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MOST_FRAMES:
        return None
    return float(value)
