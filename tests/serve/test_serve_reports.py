"""What a process that opens videos can do to the server by what it reports: nothing."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from serving import Client, eventually, service_running

import escounts.models.store
from escounts.errors import EscountsError
from escounts.output.json import to_dict
from escounts.results import CountResult, DensityMap
from escounts.serve import live_api, worker_pool
from escounts.serve.app import Service
from escounts.serve.live_api import LiveCount, LiveSession
from escounts.serve.schemas import Training
from escounts.serve.settings import Settings, Source
from escounts.serve.worker import LANES, RenderTask
from escounts.serve.worker_pool import checked_result
from escounts.system import processes, task_processes
from escounts.system.processes import HEAD, Child, Line


class _Command:
    """Whoever unpickles it runs a shell command."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


def _stay(line: Line, marker: Path) -> None:
    """Send it in place of a report, and do not go away."""
    content = pickle.dumps(("ready", "", _Command(str(marker))))
    os.write(line._reports.fileno(), HEAD.pack(len(content)) + content)
    time.sleep(600)


def taken_over(line: Line, settings: Settings, *_: object) -> None:
    """A worker, or a live count, after a video has taken it over."""
    with contextlib.suppress(OSError):
        _stay(line, Path(tempfile.gettempdir()) / "ran")  # of a confined process the one folder that it writes to


def asked(line: Line) -> Path:
    """In place of a process that learns: the file that it is to write."""
    line.report("ready", None)
    _, target = line.receive()
    return Path(target)


def taken_over_training(line: Line, *_: object) -> None:
    with contextlib.suppress(OSError):
        _stay(line, asked(line).with_name("ran"))


def test_a_worker_that_sends_a_pickle_is_killed_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "run", taken_over)
    monkeypatch.setattr(worker_pool, "START_FAILURES_ALLOWED", 1)
    with service_running(tmp_path) as (_, service):
        pool = service.runner._pool
        eventually(lambda: pool.workers or pool.unusable)
        started = [worker.process for worker in list(pool.workers)]
        eventually(lambda: pool.unusable is not None)
        assert "its report could not be read" in str(pool.unusable)
        assert not any(process.is_alive() for process in started)
    assert not (tmp_path / "renders" / "ran").exists()


def test_a_live_count_that_sends_a_pickle_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_api, "run", taken_over)
    with service_running(tmp_path, devices=()) as (_, service):
        session = service.live.begin("somebody", model=None, assume_repeats=False)
        assert session.over.wait(60)
        eventually(lambda: session.state == "failed")
        eventually(lambda: not session.process.is_alive())
    assert not (tmp_path / "renders" / "ran").exists()


def test_a_training_that_sends_a_pickle_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_processes, "_serve", taken_over_training)
    with service_running(tmp_path, devices=()) as (_, service):
        row = Training(id="0" * 32, name="mine", videos=[], created=time.time())
        target = tmp_path / "weights" / "mine.safetensors"
        service.trainings.start(row, (), target, "lite")
        running = service.trainings._running
        assert running is not None
        process = eventually(lambda: running.process._process)
        eventually(lambda: service.database.trainings(row.id)[0].state == "failed", 60)
        eventually(lambda: not process.is_alive())
        assert not list(running.made.parent.parent.rglob("ran"))


NOTHING = DensityMap(np.zeros(10, np.float32), 0.0, 0.1)
RESULT = to_dict(CountResult("clip.mp4", "m", 3, 3.0, (), NOTHING, 0.9, False, 1.0, (0.0, 1.0)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unit", "both"),
        ("reasons", "dark"),
        ("reasons", [3]),
        ("region", [0, 0, 40, 60]),
        ("phase", "later"),
        ("unsure_below", "0.88"),
        ("timings", {"total": "long"}),
        ("details", [1.0]),
        ("machine", {"count": "4", "confidence": 0.9, "unsure": False}),
        ("without_unit", 1.5),
        ("confidence", "high"),
        ("confidence_kind", "guess"),
    ],
)
def test_a_result_of_other_types_is_none(name: str, value: object) -> None:
    assert checked_result(RESULT) == RESULT
    with pytest.raises(ValueError, match="holds a result that is none"):
        checked_result({**RESULT, name: value})


def hostile(line: Line, settings: Settings) -> None:
    """A worker that each video takes over in its own way."""
    line.report("ready", "", "m")
    while True:
        command, task = line.receive()
        if command not in LANES:
            continue
        name = Path(task.source.name).stem
        if name == "half":
            os.write(line._reports.fileno(), HEAD.pack(1000) + b"[")
        line.report("done", task.id, {**RESULT, "model": ["a list"] if name == "list" else "m"})
        while name == "deaf":
            time.sleep(600)


@pytest.fixture()
def hostile_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, Service]]:
    monkeypatch.setattr(worker_pool, "run", hostile)
    monkeypatch.setattr(processes, "UNFINISHED_SECONDS", 1.0)
    with service_running(tmp_path, job_seconds=3.0) as (address, service), Client(address) as client:
        yield client, service


