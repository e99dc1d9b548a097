"""Teaching over HTTP: learn from the labelled videos under a name, follow it, and the models there are."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from escounts.errors import ModelError
from escounts.models import catalogue, store
from escounts.models.catalogue import is_own_model, own_model_path
from escounts.serve.schemas import (
    GUARDED,
    Identifier,
    Services,
    Strict,
    Text,
    Training,
    video_or_404,
)
from escounts.serve.settings import Settings, WorkerOptions

router = APIRouter(prefix="/api", tags=["teaching"])
FEWEST = 3
"""Labelled videos a training needs, as escounts.teach.own_action has it."""
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$", examples=["my-squats"])]
TrainingId = Annotated[str, InPath(pattern=r"^[0-9a-f]{32}$")]


class TrainingRequest(Strict):
    """Learn from the labelled videos: those of an action, those named, or all. replace: a model taught before.
    shared: keep it where the command line finds it by name, too, and not in the data folder."""

    name: ModelName
    action: Annotated[Text, Field(max_length=80)] | None = None
    videos: Annotated[list[Identifier], Field(max_length=500)] | None = None
    replace: bool = False
    shared: bool = False


class Model(BaseModel):
    """What can count here. training: the id of the training an own model came from, if it was made here."""

    name: str
    summary: str
    own: bool
    default: bool
    training: str | None


@router.post("/trainings", status_code=202, dependencies=GUARDED)
def start_training(service: Services, request: TrainingRequest) -> Training:
    """Learn from labelled videos under a name; follow it with GET, or by the events named `training`."""
    chosen = _chosen(service, request)
    if len(chosen) < FEWEST:
        raise HTTPException(
            422, f"{len(chosen)} labelled videos; label at least {FEWEST} of one action, ten are better"
        )
    settings = service.settings
    if request.shared and request.name in _taught(settings):
        raise HTTPException(
            422, f"there is a model called {request.name!r} already, in the data folder; delete it first"
        )
    folder = None if request.shared else settings.models
    target = own_model_path(request.name, replace_old=request.replace, folder=folder)
    row = Training(
        id=secrets.token_hex(16), name=request.name, videos=[source.id for source, _ in chosen], created=time.time()
    )
    options = WorkerOptions.of(settings, settings.devices[0], model=_initial(settings.model))
    service.trainings.start(row, tuple(chosen), target, options)
    return present_training(service, row)


@router.get("/trainings")
def trainings(service: Services) -> list[Training]:
    """All trainings, the newest first."""
    return [present_training(service, row) for row in service.database.trainings()]


@router.get("/trainings/{training_id}")
def training(service: Services, training_id: TrainingId) -> Training:
    """One training."""
    row = _need(service, training_id)
    return present_training(service, row)


@router.post("/trainings/{training_id}/cancel", status_code=202, dependencies=GUARDED)
def cancel_training(service: Services, training_id: TrainingId) -> Training:
    """End a training; nothing of it is kept. One that has ended stays as it is."""
    row = _need(service, training_id)
    service.trainings.cancel(training_id)
    return present_training(service, row)


@router.get("/models")
def models(service: Services) -> list[Model]:
    """The models that can count here; `model` of POST /api/jobs takes their names."""
    made = {row.name: row.id for row in reversed(service.database.trainings()) if row.state == "done"}
    default = catalogue.find(service.settings.model).name
    here = [catalogue.find(str(path)) for path in _taught(service.settings).values()]
    own = {kept.name for kept in store.stored() if is_own_model(kept.path)} | {entry.name for entry in here}
    return [
        Model(
            name=entry.name,
            summary=entry.summary,
            own=entry.name in own,
            default=entry.name == default,
            training=made.get(entry.name) if entry.name in own else None,
        )
        for entry in {entry.name: entry for entry in [*catalogue.entries(), *here]}.values()
        if entry.state() == "ready"
    ]


@router.delete("/models/{name}", status_code=204, dependencies=GUARDED)
def delete_model(service: Services, name: Annotated[str, InPath(max_length=80)]) -> None:
    """Delete a model that was taught; all others stay."""
    if name == catalogue.find(service.settings.model).name:
        raise HTTPException(409, f"{name} is what this server counts with; start it with another --model first")
    try:
        path = _taught(service.settings).get(name) or store.stored_path(name)
    except ModelError as error:
        raise HTTPException(404, str(error)) from error
    if not is_own_model(path):
        raise HTTPException(404, "there is no model of that name that was taught here; GET /api/models lists them")
    path.unlink(missing_ok=True)


def present_training(service: Services, row: Training) -> Training:
    """A training as it stands; the videos of its report are called by the names they have here."""
    shown = service.trainings.with_progress(row)
    if shown.report is not None:
        names = {video.id: video.name for video in service.database.videos(limit=-1)}
        for outcome in shown.report.videos:
            outcome.name = names.get(outcome.video, "a deleted video")
        shown.report.model = row.name if shown.report.helped else None
    return shown


def other_model(service: Services, name: str) -> str | None:
    """The name, checked: of a model that is here; None for the one that the workers have loaded."""
    ready = {entry.name for entry in catalogue.entries() if entry.state() == "ready"} | _taught(
        service.settings
    ).keys()
    if name not in ready:
        raise HTTPException(422, f"there is no model {name!r} here; there are {', '.join(sorted(ready))}")
    return None if name == catalogue.find(service.settings.model).name else name


def _chosen(service: Services, request: TrainingRequest) -> list[tuple[Any, tuple[tuple[float, float], ...]]]:
    """The labelled videos that are asked for, as the process opens them, with their repetitions."""
    for video_id in request.videos or ():
        video_or_404(service, video_id)
    rows = {row.id: row for row in service.database.videos(limit=-1)}
    return [
        (service.settings.locate(rows[label.video]), label.pairs)
        for label in service.database.labels()
        if label.video in rows
        and (request.videos is None or label.video in request.videos)
        and (request.action is None or label.action == request.action)
    ]


def _taught(settings: Settings) -> dict[str, Path]:
    """The models that were taught here and lie in the data folder, by name."""
    return {path.stem: path for path in sorted(settings.models.glob("*.safetensors")) if is_own_model(path)}


def _initial(model: str) -> str:
    """What a training starts from: the server's model where it can be taught, else the default."""
    weights = catalogue.find(model).checkpoint
    return model if weights is not None and is_own_model(weights) else "default"


def _need(service: Services, training_id: str) -> Training:
    rows = service.database.trainings(training_id)
    if not rows:
        raise HTTPException(404, "there is no such training")
    return rows[0]
