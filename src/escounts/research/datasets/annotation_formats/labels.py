"""One video's repetitions as every format reads and writes them, and the check that all of them pass."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from escounts.errors import DataError
from escounts.research.datasets.annotations import Span, overlap_problem

MOST_SPANS = 20_000
"""Repetitions that the labels of one video may have."""
LONGEST_ACTION = 80
"""Characters of what an action is called."""
SLACK = 0.5
"""Seconds a repetition may end past the end of its video: tools measure a video's length differently. It is cut."""
LEAST = 0.002
"""Seconds of the shortest repetition that can be written down: label files state milliseconds."""
SHORTEST = 0.1
"""Seconds of the shortest repetition that other units of time are tried for."""
NAMED = 3
"""Lines that a message names; of more it says how many."""


@dataclass(frozen=True)
class LabelledFile:
    """file: name of the video. spans: start and end of each repetition in seconds, sorted. action: what it is called.

    fps, duration: of the video, where they are known. places: where in a label file each span stands.
    """

    file: str
    spans: tuple[Span, ...]
    action: str = ""
    fps: float | None = None
    duration: float | None = None
    places: tuple[str, ...] = field(default=(), compare=False)


def by_file(marks: Sequence[LabelledFile], only: str | None, what: str) -> list[LabelledFile]:
    """Labels of every video and action from those of single rows or regions; one without a span says that its video
    is there, and this is no repetition.

    only: of this action, and of videos that are said to have none. what: how the format calls an action.
    """
    if only is not None:
        there = dict.fromkeys(mark.action for mark in marks if mark.spans or mark.action)
        if only not in there:
            raise DataError(f"there is no {what} {only!r}; there are {', '.join(map(repr, there)) or 'none'}")
        marks = [mark for mark in marks if mark.action == only or not (mark.spans or mark.action)]
    groups: dict[str, dict[str, list[LabelledFile]]] = {}
    for mark in marks:
        groups.setdefault(mark.file, {}).setdefault(mark.action, []).append(mark)
    found = []
    for file, actions in groups.items():
        lasting = {name: group for name, group in actions.items() if any(mark.spans for mark in group)}
        for action, group in (lasting or dict(list(actions.items())[:1])).items():
            spans = sorted(pair for mark in group for pair in zip(mark.spans, mark.places, strict=False))
            fps = next((mark.fps for mark in group if mark.fps is not None), None)
            duration = next((mark.duration for mark in group if mark.duration is not None), None)
            places = tuple(place for _, place in spans)
            found.append(LabelledFile(file, tuple(span for span, _ in spans), action, fps, duration, places))
    return found


def of_one_action(files: Sequence[LabelledFile], what: str) -> list[LabelledFile]:
    """The same, of which no video has several actions."""
    for file in files:
        names = [other.action for other in files if other.file == file.file]
        if len(names) > 1:
            said = ", ".join(map(repr, names))
            raise DataError(f"{file.file}: it holds several of a {what}: {said}; say which one is meant")
    return list(files)


def label_problem(file: LabelledFile, duration: float | None = None) -> str | None:
    """Why these labels cannot be those of a video of that many seconds, in one sentence; None when they can."""
    if (name := name_problem(file.action)) is not None:
        return f"its action {name}"
    if len(file.spans) > MOST_SPANS:
        return f"{len(file.spans)} repetitions are more than the {MOST_SPANS} a video may have"
    if duration is not None and (late := _late(file, duration)) is not None:
        return late
    if (short := next(((a, b) for a, b in file.spans if b - a < LEAST), None)) is not None:
        return f"the repetition at {short[0]:.3f} s lasts less than {LEAST:g} s, which no label file can state"
    if (overlap := overlap_problem(file.spans)) is not None:
        return f"{overlap}: move one of their borders"
    return None


def name_problem(name: str) -> str | None:
    """What no name of an action may be, in words that follow it; None for a good one."""
    control = next((mark for mark in name if unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp")), None)
    if control is not None:
        return f"{name[:20]!r} holds the control character U+{ord(control):04X}; write it without"
    if len(name) > LONGEST_ACTION:
        return f"is of {len(name)} characters, {name[:20]}…; at most {LONGEST_ACTION} are kept"
    return None


def cut(spans: Sequence[Span], duration: float) -> tuple[Span, ...]:
    """Checked spans that end by SLACK past the end of the video, ending with it."""
    return tuple((start, min(end, duration)) for start, end in spans)


def _late(file: LabelledFile, duration: float) -> str | None:
    places = file.places or ("",) * len(file.spans)
    late = [
        f"{place} ({start:g}–{end:g} s)" if place else f"{start:g}–{end:g} s"
        for (start, end), place in zip(file.spans, places, strict=True)
        if start >= duration or end > duration + SLACK
    ]
    if not late:
        return None
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    lies = "lies" if len(late) == 1 else "lie"
    return (
        f"{', '.join(late[:NAMED])}{more} {lies} past the end of the video ({duration:.2f} s){_unit(file, duration)}"
    )


def _unit(file: LabelledFile, duration: float) -> str:
    """What the times look like, where they would fit the video in another unit."""
    last = max(end for _, end in file.spans)
    length = median(end - start for start, end in file.spans)
    units = {"milliseconds": 1000.0} | ({"frame numbers": file.fps} if file.fps else {})
    fitting = [
        name for name, per_s in units.items() if last / per_s <= duration + SLACK and length / per_s >= SHORTEST
    ]
    return f"; the times look like {' or '.join(fitting)}, and seconds are needed" if fitting else ""


def base_name(path: str) -> str:
    """The last part of a path or URL, whichever system wrote it."""
    return re.split(r"[/\\]", path.strip())[-1]


def grouped(videos: Iterable[LabelledFile]) -> list[list[LabelledFile]]:
    """The actions of each video together, for formats that hold a video in one piece."""
    groups: dict[str, list[LabelledFile]] = {}
    for video in videos:
        groups.setdefault(video.file, []).append(video)
    return list(groups.values())
