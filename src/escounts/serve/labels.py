"""The labels of a service as files: labels.csv beside the uploads, and everything as one dataset folder in a zip."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escounts.datasets.annotation_formats import LabelledFile
from escounts.datasets.annotation_formats.tables import write_csv, write_file
from escounts.serve.database import LabelRow, VideoRow

if TYPE_CHECKING:
    from escounts.serve.app import Service

PIECE = 2**18
"""Bytes of a video that are in memory at once while it is sent."""


def labelled_videos(service: Service) -> list[tuple[VideoRow, LabelRow]]:
    """Every labelled video, the labels saved first coming first."""
    rows = {row.id: row for row in service.database.videos(limit=-1)}
    return [(rows[label.video], label) for label in service.database.labels() if label.video in rows]


def labelled_file(row: VideoRow, label: LabelRow, file: str) -> LabelledFile:
    """A video's labels under a file name."""
    return LabelledFile(file, label.spans, label.action, row.fps, row.duration)


def write_labels_csv(service: Service) -> None:
    """labels.csv of the data folder: uploads lie beside it, files of the media root are named by their whole path."""
    write_file(
        service.settings.videos / "labels.csv",
        [
            labelled_file(row, label, str(_path(service, row).resolve()) if row.source == "media" else row.file)
            for row, label in labelled_videos(service)
        ],
    )


def unique_names(rows: Sequence[VideoRow]) -> dict[str, str]:
    """Video id → a file name to read and to keep: the name it was sent with, made safe and told apart by a number."""
    taken, names = {"labels.csv"}, {}
    for row in rows:
        stem, suffix = _safe_name(row)
        name, number = f"{stem}{suffix}", 2
        while name.casefold() in taken:
            name, number = f"{stem} ({number}){suffix}", number + 1
        taken.add(name.casefold())
        names[row.id] = name
    return names


def label_names(service: Service) -> dict[str, str]:
    """Video id → the name its labels have in a file of another tool: safe, and with the beginning of its id where
    several videos would have it, so that a name means the same video however many come and go."""
    rows = service.database.videos(limit=-1)
    often = Counter("".join(_safe_name(row)).casefold() for row in rows)
    plain = {row.id: "".join(_safe_name(row)) for row in rows}
    return {row.id: plain[row.id] if often[plain[row.id].casefold()] == 1 else _with_id(row) for row in rows}


def videos_by_name(service: Service) -> dict[str, list[VideoRow]]:
    """Every name that labels may come with → the videos that have it: as it was sent, and as `label_names` has it."""
    found: dict[str, list[VideoRow]] = {}
    for row in service.database.videos(limit=-1):
        for name in {row.name, "".join(_safe_name(row)), _with_id(row)}:
            found.setdefault(name, []).append(row)
    return found


def _safe_name(row: VideoRow) -> tuple[str, str]:
    """Stem and suffix of the name a video was sent with, without characters that a file's name cannot have."""
    stem = re.sub(r"[^\w .()+-]", "_", Path(row.name).stem).strip(" .-+") or "video"
    return stem, Path(row.file).suffix or ".mp4"


def _with_id(row: VideoRow) -> str:
    stem, suffix = _safe_name(row)
    return f"{stem} ({row.id[:8]}){suffix}"


def dataset_zip(service: Service) -> Iterator[bytes]:
    """All labelled videos and their labels.csv as a zip, piece by piece: `escounts train folder` takes what is in it.

    A video whose file is gone is left out, with its labels.
    """
    here = [(row, label) for row, label in labelled_videos(service) if _path(service, row).is_file()]
    names = unique_names([row for row, _ in here])
    sent = _Sent()
    with zipfile.ZipFile(sent, "w") as archive:
        archive.writestr("labels.csv", write_csv([labelled_file(row, label, names[row.id]) for row, label in here]))
        yield sent.take()
        for row, _ in here:
            with (
                archive.open(names[row.id], "w", force_zip64=True) as member,
                open(_path(service, row), "rb") as file,
            ):
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


def _path(service: Service, row: VideoRow) -> Path:
    return Path(service.library.locate(row).path)
