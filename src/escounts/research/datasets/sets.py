"""Tables of sets: one row per set of repetitions in a video, `file, count, t_start, t_end` and more.

With `rep_times` ("9.4-11.6 12.0-13.7", seconds) every repetition is known; a file whose sets are of one motion is
then one video from its first frame to its last. Otherwise each set is a video of its own, from t_start to t_end:
several motions in one video are several questions. Further columns: `motion` or `action`, `split` (`val` is `valid`),
`exemplar_start_s` and `exemplar_end_s` (one marked repetition). A row of count 0 needs no times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from escounts.counting.density import pseudo_spans
from escounts.errors import DataError
from escounts.research.datasets.annotation_formats.tables import file_of
from escounts.research.datasets.annotations import (
    MOST_REPETITIONS,
    Dataset,
    Problem,
    Row,
    Span,
    VideoAnnotation,
    assemble,
    number,
    overlap_problem,
)

TIMES = {"t_start", "t_end"}
"""Columns by which a table of sets is told from others."""


def load_sets(rows: Sequence[Row], *, only: str | None = None) -> Dataset:
    """The videos of such a table; only: of the rows, those of this motion."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        if only is None or _motion(row) == only:
            grouped.setdefault(file_of(row).strip(), []).append(row)
    found = [video for file, group in grouped.items() for video in _videos(file, group)]
    splits = [video.split for video in found]
    return assemble("folder", found, {split: splits.count(split) for split in dict.fromkeys(splits)})


def _videos(file: str, rows: Sequence[Row]) -> Iterator[VideoAnnotation | Problem]:
    whole = "rep_times" in rows[0] and len({_motion(row) for row in rows}) == 1
    for place, group in enumerate([rows] if whole else [[row] for row in rows], start=1):
        name = file if whole or len(rows) == 1 else f"{file}#{place}"
        try:
            yield _video(name, file, group, whole=whole)
        except (DataError, ValueError) as error:
            yield Problem(_split(group[0]), name, str(error), unusable=True)


def _video(name: str, file: str, rows: Sequence[Row], *, whole: bool) -> VideoAnnotation:
    begin, duration = 0.0, None
    counts = [number(row, "count", most=MOST_REPETITIONS) for row in rows]
    if any(count is None or count < 0 or count != round(count) for count in counts):
        raise DataError(f"count {rows[0].get('count')!r} is not a whole number")
    if not whole:
        start, end = number(rows[0], "t_start"), number(rows[0], "t_end")
        if start is None or end is None or not 0 <= start < end:
            raise DataError(f"t_start {rows[0]['t_start']!r} and t_end {rows[0]['t_end']!r} are no range")
        begin, duration = start, end - start
    known = "rep_times" in rows[0]
    count = int(sum(count or 0 for count in counts))
    spans = sorted(span for row in rows for span in _times(row.get("rep_times", ""), begin))
    if (overlap := overlap_problem(spans)) is not None:
        raise DataError(overlap)
    shown = number(rows[0], "exemplar_start_s"), number(rows[0], "exemplar_end_s")
    marked = ((shown[0] - begin, shown[1] - begin),) if None not in shown else ()  # type: ignore[operator]
    return VideoAnnotation(
        name=name,
        file=file,
        action=_motion(rows[0]) or None,
        count=count,
        spans=tuple(spans) if known else tuple(pseudo_spans(count, 0.0, duration or 0.0)),
        fps=None,
        duration=duration,
        split=_split(rows[0]),
        pseudo=not known,
        begin=begin,
        marked=marked,
    )


def _times(text: str, begin: float) -> Iterator[Span]:
    for part in text.split():
        start, _, end = part.partition("-")
        yield float(start) - begin, float(end) - begin


def _motion(row: Row) -> str:
    return (row.get("motion") or row.get("action") or "").strip()


def _split(row: Row) -> str:
    split = row.get("split", "").strip() or "train"
    return "valid" if split == "val" else split
