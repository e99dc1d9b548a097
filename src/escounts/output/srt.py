"""srt: a subtitle that counts along; the number goes up when a repetition is complete."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from escounts.atomic_files import write_text
from escounts.output.text import confidence
from escounts.results import READABLE, CountResult


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """One cue per number, from the end of its repetition to the end of the next one.

    The last one says so where a person corrected the count.
    """
    blocks = [
        f"{index}\n{timestamp(start)} --> {timestamp(end)}\n{text}\n"
        for index, (start, end, text) in enumerate(cues(result), 1)
    ]
    write_text(path, "\n".join(blocks))


def cues(result: CountResult) -> list[tuple[float, float, str]]:
    """(start, end, text) in seconds, in order, without overlap, over the counted range."""
    first, last = result.range
    changes = result.counting_times
    if changes:  # a player that rests on the last frame still shows a number that came late
        last = max(last, changes[-1] + READABLE)
    edges = [first, *changes, last]
    texts = [str(number) for number in range(result.count + 1)]
    if result.machine is not None:
        texts[-1] += f"\n{confidence(result)}"
    return [
        (start, end, text) for text, (start, end) in zip(texts, pairwise(edges), strict=True) if end - start > 1e-3
    ]


def timestamp(seconds: float) -> str:
    """SubRip time: 00:01:02,345."""
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d},{milliseconds % 1000:03d}"
