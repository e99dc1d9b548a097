"""Videos as files: uploads, kept under an id, and files of the media root. Names are never paths."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import secrets
import time
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import HTTPException

from escounts.errors import OutputError
from escounts.serve.data_folder import DISK_RESERVE
from escounts.serve.schemas import Video
from escounts.serve.settings import MEBIBYTE
from escounts.system.atomic_files import atomic_file
from escounts.video import VIDEO_SUFFIXES

if TYPE_CHECKING:
    from escounts.serve.app import Service

UPLOAD_SUFFIXES = VIDEO_SUFFIXES | {".apng", ".webp"}
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


async def receive(
    service: Service, name: str, source: str, body: AsyncIterator[bytes], expected: int | None
) -> Video:
    """Stream an upload to disk; the row exists only once the file is whole. expected: its bytes, where it says so."""
    _check_size(service, expected or 0)
    video_id = secrets.token_hex(16)
    target = service.settings.videos / f"{video_id}{safe_suffix(name)}"
    size = checked = 0
    try:
        with atomic_file(target) as partial:
            with open(partial, "wb") as file:
                async for chunk in body:
                    size += len(chunk)
                    if size > service.settings.max_upload or size - checked >= CHECK_BYTES:
                        _check_size(service, size, written=size - len(chunk))
                        checked = size
                    file.write(chunk)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())  # else the whole service would wait for it
            if size == 0:
                raise HTTPException(422, "the upload is empty; send the video file as the body")
            if expected is not None and size != expected:
                raise HTTPException(400, f"the upload broke off at {size} of {expected} bytes")
    except OutputError as error:
        reason = getattr(error.__cause__, "strerror", None) or "the disk refused it"
        raise HTTPException(507, f"the upload could not be kept: {reason}") from error
    video = Video(
        id=video_id,
        name=shown_name(name),
        source=source,
        file=target.name,
        size=size,
        created=time.time(),
        expires=service.settings.expiry(),
    )
    await asyncio.to_thread(service.database.add_video, video)
    return video


def _check_size(service: Service, size: int, *, written: int = 0) -> None:
    """Refuse an upload of `size` bytes, of which some are on the disk already, that is not to be had room for."""
    limit = service.settings.max_upload
    if size > limit:
        raise HTTPException(413, f"the video is larger than the {limit / MEBIBYTE:.0f} MiB this server takes")
    needed = size - written
    if needed > service.folder.free_bytes() - DISK_RESERVE:
        service.folder.empty_trash(needed=needed)
    if needed > service.folder.free_bytes() - DISK_RESERVE:
        raise HTTPException(507, "the server's disk is too full for this video; delete some")


def media_files(root: Path) -> list[str]:
    """Videos under the media root, as relative names; nothing that leads out of it."""
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


def from_media(service: Service, file: str) -> Video:
    """The row of a file under the media root; only names that `media_files` lists are taken."""
    root = service.settings.media_root
    if root is None or file not in media_files(root):
        raise HTTPException(404, "there is no such video under the media root; list them with GET /api/media")
    known = service.database.media_video(file)
    if known is not None:
        return known
    video = Video(
        id=secrets.token_hex(16),
        name=shown_name(file),
        source="media",
        file=file,
        size=(root / file).stat().st_size,
        created=time.time(),
    )
    service.database.add_video(video)
    return video


def _inside(path: Path, root: Path) -> bool:
    real = os.path.realpath(path)  # Path.resolve raises where links go round in a circle
    return os.path.isfile(real) and Path(real).is_relative_to(os.path.realpath(root))
