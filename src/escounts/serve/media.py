"""Where videos come from: uploads, kept under an id, and files of the media root. Names are never paths."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import secrets
import time
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

from escounts.atomic_files import atomic_file
from escounts.errors import EscountsError, OutputError
from escounts.file_kinds import VIDEO_SUFFIXES
from escounts.serve.data_folder import DISK_RESERVE, UPLOAD, DataFolder
from escounts.serve.database import Database, VideoRow
from escounts.serve.settings import MEBIBYTE
from escounts.serve.worker import Source

UPLOAD_SUFFIXES = VIDEO_SUFFIXES | {".apng", ".webp"}
MEDIA_LIMIT = 2000
CHECK_BYTES = 8 * MEBIBYTE
"""How often the room on the disk is looked at while an upload comes in."""


class UploadError(EscountsError):
    """An upload that is refused. status: the HTTP status that says so."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


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
                    raise UploadError("the upload is empty; send the video file as the body", 422)
                if expected is not None and size != expected:
                    raise UploadError(f"the upload broke off at {size} of {expected} bytes", 400)
        except OutputError as error:
            reason = getattr(error.__cause__, "strerror", None) or "the disk refused it"
            raise UploadError(f"the upload could not be kept: {reason}", 507) from error
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
            raise UploadError(f"the video is larger than the {limit / MEBIBYTE:.0f} MiB this server takes", 413)
        needed = size - written
        if needed > self._folder.free_bytes() - DISK_RESERVE:
            self._folder.empty_trash(needed=needed)
        if needed > self._folder.free_bytes() - DISK_RESERVE:
            raise UploadError("the server's disk is too full for this video; delete some", 507)

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
            raise UploadError("there is no such video under the media root; list them with GET /api/media", 404)
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
    resolved = path.resolve()
    return resolved.is_file() and resolved.is_relative_to(root.resolve())
