"""Corrections over HTTP: labels saved, and to and from the files of annotation tools, one video's or all."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from escounts.counting.maps import pseudo_spans
from escounts.errors import OutputError
from escounts.research.datasets.annotation_formats import (
    FORMATS,
    Format,
    LabelledFile,
    dataset_zip,
    guess_format,
    write_labels,
)
from escounts.research.datasets.annotation_formats.labels import NAMED, cut, label_problem, of_one_action
from escounts.research.datasets.annotation_formats.tables import read_counts, write_file
from escounts.research.datasets.annotation_formats.timelines import read_tasks, write_label_studio
from escounts.serve.data_folder import LABELS_FILE
from escounts.serve.schemas import (
    GUARDED,
    AskedVideo,
    Labels,
    SavedLabels,
    Services,
    Strict,
    Text,
    Video,
    attachment,
    need_job,
)

router = APIRouter(prefix="/api", tags=["labels"])
ZIP: dict[int | str, dict[str, Any]] = {200: {"content": {"application/zip": {}}}}
EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in ("text/csv", "application/json", "application/zip")}}
}
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


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


def _asked_labels(service: Services, row: AskedVideo) -> SavedLabels:
    for labels in service.database.labels(row.id):
        return labels
    raise HTTPException(404, "this video has no labels yet; correct its repetitions and save them")


AskedLabels = Annotated[SavedLabels, Depends(_asked_labels)]


@router.put("/videos/{video_id}/labels", dependencies=GUARDED)
def save_labels(service: Services, row: AskedVideo, labels: Labels) -> SavedLabels:
    """Save repetitions; also in videos/labels.csv of the data folder, for `escounts train folder`."""
    if labels.job is not None and need_job(service, labels.job).video != row.id:
        raise HTTPException(422, f"job {labels.job} is a count of another video")
    spans = tuple(sorted((span.start, span.end) for span in labels.spans))
    file = LabelledFile(row.name, spans, labels.action)
    return _save_all(service, [(row, file)], job=labels.job, revision=labels.revision)[0]


def _save_all(
    service: Services,
    files: Sequence[tuple[Video, LabelledFile]],
    *,
    job: str | None = None,
    revision: int | None = None,
) -> list[SavedLabels]:
    """Save labels of videos, of all or, where one cannot be a video's, of none. job: the count they correct.
    revision: of what they replace, see `Labels`."""
    durations = [_duration(service, row) for row, _ in files]
    problems = [
        f"{file.file}: {problem}"
        for (row, file), duration in zip(files, durations, strict=True)
        if (problem := label_problem(replace(file, fps=row.fps), duration)) is not None
    ]
    if problems:
        more = f"; and {len(problems) - NAMED} more videos" if len(problems) > NAMED else ""
        raise HTTPException(422, f"{'; '.join(problems[:NAMED])}{more}; nothing was saved")
    saved = []
    for (row, file), duration in zip(files, durations, strict=True):
        spans = cut(file.spans, duration)
        label = service.database.save_labels(row.id, file.action, spans, job=job, revision=revision)
        if label is None:
            raise HTTPException(409, f"{row.name}: other labels were saved meanwhile; nothing was saved")
        saved.append(label)
    try:
        if saved:
            write_labels_csv(service)
    except OutputError as error:
        raise HTTPException(507, "the labels are kept, but labels.csv could not be written") from error
    return saved


@router.get("/videos/{video_id}/labels")
def labels_of(labels: AskedLabels) -> SavedLabels:
    """The corrected repetitions of a video."""
    return labels


@router.get("/videos/{video_id}/labels.csv", response_class=PlainTextResponse, responses=CSV)
def labels_csv(row: AskedVideo, labels: AskedLabels) -> Response:
    """One video's labels in the form `escounts train folder` reads."""
    return _exported([labelled_file(row, labels, row.name)], "csv", "labels")


@router.get("/labels.csv", response_class=PlainTextResponse, responses=CSV)
def all_labels_csv(service: Services) -> Response:
    """All labelled videos in one labels.csv."""
    return _exported(_all_labels(service), "csv", "labels")


@router.get("/labels/dataset.zip", response_class=StreamingResponse, responses=ZIP)
def dataset(service: Services) -> StreamingResponse:
    """All labelled videos with a labels.csv: unpacked, a folder for `escounts train folder` and `data check`. A video
    whose file is gone is left out."""
    found = [(Path(service.settings.locate(row).path), row, label) for row, label in labelled_videos(service)]
    files = [(path, labelled_file(row, label, _safe_name(row))) for path, row, label in found if path.is_file()]
    headers = {"content-disposition": 'attachment; filename="escounts-dataset.zip"'}
    return StreamingResponse(dataset_zip(files), media_type="application/zip", headers=headers)


@router.get("/labels/export/{format}", responses=EXPORT)
def export_labels(service: Services, format: Format) -> Response:
    """All labels as a file of an annotation tool; a zip where it takes one file per video."""
    return _exported(_all_labels(service), format, f"labels-{format}")


def _all_labels(service: Services) -> list[LabelledFile]:
    names = _label_names(service.database.videos(limit=-1))
    return [labelled_file(row, label, names[row.id]) for row, label in labelled_videos(service)]


def _exported(labelled: Sequence[LabelledFile], format: Format, name: str) -> Response:
    """Labels as a download in a format, called by the name with the format's suffix."""
    entry = FORMATS[format]
    files = write_labels(labelled, format)
    if not entry.one_video:
        ((_, text),) = files.items()
        return attachment(text, entry.media_type, name + entry.suffix)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return attachment(packed.getvalue(), "application/zip", f"{name}.zip")


@router.post("/labels/import", dependencies=GUARDED)
def import_labels(service: Services, request: LabelImport) -> ImportedLabels:
    """Save the labels in a file of an annotation tool as those of the videos of the same names; all, or on an error
    none. A name that several videos have is not guessed: it is answered as ambiguous. Labels that are there are
    replaced by others, never by none. Of a table of file and count the repetitions are spread evenly."""
    format = request.format or guess_format(request.name, request.text)
    counts = read_counts(request.text, request.only) if format == "csv" else None
    if counts is None:
        files = of_one_action(FORMATS[format].read(request.text, request.only, request.fps), "class")
    else:
        files = [LabelledFile(file, (), action) for file, (_, action) in counts.items()]
    known = _videos_by_name(service.database.videos(limit=-1))
    found: dict[str, tuple[Video, LabelledFile]] = {}
    unknown: list[str] = []
    ambiguous: list[str] = []
    for file in files:
        rows = known.get(file.file, [])
        if len(rows) != 1:
            (ambiguous if rows else unknown).append(file.file)
            continue
        (row,) = rows
        if row.id in found:
            raise HTTPException(422, f"{file.file}: its video has labels under another name in the file, too")
        if counts is not None:
            file = replace(file, spans=_spread(counts[file.file][0], _duration(service, row)))
        found[row.id] = row, _not_emptied(service, row, file)
    saved = _save_all(service, list(found.values()))
    ends = [max((span.end for span in labels.spans), default=0.0) for labels in saved]
    shortened = [
        file.file for (_, file), end in zip(found.values(), ends, strict=True) if any(b > end for _, b in file.spans)
    ]
    spread = [] if counts is None else [file.file for _, file in found.values() if file.spans]
    return ImportedLabels(saved=list(found), unknown=unknown, ambiguous=ambiguous, shortened=shortened, spread=spread)


def _spread(count: int, duration: float) -> tuple[tuple[float, float], ...]:
    """Repetitions where only their number is known, as `escounts train folder` takes them: evenly over the video."""
    return tuple(pseudo_spans(count, 0.0, duration))


