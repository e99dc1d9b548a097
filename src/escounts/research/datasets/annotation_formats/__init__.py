"""Repetitions in the files of other annotation tools: read into labels, and written for them.

`tables` has the formats of rows, `timelines` those of marks. A file may hold several behaviours, tiers or labels;
`only` names the one that is meant.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from escounts.errors import DataError
from escounts.research.datasets.annotation_formats import tables, timelines
from escounts.research.datasets.annotation_formats.labels import LabelledFile, base_name, grouped

__all__ = [
    "FORMATS",
    "Format",
    "LabelledFile",
    "dataset_zip",
    "guess_format",
    "label_file_format",
    "label_text",
    "read_labels",
    "write_labels",
]

Format = Literal["csv", "boris", "boris-tabular", "elan", "label-studio"]
LARGEST = 64 * 2**20
"""Bytes of a file that is read."""
PIECE = 2**18
"""Bytes of a video that are in memory at once while it is put in a zip."""


@dataclass(frozen=True)
class FormatEntry:
    """read: text of a file → labels. write: labels → text of a file. suffix, media_type: of such files.

    one_video: a file holds one video only.
    """

    suffix: str
    media_type: str
    read: Callable[[str, str | None, float | None], list[LabelledFile]]
    write: Callable[[Sequence[LabelledFile]], str]
    one_video: bool = False


FORMATS: dict[Format, FormatEntry] = {
    "csv": FormatEntry(".csv", "text/csv", tables.read_csv, tables.write_csv),
    "boris": FormatEntry(".csv", "text/csv", tables.read_boris, tables.write_aggregated),
    "boris-tabular": FormatEntry(".csv", "text/csv", tables.read_boris, tables.write_tabular),
    "elan": FormatEntry(".eaf", "application/xml", timelines.read_elan, timelines.write_elan, one_video=True),
    "label-studio": FormatEntry(
        ".json", "application/json", timelines.read_label_studio, timelines.write_label_studio
    ),
}


def guess_format(name: str, text: str) -> Format:
    """The format of a file, by its name and first lines."""
    if name.lower().endswith(".eaf") or "<ANNOTATION_DOCUMENT" in text[:4096]:
        return "elan"
    if name.lower().endswith(".json") or text.lstrip()[:1] in ("[", "{"):
        return "label-studio"
    return "boris" if tables.is_boris(text) else "csv"


def read_labels(
    path: Path, *, format: Format | None = None, only: str | None = None, fps: float | None = None
) -> list[LabelledFile]:
    """Labels of a file. format: None guesses it. only: a behaviour, tier or label. fps: where frames are counted."""
    text = label_text(path)
    try:
        return FORMATS[format or guess_format(path.name, text)].read(text, only, fps)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def label_file_format(path: Path) -> Format:
    """Which tool's a label file is."""
    return guess_format(path.name, label_text(path))


def label_text(path: Path) -> str:
    """What is in a label file, of a size that is read."""
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path} is larger than the {LARGEST // 2**20} MiB that are read")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from error


def write_labels(videos: Sequence[LabelledFile], format: Format) -> dict[str, str]:
    """Files of a format by name: one for all videos, or one per video where the format holds no more."""
    entry = FORMATS[format]
    if not entry.one_video:
        return {f"labels{entry.suffix}": entry.write(videos)}
    groups = grouped(videos)
    names = distinct_names([f"{base_name(group[0].file)}{entry.suffix}" for group in groups])
    return {name: entry.write(group) for name, group in zip(names, groups, strict=True)}


def distinct_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names, told apart by a number where they differ in nothing or, as a disk may see it, in case alone."""
    known, distinct = set(taken), []
    for name in names:
        stem, dot, suffix = name.rpartition(".")
        number = 2
        while name.casefold() in known:
            name, number = f"{stem} ({number}){dot}{suffix}", number + 1
        known.add(name.casefold())
        distinct.append(name)
    return distinct


def dataset_zip(videos: Sequence[tuple[Path, LabelledFile]]) -> Iterator[bytes]:
    """Labelled videos and their labels.csv as a zip, piece by piece: `escounts train folder` takes what is in it."""
    names = distinct_names([label.file for _, label in videos], {"labels.csv"})
    sent = _Sent()
    with zipfile.ZipFile(sent, "w") as archive:
        labels = [replace(label, file=name) for (_, label), name in zip(videos, names, strict=True)]
        archive.writestr("labels.csv", tables.write_csv(labels))
        for (path, _), name in zip(videos, names, strict=True):
            with archive.open(name, "w", force_zip64=True) as member, open(path, "rb") as file:
                while piece := file.read(PIECE):
                    member.write(piece)
                    yield sent.take()
    yield sent.take()


class _Sent(io.RawIOBase):
    """What a zip writes into: gives out what has come so far, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken
