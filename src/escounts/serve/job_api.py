"""Counting over HTTP: ask, follow, cancel; and results as files.

A file says what the person said where a video was corrected, otherwise what the model counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Query
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, Response, StreamingResponse
from pydantic import AfterValidator

from escounts.errors import EscountsError
from escounts.output import FORMATS
from escounts.output.json import from_dict, to_dict
from escounts.serve.schemas import (
    GUARDED,
    AskedJob,
    CountRequest,
    Identifier,
    Job,
    Services,
    Training,
    Unit,
    Video,
    attachment,
    chosen,
    need_job,
    present_job,
    video_or_404,
)
from escounts.serve.training_api import other_model, present_training
from escounts.serve.worker import RenderTask

if TYPE_CHECKING:
    from escounts.serve.app import Service

router = APIRouter(prefix="/api", tags=["jobs"])


def _known(format: str) -> str:
    if format not in FORMATS:
        raise ValueError(f"known formats: {', '.join(FORMATS)}")
    return format


Format = Annotated[str, AfterValidator(_known), PathParameter(json_schema_extra={"enum": [*FORMATS]})]
CountedUnit = Annotated[Unit | None, Query(description="The model's count by cycles, or by sides of them.")]
AT = "Seconds: a repetition begins or ends here, and all others at the same point of the motion."
BorderSecond = Annotated[float | None, Query(ge=0, le=1e6, description=AT)]
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["job", "training"]},
        "data": {"type": "string", "description": "A Job without its result, or a Training, as JSON."},
    },
}
SILENCE = ": still here\n\n"
"""A comment in the wire format of server-sent events."""
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": EVENT}}}}


@router.post("/jobs", status_code=202, dependencies=GUARDED, responses={200: {"model": Job}})
async def count(service: Services, request: CountRequest, response: Response) -> Job:
    """Count a video. 202 when it is queued; 200 when it ended within `wait` seconds, with the result."""
    video_or_404(service, request.video)
    for exemplar in request.exemplars:
        if exemplar.video is not None:
            video_or_404(service, exemplar.video)
    if request.model is not None:
        request = request.model_copy(update={"model": other_model(service, request.model)})
    if service.database.totals().get("queued", 0) >= service.settings.max_queue:
        raise HTTPException(429, f"{service.settings.max_queue} jobs are waiting already; try again later")
    if request.unit is None and not (request.exemplars or request.each):
        request = request.model_copy(update={"unit": _unit_before(service, request.video)})
    job = Job(id=secrets.token_hex(16), video=request.video, request=request.stored(), created=time.time())
    if not await asyncio.to_thread(service.runner.submit, job):
        raise HTTPException(404, "the video was deleted meanwhile")
    if request.wait > 0:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_ended(service, job.id), request.wait)
    now = need_job(service, job.id)
    response.status_code = 200 if now.ended else 202
    return present_job(service, now, whole=True)


async def _ended(service: Service, job_id: str) -> None:
    async for _ in followed(service, job_id):
        pass


async def followed(service: Service, job_id: str) -> AsyncIterator[Job]:
    """A job as it is, and again with every change of it, until it has ended or is deleted."""
    async for event in service.hub.listen():
        if event is not None and event.id != job_id:
            continue
        job = service.database.job(job_id)
        if job is None:
            return
        yield job
        if job.ended:
            return


def _unit_before(service: Services, video: str) -> Unit | None:
    """What a person chose for the newest count of a video that followed no exemplar."""
    done = (job for job in service.database.jobs(video) if job.state == "done")
    return next((job.unit for job in done if not job.exemplars), None)


@router.get("/jobs")
def jobs(
    service: Services,
    video: Annotated[Identifier | None, Query(description="Only the jobs of this video.")] = None,
) -> list[Job]:
    """Jobs, the newest first, without their results."""
    return [present_job(service, row) for row in service.database.jobs(video)]


@router.get("/jobs/{job_id}")
def job(service: Services, row: AskedJob, unit: CountedUnit = None, at: BorderSecond = None) -> Job:
    """One job, with its result when it is done: what the model counted, whatever was corrected since."""
    shown = present_job(service, row, whole=True)
    counted = service.database.result(row.id)
    if shown.result is None or counted is None or (unit is None and at is None):
        return shown
    result = _changed(counted if unit is not None else shown.result, unit, at)
    return shown.model_copy(
        update={"result": result, **{name: result[name] for name in ("count", "confidence", "unsure")}}
    )


@router.put("/jobs/{job_id}/unit", dependencies=GUARDED)
def choose_unit(service: Services, row: AskedJob, unit: Annotated[Unit | None, Body(embed=True)]) -> Job:
    """Say what one repetition is: the job, its files and later recounts without exemplars are in that unit.

    Where the model gave no unit, its count is doubled ("side") or halved ("cycle"), and says so. null: as it counted.
    """
    counted = service.database.result(row.id)
    if counted is None:
        raise HTTPException(409, f"this job is {row.state}; there is a count once it is done")
    service.database.say_again(row.id, {**row.request, "unit": unit}, chosen(counted, unit))
    return present_job(service, need_job(service, row.id), whole=True)


@router.post("/jobs/{job_id}/cancel", status_code=202, dependencies=GUARDED)
def cancel(service: Services, row: AskedJob) -> Job:
    """Stop a job that waits or runs. One that has ended stays as it is."""
    service.runner.cancel(row.id)
    return present_job(service, need_job(service, row.id))


@router.delete("/jobs/{job_id}", status_code=204, dependencies=GUARDED)
def delete_job(service: Services, row: AskedJob) -> None:
    """Forget one count; the video and its other counts stay."""
    service.runner.cancel(row.id)
    service.database.delete_job(row.id)


@router.get("/events", response_class=StreamingResponse, responses=STREAM)
async def events(service: Services) -> StreamingResponse:
    """Every change of every job and training as server-sent events, without end, each named for what it carries."""

    async def stream() -> AsyncIterator[str]:
        async for event in service.hub.listen():
            if isinstance(event, Training):
                yield f"event: training\ndata: {present_training(service, event).model_dump_json()}\n\n"
            elif event is not None:
                yield f"event: job\ndata: {event.model_dump_json(exclude={'result'})}\n\n"
            else:
                yield SILENCE

    return _stream(stream())


@router.get("/jobs/{job_id}/events", response_class=StreamingResponse, responses=STREAM)
async def job_events(service: Services, row: AskedJob) -> StreamingResponse:
    """One job's changes as server-sent events; the stream ends with the job."""

    async def stream() -> AsyncIterator[str]:
        async for job in followed(service, row.id):
            yield f"event: job\ndata: {present_job(service, job).model_dump_json()}\n\n"

    return _stream(stream())


