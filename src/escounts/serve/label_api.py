"""Corrections over HTTP: labels saved, and to and from the files of annotation tools, one video's or all."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import ValidationError

from escounts.errors import OutputError
from escounts.research.datasets.annotation_formats import (
    FORMATS,
    Format,
    LabelledFile,
    guess_format,
    tables,
    write_labels,
)
from escounts.research.datasets.annotation_formats.timelines import read_tasks, task
from escounts.research.datasets.annotations import overlap_problem
from escounts.serve.database import LabelRow, VideoRow
from escounts.serve.media import (
    dataset_zip,
    label_names,
    labelled_file,
    labelled_videos,
    videos_by_name,
    write_labels_csv,
)
from escounts.serve.schemas import (
    GUARDED,
    LONGEST_ACTION,
    MOST_SPANS,
    PROBLEMS,
    USUAL_PROBLEMS,
    ImportedLabels,
    LabelImport,
    Labels,
    SavedLabels,
    Services,
    Span,
    VideoId,
    need_job,
    need_video,
)

router = APIRouter(
    prefix="/api",
    tags=["labels"],
    responses=USUAL_PROBLEMS,
)
KEPT: dict[int | str, dict[str, Any]] = {status: PROBLEMS[status] for status in (409, 507)}
ZIP: dict[int | str, dict[str, Any]] = {200: {"content": {"application/zip": {}}}}
EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in ("text/csv", "application/json", "application/zip")}}
}
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
    within = LabelledFile(row.name, _within(spans, duration), labels.action)
    (saved,) = _save(service, {video_id: _checked(within, labels.job)})
    return saved


def _checked(file: LabelledFile, job: str | None = None) -> Labels:
    """Labels that may be saved; what is wrong with them is refused before anything is."""
    lasting = [span for span in file.spans if span[1] > span[0]]
    if (overlap := overlap_problem(lasting)) is not None:
        raise HTTPException(422, f"{file.file}: {overlap}: move one of their borders")
    if len(lasting) > MOST_SPANS:
        what = f"{len(lasting)} repetitions are more than the {MOST_SPANS} a video may have"
        raise HTTPException(422, f"{file.file}: {what}")
    if len(file.action) > LONGEST_ACTION:
        what = f"a class of {len(file.action)} characters, {file.action[:20]}…; at most {LONGEST_ACTION} are kept"
        raise HTTPException(422, f"{file.file}: {what}")
    try:
        return Labels(spans=[Span(start=start, end=end) for start, end in lasting], action=file.action, job=job)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{first['loc'][0]} {first['input']!r:.100}: {first['msg'].lower()}"
        raise HTTPException(422, f"{file.file}: {what}; nothing was saved") from error


def _save(service: Services, labels: Mapping[str, Labels]) -> list[SavedLabels]:
    """Save checked labels by video id; labels.csv is written once."""
    saved = []
    for video_id, label in labels.items():
        spans = [(span.start, span.end) for span in label.spans]
        saved.append(service.database.save_labels(video_id, label.action, spans, job=label.job))
    try:
        write_labels_csv(service)
    except OutputError as error:
        raise HTTPException(507, "the labels are kept, but labels.csv could not be written") from error
    return [SavedLabels.of(row) for row in saved]


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
    return _csv(tables.write_csv([labelled_file(row, label, row.name)]))


@router.get("/labels.csv", response_class=PlainTextResponse, responses=CSV)
def all_labels_csv(service: Services) -> PlainTextResponse:
    """All labelled videos in one labels.csv."""
    names = label_names(service)
    return _csv(
        tables.write_csv([labelled_file(row, label, names[row.id]) for row, label in labelled_videos(service)])
    )


@router.get("/labels/dataset.zip", response_class=StreamingResponse, responses=ZIP)
def dataset(service: Services) -> StreamingResponse:
    """All labelled videos with a labels.csv: unpacked, a folder for `escounts train folder` and `data check`."""
    headers = {"content-disposition": 'attachment; filename="escounts-dataset.zip"'}
    return StreamingResponse(dataset_zip(service), media_type="application/zip", headers=headers)


@router.get("/labels/export/{format}", responses=EXPORT)
def export_labels(service: Services, format: Format) -> Response:
    """All labels as a file of an annotation tool; a zip where it takes one file per video."""
    names = label_names(service)
    labelled = [labelled_file(row, label, names[row.id]) for row, label in labelled_videos(service)]
    files = write_labels(labelled, format)
    if FORMATS[format].one_video:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return _download(packed.getvalue(), "application/zip", f"labels-{format}.zip")
    ((name, text),) = files.items()
    kind = "application/json" if name.endswith(".json") else "text/csv"
    return _download(text.encode(), kind, name.replace("labels", f"labels-{format}"))


@router.post("/labels/import", dependencies=GUARDED, responses=KEPT)
def import_labels(service: Services, request: LabelImport) -> ImportedLabels:
    """Save the labels in a file of an annotation tool as those of the videos of the same names; all, or on an error
    none. A name that several videos have is not guessed: it is answered as ambiguous."""
    entry = FORMATS[request.format or guess_format(request.name, request.text)]
    known = videos_by_name(service)
    found: dict[str, Labels] = {}
    unknown: list[str] = []
    ambiguous: list[str] = []
    for file in entry.read(request.text, request.only, request.fps):
        rows = known.get(file.file, [])
        if len(rows) != 1:
            (ambiguous if rows else unknown).append(file.file)
            continue
        (row,) = rows
        if row.id in found:
            raise HTTPException(422, f"{file.file}: its video has labels under another name in the file, too")
        found[row.id] = _checked(replace(file, spans=_within(file.spans, _duration(service, row))))
    if found:
        _save(service, found)
    return ImportedLabels(saved=list(found), unknown=unknown, ambiguous=ambiguous)


@router.get("/videos/{video_id}/label-studio")
def label_studio(service: Services, video_id: VideoId) -> JSONResponse:
    """The labels as a Label Studio task with timeline regions."""
    row = need_video(service, video_id)
    label = _need(service, video_id)
    disposition = f"attachment; filename*=UTF-8''{quote(row.name, safe='')}.label-studio.json"
    return JSONResponse([task(labelled_file(row, label, row.name))], headers={"content-disposition": disposition})


@router.post("/videos/{video_id}/label-studio", dependencies=GUARDED, responses=KEPT)
def import_label_studio(
    service: Services, video_id: VideoId, document: list[dict[str, Any]] | dict[str, Any]
) -> SavedLabels:
    """Save the timeline regions of a Label Studio export of one task as this video's labels."""
    row = need_video(service, video_id)
    found = read_tasks(document, fps=row.fps)
    if len(found) != 1:
        raise HTTPException(422, f"expected one Label Studio task, got {len(found)}")
    file = replace(found[0], file=row.name, spans=_within(found[0].spans, _duration(service, row)))
    (saved,) = _save(service, {video_id: _checked(file)})
    return saved


def _within(spans: Sequence[tuple[float, float]], duration: float) -> tuple[tuple[float, float], ...]:
    """Spans cut to the video."""
    return tuple((min(start, duration), min(end, duration)) for start, end in spans)


def _download(content: bytes, kind: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)


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
