"""The worker processes as the server sees them: what each is doing, since when, and how it ended."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from escounts.decision.repetitions import RepetitionSet
from escounts.errors import EscountsError
from escounts.output.json import from_dict, to_dict
from escounts.results import ConfidenceKind, ExemplarSpan, MachineCount, Phase, Repetition, Track, Unit
from escounts.serve.schemas import shown_progress
from escounts.serve.settings import Settings, hide_paths
from escounts.serve.worker import LANES, CountTask, Lane, RenderTask, run
from escounts.system.processes import Child

START_FAILURES_ALLOWED = 5
RESTART_SECONDS = 0.5


def resolve(future: Future[str], outcome: str | EscountsError) -> None:
    """Give a future its value or its error; one that was given up meanwhile stays given up."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, EscountsError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class Counted(BaseModel):
    """What lists, pages and files read of a result's document, of the types that they rely on."""

    model: str
    count: int
    unsure: bool
    range: tuple[float, float]
    repetitions: tuple[Repetition, ...]
    left_out: tuple[Repetition, ...] = ()
    sets: tuple[RepetitionSet, ...] = ()
    tracks: tuple[Track, ...] = ()
    hypotheses: tuple[dict[str, float | Unit], ...] = ()
    exemplars: tuple[ExemplarSpan, ...] = ()
    reasons: tuple[str, ...] = ()
    region: str | None = None
    phase: Phase = "arbitrary"
    unit: Unit | None = None
    without_unit: int | None = None
    unsure_below: float | None = None
    confidence_kind: ConfidenceKind = "probability"
    confidence: float | None
    machine: MachineCount | None = None
    timings: dict[str, float]
    details: dict[str, float]


def checked_result(document: Any) -> dict[str, Any]:
    """A result's document as a process sent it, if it is one: whatever reads it later finds what it looks for."""
    try:
        Counted.model_validate_json(json.dumps(document), strict=True)
        return to_dict(from_dict(document))
    except Exception as error:
        raise ValueError(f"a report holds a result that is none ({type(error).__name__})") from error


@dataclass
class Running:
    """A task inside a worker. Times on the monotonic clock; done and total in seconds of video; videos: ids of those
    that it opens."""

    lane: Lane
    began: float
    deadline: float
    done: float = 0.0
    total: float = 0.0
    cancel_at: float | None = None
    overdue: bool = False
    videos: frozenset[str] = frozenset()

    def view(self) -> dict[str, Any]:
        return shown_progress(min(self.done / self.total, 1.0) if self.total > 0 else 0.0, self.began)


@dataclass(eq=False)
class WorkerHandle:
    """One worker process."""

    device: str
    process: Child
    ready: bool = False
    last_error: str | None = None
    unrecoverable: bool = False
    model: str | None = None
    cached: set[str] = field(default_factory=set)
    tasks: dict[str, Running] = field(default_factory=dict)
    report: list[Any] | None = None
    """The one in hand."""
    distrusted: bool = False
    """It sent what no worker of ours sends."""

    def __post_init__(self) -> None:
        self._commands: queue.SimpleQueue[tuple[str, object] | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, name="commands", daemon=True)
        self._sender.start()

    def send(self, command: str, argument: object) -> None:
        """A command to a process that may be dead, or may not listen: nobody waits until it is read."""
        self._commands.put((command, argument))

    def _send(self) -> None:
        try:
            while (command := self._commands.get()) is not None:
                self.process.send(command)
        except OSError as error:  # its death is noticed on the same pipe, when read
            self.last_error = self.last_error or f"it stopped listening ({error})"

    def close(self) -> None:
        """End the process, if it has not ended."""
        self.process.end()
        self._commands.put(None)
        self._sender.join(2)

    def begin(self, lane: Lane, task: CountTask | RenderTask, seconds: float) -> None:
        now, videos = time.monotonic(), frozenset(source.id for source in task.sources)
        self.tasks[task.id] = Running(lane, began=now, deadline=now + seconds, videos=videos)
        self.send(lane, task)

    def busy(self, lane: Lane) -> bool:
        return any(entry.lane == lane for entry in self.tasks.values())

    def view(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "pid": self.process.pid,
            "ready": self.ready,
            "model": self.model,
            "busy": [lane for lane in LANES if self.busy(lane)],
            "encodings": len(self.cached),
            "error": None if self.last_error is None else hide_paths(self.last_error),
        }


class WorkerPool:
    """One worker for each device, replaced when it dies. Called under the job runner's lock.

    on_message: called from other threads when a worker has said something.
    """

    def __init__(self, settings: Settings, *, on_message: Callable[[], None] = lambda: None) -> None:
        self._settings, self._on_message = settings, on_message
        self._failures: dict[str, int] = {}
        self._next_start: dict[str, float] = {}
        self.workers: list[WorkerHandle] = []
        self.unusable: str | None = None

    def ensure_running(self) -> None:
        """Start a worker for every device that has none."""
        running = {worker.device for worker in self.workers}
        for device in self._settings.devices:
            due = time.monotonic() >= self._next_start.get(device, 0.0)
            if device not in running and due and self.unusable is None:
                self.workers.append(self._start(device))

    def _start(self, device: str) -> WorkerHandle:
        settings = self._settings
        videos = [settings.videos, *([settings.media_root] if settings.media_root else [])]
        sandbox = settings.confined(settings.renders, videos)
        process = Child(
            run, settings.of_process(device, settings.model), parts=3, on_message=self._on_message, sandbox=sandbox
        )
        return WorkerHandle(device, process)

    def remove_dead(self, worker: WorkerHandle) -> None:
        """Forget a dead worker. One that never got ready counts against its device."""
        worker.close()
        self.workers.remove(worker)
        failures = 0 if worker.ready else self._failures.get(worker.device, 0) + 1
        self._failures[worker.device] = failures
        self._next_start[worker.device] = time.monotonic() + RESTART_SECONDS * failures
        if failures >= START_FAILURES_ALLOWED or worker.unrecoverable:
            self.unusable = worker.last_error or "the worker process dies while it starts"

    def running(self, task_id: str) -> tuple[WorkerHandle, Running] | None:
        for worker in self.workers:
            if task_id in worker.tasks:
                return worker, worker.tasks[task_id]
        return None

    def has_room(self) -> bool:
        return any(worker.ready and not worker.busy(lane) for worker in self.workers for lane in LANES)

    def free(self, lane: Lane, encoded: set[str] | None = None) -> WorkerHandle | None:
        """A ready worker with that lane free and, if asked, with these videos encoded."""
        for worker in self.workers:
            if worker.ready and not worker.busy(lane) and (encoded is None or encoded <= worker.cached):
                return worker
        return None

    def stop(self) -> None:
        """Ask every worker to end, and end those that do not."""
        for worker in self.workers:
            worker.send("stop", None)
        for worker in self.workers:
            worker.process.join(2)
            worker.close()
        self.workers.clear()
