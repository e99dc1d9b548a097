"""What the database keeps and what goes over the wire, one class for both, and what handlers share.

A field that is `Hidden` stays on the server. Times in seconds; created, started, finished, updated and expires in
seconds since 1970.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import quote

from fastapi import Depends, Header, HTTPException, Path, Request, Response
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from escounts.output.json import from_dict, to_dict
from escounts.research.datasets.annotation_formats.labels import LONGEST_ACTION, MOST_SPANS, name_problem
from escounts.teach import Score, Stage
from escounts.video.regions import region

if TYPE_CHECKING:
    from escounts.serve.app import Service

T = TypeVar("T")
Hidden = Annotated[SkipJsonSchema[T], Field(exclude=True)]
"""In the database, and not in an answer or its description."""
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


def _parsed(value: Any) -> Any:
    """A column of JSON as what it holds."""
    return json.loads(value) if isinstance(value, str) else value


def _from_pairs(value: Any) -> Any:
    """Repetitions as the database has them: start and end of each."""
    return [{"start": start, "end": end} for start, end in _parsed(value)]


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

    def stored(self) -> dict[str, Any]:
        """What is kept of it with its job."""
        return self.model_dump(exclude={"video", "wait"})


class Labels(Strict):
    """Corrected repetitions of a video, and what the action is called. job: the count that was on screen.

    revision: of the saved labels that these replace, 0 for none; 409 where others were saved meanwhile. null: these
    replace whatever is there.
    """

    spans: Annotated[list[Span], Field(max_length=MOST_SPANS)]
    action: Action = ""
    job: Identifier | None = None
    revision: Annotated[int, Field(ge=0)] | None = None


class SavedLabels(BaseModel):
    """Labels as they are kept, since when, and how often they were saved, at least. job: the count that they correct,
    if it is known."""

    video: Hidden[str]
    spans: Annotated[list[Span], BeforeValidator(_from_pairs)]
    action: str
    job: str | None = None
    updated: float
    revision: int = 1

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Start and end of each repetition."""
        return tuple((span.start, span.end) for span in self.spans)


