"""One video's repetitions as every format reads and writes them, and the formats that are tables.

labels.csv, the form that `escounts train folder` and `escounts data check folder` read: one row per repetition.

BORIS events, as its exports of aggregated and of tabular events hold them (CSV or TSV, old and new columns).
Aggregated: one row per event with start and stop. Tabular: one row per START, STOP or POINT. A point marks the end of
a repetition.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from escounts.errors import DataError
from escounts.output.csv_text import csv_text, guarded, unguarded
from escounts.research.datasets.annotations import Span, number
from escounts.system.atomic_files import write_text


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
            raise DataError(f"there is no {what} {only!r}; there are {', '.join(map(repr, found)) or 'none'}")
        return only
    if len(found) > 1:
        raise DataError(f"it holds several of a {what}: {', '.join(map(repr, found))}; say which one is meant")
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


COLUMNS = ("file", "start_s", "end_s", "class")


def write_csv(videos: Sequence[LabelledFile]) -> str:
    """file, start_s, end_s, class. A video without repetitions is one row without times."""
    rows = [
        (guarded(video.file, "./"), *times, video.action)
        for video in videos
        for times in [(f"{start:.3f}", f"{end:.3f}") for start, end in video.spans] or [("", "")]
    ]
    return csv_text(COLUMNS, rows)


def merged_csv(videos: Sequence[LabelledFile], text: str) -> tuple[str, set[str], set[str]]:
    """A labels.csv with these videos' rows in place of those it had of them; whose rows were kept, whose replaced.

    Rows of other videos stay as they are, with columns that are not read here (a split, a remark).
    """
    columns, table = _read_table(text)
    if any(None in row for row in table):
        raise DataError("a row has more cells than there are columns; put it right before labels are added")
    here, new = ({unguarded(row["file"] or "", "./") for row in table}, {video.file for video in videos})
    kept = [row for row in table if unguarded(row["file"] or "", "./") not in new]
    names = [*columns, *(name for name in COLUMNS if name not in columns)]
    rows = [*kept, *_read_table(write_csv(videos))[1]]
    cells = ([guarded(row.get(name) or "", "./" if name == "file" else "'") for name in names] for row in rows)
    return csv_text(names, cells), here - new, here & new


def write_file(path: Path, videos: Sequence[LabelledFile]) -> None:
    """labels.csv beside the videos, replaced whole."""
    write_text(path, write_csv(videos))


def read_csv(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The inverse of write. only: a class. fps is not needed."""
    columns, table = _read_table(text)
    missing = [name for name in COLUMNS[:3] if name not in columns]
    if missing:
        raise DataError(f"no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    found: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    rows = [row for row in table if only is None or unguarded(row.get("class") or "") == only]
    if only is not None and not rows:
        chosen([], only, "class")
    for place, row in enumerate(rows, start=2):
        known = found.setdefault(unguarded(row["file"] or "", "./"), (unguarded(row.get("class") or ""), []))
        if not (row["start_s"] or "").strip() and not (row["end_s"] or "").strip():
            continue
        start, end = number(row, "start_s"), number(row, "end_s")
        if start is None or end is None or not 0 <= start < end:
            times = f"start {row['start_s']!r}, end {row['end_s']!r}"
            raise DataError(f"line {place}: {times}; two rising numbers of seconds from 0 on are needed")
        known[1].append((start, end))
    return [LabelledFile(file, tuple(sorted(spans)), action) for file, (action, spans) in found.items()]


def _read_table(text: str, delimiter: str = ",") -> tuple[Sequence[str], list[dict[str, str]]]:
    """Columns and rows of a table, whatever its lines end with."""
    reader = csv.DictReader(io.StringIO(text, newline=None), delimiter=delimiter)
    try:
        return reader.fieldnames or (), list(reader)
    except csv.Error as error:  # a cell longer than csv takes
        raise DataError(f"line {reader.line_num + 1}: {error}") from error


MEDIA = ("Media file name", "Media file", "Media file path", "Source")
STARTS, STOPS = ("Start (s)", "Start (seconds)"), ("Stop (s)", "Stop (seconds)")
DURATIONS = ("Media duration (s)", "Total length")
RATES = ("FPS (frame/s)", "FPS")
STATUS = ("Status", "Behavior type")
NOTHING = "(no repetitions)"
"""The behaviour of a row that says that a video has none: BORIS itself would leave the video out."""
AGGREGATED = (
    "Observation id", "Observation date", "Description", "Media file", "Total length", "FPS", "Subject", "Behavior",
    "Behavioral category", "Behavior type", "Start (s)", "Stop (s)", "Duration (s)", "Comment start", "Comment stop",
)  # fmt: skip
TABULAR = (
    "Observation id", "Observation date", "Description", "Observation duration", "Observation type", "Source",
    "Media duration (s)", "FPS", "Subject", "Behavior", "Behavioral category", "Behavior type", "Time",
    "Media file name", "Image index", "Image file path", "Comment",
)  # fmt: skip
Row = Mapping[str, str]


def is_boris(text: str) -> bool:
    """Whether a table has a behaviour column beside times, under whatever lines an old export puts before it."""
    return _header(text.splitlines()) is not None


def read_boris(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """Events of one behaviour by media file. only: the behaviour. fps is not needed."""
    lines = text.splitlines()
    place = _header(lines)
    there = lines[place:] if place is not None else [""]
    columns, table = _read_table("\n".join(there), "\t" if "\t" in there[0] else ",")
    if "Behavior" not in [name.strip() for name in columns]:
        raise DataError("no line with the columns Behavior and Time, or Behavior and Start (s), of a BORIS export")
    rows = [{key.strip(): unguarded(value or "") for key, value in row.items() if key is not None} for row in table]
    behaviour = chosen((r["Behavior"] for r in rows if r["Behavior"] not in ("", NOTHING)), only, "behaviour")
    by_media: dict[str, list[Row]] = {}
    for row in rows:
        group = by_media.setdefault(base_name(_first_cell(row, MEDIA)) or row.get("Observation id", ""), [])
        if row["Behavior"] == behaviour:
            group.append(row)
    return [_boris_video(media, group, behaviour or "", rows) for media, group in by_media.items() if media]


def _boris_video(media: str, group: Sequence[Row], behaviour: str, rows: Sequence[Row]) -> LabelledFile:
    about = next(row for row in rows if media in (base_name(_first_cell(row, MEDIA)), row.get("Observation id", "")))
    aggregated = any(name in about for name in STARTS)
    pairs = [_aggregated(row) for row in group] if aggregated else _tabular(group, media)
    points = [start for start, end in pairs if start == end]
    spans = [(start, end) for start, end in pairs if start < end] + spans_of_points(points)
    return LabelledFile(
        media, tuple(sorted(spans)), behaviour, _number(about, RATES), duration=_number(about, DURATIONS)
    )


def _aggregated(row: Row) -> tuple[float, float]:
    start, end = _number(row, STARTS), _number(row, STOPS)
    if start is None or end is None or end < start or start < 0:
        raise DataError(
            f"an event of {row['Behavior']!r} from {_first_cell(row, STARTS)!r} to {_first_cell(row, STOPS)!r}"
        )
    return start, end


def _tabular(group: Sequence[Row], media: str) -> list[tuple[float, float]]:
    """START and STOP rows in pairs; a POINT is a pair of one time."""
    pairs, begun = [], None
    for row in sorted(group, key=lambda r: (_time(r, media), _first_cell(r, STATUS).upper() != "STOP")):
        time, status = _time(row, media), _first_cell(row, STATUS).upper()
        if status == "POINT":
            pairs.append((time, time))
        elif status == "START" and begun is None:
            begun = time
        elif status == "STOP" and begun is not None:
            pairs.append((begun, time))
            begun = None
        else:
            raise DataError(f"{media}: {status or 'an event without status'} at {time:g} s does not follow its pair")
    if begun is not None:
        raise DataError(f"{media}: START at {begun:g} s has no STOP; add it in BORIS and export again")
    return pairs


def _time(row: Row, media: str) -> float:
    time = number(row, "Time")
    if time is None or time < 0:
        raise DataError(f"{media}: time {row.get('Time')!r}; seconds are needed (export with times in seconds)")
    return time


def write_aggregated(videos: Sequence[LabelledFile]) -> str:
    """One row per repetition with its start and stop."""
    rows = []
    for video in videos:
        for start, end in video.spans or ((0.0, 0.0),):
            behaviour = (video.action or "repetition") if video.spans else NOTHING
            times = {"Start (s)": _ms(start), "Stop (s)": _ms(end), "Duration (s)": _ms(end - start)}
            kind = {"Behavior": behaviour, "Behavior type": "STATE" if video.spans else "POINT"}
            about = {"Media file": video.file, "Total length": _ms(video.duration), "FPS": _ms(video.fps)}
            rows.append({"Observation id": video.file, "Subject": "No focal subject", **about, **kind, **times})
    return _table(AGGREGATED, rows)


def write_tabular(videos: Sequence[LabelledFile]) -> str:
    """A START and a STOP per repetition."""
    rows = []
    for video in videos:
        about = {"Observation id": video.file, "Observation type": "Media file(s)", "Source": video.file}
        about |= {"Media file name": video.file, "Subject": "No focal subject"}
        about |= {"Media duration (s)": _ms(video.duration), "FPS": _ms(video.fps)}
        for start, end in video.spans:
            for status, time in (("START", start), ("STOP", end)):
                kind = {"Behavior": video.action or "repetition", "Behavior type": status, "Time": _ms(time)}
                rows.append({**about, **kind})
        if not video.spans:
            rows.append({**about, "Behavior": NOTHING, "Behavior type": "POINT", "Time": _ms(0.0)})
    return _table(TABULAR, rows)


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    return csv_text(columns, ([_guarded_file(name, row.get(name, "")) for name in columns] for row in rows))


def _guarded_file(column: str, cell: str) -> str:
    """A video's name as a path that no spreadsheet takes for a formula; other cells are guarded as all are."""
    return guarded(cell, "./") if column in (*MEDIA, "Observation id") else cell


def _header(lines: Sequence[str]) -> int | None:
    """The line that names the columns; old exports have a block about the observation before it."""
    for place, line in enumerate(lines[:200]):
        names = {name.strip().strip('"') for name in line.replace("\t", ",").split(",")}
        if "Behavior" in names and ("Time" in names or names & set(STARTS)):
            return place
    return None


def _first_cell(row: Row, names: Sequence[str]) -> str:
    return next((row[name] for name in names if row.get(name)), "")


def _number(row: Row, names: Sequence[str]) -> float | None:
    return next((value for name in names if (value := number(row, name)) is not None), None)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
