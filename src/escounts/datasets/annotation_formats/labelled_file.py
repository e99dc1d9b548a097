"""One video's repetitions as every format reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from escounts.datasets.annotations import Span
from escounts.errors import EscountsError


class LabelError(EscountsError):
    """Labels that cannot be read; the text says what was expected."""


@dataclass(frozen=True)
class LabelledFile:
    """file: name of the video. spans: start and end of each repetition in seconds, sorted. action: what it is called.

    fps, duration: of the video, where they are known.
    """

    file: str
    spans: tuple[Span, ...]
    action: str = ""
    fps: float | None = None
    duration: float | None = None


def base_name(path: str) -> str:
    """The last part of a path or URL, whichever system wrote it."""
    return re.split(r"[/\\]", path.strip())[-1]


def chosen(names: Iterable[str], only: str | None, what: str) -> str | None:
    """Which of a file's behaviours, tiers or labels is meant; None where there are none at all."""
    found = list(dict.fromkeys(names))
    if only is not None:
        if only not in found:
            raise LabelError(f"there is no {what} {only!r}; there are {', '.join(map(repr, found)) or 'none'}")
        return only
    if len(found) > 1:
        raise LabelError(f"it holds several of a {what}: {', '.join(map(repr, found))}; say which one is meant")
    return found[0] if found else None


def spans_of_points(times: Sequence[float]) -> list[Span]:
    """Repetitions of which only the end is marked: each begins where the one before it ended, the first one as long
    before its end as they last in the middle."""
    ends = sorted(times)
    if not ends:
        return []
    gaps = [b - a for a, b in pairwise(ends) if b > a]
    first = max(0.0, ends[0] - (median(gaps) if gaps else ends[0]))
    edges = [first, *ends]
    return [(a, b) for a, b in pairwise(edges) if b > a]
