"""Trainings on labelled videos: one at a time, each in a process of its own, which can be cancelled and may die.

The process opens the labelled videos, which may do to it whatever they do.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from pydantic import ValidationError

from escounts.errors import EscountsError, ModelError
from escounts.models.catalogue import is_own_model
from escounts.serve.database import Database
from escounts.serve.schemas import Report, Training
from escounts.serve.settings import (
    Settings,
    Source,
    WorkerOptions,
    explain,
    hide_paths,
    open_video,
    settle,
)
from escounts.system.atomic_files import atomic_file
from escounts.system.processes import are_numbers
from escounts.system.task_processes import NOT_A_REPORT, TaskProcess

Labelled = tuple[tuple[Source, tuple[tuple[float, float], ...]], ...]
"""Videos with their repetitions in seconds."""


def prepare(
    options: WorkerOptions, tell: Callable[[tuple[str, float]], None]
) -> Callable[[tuple[Labelled, str]], dict[str, Any]]:
    """In the process: what learns from videos, starting from the options' model, and writes the new one to a file,
    whose folder is the only one that it may write to. tell: stage and share of it that is done."""
    from escounts.teach.own_action import LabelledVideo, learn_action  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    if hasattr(os, "nice"):
        os.nice(10)  # the page answers first, then counts are made
    settle(options)

    def learn(task: tuple[Labelled, str]) -> dict[str, Any]:
        labelled, target = task
        sources = {Path(source.path): source for source, _ in labelled}
        try:
            learnt = learn_action(
                [LabelledVideo(source.id, Path(source.path), len(spans), spans) for source, spans in labelled],
                Path(target),
                initial=options.model,
                device=options.device,
                open_video=lambda path: open_video(sources[path], options),
                progress=lambda stage, share: tell((stage, share)),
            )
        except Exception as error:
            limit = f"{options.memory / 2**30:.1f} GiB"
            memory = f"learning needs more memory than the {limit} it may use; label shorter videos"
            text = explain(error, sources.values(), memory=memory, fault="it could not be learnt: ")
            raise EscountsError(text) from error
        return learnt.to_dict()

    return learn


STAGES = ("encoding", "checking", "training")
CUT_OFF = "the server was stopped while this was being learnt; start it again"
RETRY_SECONDS = 0.5
"""Between tries to write down how a training ended, while the database cannot take it."""


log = logging.getLogger(__name__)


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
                self._database.end_training(row.id, "failed", error=CUT_OFF)

    def start(self, row: Training, labelled: Labelled, target: Path, options: WorkerOptions) -> None:
        """Begin to learn from labelled videos; the new model is put at target only once it is whole."""
        with self._lock:
            if self._running is not None:
                raise HTTPException(409, f"{self._running.row.name} is being learnt; wait for it, or cancel it")
            made = self._settings.renders / f".{row.id}.training.partial" / "model.safetensors"
            for folder in (target.parent, made.parent):
                folder.mkdir(parents=True, exist_ok=True)
            self._database.add_training(row)
            sandbox = self._settings.confined(made.parent, [source.path for source, _ in labelled], options.model)
            limit = self._settings.job_seconds
            process = TaskProcess(prepare, options, limit=limit, attempts=1, hear=self._hear, sandbox=sandbox)
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
        elapsed = time.monotonic() - running.began
        left = elapsed * (1 - running.share) / running.share if running.share > 0.05 else None
        remaining = None if left is None else round(left, 1)
        return row.model_copy(
            update={"stage": running.stage, "progress": round(running.share, 4), "remaining_s": remaining}
        )

    def _hear(self, told: Any) -> None:
        """What the process tells of its progress; ValueError where it is none."""
        running = self._running
        if not (isinstance(told, list) and len(told) == 2 and told[0] in STAGES and are_numbers(told[1:])):
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