def _not_emptied(service: Services, row: Video, file: LabelledFile) -> LabelledFile:
    """The labels, unless a person's work would be lost for none."""
    before = service.database.labels(row.id)
    if not file.spans and before and before[0].spans:
        raise HTTPException(
            422,
            f"{file.file}: the file has no repetitions of it, and {len(before[0].spans)} are saved; "
            "delete them first, or leave the video out of the file; nothing was saved",
        )
    return file


@router.get("/videos/{video_id}/label-studio")
def label_studio(row: AskedVideo, labels: AskedLabels) -> Response:
    """The labels as a Label Studio task with timeline regions."""
    tasks = write_label_studio([labelled_file(row, labels, row.name)])
    return attachment(tasks, "application/json", f"{row.name}.label-studio.json")


@router.post("/videos/{video_id}/label-studio", dependencies=GUARDED)
def import_label_studio(
    service: Services, row: AskedVideo, document: list[dict[str, Any]] | dict[str, Any]
) -> SavedLabels:
    """Save the timeline regions of a Label Studio export of one task as this video's labels."""
    found = read_tasks(document, fps=row.fps)
    if len(found) != 1:
        raise HTTPException(422, f"expected one Label Studio task, got {len(found)}")
    file = _not_emptied(service, row, replace(found[0], file=row.name))
    return _save_all(service, [(row, file)])[0]


def _duration(service: Services, row: Video) -> float:
    """Seconds that can be labelled: a container may state too few, the newest count knows how many frames came."""
    if row.duration is None:
        raise HTTPException(409, f"{row.name} has not been opened yet; count it first")
    done = next((job for job in service.database.jobs(row.id) if job.state == "done"), None)
    result = service.database.result(done.id) if done is not None else None
    return max(row.duration, float(result["duration"]) if result is not None else 0.0)


def labelled_videos(service: Services) -> list[tuple[Video, SavedLabels]]:
    """Every labelled video, the labels saved first coming first."""
    rows = {row.id: row for row in service.database.videos(limit=-1)}
    return [(rows[label.video], label) for label in service.database.labels() if label.video in rows]


def labelled_file(row: Video, label: SavedLabels, file: str) -> LabelledFile:
    """A video's labels under a file name."""
    return LabelledFile(file, label.pairs, label.action, row.fps, row.duration)


def write_labels_csv(service: Services) -> None:
    """labels.csv of the data folder: uploads lie beside it, files of the media root are named by their whole path."""
    files = [
        (row, label, Path(service.settings.locate(row).path).resolve() if row.source == "media" else row.file)
        for row, label in labelled_videos(service)
    ]
    write_file(
        service.settings.videos / LABELS_FILE, [labelled_file(row, label, str(file)) for row, label, file in files]
    )


def _label_names(rows: Sequence[Video]) -> dict[str, str]:
    """Video id → the name its labels have in a file of another tool: safe, and with the beginning of its id where
    several videos would have it, so that a name means the same video however many come and go."""
    often = Counter(_safe_name(row).casefold() for row in rows)
    return {row.id: _safe_name(row) if often[_safe_name(row).casefold()] == 1 else _with_id(row) for row in rows}


def _videos_by_name(rows: Sequence[Video]) -> dict[str, list[Video]]:
    """Every name that labels may come with → the videos that have it: as sent, and as `_label_names` has it."""
    found: dict[str, list[Video]] = {}
    for row in rows:
        for name in {row.name, _safe_name(row), _with_id(row)}:
            found.setdefault(name, []).append(row)
    return found


def _safe_name(row: Video) -> str:
    """The name a video was sent with, without characters that a file's name cannot have."""
    stem = re.sub(r"[^\w .()+-]", "_", Path(row.name).stem).strip(" .-+") or "video"
    return stem + (Path(row.file).suffix or ".mp4")


def _with_id(row: Video) -> str:
    name = Path(_safe_name(row))
    return f"{name.stem} ({row.id[:8]}){name.suffix}"
