"""What a process that opens videos can do to the server by what it reports: nothing."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from serving import eventually, service_running

from escounts.sandbox import confine
from escounts.serve import live_sessions, trainings, worker_pool
from escounts.serve.database import TrainingRow
from escounts.serve.live_worker import LiveOptions
from escounts.serve.trainings import TrainingTask
from escounts.serve.worker import WorkerOptions

TASK = TrainingTask((), "", "lite", "cpu", 2**32, 1, max_duration=60.0, max_pixels=10**6, scratch="")


class _Command:
    """Whoever unpickles it runs a shell command."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


def _stay(connection: Connection, marker: Path) -> None:
    """Send it in place of a report, and do not go away."""
    connection.send(("ready", "", _Command(str(marker))))
    time.sleep(600)


def taken_over(connection: Connection, options: WorkerOptions | LiveOptions) -> None:
    """A worker, or a live count, after a video has taken it over."""
    assert options.scratch is not None
    confine([Path(options.scratch)])
    with contextlib.suppress(OSError):
        _stay(connection, Path(options.scratch) / "ran")


def taken_over_training(connection: Connection, task: TrainingTask) -> None:
    confine([Path(task.scratch), Path(task.target).parent])
    with contextlib.suppress(OSError):
        _stay(connection, Path(task.target).with_name("ran"))


def test_a_worker_that_sends_a_pickle_is_killed_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "run", taken_over)
    monkeypatch.setattr(worker_pool, "START_FAILURES_ALLOWED", 1)
    with service_running(tmp_path) as (_, service):
        pool = service.runner._pool
        eventually(lambda: pool.workers or pool.unusable)
        processes = [worker.process for worker in list(pool.workers)]
        eventually(lambda: pool.unusable is not None)
        assert "its report could not be read" in str(pool.unusable)
        assert not any(process.is_alive() for process in processes)
    assert not (tmp_path / "renders" / "ran").exists()


def test_a_live_count_that_sends_a_pickle_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sessions, "run", taken_over)
    with service_running(tmp_path, devices=()) as (_, service):
        session = service.live.begin("somebody", model=None, assume_repeats=False)
        assert session.over.wait(60)
        eventually(lambda: session.state == "failed")
        eventually(lambda: not session.process.is_alive())
    assert not (tmp_path / "renders" / "ran").exists()


def test_a_training_that_sends_a_pickle_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "run", taken_over_training)
    with service_running(tmp_path, devices=()) as (_, service):
        row = TrainingRow("0" * 32, "mine", "running", "[]", time.time())
        target = tmp_path / "weights" / "mine.safetensors"
        service.trainings.start(
            row, target, lambda partial: replace(TASK, target=str(partial), scratch=str(tmp_path))
        )
        running = service.trainings._running
        assert running is not None
        eventually(lambda: service.database.trainings(row.id)[0].state == "failed", 60)
        eventually(lambda: not running.process.is_alive())
    assert not (tmp_path / "weights" / "ran").exists()