def test_a_report_that_makes_no_sense_is_one_failed_job_and_one_line(
    hostile_service: tuple[Client, Service], clips: dict[int, Path], caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = hostile_service
    for name in ("list", "half"):
        caplog.clear()
        video = client.send_video(clips[5], f"{name}.mp4")["id"]
        job = client.ended(client.start_count(video)["id"], 60)
        assert (job["state"], job["error"]) == ("failed", "its worker process sent what is not a report"), name
        lines = [record for record in caplog.records if record.name.startswith("escounts")]
        assert len(lines) == 1 and lines[0].exc_info is None, name
    honest = client.send_video(clips[5], "honest.mp4")["id"]
    assert client.ended(client.start_count(honest)["id"], 60)["count"] == 3
    assert client.get("/healthz").json()["error"] is None


def test_nobody_waits_for_a_worker_that_does_not_listen(
    hostile_service: tuple[Client, Service], clips: dict[int, Path]
) -> None:
    """A drawing's document can be larger than what a pipe holds."""
    client, service = hostile_service
    video = client.send_video(clips[5], "deaf.mp4")["id"]
    assert client.ended(client.start_count(video)["id"])["state"] == "done"
    drawing = RenderTask("a", Source(video, str(clips[5]), "deaf.mp4"), "", "png", {"x": "y" * 4_000_000})
    with pytest.raises(EscountsError, match="SIGKILL"):
        service.runner.render(drawing).result(60)
    video = client.send_video(clips[5], "honest.mp4")["id"]
    assert client.ended(client.start_count(video)["id"], 60)["count"] == 3


def half_a_report(line: Line, *_: object) -> None:
    os.write(line._reports.fileno(), HEAD.pack(1000) + b"[")
    time.sleep(600)


def test_a_live_count_that_sends_half_a_report_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_api, "run", half_a_report)
    monkeypatch.setattr(processes, "UNFINISHED_SECONDS", 1.0)
    with service_running(tmp_path, devices=()) as (_, service):
        session = service.live.begin("somebody", model=None, assume_repeats=False)
        assert session.over.wait(60)
        assert session.state == "failed"


def test_a_live_count_cannot_make_itself_ready_again() -> None:
    session = LiveSession(LiveCount(id="0" * 32), "somebody", cast(Child, None), 0.0, 0.0, "counting")
    with pytest.raises(ValueError):
        session.hear("ready", "lite")
    assert (session.state, session.heard) == ("counting", 0.0), "it would have another two minutes, again and again"


def boasting(line: Line, settings: Settings, assume_repeats: bool) -> None:
    line.report("ready", "m")
    line.report("state", {"count": "very many"})
    time.sleep(600)


def test_a_live_count_whose_state_is_none_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at it was an error of the server."""
    monkeypatch.setattr(live_api, "run", boasting)
    with service_running(tmp_path, devices=()) as (address, service), Client(address) as client:
        session = service.live.begin("somebody", model=None, assume_repeats=False)
        assert session.over.wait(60)
        shown = client.get(f"/api/live/{session.known.id}")
        assert (shown.status_code, shown.json()["state"], shown.json()["count"]) == (200, "failed", 0)


def no_report(line: Line, *_: object) -> None:
    """It says that it helped, in words that no page can show."""
    asked(line).write_bytes(b"x")
    line.report("done", {"helped": True, "videos": [{"name": 5}]})


def nonsense(line: Line, *_: object) -> None:
    asked(line)
    line.report("told", ["dancing", {}])
    time.sleep(600)


SCORE = {"right": 3, "within_one": 3, "error": 0.0}


def a_link(line: Line, *_: object) -> None:
    """What it calls its model is a file of somebody else's."""
    asked(line).symlink_to(escounts.models.store.__file__)
    line.report("done", {"helped": True, "message": "", "before": SCORE, "after": SCORE, "videos": []})


@pytest.mark.parametrize("process", [half_a_report, no_report, nonsense, a_link])
def test_a_training_whose_report_or_model_is_none_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_processes, "_serve", process)
    monkeypatch.setattr(processes, "UNFINISHED_SECONDS", 1.0)
    with service_running(tmp_path / "data", devices=()) as (address, service), Client(address) as client:
        row = Training(id="0" * 32, name="mine", videos=[], created=time.time())
        target = tmp_path / "weights" / "mine.safetensors"
        service.trainings.start(row, (), target, "lite")
        eventually(lambda: service.database.trainings(row.id)[0].state == "failed", 60)
        (shown,) = client.get("/api/trainings").json()
        why = "what it wrote is not a model" if process is a_link else "sent what is not a report"
        assert why in shown["error"]
        eventually(lambda: service.trainings._running is None)
        lines = [record for record in caplog.records if record.name.startswith("escounts")]
        assert len(lines) == 1 and lines[0].exc_info is None
        assert not list(service.settings.renders.iterdir()), "nothing of it is left"
    assert not target.exists()
