"""One annotated video, a dataset of them, and the reading of label tables that all datasets share.

All times are seconds from the start of the annotated stretch. A row that cannot be used is never dropped in
silence: it becomes a Problem that names the video.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from escounts.errors import DataError

OVERLAP = 0.001
"""Seconds two repetitions may share: times are written to the millisecond."""
MOST = 1e9
"""No frame number or second of a label file is larger."""
MOST_REPETITIONS = 100_000
"""No video has more; a larger count is a slip, and dividing a video by it would fill the memory."""
ALL = "all"
"""Stands for every split where one is asked for."""
VIDEO_FOLDERS = tuple(f"{top}{split}{{file}}" for split in ("{split}/", "") for top in ("video/", "videos/", ""))
"""Where the videos of a published dataset lie under its root."""
LISTS = "split lists"
"""Name of the problem that says which list of videos is missing."""

_TIMED_FILE = re.compile(r"^(?P<id>.+)_\d{6}_\d{6}\.mp4$")

Span = tuple[float, float]
Row = Mapping[str, str]


@dataclass(frozen=True)
class VideoAnnotation:
    """What people say about one video.

    name: unique in its dataset. file: path of the video under the dataset's video folder. action: class, or
    None when not labelled. count: annotated repetitions (the truth, also where spans disagree). spans: start
    and end of each repetition in seconds. fps: raw frame rate if the labels state it. duration: seconds of the
    annotated stretch if stated. split: train, valid or test. pseudo: spans are an even division, not labels.
    begin: second of the file at which the stretch starts. footage: what it was cut from, when files do not tell.
    marked: repetitions that were marked to be shown as exemplars, where these are not all of them. problems: what is
    odd about it.
    """

    name: str
    file: str
    action: str | None
    count: int
    spans: tuple[Span, ...] = ()
    fps: float | None = None
    duration: float | None = None
    split: str = "test"
    pseudo: bool = False
    begin: float = 0.0
    footage: str = ""
    marked: tuple[Span, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def exemplars(self) -> tuple[Span, ...]:
        """Spans that can serve as exemplars: those that were marked for it, else all that last."""
        return self.marked or tuple(span for span in self.spans if span[1] > span[0])

    @property
    def repetition_length(self) -> float | None:
        """Mean seconds of a repetition, None without spans."""
        spans = self.exemplars
        return sum(end - start for start, end in spans) / len(spans) if spans else None


@dataclass(frozen=True)
class Problem:
    """Something odd in a dataset: which split, which video, what."""

    split: str
    name: str
    what: str
    unusable: bool = False

    def __str__(self) -> str:
        return f"{self.split}/{self.name}: {self.what}" + (" (left out)" if self.unusable else "")


@dataclass(frozen=True)
class Dataset:
    """Annotated videos with what was odd in their labels.

    rows: rows read in each split, unusable ones included. published: rows the paper states for each split.
    video_folders: where a video is looked for under the root; {split} and {file} are filled in. timed_files: a file
    may carry its seconds in the original, `ID_000017_000027.mp4` for `ID.mp4`, as clips of Kinetics do.
    """

    name: str
    videos: tuple[VideoAnnotation, ...]
    rows: Mapping[str, int]
    problems: tuple[Problem, ...] = ()
    published: Mapping[str, int] = field(default_factory=dict)
    video_folders: tuple[str, ...] = ("{file}",)
    timed_files: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, in the order read."""
        return tuple(self.rows)

    def split(self, name: str) -> tuple[VideoAnnotation, ...]:
        """The usable videos of one split; "all" is every split."""
        if name == ALL:
            return self.videos
        if name not in self.rows:
            why = "".join(f" ({problem.what})" for problem in self.problems if problem.name == LISTS)
            raise DataError(f"{self.name} has no split {name!r}; it has {', '.join(self.rows)}, and all{why}")
        return tuple(video for video in self.videos if video.split == name)

    @property
    def actions(self) -> dict[str, int]:
        """How many videos each action class has, most first."""
        return dict(Counter(video.action for video in self.videos if video.action).most_common())

    def find(self, name: str) -> VideoAnnotation:
        """The video of that name."""
        for video in self.videos:
            if video.name == name:
                return video
        raise DataError(f"{self.name} has no video {name!r}")

    def locate(self, root: Path, video: VideoAnnotation) -> Path | None:
        """The file of a video under a root folder, None when it is not there."""
        for pattern in self.video_folders:
            path = root / pattern.format(split=video.split, file=video.file)
            try:
                if path.exists():
                    return path
                if self.timed_files and path.parent.is_dir():
                    named = _timed_files(path.parent, path.parent.stat().st_mtime_ns).get(path.stem)
                    if named is not None:
                        return path.with_name(named)
            except (OSError, ValueError):  # a name that no file can have: too long, or with a null in it
                continue
        return None


