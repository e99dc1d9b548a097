"""Videos over HTTP: upload, choose from the media root, list, play, delete and restore.

An upload is kept under an id; names are never paths.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, HTTPException, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel

from escounts.errors import OutputError
from escounts.serve.data_folder import DISK_RESERVE
from escounts.serve.job_api import drawn
from escounts.serve.label_api import write_labels_csv
from escounts.serve.schemas import (
    GUARDED,
    AskedVideo,
    RowId,
    Services,
    Text,
    Video,
    present_video,
)
from escounts.serve.settings import MEBIBYTE
from escounts.system.atomic_files import atomic_file
from escounts.video import VIDEO_SUFFIXES

router = APIRouter(prefix="/api", tags=["videos"])

UPLOAD_BODY = {
    "requestBody": {
        "required": True,
        "description": "The video file itself.",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("application/octet-stream", "video/mp4", "video/webm", "image/gif")
        },
    }
}

RANGES: dict[int | str, dict[str, Any]] = {
    206: {"description": "The part that was asked for."},
    400: {"description": "A range that cannot be read."},
    416: {"description": "A range outside the file."},
}
PICTURE: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}, **RANGES}
FILE_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=3600",
}

UPLOAD_SUFFIXES = VIDEO_SUFFIXES | {".apng", ".webp"}
MEDIA_LIMIT = 2000
CHECK_BYTES = 8 * MEBIBYTE
"""How often the room on the disk is looked at while an upload comes in."""


@router.post("/videos", status_code=201, dependencies=GUARDED, openapi_extra=UPLOAD_BODY)
async def upload(
    service: Services,
    request: Request,
    name: Annotated[str, Query(max_length=500, description="The file's name, to show.")] = "video",
    source: Annotated[Literal["upload", "camera"], Query()] = "upload",
) -> Video:
    """Send a video as the body. Nothing is counted yet: POST /api/jobs with its id."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if not (kind.startswith("video/") or kind in ("application/octet-stream", "image/gif")):
        raise HTTPException(415, "send the video file itself, as application/octet-stream, video/* or image/gif")
    length = request.headers.get("content-length")
    expected = int(length) if length is not None and length.isascii() and length.isdigit() else None
    row = await receive(service, name, source, request.stream(), expected)
    return present_video(service, row)


@router.get("/videos")
def videos(service: Services) -> list[Video]:
    """All videos, the newest first, each with its newest job."""
    return [present_video(service, row) for row in service.database.videos()]


@router.get("/videos/{video_id}")
def video(service: Services, row: AskedVideo) -> Video:
    """One video with its newest job."""
    return present_video(service, row)


@router.get(
    "/videos/{video_id}/file",
    response_class=FileResponse,
    responses={200: {"content": {"video/*": {}, "application/octet-stream": {}}}, **RANGES},
)
def video_file(service: Services, row: AskedVideo) -> FileResponse:
    """The file, whole or in ranges, as a video element asks for it."""
    path = service.settings.locate(row).path
    try:
        open(path, "rb").close()
    except OSError as error:
        raise HTTPException(404, f"{row.name} is no longer on the disk") from error
    return FileResponse(path, media_type=content_type(row.file), headers=FILE_HEADERS)


@router.get(
    "/videos/{video_id}/preview",
    response_class=FileResponse,
    responses={200: {"content": {"video/mp4": {}}}, **RANGES},
)
async def preview(service: Services, row: AskedVideo) -> FileResponse:
    """A small H.264 copy for browsers that cannot play the file; a worker makes it the first time."""
    return await _drawn(service, row, "preview", ".mp4")


@router.get("/videos/{video_id}/thumbnail", response_class=FileResponse, responses=PICTURE)
async def thumbnail(service: Services, row: AskedVideo) -> FileResponse:
    """A small JPEG from the middle of the video; a worker makes it the first time."""
    return await _drawn(service, row, "thumbnail", ".jpg")


@router.get("/videos/{video_id}/filmstrip", response_class=FileResponse, responses=PICTURE)
async def filmstrip(service: Services, row: AskedVideo) -> FileResponse:
    """60 small pictures side by side in one JPEG, evenly spread over the video."""
    return await _drawn(service, row, "filmstrip", ".jpg")


async def _drawn(service: Services, video: Video, format: str, suffix: str) -> FileResponse:
    """A file that shows the video itself, made by a worker the first time it is asked for."""
    target = service.settings.renders / f"{video.id}.{format}{suffix}"
    if not target.exists():
        await drawn(service, video, target, format)
    return FileResponse(target, headers=FILE_HEADERS)


@router.delete("/videos/{video_id}", status_code=204, dependencies=GUARDED)
def delete_video(service: Services, row: AskedVideo) -> None:
    """Delete a video with its jobs, results and labels. A file under the media root stays on the disk."""
    service.delete(row)


@router.get("/media")
def media(service: Services) -> list[str]:
    """The videos under the media root, if the server has one."""
    root = service.settings.media_root
    return [] if root is None else media_files(root)


@router.post("/media", status_code=201, dependencies=GUARDED)
def choose_media(service: Services, file: Annotated[Text, Body(embed=True, max_length=1000)]) -> Video:
    """Take a file under the media root, as GET /api/media lists it, as a video; it is not copied."""
    return present_video(service, from_media(service, file))


class DeletedVideo(BaseModel):
    """A video in the trash. deleted: seconds since 1970; labelled_count: repetitions of its labels, or null."""

    id: str
    name: str
    deleted: float
    labelled_count: int | None


@router.get("/trash")
def deleted_videos(service: Services) -> list[DeletedVideo]:
    """The videos that can be restored, the last deleted first."""
    return [
        DeletedVideo(
            id=video.id,
            name=video.name,
            deleted=float(entry.name.partition("-")[0]),
            labelled_count=len(labels[0].spans) if labels else None,
        )
        for entry, video, labels in service.folder.discarded()
    ]


@router.post("/trash/{video_id}/restore", status_code=201, dependencies=GUARDED)
def restore(service: Services, video_id: RowId) -> Video:
    """Take a video and its labels out of the trash. Its counts are gone: POST /api/jobs counts it again."""
    found = next((found for found in service.folder.discarded() if found[1].id == video_id), None)
    if found is None:
        raise HTTPException(404, "this video is no longer in the trash")
    entry, video, labels = found
    if service.database.video(video_id) is not None:
        raise HTTPException(409, f"{video.name} is among the videos already")
    if video.expires is not None:
        video.expires = service.settings.expiry()
    if video.source != "media":
        shutil.move(entry / video.file, service.settings.videos / video.file)
    service.database.add_video(video)
    for label in labels:
        service.database.save_labels(video_id, label.action, label.pairs)
    shutil.rmtree(entry, ignore_errors=True)
    if labels:
        write_labels_csv(service)
    return present_video(service, video)


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
    service: Services, name: str, source: str, body: AsyncIterator[bytes], expected: int | None
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


def _check_size(service: Services, size: int, *, written: int = 0) -> None:
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


def from_media(service: Services, file: str) -> Video:
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