def _stream(text: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(text, media_type="text/event-stream", headers=headers)


@router.get(
    "/jobs/{job_id}/download/{format}",
    response_class=Response,
    responses={200: {"content": {kind.media_type: {} for kind in FORMATS.values()}}},
)
async def download(
    service: Services,
    row: AskedJob,
    format: Format,
    unit: CountedUnit = None,
    at: BorderSecond = None,
    corrected: Annotated[bool, Query(description="False: the model's count of a corrected video, too.")] = True,
) -> Response:
    """The result as a file. Of a video with labels it says what they say, marked as corrected, unless `unit`, `at` or
    `corrected=false` asks for the model's own count. Pictures, videos and reports are drawn by a worker."""
    video = video_or_404(service, row.video)
    document, version = await asyncio.to_thread(_shown, service, row, unit, at, corrected)
    kind = FORMATS[format]
    media_type, suffix = kind.media_type, kind.suffix
    name = f"{Path(video.name).stem or 'video'}{suffix}"
    if not kind.drawn:
        text = await asyncio.to_thread(_written, document, format)
        return attachment(text, media_type, name)
    target = service.settings.renders / f"{row.id}.{version}{suffix}"
    if not target.exists():
        await drawn(service, video, target, format, document)
        if "-" in version:
            _remove_older(target)
    return FileResponse(target, media_type=media_type, filename=name)


async def drawn(
    service: Services, video: Video, target: Path, format: str, document: dict[str, Any] | None = None
) -> None:
    """Have a worker draw a result, or without one the video itself, into a file; see `RenderTask`."""
    task = RenderTask(secrets.token_hex(16), service.settings.locate(video), str(target), format, document)
    try:
        await asyncio.wrap_future(service.runner.render(task))
    except EscountsError as error:
        raise HTTPException(503, f"no {format} could be made: {error}") from error


def _shown(
    service: Services, row: Job, unit: Unit | None, at: float | None, corrected: bool
) -> tuple[dict[str, Any], str]:
    """The document to write, and a name for what it is: one file is kept for each."""
    document = service.database.result(row.id)
    if document is None:
        raise HTTPException(409, f"this job is {row.state}; there is a file once it is done")
    if unit is not None or at is not None:
        version = "counted" if unit is None else unit
        return _changed(document, unit, at), version if at is None else f"{version}-{round(at * 1000)}"
    document = chosen(document, row.unit)
    for labels in service.database.labels(row.video) if corrected else ():
        said = to_dict(from_dict(document).corrected(labels.pairs))  # with the model's count beside it
        return said, f"corrected-{round(labels.updated * 1000)}"
    return document, row.unit or "counted"


def _changed(document: dict[str, Any], unit: Unit | None, at: float | None) -> dict[str, Any]:
    """By cycles or by sides, as the model counted them, with all borders moved so that one lies at `at` seconds."""
    result = from_dict(document)
    result = result if unit is None else result.in_unit(unit)
    return to_dict(result if at is None else result.aligned(at=at))


def _written(document: dict[str, Any], format: str) -> bytes:
    """A file of a format that needs no video."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result"
        FORMATS[format].write(from_dict(document), path)
        return path.read_bytes()


def _remove_older(target: Path) -> None:
    """Drawings of corrections, or with borders moved to another place, that this one has replaced."""
    same = target.name.rpartition("-")[0]
    for other in target.parent.glob(f"{same}-*{target.suffix}"):
        if other != target:
            other.unlink(missing_ok=True)
