"""The formats that are tables.

labels.csv, the form that `escounts train folder` and `escounts data check folder` read: one row per repetition.

BORIS events, as its exports of aggregated and of tabular events hold them (CSV or TSV, old and new columns).
Aggregated: one row per event with start and stop. Tabular: one row per START, STOP or POINT. A point marks the end of
a repetition.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from escounts.errors import DataError
from escounts.output.text import csv_rows, csv_text, unguarded
from escounts.research.datasets.annotation_formats.labels import (
    MOST_SPANS,
    LabelledFile,
    base_name,
    by_file,
    of_one_action,
)
from escounts.research.datasets.annotations import Span, number, whole_count
from escounts.system.atomic_files import write_text

COLUMNS = ("file", "start_s", "end_s", "class")
Row = Mapping[str, str]


def write_csv(videos: Sequence[LabelledFile]) -> str:
    """file, start_s, end_s, class. A video without repetitions is one row without times."""
    rows = [
        (video.file, *times, video.action)
        for video in videos
        for times in [(_ms(start), _ms(end)) for start, end in video.spans] or [("", "")]
    ]
    return csv_text(COLUMNS, rows, paths=PATHS)


def merged_csv(videos: Sequence[LabelledFile], text: str) -> tuple[str, set[str], set[str]]:
    """A labels.csv with these videos' rows in place of those it had of them; whose rows were kept, whose replaced.

    Rows of other videos stay as they are, with columns that are not read here (a split, a remark).
    """
    columns, table = _read_table(text)
    rows = [row for row, _ in table]
    if any(None in row for row in rows):
        raise DataError("a row has more cells than there are columns; put it right before labels are added")
    if text:
        read_csv(text)
    here, new = ({file_of(row) for row in rows}, {video.file for video in videos})
    kept = [row for row in rows if file_of(row) not in new]
    names = [*columns, *(name for name in COLUMNS if name not in columns)]
    rows = [*kept, *(row for row, _ in _read_table(write_csv(videos))[1])]
    cells = ([unguarded(row.get(name) or "", _guard(name)) for name in names] for row in rows)
    return csv_text(names, cells, paths=PATHS), here - new, here & new


def write_file(path: Path, videos: Sequence[LabelledFile]) -> None:
    """labels.csv beside the videos, replaced whole."""
    write_text(path, write_csv(videos))


def read_csv(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The inverse of write: the labels of each video and class. only: a class. fps is not needed."""
    columns, table = _read_table(text)
    missing = [name for name in COLUMNS[:3] if name not in columns]
    if missing:
        raise DataError(f"no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    marks = []
    for row, line in table:
        try:
            marks.append(LabelledFile(file_of(row), spans_of(row), class_of(row), places=(f"line {line}",)))
        except DataError as error:
            raise DataError(f"line {line}: {error}") from error
    return by_file(marks, only, "class")


def read_counts(text: str, only: str | None = None) -> dict[str, tuple[int, str]] | None:
    """The videos of a table of file and count, without times: (count, action) of each. None for any other table."""
    columns, table = _read_table(text)
    if not {"file", "count"} <= {*columns} or {"start_s", "end_s"} & {*columns}:
        return None
    found: dict[str, tuple[int, str]] = {}
    for row, line in table:
        try:
            count = whole_count(row, most=MOST_SPANS)
        except DataError as error:
            raise DataError(f"line {line}: {error} from 0 to {MOST_SPANS}") from error
        if file_of(row) in found:
            raise DataError(f"line {line}: {file_of(row)} has a count already")
        if only in (None, class_of(row)):
            found[file_of(row)] = count, class_of(row)
    return found


def file_of(row: Row) -> str:
    """The video that a row of a labels.csv is about."""
    return unguarded(row["file"] or "", "./")


def class_of(row: Row) -> str:
    """The action of a row of a labels.csv."""
    return unguarded(row.get("class") or "")


def spans_of(row: Row) -> tuple[Span, ...]:
    """The repetition of a row of a labels.csv; none where both times are empty."""
    said = [(row[name] or "").strip() for name in ("start_s", "end_s")]
    if not any(said):
        return ()
    start, end = number(row, "start_s"), number(row, "end_s")
    if start is None or end is None:
        raise DataError(f"start {said[0]!r}, end {said[1]!r} are not numbers")
    if start < 0:
        raise DataError(f"start {start:g} s is before the video's; seconds from 0 on are needed")
    if end <= start:
        raise DataError(f"end {end:g} s is not after start {start:g} s")
    return ((start, end),)


def _guard(column: str) -> str:
    return "./" if column in PATHS else "'"


def _read_table(text: str, delimiter: str = ",") -> tuple[Sequence[str], list[tuple[dict[str, str], int]]]:
    """Columns of a table, and its rows with the lines where they end."""
    reader = csv_rows(text, delimiter)
    try:
        return reader.fieldnames or (), [(row, reader.line_num) for row in reader]
    except csv.Error as error:  # a cell longer than csv takes
        raise DataError(f"line {reader.line_num + 1}: {error}") from error


MEDIA = ("Media file name", "Media file", "Media file path", "Source")
STARTS, STOPS = ("Start (s)", "Start (seconds)"), ("Stop (s)", "Stop (seconds)")
PATHS = ("file", *MEDIA, "Observation id")
"""Columns that name videos, and stay paths when their cells are guarded."""
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


def is_boris(text: str) -> bool:
    """Whether a table has a behaviour column beside times, under whatever lines an old export puts before it."""
    return _header(text) is not None


def read_boris(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """Events by media file, of one behaviour each. only: the behaviour. fps is not needed."""
    place = _header(text)
    there = text[place:] if place is not None else ""
    columns, table = _read_table(there, "\t" if "\t" in re.split(r"[\r\n]", there, maxsplit=1)[0] else ",")
    if "Behavior" not in [name.strip() for name in columns]:
        raise DataError("no line with the columns Behavior and Time, or Behavior and Start (s), of a BORIS export")
    above = len(re.findall(r"\r\n|\r|\n", text[:place]))
    groups: dict[tuple[str, str], list[tuple[Row, str]]] = {}
    for raw, line in table:
        row = {
            key.strip(): unguarded(cell or "", _guard(key.strip())) for key, cell in raw.items() if key is not None
        }
        media = base_name(_first_cell(row, MEDIA)) or row.get("Observation id", "")
        groups.setdefault((media, row["Behavior"]), []).append((row, f"line {above + line}"))
    marks = [mark for (media, _), group in groups.items() if media for mark in _events(media, group)]
    return of_one_action(by_file(marks, only, "behaviour"), "behaviour")


def _events(media: str, group: Sequence[tuple[Row, str]]) -> Iterator[LabelledFile]:
    """The repetitions of one behaviour in one video."""
    about, _ = group[0]
    behaviour = about["Behavior"]
    rate, duration = _number(about, RATES), _number(about, DURATIONS)
    if behaviour in ("", NOTHING):
        yield LabelledFile(media, (), fps=rate, duration=duration)
        return
    aggregated = any(name in about for name in STARTS)
    pairs = [(_aggregated(row), place) for row, place in group] if aggregated else _tabular(group, media)
    lasting = [(span, place) for span, place in pairs if span[0] < span[1]]
    points = [(span[0], place) for span, place in pairs if span[0] == span[1]]
    for span, place in (*lasting, *_spans_of_points(points)):
        yield LabelledFile(media, (span,), behaviour, rate, duration, (place,))


def _spans_of_points(points: Sequence[tuple[float, str]]) -> list[tuple[Span, str]]:
    """Repetitions of which only the end is marked: each begins where the one before it ended, the first one as long
    before its end as they last in the middle."""
    marked = sorted(points)
    if not marked:
        return []
    ends = [end for end, _ in marked]
    gaps = [b - a for a, b in pairwise(ends) if b > a]
    first = max(0.0, ends[0] - (median(gaps) if gaps else ends[0]))
    return [((a, b), place) for a, (b, place) in zip([first, *ends], marked, strict=False) if b > a]


def _aggregated(row: Row) -> Span:
    start, end = _number(row, STARTS), _number(row, STOPS)
    if start is None or end is None or end < start or start < 0:
        raise DataError(
            f"an event of {row['Behavior']!r} from {_first_cell(row, STARTS)!r} to {_first_cell(row, STOPS)!r}"
        )
    return start, end


def _tabular(group: Sequence[tuple[Row, str]], media: str) -> list[tuple[Span, str]]:
    """START and STOP rows in pairs; a POINT is a pair of one time."""
    pairs: list[tuple[Span, str]] = []
    begun: float | None = None
    for row, place in sorted(group, key=lambda r: (_time(r[0], media), _first_cell(r[0], STATUS).upper() != "STOP")):
        time, status = _time(row, media), _first_cell(row, STATUS).upper()
        if status == "POINT":
            pairs.append(((time, time), place))
        elif status == "START" and begun is None:
            begun = time
        elif status == "STOP" and begun is not None:
            pairs.append(((begun, time), place))
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
    """BORIS, one row per repetition with its start and stop."""
    return _boris(AGGREGATED, videos)


def write_tabular(videos: Sequence[LabelledFile]) -> str:
    """BORIS, a START and a STOP per repetition."""
    return _boris(TABULAR, videos)


def _boris(columns: Sequence[str], videos: Sequence[LabelledFile]) -> str:
    rows: list[Row] = []
    for video in videos:
        length, rate = _ms(video.duration), _ms(video.fps)
        about = dict.fromkeys(("Observation id", "Media file", "Media file name", "Source"), video.file)
        about |= {"Observation type": "Media file(s)", "Subject": "No focal subject", "FPS": rate}
        about |= {"Total length": length, "Media duration (s)": length, "Behavior": video.action or "repetition"}
        for start, end in video.spans:
            if columns is AGGREGATED:
                times = {"Start (s)": _ms(start), "Stop (s)": _ms(end), "Duration (s)": _ms(end - start)}
                rows.append({**about, **times, "Behavior type": "STATE"})
            else:
                rows.append({**about, "Behavior type": "START", "Time": _ms(start)})
                rows.append({**about, "Behavior type": "STOP", "Time": _ms(end)})
        if not video.spans:
            times = dict.fromkeys(("Time", "Start (s)", "Stop (s)", "Duration (s)"), _ms(0.0))
            rows.append({**about, **times, "Behavior": NOTHING, "Behavior type": "POINT"})
    return csv_text(columns, ([row.get(name, "") for name in columns] for row in rows), paths=PATHS)


def _header(text: str) -> int | None:
    """Where the line that names the columns begins; old exports have a block about the observation before it."""
    place = 0
    for line in re.split(r"(?<=[\r\n])", text, maxsplit=400)[:400]:
        names = {name.strip().strip('"') for name in line.replace("\t", ",").split(",")}
        if "Behavior" in names and ("Time" in names or names & set(STARTS)):
            return place
        place += len(line)
    return None


def _first_cell(row: Row, names: Sequence[str]) -> str:
    return next((row[name] for name in names if row.get(name)), "")


def _number(row: Row, names: Sequence[str]) -> float | None:
    return next((value for name in names if (value := number(row, name)) is not None), None)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
