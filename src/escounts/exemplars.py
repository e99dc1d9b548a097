"""Exemplars as people write them: `3.2-4.8` in the counted video, `other.mp4@1.0-2.5` in another one."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from escounts.decision.rules import RULES
from escounts.errors import ExemplarError
from escounts.results import ExemplarSpan
from escounts.system.arguments import items, optional, path, seconds, shown
from escounts.system.atomic_files import file_state

_TIME = r"-?(?:\d+:){0,2}\d*\.?\d+"
_SPAN = re.compile(rf"\s*({_TIME})\s*-\s*({_TIME})\s*")
_SHOWN = 60
"""Characters of a wrong exemplar that its error repeats: what is piped to `watch` may be anything."""
_FORMS = "write start-end in seconds (3.2-4.8 or 1:03.5-1:05), or video@start-end (other.mp4@1.0-2.5)"


def parse_exemplar(text: str) -> ExemplarSpan:
    """`"3.2-4.8"` or `"other.mp4@1.0-2.5"` -> a checked span; times in seconds, m:s or h:m:s.

    The path may itself hold "@" and "-": the times stand after the last "@".

    >>> parse_exemplar("take-2@home.mp4@1.0-2.5")
    ExemplarSpan(start=1.0, end=2.5, video='take-2@home.mp4')
    """
    video: str | None = None
    match = _SPAN.fullmatch(text)
    if match is None:
        video, at, times = text.rpartition("@")
        match = _SPAN.fullmatch(times)
        if not at or match is None:
            raise ExemplarError(f"exemplar {_shown(text)} is not understood; {_FORMS}")
        if not video.strip():
            raise ExemplarError(f"exemplar {_shown(text)} names no video before the @; {_FORMS}")
    span = ExemplarSpan(parse_time(match[1]), parse_time(match[2]), video)
    check_exemplar(span)
    return span


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def exemplar_list(name: str, value: Any) -> list[Any]:
    """The exemplars a person gave, each as text, an ExemplarSpan or (encoded video, start, end) with float times."""
    given = items(value)
    if given is None or (
        isinstance(value, tuple) and given and not isinstance(given[0], (str, tuple, list, ExemplarSpan))
    ):
        raise ExemplarError(f"{name} is {shown(value)}; it takes a list: [(3.2, 4.8)], ['3.2-4.8'] or [] for none")
    return [_exemplar(f"{name}[{index}]", one) for index, one in enumerate(given)]


def _exemplar(name: str, value: Any) -> Any:
    if isinstance(value, ExemplarSpan):
        return ExemplarSpan(seconds(name, value.start), seconds(name, value.end), optional(path)(name, value.video))
    if isinstance(value, str):
        return value
    listed = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    parts = tuple(value) if listed else ()
    if len(parts) == 2:
        return ExemplarSpan(seconds(name, parts[0]), seconds(name, parts[1]))
    if len(parts) == 3 and hasattr(parts[0], "encoding"):
        return parts[0], seconds(name, parts[1]), seconds(name, parts[2])
    raise ExemplarError(
        f"{name} is {shown(value)}; it takes (start, end), '3.2-4.8', 'other.mp4@1.0-2.5' or "
        "(encoded video, start, end)"
    )


def states_of_videos(exemplars: Iterable[str]) -> list[list[Any]]:
    """[path, size, time of change] of every other video that exemplars are of: another one of the same name is
    another exemplar. The path alone where there is none; counting says so."""
    paths = dict.fromkeys(span.video for span in map(parse_exemplar, exemplars) if span.video is not None)
    return [_state(os.path.realpath(path)) for path in paths]


def _state(path: str) -> list[Any]:
    try:
        return [path, *file_state(path)]
    except (OSError, ValueError):
        return [path]


def check_exemplar(span: ExemplarSpan, *, duration: float = math.inf, frame: float = 0.0) -> None:
    """Raises ExemplarError unless the span is a stretch of time inside its video, long enough to show a motion.

    duration, frame: seconds that the video and a frame of it last, if known; the end may run past by a frame.
    """
    named = span.video if not span.video or span.video.isprintable() else repr(span.video)
    where = f"exemplar {span.start:g}-{span.end:g}" + (f" of {named}" if named else "")
    if not (math.isfinite(span.start) and math.isfinite(span.end)):
        raise ExemplarError(f"{where}: start and end must be finite numbers of seconds")
    if span.start < 0:
        raise ExemplarError(f"{where} starts at a negative time; times count from 0, the video's start")
    if span.end == span.start:
        raise ExemplarError(f"{where} is empty; give the start and the end of one repetition")
    if span.end < span.start:
        raise ExemplarError(f"{where} ends before it starts; the start comes first")
    if span.end > duration + frame:
        raise ExemplarError(f"{where} runs past the end of the video, which lasts {duration:.2f} s")
    if span.end - span.start < RULES.exemplar_frames * frame:
        raise ExemplarError(
            f"{where} lasts {span.end - span.start:.3f} s, hardly a frame ({frame:.3f} s); mark one whole repetition"
        )


def parse_time(text: str) -> float:
    """ "75.5", "1:15.5" or "0:01:15.5" -> seconds; raises ValueError for anything else."""
    sign = -1.0 if text.startswith("-") else 1.0
    total = 0.0
    for part in text.lstrip("-").split(":"):
        total = total * 60 + float(part)
    return sign * total
