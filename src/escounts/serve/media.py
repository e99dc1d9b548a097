"""Videos and their labels as files: uploads, kept under an id, and files of the media root (names are never paths);
labels.csv beside the uploads, and everything as one dataset folder in a zip."""

from __future__ import annotations

import asyncio
import io
import mimetypes
import os
import re
import secrets
import time
import unicodedata
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escounts.errors import OutputError
from escounts.research.datasets.annotation_formats import LabelledFile
from escounts.research.datasets.annotation_formats.tables import write_csv, write_file
from escounts.serve.data_folder import DISK_RESERVE, UPLOAD, DataFolder
from escounts.serve.database import Database, LabelRow, VideoRow
from escounts.serve.settings import MEBIBYTE, Refused, Source
from escounts.system.atomic_files import atomic_file
from escounts.video import VIDEO_SUFFIXES

if TYPE_CHECKING:
    from escounts.serve.app import Service

UPLOAD_SUFFIXES = VIDEO_SUFFIXES | {".apng", ".webp"}
PIECE = 2**18
"""Bytes of a video that are in memory at once while it is sent."""
MEDIA_LIMIT = 2000
CHECK_BYTES = 8 * MEBIBYTE
"""How often the room on the disk is looked at while an upload comes in."""


def shown_name(name: str) -> str:
    """A client's file name as something to show: last component, printable, at most 120 characters."""
    last = re.split(r"[/\\]", name)[-1]
    printable = "".join(c for c in last if unicodedata.category(c)[0] != "C").strip(". ")
    return printable[:120] or "video"


def safe_suffix(name: str) -> str:
    """The suffix of a known kind of video, with its dot, or nothing."""
    suffix = f".{name.rsplit('.', 1)[-1].lower()}" if "." in name else ""
    return suffix if suffix in UPLOAD_SUFFIXES else ""


def content_type(file: str) -> str:
    """A media type a browser may play; anything else is opaque bytes."""
    kind, _ = mimetypes.guess_type(file)
    playable = kind is not None and (kind.startswith("video/") or kind == "image/gif")
    return kind if kind is not None and playable else "application/octet-stream"


class Library:
    """The videos of one service."""

    def __init__(self, folder: DataFolder, database: Database) -> None:
        self._folder = folder
        self._settings = folder.settings
        self._database = database

    def locate(self, video: VideoRow) -> Source:
        """The file behind a row."""
        folder = self._settings.media_root if video.source == "media" else self._settings.videos
        return Source(video.id, str((folder or self._settings.videos) / video.file), video.name)

    async def receive(self, name: str, source: str, body: AsyncIterator[bytes], expected: int | None) -> VideoRow:
        """Stream an upload to disk; the row exists only once the file is whole."""
        self._check_size(expected or 0)
        video_id = secrets.token_hex(16)
        target = self._settings.videos / f"{video_id}{safe_suffix(name)}"
        size = checked = 0
        try:
            with atomic_file(target) as partial:
                with open(partial, "wb") as file:
                    async for chunk in body:
                        size += len(chunk)
                        if size > self._settings.max_upload or size - checked >= CHECK_BYTES:
                            self._check_size(size, written=size - len(chunk))
                            checked = size
                        file.write(chunk)
                    file.flush()
                    await asyncio.to_thread(os.fsync, file.fileno())  # else the whole service would wait for it
                if size == 0:
                    raise Refused("the upload is empty; send the video file as the body", 422)
                if expected is not None and size != expected:
                    raise Refused(f"the upload broke off at {size} of {expected} bytes", 400)
        except OutputError as error:
            reason = getattr(error.__cause__, "strerror", None) or "the disk refused it"
            raise Refused(f"the upload could not be kept: {reason}", 507) from error
        now = time.time()
        keep = self._settings.keep_days
        row = VideoRow(
            id=video_id,
            name=shown_name(name),
            source=source,
            file=target.name,
            size=size,
            created=now,
            expires=now + keep * 86400 if keep > 0 else None,
        )
        await asyncio.to_thread(self._database.add_video, row)
        return row

    def _check_size(self, size: int, *, written: int = 0) -> None:
        """Refuse an upload of `size` bytes, of which some are on the disk already, that is not to be had room for."""
        limit = self._settings.max_upload
        if size > limit:
            raise Refused(f"the video is larger than the {limit / MEBIBYTE:.0f} MiB this server takes", 413)
        needed = size - written
        if needed > self._folder.free_bytes() - DISK_RESERVE:
            self._folder.empty_trash(needed=needed)
        if needed > self._folder.free_bytes() - DISK_RESERVE:
            raise Refused("the server's disk is too full for this video; delete some", 507)

    def media_files(self) -> list[str]:
        """Videos under the media root, as relative names; nothing that leads out of it."""
        root = self._settings.media_root
        if root is None:
            return []
        found: list[str] = []
        for folder, subfolders, files in os.walk(root, followlinks=False):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(files):
                path = Path(folder) / name
                if safe_suffix(name) and not name.startswith(".") and _inside(path, root):
                    found.append(path.relative_to(root).as_posix())
            if len(found) >= MEDIA_LIMIT:
                return found[:MEDIA_LIMIT]
        return found

    def from_media(self, file: str) -> VideoRow:
        """The row of a file under the media root; only names that `media_files` lists are taken."""
        if file not in self.media_files():
            raise Refused("there is no such video under the media root; list them with GET /api/media", 404)
        known = self._database.media_video(file)
        if known is not None:
            return known
        size = (self._settings.media_root or Path()).joinpath(file).stat().st_size
        row = VideoRow(secrets.token_hex(16), shown_name(file), "media", file, size, time.time())
        self._database.add_video(row)
        return row

    def remove_files(self, video: VideoRow) -> None:
        """Move the file, if it is ours, to the trash with what is known of it; remove what was drawn of it.

        The row stays for the caller to delete: a full disk takes that change only once there is room again.
        """
        labels = [asdict(row) for row in self._database.labels(video.id)]
        ours = video.source != "media" and UPLOAD.fullmatch(video.file)
        if ours or labels:
            files = [self._settings.videos / video.file] if ours else []
            self._folder.set_aside(video.id, files, {"video": asdict(video), "labels": labels})
        for owner in (video.id, *(job.id for job in self._database.jobs(video.id, limit=-1))):
            for render in self._settings.renders.glob(f"{owner}.*"):
                render.unlink(missing_ok=True)
        self._folder.empty_trash()


def _inside(path: Path, root: Path) -> bool:
    real = os.path.realpath(path)  # Path.resolve raises where links go round in a circle
    return os.path.isfile(real) and Path(real).is_relative_to(os.path.realpath(root))


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