@lru_cache(maxsize=16)
def _timed_files(folder: Path, changed: int) -> dict[str, str]:
    """ID → name of the first file `ID_SECOND_SECOND.mp4` of a folder, read once while it does not change: there are
    tens of thousands."""
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        if match := _TIMED_FILE.match(name):
            found.setdefault(match["id"], name)
    return found


def read_rows(path: Path, *, need: Iterable[str] = ()) -> list[Row]:
    """Rows of a CSV file by column name; stray index columns do no harm. Needed columns must be there."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, and a device has no end
            raise DataError(f"cannot read label file {path}: it is a folder, a pipe or a device")
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            columns = [column for column in reader.fieldnames or []]
            rows: list[Row] = [{k: v or "" for k, v in row.items() if k is not None} for row in reader]
    except FileNotFoundError:
        raise DataError(f"no label file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read label file {path}: {error}") from error
    missing = [column for column in need if column not in columns]
    if missing:
        there = " ".join(", ".join(columns[:12]).split())  # a quote that is not closed makes a name of many lines
        raise DataError(f"{path} has no column {', '.join(missing)}; it has {there[:300] or 'none'}")
    return rows


def number(row: Mapping[str, Any], column: str, *, most: float = MOST) -> float | None:
    """The number in a cell; None when it is empty, absent, not a number or further from 0 than `most`."""
    try:
        value = float(row.get(column, ""))
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and abs(value) <= most else None


def whole_count(row: Mapping[str, Any], *, most: int = MOST_REPETITIONS) -> int:
    """How many repetitions a row states; raises DataError where that is no whole number from 0 to `most`."""
    count = number(row, "count", most=most)
    if count is None or count < 0 or count != round(count):
        raise DataError(f"count {row.get('count')!r} is not a whole number")
    return int(count)


def frame_pairs(row: Row) -> list[Span]:
    """L1, L2, L3, L4 … as (start, end) pairs in the row's own unit; a lone last value is left out."""
    values: list[float] = []
    for index in range(1, 10_000):
        if f"L{index}" not in row:
            break
        value = number(row, f"L{index}")
        if value is not None:
            values.append(value)
    return list(zip(values[::2], values[1::2], strict=False))


def to_seconds(pairs: Sequence[Span], fps: float, *, first: float = 0.0) -> tuple[Span, ...]:
    """Frame numbers as seconds, frame `first` being second 0."""
    return tuple(((start - first) / fps, (end - first) / fps) for start, end in pairs)


def span_problems(spans: Sequence[Span], count: int, duration: float | None) -> Iterator[str]:
    """What is odd about the repetitions of one video."""
    if len(spans) != count:
        yield f"count {count}, but {len(spans)} repetitions are marked; the count is kept"
    still = sum(end == start for start, end in spans)
    if still:
        yield f"{still} of {len(spans)} repetitions last 0 s: kept as points in time, never used as exemplars"
    backwards = [span for span in spans if span[1] < span[0]]
    if backwards:
        yield f"repetition ends before it starts: {_written(backwards[0])}"
    late = [span for span in spans if duration is not None and span[1] > duration + 0.05]
    if late:
        yield f"repetition {_written(late[0])} lies past the end of the video ({duration:.2f} s)"


