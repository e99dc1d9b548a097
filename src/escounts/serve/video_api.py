"""Videos over HTTP: upload, choose from the media root, list, play, delete; and the session of the page."""

from __future__ import annotations

import asyncio
import secrets
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse

from escounts.output import FORMATS
from escounts.serve.database import VideoRow
from escounts.serve.media import content_type
from escounts.serve.schemas import (
    GUARDED,
    PROBLEMS,
    USUAL_PROBLEMS,
    Limits,
    MediaChoice,
    Services,
    SessionRequest,
    Video,
    VideoId,
    present_video,
    video_or_404,
)
from escounts.serve.security import COOKIE, client_address, session_value, token_matches, too_many_guesses
from escounts.serve.worker import RenderTask
from escounts.serve.worker_pool import JobError

router = APIRouter(prefix="/api", responses=USUAL_PROBLEMS)

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
PICTURE: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}, **RANGES, 503: PROBLEMS[503]}
FILE_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=3600",
}


@router.post("/session", status_code=204, tags=["service"], dependencies=GUARDED)
def open_session(service: Services, request: Request, session: SessionRequest, response: Response) -> None:
    """Trade the token for a cookie, so that the page's video element and event stream are let in too."""
    token = service.settings.token
    if token is None:
        return
    address = client_address(request.scope)
    wait = service.guesses.seconds_left(address)
    if wait:
        raise HTTPException(429, too_many_guesses(wait), headers={"retry-after": str(wait)})
    if not token_matches(session.token, token):
        service.guesses.note(address, session.token)
        raise HTTPException(401, "that is not the token; it was printed when the server started")
    response.set_cookie(COOKIE, session_value(token), httponly=True, samesite="strict", path="/")


@router.get("/limits", tags=["service"])
def limits(service: Services) -> Limits:
    """What this server takes and which model counts."""
    settings = service.settings
    return Limits(
        model=next((worker["model"] for worker in service.runner.workers() if worker["model"]), settings.model),
        max_upload=settings.max_upload,
        max_duration=settings.max_duration,
        keep_days=settings.keep_days,
        media_root=settings.media_root is not None,
        formats=list(FORMATS),
        titles={name: kind.title for name, kind in FORMATS.items()},
        version=version("escounts"),
    )


@router.post(
    "/videos",
    status_code=201,
    tags=["videos"],
    dependencies=GUARDED,
    openapi_extra=UPLOAD_BODY,
    responses={415: PROBLEMS[415]},
)
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
    row = await service.library.receive(name, source, request.stream(), expected)
    return present_video(service, row)


@router.get("/videos", tags=["videos"])
def videos(service: Services) -> list[Video]:
    """All videos, the newest first, each with its newest job."""
    return [present_video(service, row) for row in service.database.videos()]


@router.get("/videos/{video_id}", tags=["videos"])
def video(service: Services, video_id: VideoId) -> Video:
    """One video with its newest job."""
    return present_video(service, video_or_404(service, video_id))


@router.get(
    "/videos/{video_id}/file",
    tags=["videos"],
    response_class=FileResponse,
    responses={200: {"content": {"video/*": {}, "application/octet-stream": {}}}, **RANGES},
)
def video_file(service: Services, video_id: VideoId) -> FileResponse:
    """The file, whole or in ranges, as a video element asks for it."""
    row = video_or_404(service, video_id)
    path = service.library.locate(row).path
    try:
        open(path, "rb").close()
    except OSError as error:
        raise HTTPException(404, f"{row.name} is no longer on the disk") from error
    return FileResponse(path, media_type=content_type(row.file), headers=FILE_HEADERS)


@router.get(
    "/videos/{video_id}/preview",
    tags=["videos"],
    response_class=FileResponse,
    responses={200: {"content": {"video/mp4": {}}}, **RANGES},
)
async def preview(service: Services, video_id: VideoId) -> FileResponse:
    """A small H.264 copy for browsers that cannot play the file; a worker makes it the first time."""
    path = await _drawn(service, video_or_404(service, video_id), "preview", ".mp4")
    return FileResponse(path, media_type="video/mp4", headers=FILE_HEADERS)


@router.get("/videos/{video_id}/thumbnail", tags=["videos"], response_class=FileResponse, responses=PICTURE)
async def thumbnail(service: Services, video_id: VideoId) -> FileResponse:
    """A small JPEG from the middle of the video; a worker makes it the first time."""
    path = await _drawn(service, video_or_404(service, video_id), "thumbnail", ".jpg")
    return FileResponse(path, media_type="image/jpeg", headers=FILE_HEADERS)


@router.get("/videos/{video_id}/filmstrip", tags=["videos"], response_class=FileResponse, responses=PICTURE)
async def filmstrip(service: Services, video_id: VideoId) -> FileResponse:
    """60 small pictures side by side in one JPEG, evenly spread over the video."""
    path = await _drawn(service, video_or_404(service, video_id), "filmstrip", ".jpg")
    return FileResponse(path, media_type="image/jpeg", headers=FILE_HEADERS)


async def _drawn(service: Services, row: VideoRow, format: str, suffix: str) -> Path:
    """A file that shows the video itself, made by a worker the first time it is asked for."""
    target = service.settings.renders / f"{row.id}.{format}{suffix}"
    if not target.exists():
        task = RenderTask(secrets.token_hex(16), service.library.locate(row), str(target), format)
        try:
            await asyncio.wrap_future(service.runner.render(task))
        except JobError as error:
            raise HTTPException(503, f"no {format} could be made: {error}") from error
    return target


@router.delete("/videos/{video_id}", status_code=204, tags=["videos"], dependencies=GUARDED)
def delete_video(service: Services, video_id: VideoId) -> None:
    """Delete a video with its jobs, results and labels. A file under the media root stays on the disk."""
    service.delete(video_or_404(service, video_id))


@router.get("/media", tags=["videos"])
def media(service: Services) -> list[str]:
    """The videos under the media root, if the server has one."""
    return service.library.media_files()


@router.post("/media", status_code=201, tags=["videos"], dependencies=GUARDED)
def choose_media(service: Services, choice: MediaChoice) -> Video:
    """Take a file under the media root as a video; it is not copied."""
    return present_video(service, service.library.from_media(choice.file))
