"""What goes over the wire, and what handlers share: the service behind a request, rows that must exist, the answers
an API states. Times in seconds; created, started, finished and expires in seconds since 1970."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Header, HTTPException, Path, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from escounts.research.datasets.annotation_formats import Format
from escounts.research.datasets.annotation_formats.labels import LONGEST_ACTION, MOST_SPANS, name_problem
from escounts.serve.database import JobRow, LabelRow, VideoRow
from escounts.serve.documents import chosen
from escounts.video.regions import region

if TYPE_CHECKING:
    from escounts.serve.app import Service

Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", examples=["0" * 32])]
Unit = Literal["cycle", "side"]
Second = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


def _encodable(text: str) -> str:
    """Refuse lone surrogates, which no file and no database can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("not valid Unicode") from error
    return text


def _nameable(text: str) -> str:
    if (problem := name_problem(text)) is not None:
        raise ValueError(problem)
    return text


def _box(text: str) -> str:
    return str(region("region", text))


Text = Annotated[str, AfterValidator(_encodable)]
Box = Annotated[str, Field(max_length=100, examples=["25%,0%,50%,100%"]), AfterValidator(_box)]
"""A box of the upright picture: x, y, width and height, in pixels or in percent."""
Action = Annotated[str, AfterValidator(_nameable), Field(max_length=LONGEST_ACTION)]
"""What an action is called."""


