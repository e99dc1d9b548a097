"""Corrections over HTTP: labels saved, as labels.csv, and to and from Label Studio."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException
from fastapi.responses import JSONResponse, PlainTextResponse

from escounts.datasets.annotations import overlap_problem
from escounts.errors import OutputError
from escounts.serve.access import GUARDED, PROBLEMS, USUAL_PROBLEMS, Services, VideoId, need_job, need_video
from escounts.serve.database import LabelRow, VideoRow
from escounts.serve.labels import from_label_studio, to_csv, to_label_studio, write_csv
from escounts.serve.schemas import MOST_SPANS, Labels, SavedLabels

router = APIRouter(
    prefix="/api",
    tags=["labels"],
    responses=USUAL_PROBLEMS,
)
KEPT: dict[int | str, dict[str, Any]] = {status: PROBLEMS[status] for status in (409, 507)}
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


@router.put("/videos/{video_id}/labels", dependencies=GUARDED, responses=KEPT)
def save_labels(service: Services, video_id: VideoId, labels: Labels) -> SavedLabels:
    """Save repetitions; also in videos/labels.csv of the data folder, for `escounts train folder`."""
    row = need_video(service, video_id)
    spans = sorted((span.start, span.end) for span in labels.spans)
    duration = _duration(service, row)
    late = next((span for span in spans if span[1] > duration + 0.5), None)
    if late is not None:
        raise HTTPException(422, f"{late[0]:g}–{late[1]:g} s lies past the end of the video ({duration:.2f} s)")
    if labels.job is not None and need_job(service, labels.job).video != video_id:
        raise HTTPException(422, f"job {labels.job} is a count of another video")
    return _save(service, video_id, labels.action, [(start, min(end, duration)) for start, end in spans], labels.job)


def _save(
    service: Services, video_id: str, action: str, spans: list[tuple[float, float]], job: str | None = None
) -> SavedLabels:
    lasting = [span for span in spans if span[1] > span[0]]
    if len(lasting) > MOST_SPANS:
        raise HTTPException(422, f"{len(lasting)} repetitions are more than the {MOST_SPANS} a video may have")
    if (overlap := overlap_problem(lasting)) is not None:
        raise HTTPException(422, f"{overlap}: move one of their borders")
    saved = service.database.save_labels(video_id, action, lasting, job=job)
    files = {row.id: _file(service, row) for row in service.database.videos(limit=-1)}
    labelled = [(files[row.video], row.action, row.spans) for row in service.database.labels() if row.video in files]
    try:
        write_csv(service.settings.videos / "labels.csv", labelled)
    except OutputError as error:
        raise HTTPException(507, "the labels are kept, but labels.csv could not be written") from error
    return SavedLabels.of(saved)


@router.get("/videos/{video_id}/labels")
def labels_of(service: Services, video_id: VideoId) -> SavedLabels:
    """The corrected repetitions of a video."""
    need_video(service, video_id)
    return SavedLabels.of(_need(service, video_id))


@router.get("/videos/{video_id}/labels.csv", response_class=PlainTextResponse, responses=CSV)
def labels_csv(service: Services, video_id: VideoId) -> PlainTextResponse:
    """One video's labels in the form `escounts train folder` reads."""
    row = need_video(service, video_id)
    label = _need(service, video_id)
    return _csv(to_csv([(row.name, label.action, label.spans)]))


@router.get("/labels.csv", response_class=PlainTextResponse, responses=CSV)
def all_labels_csv(service: Services) -> PlainTextResponse:
    """All labelled videos in one labels.csv."""
    names = {row.id: row.name for row in service.database.videos(limit=-1)}
    return _csv(to_csv([(names[row.video], row.action, row.spans) for row in service.database.labels()]))


@router.get("/videos/{video_id}/label-studio")
def label_studio(service: Services, video_id: VideoId) -> JSONResponse:
    """The labels as a Label Studio task with timeline regions."""
    row = need_video(service, video_id)
    label = _need(service, video_id)
    task = to_label_studio(
        row.name, label.spans, fps=row.fps or 25.0, duration=row.duration or 0.0, action=label.action
    )
    disposition = f"attachment; filename*=UTF-8''{quote(row.name, safe='')}.label-studio.json"
    return JSONResponse(task, headers={"content-disposition": disposition})


@router.post("/videos/{video_id}/label-studio", dependencies=GUARDED, responses=KEPT)
def import_label_studio(
    service: Services, video_id: VideoId, task: list[dict[str, Any]] | dict[str, Any]
) -> SavedLabels:
    """Save the timeline regions of a Label Studio export as this video's labels."""
    row = need_video(service, video_id)
    action, spans = from_label_studio(task, fps=row.fps or 25.0, duration=_duration(service, row))
    return _save(service, video_id, action, spans)


def _file(service: Services, row: VideoRow) -> str:
    """What labels.csv calls a video: uploads lie beside it, files of the media root have their whole path."""
    return str(Path(service.library.locate(row).path).resolve()) if row.source == "media" else row.file


def _need(service: Services, video_id: str) -> LabelRow:
    rows = service.database.labels(video_id)
    if not rows:
        raise HTTPException(404, "this video has no labels yet; correct its repetitions and save them")
    return rows[0]


def _duration(service: Services, row: VideoRow) -> float:
    """Seconds that can be labelled: a container may state too few, the newest count knows how many frames came."""
    if row.duration is None:
        raise HTTPException(409, "the video has not been opened yet; count it first")
    done = next((job for job in service.database.jobs(row.id) if job.state == "done"), None)
    result = service.database.result(done.id) if done is not None else None
    return max(row.duration, float(result["duration"]) if result is not None else 0.0)


def _csv(text: str) -> PlainTextResponse:
    return PlainTextResponse(
        text, media_type="text/csv", headers={"content-disposition": 'attachment; filename="labels.csv"'}
    )
