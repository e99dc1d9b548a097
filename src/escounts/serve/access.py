"""What handlers share: the service behind a request, rows that must exist, and the answers an API states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Header, HTTPException, Path, Request

from escounts.serve.database import JobRow, VideoRow
from escounts.serve.schemas import Job, Problem, Video

if TYPE_CHECKING:
    from escounts.serve.app import Service

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The request could not be read.",
        401: "A token is needed.",
        403: "A request of another site, or without the header X-Escounts.",
        404: "There is no such thing here.",
        408: "The request came too slowly.",
        409: "Not in this state.",
        413: "Too large.",
        415: "Not a media type this takes.",
        421: "Not a host name of this service.",
        422: "The request makes no sense; the detail says why.",
        429: "The queue is full, or too many wrong tokens were tried.",
        503: "The service cannot do this now.",
        507: "The disk is full.",
    }.items()
}
USUAL_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: PROBLEMS[status] for status in (400, 401, 403, 404, 408, 413, 421, 422, 429, 503, 507)
}


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Services = Annotated["Service", Depends(service_of)]
VideoId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
JobId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


def header_stated(
    x_escounts: Annotated[str, Header(description="Any value; keeps other sites' forms out.")],
) -> None:
    """States the guard header in the API's description; the middleware has checked it already."""


GUARDED = [Depends(header_stated)]


def need_video(service: Service, video_id: str) -> VideoRow:
    row = service.database.video(video_id)
    if row is None:
        raise HTTPException(404, "there is no such video; it may have been deleted or have expired")
    return row


def need_job(service: Service, job_id: str) -> JobRow:
    row = service.database.job(job_id)
    if row is None:
        raise HTTPException(404, "there is no such job; it may have been deleted with its video")
    return row


def present_job(service: Service, row: JobRow, *, whole: bool = False) -> Job:
    result = service.database.result(row.id) if whole and row.state == "done" else None
    return Job.of(row, service.runner.view(row), result)


def present_video(service: Service, row: VideoRow) -> Video:
    jobs = service.database.jobs(row.id, limit=1)
    job = present_job(service, jobs[0]) if jobs else None
    labels = service.database.labels(row.id)
    return Video.of(row, labelled_count=len(labels[0].spans) if labels else None, job=job)
