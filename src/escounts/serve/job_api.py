"""Counting over HTTP: ask, follow, cancel."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse

from escounts.serve.access import (
    GUARDED,
    USUAL_PROBLEMS,
    JobId,
    Services,
    need_job,
    need_video,
    present_job,
)
from escounts.serve.database import JobRow
from escounts.serve.download_api import AT, Unit, changed
from escounts.serve.events import as_text
from escounts.serve.schemas import CountRequest, Identifier, Job
from escounts.serve.training_api import other_model, training_event

router = APIRouter(prefix="/api", responses=USUAL_PROBLEMS)

EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["job", "training"]},
        "data": {"type": "string", "description": "A Job without its result, or a Training, as JSON."},
    },
}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": EVENT}}}}


@router.post(
    "/jobs",
    status_code=202,
    tags=["jobs"],
    dependencies=GUARDED,
    responses={200: {"model": Job}},
)
async def count(service: Services, request: CountRequest, response: Response) -> Job:
    """Count a video. 202 when it is queued; 200 when it ended within `wait` seconds, with the result."""
    need_video(service, request.video)
    for exemplar in request.exemplars:
        if exemplar.video is not None:
            need_video(service, exemplar.video)
    if request.model is not None:
        request = request.model_copy(update={"model": other_model(service, request.model)})
    if service.database.totals().get("queued", 0) >= service.settings.max_queue:
        raise HTTPException(429, f"{service.settings.max_queue} jobs are waiting already; try again later")
    row = JobRow(secrets.token_hex(16), request.video, "queued", request.stored(), time.time())
    if not await asyncio.to_thread(service.runner.submit, row):
        raise HTTPException(404, "the video was deleted meanwhile")
    if request.wait > 0:
        await _ended_within(service, row.id, request.wait)
    now = need_job(service, row.id)
    response.status_code = 200 if now.ended else 202
    return present_job(service, now, whole=True)


async def _ended_within(service: Services, job_id: str, seconds: float) -> None:
    future = asyncio.wrap_future(service.runner.ended(job_id))
    await asyncio.wait({future}, timeout=seconds)


@router.get("/jobs", tags=["jobs"])
def jobs(
    service: Services,
    video: Annotated[Identifier | None, Query(description="Only the jobs of this video.")] = None,
) -> list[Job]:
    """Jobs, the newest first, without their results."""
    return [present_job(service, row) for row in service.database.jobs(video)]


@router.get("/jobs/{job_id}", tags=["jobs"])
def job(
    service: Services,
    job_id: JobId,
    unit: Annotated[Unit | None, Query(description="Count cycles, or sides of them.")] = None,
    at: Annotated[float | None, Query(ge=0, le=1e6, description=AT)] = None,
) -> Job:
    """One job, with its result when it is done: what the model counted, whatever was corrected since."""
    shown = present_job(service, need_job(service, job_id), whole=True)
    if shown.result is None or (unit is None and at is None):
        return shown
    result = changed(shown.result, unit, at)
    return shown.model_copy(
        update={"result": result, **{name: result[name] for name in ("count", "confidence", "unsure")}}
    )


@router.post("/jobs/{job_id}/cancel", status_code=202, tags=["jobs"], dependencies=GUARDED)
def cancel(service: Services, job_id: JobId) -> Job:
    """Stop a job that waits or runs. One that has ended stays as it is."""
    need_job(service, job_id)
    service.runner.cancel(job_id)
    return present_job(service, need_job(service, job_id))


@router.delete("/jobs/{job_id}", status_code=204, tags=["jobs"], dependencies=GUARDED)
def delete_job(service: Services, job_id: JobId) -> None:
    """Forget one count; the video and its other counts stay."""
    need_job(service, job_id)
    service.runner.cancel(job_id)
    service.database.delete_job(job_id)


@router.get("/events", tags=["jobs"], response_class=StreamingResponse, responses=STREAM)
async def events(service: Services, request: Request) -> StreamingResponse:
    """Every change of every job and training as server-sent events, without end, each named for what it carries."""

    async def stream() -> AsyncIterator[str]:
        async for event in service.hub.listen():
            if event is not None and "training" in event:
                yield as_text("training", training_event(service, event))
            else:
                yield as_text("job", _as_json(event))

    return _stream(stream())


@router.get("/jobs/{job_id}/events", tags=["jobs"], response_class=StreamingResponse, responses=STREAM)
async def job_events(service: Services, job_id: JobId) -> StreamingResponse:
    """One job's changes as server-sent events; the stream ends with the job."""
    need_job(service, job_id)

    async def stream() -> AsyncIterator[str]:
        async for event in service.hub.listen():
            if event is not None and ("job" not in event or event["job"].id != job_id):
                continue
            row = service.database.job(job_id)
            if row is None:
                return
            yield as_text("job", present_job(service, row).model_dump())
            if row.ended:
                return

    return _stream(stream())


def _as_json(event: dict[str, Any] | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return Job.of(event["job"], event).model_dump(exclude={"result"})


def _stream(text: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(text, media_type="text/event-stream", headers=headers)