class Job(BaseModel):
    """One count of one video. result and counts are there when the job is done and one job was asked for."""

    id: str
    video: str
    state: Literal["queued", "running", "done", "failed", "cancelled"] = "queued"
    progress: float = 0.0
    remaining_s: float | None = None
    error: str | None = None
    created: float
    started: float | None = None
    finished: float | None = None
    exemplars: list[Exemplar] = []
    start: float | None = None
    end: float | None = None
    region: str | None = None
    each: bool = False
    unit: Unit | None = Field(default=None, description="As a person chose it; null: as the model counted.")
    model: str | None = None
    count: int | None = None
    confidence: float | None = None
    unsure: bool | None = None
    result: dict[str, Any] | None = None
    counts: dict[Unit, int] | None = Field(default=None, description="By cycles and by sides; null: several places.")
    request: Hidden[Annotated[dict[str, Any], BeforeValidator(_parsed)]]
    """What was asked for, as `CountRequest.stored` has it; model is the one asked for, not the one that counted."""
    crashes: Hidden[int] = 0

    @model_validator(mode="before")
    @classmethod
    def _asked(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        asked = _parsed(values["request"])
        shown = ("exemplars", "start", "end", "region", "each", "unit")
        return {**{name: asked[name] for name in shown if name in asked}, **values}

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


class Video(BaseModel):
    """One video; job is its newest count, labelled_count and action what a person says. source: "upload", "camera" or
    "media". expires: when it is deleted, or null.

    Labelled videos and files of the media root are kept; so is everything where the server keeps uploads for ever.
    """

    id: str
    name: str
    source: str
    file: Hidden[str]
    """Its name under the source's own folder."""
    size: int
    created: float
    expires: float | None = None
    duration: float | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    labelled: bool = False
    labelled_count: int | None = None
    action: str | None = None
    job: Job | None = None


class Outcome(BaseModel):
    """One video: what was labelled; counted before, when left out of the training, and by the finished model."""

    video: str = Field(validation_alias=AliasChoices("video", "name"))
    """Its id, which the process that learns knows as its name."""
    name: str
    labelled: int
    before: int
    after: int
    fitted: int


class Report(BaseModel):
    """What a training did. model: its name where it helped, else null."""

    helped: bool
    message: str
    model: str | None = None
    before: Score
    after: Score
    videos: list[Outcome]


class Training(BaseModel):
    """One training on labelled videos under a name; report is there when it is done."""

    id: str
    name: str
    state: Literal["running", "done", "failed", "cancelled"] = "running"
    stage: Stage | None = None
    progress: float = 0.0
    remaining_s: float | None = None
    error: str | None = None
    created: float
    finished: float | None = None
    videos: Annotated[list[str], BeforeValidator(_parsed)]
    report: Annotated[Report | None, BeforeValidator(_parsed)] = None


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
"""What every request may be answered with."""


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Services = Annotated["Service", Depends(service_of)]
RowId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


def header_stated(
    x_escounts: Annotated[str, Header(description="Any value; keeps other sites' forms out.")],
) -> None:
    """States the guard header in the API's description; the middleware has checked it already."""


GUARDED = [Depends(header_stated)]


def video_or_404(service: Service, video_id: str) -> Video:
    row = service.database.video(video_id)
    if row is None:
        raise HTTPException(404, "there is no such video; it may have been deleted or have expired")
    return row


def need_job(service: Service, job_id: str) -> Job:
    row = service.database.job(job_id)
    if row is None:
        raise HTTPException(404, "there is no such job; it may have been deleted with its video")
    return row


def _asked_video(service: Services, video_id: RowId) -> Video:
    return video_or_404(service, video_id)


def _asked_job(service: Services, job_id: RowId) -> Job:
    return need_job(service, job_id)


AskedVideo = Annotated[Video, Depends(_asked_video)]
"""The video that a path names, as it was when the request came; so the others."""
AskedJob = Annotated[Job, Depends(_asked_job)]


def shown_progress(share: float, began: float) -> dict[str, float | None]:
    """How far something is that began then, on the monotonic clock: its share done and the seconds that it may take
    still, where they can be guessed."""
    left = (time.monotonic() - began) * (1 - share) / share if share > 0.02 else None
    return {"progress": round(share, 4), "remaining_s": None if left is None else round(left, 1)}


def attachment(content: bytes | str, media_type: str, name: str) -> Response:
    """A file to be kept under a name."""
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(content, media_type=media_type, headers=headers)


def chosen(document: dict[str, Any], unit: Unit | None) -> dict[str, Any]:
    """A result in the unit that a person chose to keep; of a model that gave none the number is doubled or halved."""
    return document if unit is None else to_dict(from_dict(document).in_unit(unit, assume=True))


def present_job(service: Service, job: Job, *, whole: bool = False) -> Job:
    """A job with its progress; whole: and with its result, when it is done."""
    shown = service.runner.with_progress(job)
    result = service.database.result(job.id) if whole and job.state == "done" else None
    if result is None:
        return shown
    units: tuple[Unit, ...] = get_args(Unit)
    counts = None if len(result.get("tracks", ())) > 1 else {unit: chosen(result, unit)["count"] for unit in units}
    return shown.model_copy(update={"result": chosen(result, job.unit), "counts": counts})


def present_video(service: Service, video: Video) -> Video:
    """A video with its newest job and what a person says of it."""
    about: dict[str, Any] = {"job": None}
    for job in service.database.jobs(video.id, limit=1):
        about["job"] = present_job(service, job)
    for labels in service.database.labels(video.id):
        about |= {"labelled": True, "labelled_count": len(labels.spans), "action": labels.action, "expires": None}
    return video.model_copy(update=about)