class Strict(BaseModel):
    """A request: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Span(Strict):
    """A stretch of a video."""

    start: Second
    end: Second

    @model_validator(mode="after")
    def _forward(self) -> Span:
        if self.end <= self.start:
            raise ValueError(f"end ({self.end:g} s) must come after start ({self.start:g} s)")
        return self


class Exemplar(Span):
    """One marked repetition; video is the id of another counted video, or null for the same one."""

    video: Identifier | None = None


class CountRequest(Strict):
    """A count to make, zero-shot without exemplars. wait: seconds to hold the answer until it is done.

    region: the box of the picture that alone is looked at; null: all of it. each: find the places where something
    repeats, and count each by itself; without exemplars and unit.
    unit: count both sides of an alternating motion as one ("cycle") or each ("side"); null without exemplars: as a
    person chose it for the count before.
    """

    video: Identifier
    exemplars: Annotated[list[Exemplar], Field(max_length=16)] = []
    start: Second | None = None
    end: Second | None = None
    region: Box | None = None
    each: bool = False
    assume_repeats: bool = False
    unit: Unit | None = None
    model: Annotated[str, Field(max_length=80)] | None = Field(
        default=None, description="A name of GET /api/models; null for the server's own."
    )
    wait: Annotated[float, Field(ge=0, le=30)] = 0

    @model_validator(mode="after")
    def _forward(self) -> CountRequest:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError(f"end ({self.end:g} s) must come after start ({self.start:g} s)")
        if self.each and (self.exemplars or self.unit is not None):
            raise ValueError(
                "each place has its own motion: leave exemplars and unit out, or keep to one with region"
            )
        return self

    def stored(self) -> str:
        return self.model_dump_json(
            include={"exemplars", "start", "end", "region", "each", "assume_repeats", "unit", "model"}
        )


class UnitChoice(Strict):
    """What one repetition is, as a person says it; null: as the model counted."""

    unit: Unit | None


class Labels(Strict):
    """Corrected repetitions of a video, and what the action is called. job: the count that was on screen.

    revision: of the saved labels that these replace, 0 for none; 409 where others were saved meanwhile. null: these
    replace whatever is there.
    """

    spans: Annotated[list[Span], Field(max_length=MOST_SPANS)]
    action: Action = ""
    job: Identifier | None = None
    revision: Annotated[int, Field(ge=0)] | None = None


class LabelImport(Strict):
    """A file of an annotation tool: its name, its text, and where they cannot be told, its format, which behaviour,
    tier or label is meant, and the frames a second it counts in."""

    name: Annotated[Text, Field(max_length=500)]
    text: Annotated[Text, Field(max_length=8_000_000)]
    format: Format | None = None
    only: Annotated[Text, Field(max_length=200)] | None = None
    fps: Annotated[float, Field(ge=1, le=1000)] | None = None


class ImportedLabels(BaseModel):
    """saved: ids of the videos that have these labels now. unknown: files of which there is no video here. ambiguous:
    names that several videos here have. shortened: files with a repetition that ran past the end of the video, by
    half a second at most, and ends with it now. spread: files of which only a count was given."""

    saved: list[str]
    unknown: list[str]
    ambiguous: list[str]
    shortened: list[str] = []
    spread: list[str] = []


class MediaChoice(Strict):
    """A file under the media root, as GET /api/media lists it."""

    file: Annotated[Text, Field(max_length=1000)]


class SessionRequest(Strict):
    token: Annotated[str, Field(max_length=500)]


class SavedLabels(BaseModel):
    """Labels as they are kept, since when, and how often they were saved."""

    spans: list[Span]
    action: str
    job: str | None
    updated: float
    revision: int

    @classmethod
    def of(cls, row: LabelRow) -> SavedLabels:
        spans = [Span(start=start, end=end) for start, end in row.spans]
        return cls(spans=spans, action=row.action, updated=row.updated, job=row.job, revision=row.revision or 1)


class Job(BaseModel):
    """One count of one video. result is there when the job is done and one job was asked for."""

    id: str
    video: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: float
    remaining_s: float | None
    error: str | None
    created: float
    started: float | None
    finished: float | None
    exemplars: list[Exemplar]
    start: float | None
    end: float | None
    region: str | None
    each: bool
    unit: Unit | None = Field(description="As a person chose it; null: as the model counted.")
    model: str | None
    count: int | None
    confidence: float | None
    unsure: bool | None
    result: dict[str, Any] | None = None

    @classmethod
    def of(cls, row: JobRow, view: dict[str, Any], result: dict[str, Any] | None = None) -> Job:
        about: dict[str, Any] = {name: view[name] for name in ("progress", "remaining_s")}
        request = json.loads(row.request)
        about |= {name: request[name] for name in ("exemplars", "start", "end")}
        about |= {name: request.get(name) for name in ("region", "unit")} | {"each": request.get("each", False)}
        about |= {"unsure": None if row.unsure is None else bool(row.unsure), "result": result}
        return cls(**{name: getattr(row, name) for name in cls.model_fields if name not in about}, **about)


class Video(BaseModel):
    """One video; job is its newest count, labelled_count and action what a person says. expires: when it is deleted,
    or null.

    Labelled videos and files of the media root are kept; so is everything where the server keeps uploads for ever.
    """

    id: str
    name: str
    source: str
    size: int
    created: float
    expires: float | None
    duration: float | None
    width: int | None
    height: int | None
    fps: float | None
    labelled: bool
    labelled_count: int | None
    action: str | None
    job: Job | None

    @classmethod
    def of(cls, row: VideoRow, *, labels: LabelRow | None, job: Job | None) -> Video:
        about: dict[str, Any] = {
            "expires": row.expires if labels is None else None,
            "labelled": labels is not None,
            "labelled_count": None if labels is None else len(labels.spans),
            "action": None if labels is None else labels.action,
        }
        shown = {name: getattr(row, name) for name in cls.model_fields if name not in about and name != "job"}
        return cls(**shown, **about, job=job)


class Limits(BaseModel):
    """What this server takes, for the page to say before it is asked."""

    model: str
    max_upload: int
    max_duration: float
    keep_days: float
    media_root: bool
    formats: list[str]
    titles: dict[str, str] = Field(description="What a person reads for each format.")
    version: str


class Health(BaseModel):
    status: Literal["ok", "starting", "failing"]
    error: str | None = Field(default=None, description="What is wrong: why the queue stands still, or a full disk.")
    disk_free: int = Field(description="Bytes that are free where the data folder is.")
    workers: list[dict[str, Any]]


class Problem(BaseModel):
    detail: str


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


def video_or_404(service: Service, video_id: str) -> VideoRow:
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
    if result is not None:
        result = chosen(result, json.loads(row.request).get("unit"))
    return Job.of(row, service.runner.view(row), result)


def present_video(service: Service, row: VideoRow) -> Video:
    jobs = service.database.jobs(row.id, limit=1)
    job = present_job(service, jobs[0]) if jobs else None
    labels = service.database.labels(row.id)
    return Video.of(row, labels=labels[0] if labels else None, job=job)
