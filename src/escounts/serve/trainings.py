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
from escounts.system.processes import Child, Line, are_numbers


@dataclass(frozen=True)
class TrainingTask:
    """Learn from videos with their repetitions in seconds, starting from the options' model; write the new one to
    target, whose folder is the only one that it may write to."""

    videos: tuple[tuple[Source, tuple[tuple[float, float], ...]], ...]
    target: str
    options: WorkerOptions


def run(line: Line, task: TrainingTask) -> None:
    """Entry point of the process: reports ("progress", (stage, share)), then ("done", report) or ("failed", why)."""
    if hasattr(os, "nice"):
        os.nice(10)  # the page answers first, then counts are made
    try:
        ending: tuple[str, object] = ("done", _learn(line, task))
    except Exception as error:
        limit = f"{task.options.memory / 2**30:.1f} GiB"
        memory = f"learning needs more memory than the {limit} it may use; label shorter videos"
        sources = [source for source, _ in task.videos]
        ending = ("failed", explain(error, sources, memory=memory, fault="it could not be learnt: "))
    line.report(*ending)


def _learn(line: Line, task: TrainingTask) -> dict[str, object]:
    from escounts.teach.own_action import LabelledVideo, learn_action  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    options = task.options
    settle(options)
    videos = [LabelledVideo(source.id, Path(source.path), len(spans), spans) for source, spans in task.videos]
    sources = {Path(source.path): source for source, _ in task.videos}
    learnt = learn_action(
        videos,
        Path(task.target),
        initial=options.model,
        device=options.device,
        open_video=lambda path: open_video(sources[path], options),
        progress=lambda stage, share: line.report("progress", (stage, share)),
    )
    return learnt.to_dict()


STAGES = ("encoding", "checking", "training")
NOT_A_REPORT = "its process sent what is not a report"
CUT_OFF = "the server was stopped while this was being learnt; start it again"
RETRY_SECONDS = 0.5
"""Between tries to write down how a training ended, while the database cannot take it."""


log = logging.getLogger(__name__)


@dataclass
class _Running:
    """The training in hand. made: the file that its process writes, in a folder of its own, the only one that it may
    write to; target: where the model goes. stage and share: what the process reported last."""

    row: Training
    process: Child
    made: Path
    target: Path
    began: float
    stage: str = "encoding"
    share: float = 0.0
    cancelled: bool = False
    killed_for: str | None = None
    """Why this server killed the process, when it did."""
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

    def start(self, row: Training, target: Path, make: Callable[[Path], TrainingTask]) -> None:
        """Begin; the new model is put at target only once it is whole. make: from the file that the process is to
        write to its task."""
        with self._lock:
            if self._running is not None:
                raise HTTPException(409, f"{self._running.row.name} is being learnt; wait for it, or cancel it")
            made = self._settings.renders / f".{row.id}.training.partial" / "model.safetensors"
            for folder in (target.parent, made.parent):
                folder.mkdir(parents=True, exist_ok=True)
            self._database.add_training(row)
            try:
                task = make(made)
                paths = [source.path for source, _ in task.videos]
                sandbox = self._settings.confined(made.parent, paths, task.options.model)
                process = Child(run, task, sandbox=sandbox)
            except OSError as error:
                shutil.rmtree(made.parent, ignore_errors=True)
                reason = f"no process could be started: {error.strerror or error}"
                self._database.end_training(row.id, "failed", error=reason)
                raise HTTPException(409, reason) from error
            self._running = running = _Running(row, process, made, target, time.monotonic())
            running.follower = threading.Thread(target=self._follow, args=(running,), name="training", daemon=True)
            running.follower.start()
        self._announce(row.id)

    def cancel(self, training_id: str) -> None:
        """End a training that runs; one that has ended stays as it is."""
        with self._lock:
            running = self._running
            if running is not None and running.row.id == training_id:
                running.cancelled = True
                running.process.kill()

    def stop(self) -> None:
        """The server stops: what is being learnt is lost, and its row says so."""
        self._stopped.set()
        with self._lock:
            running = self._running
            if running is not None:
                running.killed_for = CUT_OFF
                running.process.kill()
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

    def _follow(self, running: _Running) -> None:
        """Read what the process reports until it ends, then write down how."""
        kind, value = "died", None
        try:
            while kind not in ("done", "failed"):
                if time.monotonic() - running.began > self._settings.job_seconds:
                    running.killed_for = f"took longer than the {self._settings.job_seconds:.0f} s it may take"
                    break
                report = running.process.take(1.0)
                if report is None:
                    continue
                kind, value = report
                if kind == "progress":
                    if not (
                        isinstance(value, list) and len(value) == 2 and value[0] in STAGES and are_numbers(value[1:])
                    ):
                        raise ValueError("a report of its progress is none")
                    running.stage, running.share = value
                    self._announce(running.row.id)
        except (EOFError, OSError):
            pass  # it is gone
        except ValueError as error:  # forged: the process is no longer ours
            log.warning("training %s is ended: %s", running.row.id, error)
            kind, value = "failed", NOT_A_REPORT
            running.process.kill()
        if running.killed_for is not None:
            running.process.kill()
        death = running.process.death()
        self._end(running, kind, death if kind not in ("done", "failed") else value)

    def _end(self, running: _Running, kind: str, value: Any) -> None:
        """Whatever goes wrong here, the next training may begin."""
        with self._lock:
            try:
                state, end = self._outcome(running, kind, value)
            except ValueError as error:
                log.warning("training %s: %s", running.row.id, " ".join(str(error).split()))
                state, end = "failed", {"error": NOT_A_REPORT}
            except EscountsError as error:
                log.warning("training %s: %s", running.row.id, error)
                state, end = "failed", {"error": hide_paths(f"its model could not be kept: {error}")}
            except Exception as error:
                log.exception("the end of training %s", running.row.id)
                state, end = "failed", {"error": hide_paths(f"its model could not be kept: {error}")}
            finally:
                self._running = None
            shutil.rmtree(running.made.parent, ignore_errors=True)
            running.process.end()
        self._write_end(running.row.id, state, end)
        self._announce(running.row.id)

    @staticmethod
    def _outcome(running: _Running, kind: str, value: Any) -> tuple[str, dict[str, Any]]:
        """How a training ended; a model that helps is put in its place."""
        if running.cancelled:
            return "cancelled", {}
        if running.killed_for is not None:
            return "failed", {"error": running.killed_for}
        if kind == "done":
            if Report.model_validate(value).helped:
                _keep(running.made, running.target)
            return "done", {"report": json.dumps(value)}
        return "failed", {"error": str(value)}

    def _write_end(self, training_id: str, state: str, end: dict[str, Any]) -> None:
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


def _keep(made: Path, target: Path) -> None:
    """Copy the model out of the folder of a process that has ended, if it is one: it had opened strangers' videos."""
    if not stat.S_ISREG(made.lstat().st_mode) or not is_own_model(made):
        raise ModelError("what it wrote is not a model that was taught")
    with atomic_file(target) as partial:
        shutil.copyfile(made, partial)