def overlap_problem(spans: Sequence[Span]) -> str | None:
    """The first two repetitions that share more than OVERLAP seconds, in words; None when no moment is in two."""
    for first, second in pairwise(sorted(spans)):
        if second[0] < first[1] - OVERLAP:
            return f"repetitions {_written(first)} and {_written(second)} overlap; a moment belongs to one at most"
    return None


def without_duplicates(videos: Iterable[VideoAnnotation]) -> tuple[list[VideoAnnotation], list[Problem]]:
    """The first video of every name, and a problem for each later one."""
    kept: dict[str, VideoAnnotation] = {}
    problems = []
    for video in videos:
        first = kept.setdefault(video.name, video)
        if first is not video:
            also = "same count" if first.count == video.count else f"count {first.count} kept, {video.count} left"
            problems.append(Problem(video.split, video.name, f"appears twice ({also})", unusable=True))
    return list(kept.values()), problems


def checked(video: VideoAnnotation) -> VideoAnnotation:
    """The video with the problems of its spans noted, and spans that end before they start taken out."""
    problems = (*video.problems, *span_problems(video.spans, video.count, video.duration))
    spans = tuple(span for span in video.spans if span[1] >= span[0])
    return replace(video, spans=spans, problems=problems)


def label_file(root: Path, dataset: str, name: str) -> Path:
    """The table of that name in the folder of its dataset, in those that datasets use for labels, or in the root."""
    places = [root / folder / name for folder in (dataset, "annotation", "annotations", "")]
    for path in places:
        if path.is_file():
            return path
    raise DataError(f"no label file {name}; looked for {', '.join(map(str, places))}")


def assemble(
    name: str,
    found: Iterable[VideoAnnotation | Problem],
    rows: Mapping[str, int],
    *,
    published: Mapping[str, int] | None = None,
    video_folders: tuple[str, ...] = ("{file}",),
) -> Dataset:
    """A dataset from what a reader made of each row: duplicates out, spans checked, problems in one list."""
    found = list(found)
    unusable = [item for item in found if isinstance(item, Problem)]
    videos = (checked(item) for item in found if isinstance(item, VideoAnnotation))
    kept, duplicates = without_duplicates(videos)
    odd = [Problem(video.split, video.name, what) for video in kept for what in video.problems]
    return Dataset(
        name=name,
        videos=tuple(kept),
        rows=rows,
        problems=(*unusable, *duplicates, *odd),
        published=published or {},
        video_folders=video_folders,
    )


def read_tables(root: Path, dataset: str, files: Mapping[str, str], *, need: Iterable[str]) -> dict[str, list[Row]]:
    """The rows of each split's table. files: split → its name (see `label_file`)."""
    return {split: read_rows(label_file(root, dataset, file), need=need) for split, file in files.items()}


def from_tables(
    name: str,
    tables: Mapping[str, list[Row]],
    read: Callable[[Row, str], VideoAnnotation],
    *,
    key: str = "name",
    published: Mapping[str, int] | None = None,
    video_folders: tuple[str, ...] = VIDEO_FOLDERS,
) -> Dataset:
    """A dataset from one table per split. read: the video of a row of a split; a DataError says why there is none.
    key: the column that names it. published, video_folders: as of a Dataset."""

    def read_or_say(row: Row, split: str) -> VideoAnnotation | Problem:
        try:
            return read(row, split)
        except DataError as error:
            return Problem(split, row[key], str(error), unusable=True)

    found = [read_or_say(row, split) for split, rows in tables.items() for row in rows]
    counts = {split: len(rows) for split, rows in tables.items()}
    return assemble(name, found, counts, published=published, video_folders=video_folders)


def _written(span: Span) -> str:
    return f"{span[0]:.2f}–{span[1]:.2f} s"
