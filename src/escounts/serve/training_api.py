"""Teaching over HTTP: learn from the labelled videos under a name, follow it, and the models there are.

One training at a time, in a process of its own, which can be cancelled and may die: it opens the labelled videos,
which may do to it whatever they do.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, HTTPException
from fastapi import Path as InPath
from pydantic import BaseModel, Field, ValidationError

from escounts.errors import EscountsError, ModelError
from escounts.models import catalogue, store
from escounts.models.catalogue import is_own_model, own_model_path
from escounts.serve.database import Database
from escounts.serve.schemas import (
    GUARDED,
    Identifier,
    Report,
    RowId,
    Services,
    Strict,
    Text,
    Training,
    shown_progress,
    video_or_404,
)
from escounts.serve.settings import Settings, Source, explain, hide_paths, open_video, settle
from escounts.system.atomic_files import atomic_file
from escounts.system.processes import are_numbers
from escounts.system.task_processes import NOT_A_REPORT, TaskProcess
from escounts.teach import FEWEST, Stage

log = logging.getLogger(__name__)
router = APIRouter(prefix="/api", tags=["teaching"])
CUT_OFF = "the server was stopped while this was being learnt; start it again"
RETRY_SECONDS = 0.5
"""Between tries to write down how a training ended, while the database cannot take it."""
Labelled = tuple[tuple[Source, tuple[tuple[float, float], ...]], ...]
"""Videos with their repetitions in seconds."""


def prepare(
    settings: Settings, tell: Callable[[tuple[str, float]], None]
) -> Callable[[tuple[Labelled, str]], dict[str, Any]]:
    """In the process: what learns from videos, starting from the settings' model, and writes the new one to a file,
    whose folder is the only one that it may write to. tell: stage and share of it that is done."""
    from escounts.teach.own_action import LabelledVideo, learn_action  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    if hasattr(os, "nice"):
        os.nice(10)  # the page answers first, then counts are made
    settle(settings)

    def learn(task: tuple[Labelled, str]) -> dict[str, Any]:
        labelled, target = task
        sources = {Path(source.path): source for source, _ in labelled}
        try:
            learnt = learn_action(
                [LabelledVideo(source.id, Path(source.path), len(spans), spans) for source, spans in labelled],
                Path(target),
                initial=settings.model,
                device=settings.devices[0],
                open_video=lambda path: open_video(sources[path], settings),
                progress=lambda stage, share: tell((stage, share)),
            )
        except Exception as error:
            fault = "it could not be learnt: "
            raise EscountsError(
                explain(error, settings, sources.values(), what="learning from such long videos", fault=fault)
            ) from error
        return learnt.to_dict()

    return learn


@dataclass
class _Running:
    """The training in hand. made: the file that its process writes, in a folder of its own; target: where the model
    goes. stage and share: what the process told last. ending: state and reason of an end that was asked for."""

    row: Training
    process: TaskProcess[tuple[Labelled, str], dict[str, Any]]
    made: Path
    target: Path
    began: float
    stage: str = "encoding"
    share: float = 0.0
    ending: tuple[str, str | None] | None = None
    follower: threading.Thread | None = None


class Trainings:
    """Starts, follows and ends trainings; may be called from any thread. publish: called with every change."""

    def __init__(self, database: Database, publish: Callable[[Training], None], settings: Settings) -> None:
        self._database, self._publish, self._settings = database, publish, settings
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._stopped = threading.Event()

    def recover(self) -> None:
        """At start: what was running when the server went away has failed, and says so."""
        for row in self._database.trainings():
            if row.state == "running":
                shutil.rmtree(self._folder(row.id), ignore_errors=True)
                self._database.end_training(row.id, "failed", error=CUT_OFF)

    def _folder(self, training_id: str) -> Path:
        """Where alone the process of a training may write."""
        return self._settings.renders / f".{training_id}.training.partial"

    def start(self, row: Training, labelled: Labelled, target: Path, initial: str) -> None:
        """Begin to learn from labelled videos, starting from the model `initial`; the new one is put at target only
        once it is whole."""
        device = self._settings.devices[0] if self._settings.devices else "auto"
        with self._lock:
            if self._running is not None:
                raise HTTPException(409, f"{self._running.row.name} is being learnt; wait for it, or cancel it")
            made = self._folder(row.id) / "model.safetensors"
            for folder in (target.parent, made.parent):
                folder.mkdir(parents=True, exist_ok=True)
            self._database.add_training(row)
            sandbox = self._settings.confined(made.parent, [source.path for source, _ in labelled], initial)
            process = TaskProcess(
                prepare,
                self._settings.of_process(device, initial),
                limit=self._settings.job_seconds,
                attempts=1,
                hear=self._hear,
                sandbox=sandbox,
            )
            self._running = running = _Running(row, process, made, target, time.monotonic())
            running.follower = threading.Thread(target=self._follow, args=(running, labelled), daemon=True)
            running.follower.start()
        self._announce(row.id)

    def cancel(self, training_id: str) -> None:
        """End a training that runs; one that has ended stays as it is."""
        with self._lock:
            running = self._running
            if running is not None and running.row.id == training_id:
                running.ending = "cancelled", None
                running.process.stop()

    def stop(self) -> None:
        """The server stops: what is being learnt is lost, and its row says so."""
        self._stopped.set()
        with self._lock:
            running = self._running
            if running is not None:
                running.ending = "failed", CUT_OFF
                running.process.stop()
        if running is not None and running.follower is not None:
            running.follower.join(5)

    def with_progress(self, row: Training) -> Training:
        """The training as it stands: stage, share done (0..1) and seconds left if they can be guessed."""
        running = self._running
        if running is None or running.row.id != row.id:
            return row.model_copy(update={"progress": 1.0 if row.state == "done" else 0.0})
        return row.model_copy(update={"stage": running.stage, **shown_progress(running.share, running.began)})

    def _hear(self, told: Any) -> None:
        """What the process tells of its progress; ValueError where it is none."""
        running = self._running
        if not (isinstance(told, list) and len(told) == 2 and told[0] in get_args(Stage) and are_numbers(told[1:])):
            raise ValueError("a report of its progress is none")
        if running is not None:
            running.stage, running.share = told
            self._announce(running.row.id)

    def _follow(self, running: _Running, labelled: Labelled) -> None:
        """Have the process learn, then write down how it ended. Whatever goes wrong, the next training may begin."""
        report, reason = None, None
        try:
            report = running.process.ask((labelled, str(running.made)))
        except Exception as error:  # of the task, of its process, or of a database that nobody can be told from
            reason = hide_paths(str(error))
        running.process.stop()
        with self._lock:
            if running.ending is None and reason is None:
                reason = _unkept(running, report)
            state, reason = running.ending or ("done" if reason is None else "failed", reason)
            self._running = None
        shutil.rmtree(running.made.parent, ignore_errors=True)
        if state == "failed":
            log.warning("training %s: %s", running.row.id, reason)
        done = json.dumps(report) if state == "done" else None
        self._write_end(running.row.id, state, error=reason, report=done)
        self._announce(running.row.id)

    def _write_end(self, training_id: str, state: str, **end: str | None) -> None:
        """Into the database, as soon as it takes it; if the server stops first, its next start marks it as failed."""
        while True:
            try:
                self._database.end_training(training_id, state, **end)
                return
            except sqlite3.Error:
                log.exception("the end of training %s cannot be written; trying again", training_id)
                if self._stopped.wait(RETRY_SECONDS):
                    return

    def _announce(self, training_id: str) -> None:
        for row in self._database.trainings(training_id):
            self._publish(self.with_progress(row))


def _unkept(running: _Running, report: Any) -> str | None:
    """Put a model that helps in its place; why that could not be done. Its process had opened strangers' videos, so
    what it wrote is copied once that has ended, if it is a model."""
    try:
        if Report.model_validate(report).helped:
            if not stat.S_ISREG(running.made.lstat().st_mode) or not is_own_model(running.made):
                raise ModelError("what it wrote is not a model that was taught")
            with atomic_file(running.target) as partial:
                shutil.copyfile(running.made, partial)
    except ValidationError:
        return NOT_A_REPORT
    except Exception as error:
        return hide_paths(f"its model could not be kept: {error}")
    return None


ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$", examples=["my-squats"])]


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


def _asked_training(service: Services, training_id: RowId) -> Training:
    for row in service.database.trainings(training_id):
        return row
    raise HTTPException(404, "there is no such training")


AskedTraining = Annotated[Training, Depends(_asked_training)]


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
    service.trainings.start(row, tuple(chosen), target, _initial(settings.model))
    return present_training(service, row)


@router.get("/trainings")
def trainings(service: Services) -> list[Training]:
    """All trainings, the newest first."""
    return [present_training(service, row) for row in service.database.trainings()]


@router.get("/trainings/{training_id}")
def training(service: Services, row: AskedTraining) -> Training:
    """One training."""
    return present_training(service, row)


@router.post("/trainings/{training_id}/cancel", status_code=202, dependencies=GUARDED)
def cancel_training(service: Services, row: AskedTraining) -> Training:
    """End a training; nothing of it is kept. One that has ended stays as it is."""
    service.trainings.cancel(row.id)
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
    here = {entry.name for entry in catalogue.entries() if entry.state() == "ready"}
    ready = here | _taught(service.settings).keys()
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
