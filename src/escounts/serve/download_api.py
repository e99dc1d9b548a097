"""Results as files: what the person said where a video was corrected, otherwise what the model counted."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import FileResponse, Response

from escounts.serve.access import PROBLEMS, USUAL_PROBLEMS, JobId, Services, need_job, need_video
from escounts.serve.database import JobRow
from escounts.serve.worker import RenderTask
from escounts.serve.worker_pool import JobError

router = APIRouter(prefix="/api", responses=USUAL_PROBLEMS)

Format = Literal["json", "csv", "srt", "text", "png", "mp4", "html"]
Unit = Literal["cycle", "side"]
FORMATS: dict[Format, tuple[str, str]] = {
    "json": ("application/json", ".json"),
    "csv": ("text/csv", ".csv"),
    "srt": ("application/x-subrip", ".srt"),
    "text": ("text/plain", ".txt"),
    "png": ("image/png", ".png"),
    "mp4": ("video/mp4", ".mp4"),
    "html": ("text/html", ".html"),
}
AT = "Seconds: a repetition begins or ends here, and all others at the same point of the motion."
DRAWN = frozenset({"png", "mp4", "html"})


@router.get(
    "/jobs/{job_id}/download/{format}",
    tags=["jobs"],
    response_class=Response,
    responses={200: {"content": {media_type: {} for media_type, _ in FORMATS.values()}}, 409: PROBLEMS[409]},
)
async def download(
    service: Services,
    job_id: JobId,
    format: Format,
    unit: Annotated[Unit | None, Query(description="The model's count by cycles, or by sides of them.")] = None,
    at: Annotated[float | None, Query(ge=0, le=1e6, description=AT)] = None,
    corrected: Annotated[bool, Query(description="False: the model's count of a corrected video, too.")] = True,
) -> Response:
    """The result as a file. Of a video with labels it says what they say, marked as corrected, unless `unit`, `at` or
    `corrected=false` asks for the model's own count. Pictures, videos and reports are drawn by a worker."""
    row = need_job(service, job_id)
    video = need_video(service, row.video)
    document, version = await asyncio.to_thread(_shown, service, row, unit, at, corrected)
    media_type, suffix = FORMATS[format]
    name = f"{Path(video.name).stem or 'video'}{'-counted' if format == 'mp4' else ''}{suffix}"
    if format not in DRAWN:
        text = await asyncio.to_thread(_written, document, format, suffix)
        return Response(text, media_type=media_type, headers={"content-disposition": _attachment(name)})
    target = service.settings.renders / f"{job_id}.{version}{suffix}"
    if not target.exists():
        source = service.library.locate(video)
        task = RenderTask(secrets.token_hex(16), source, str(target), format, document)
        try:
            await asyncio.wrap_future(service.runner.render(task))
        except JobError as error:
            raise HTTPException(503, f"the {format} could not be made: {error}") from error
        if "-" in version:
            _remove_older(target)
    return FileResponse(target, media_type=media_type, filename=name)


def _shown(
    service: Services, row: JobRow, unit: Unit | None, at: float | None, corrected: bool
) -> tuple[dict[str, Any], str]:
    """The document to write, and a name for what it is: one file is kept for each."""
    document = service.database.result(row.id)
    if document is None:
        raise HTTPException(409, f"this job is {row.state}; there is a file once it is done")
    if unit is not None or at is not None:
        version = "counted" if unit is None else unit
        return changed(document, unit, at), version if at is None else f"{version}-{round(at * 1000)}"
    labels = service.database.labels(row.video) if corrected else []
    if labels:
        return _corrected(document, labels[0].spans), f"corrected-{round(labels[0].updated * 1000)}"
    return document, "counted"


def changed(document: dict[str, Any], unit: Unit | None, at: float | None) -> dict[str, Any]:
    """A stored result by cycles or by sides, with all borders moved so that one lies at `at` seconds."""
    from escounts.output.json import from_dict, to_dict  # noqa: PLC0415 - numpy: the server starts without it

    result = from_dict(document)
    result = result if unit is None else result.in_unit(unit)
    return to_dict(result if at is None else result.aligned(at=at))


def _corrected(document: dict[str, Any], spans: tuple[tuple[float, float], ...]) -> dict[str, Any]:
    from escounts.output.json import from_dict, to_dict  # noqa: PLC0415 - numpy: the server starts without it

    return to_dict(from_dict(document).corrected(spans))


def _written(document: dict[str, Any], format: str, suffix: str) -> bytes:
    """A format that needs no video, written by its own writer."""
    from escounts.output import WRITERS  # noqa: PLC0415 - numpy: the server starts without it
    from escounts.output.json import from_dict  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"result{suffix}"
        WRITERS[format](from_dict(document), path, video=None)
        return path.read_bytes()


def _remove_older(target: Path) -> None:
    """Drawings of corrections, or with borders moved to another place, that this one has replaced."""
    same = target.name.rpartition("-")[0]
    for other in target.parent.glob(f"{same}-*{target.suffix}"):
        if other != target:
            other.unlink(missing_ok=True)


def _attachment(name: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"
