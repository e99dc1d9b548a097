"""The queue itself: in which order its news goes out, what a late cancel does, and what a full disk does to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from movies import beside, bouncing, write_movie
from serving import REQUEST, Client, eventually, service_running, uploaded

from escounts.errors import EscountsError
from escounts.output.json import to_dict
from escounts.results import CountResult, DensityMap
from escounts.serve.app import EventHub, Service
from escounts.serve.database import Database
from escounts.serve.job_api import followed
from escounts.serve.jobs import JobRunner
from escounts.serve.schemas import Job, Training
from escounts.serve.settings import Settings, Source
from escounts.serve.worker import RenderTask
from escounts.serve.worker_pool import Running, WorkerHandle, resolve
from escounts.system.processes import Child, parsed_report

SOURCE = Source("v", "clip.mp4", "clip.mp4")
T = TypeVar("T")


class Listening(EventHub):
    """Keeps what is published."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []

    def publish(self, event: Job | Training | None) -> None:
        if event is not None:
            self.states.append(event.state)
        super().publish(event)


@pytest.fixture()
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "escounts.sqlite")
    database.add_video(uploaded("v"))
    yield database
    database.close()


@pytest.fixture()
def hub() -> Listening:
    return Listening()


@pytest.fixture()
def runner(tmp_path: Path, database: Database, hub: Listening) -> JobRunner:
    """A queue that nobody supervises: the tests take its steps."""
    return JobRunner(Settings(data=tmp_path, devices=()), database, hub.publish)


@pytest.fixture()
def worker(runner: JobRunner) -> WorkerHandle:
    return WorkerHandle("cpu", cast(Child, Ended(None)))


def queued(name: str) -> Job:
    return Job(id=name, video="v", request=REQUEST, created=time.time())


def test_nobody_hears_of_a_state_after_the_one_that_followed_it(
    runner: JobRunner, database: Database, hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor starts the job in the very moment in which its sender has read that it is queued."""

    def start() -> None:
        with runner._lock:
            database.start_job("job")
            runner._announce("job")

    supervisor = threading.Thread(target=start)
    read = database.job

    def job(job_id: str) -> Job | None:
        row = read(job_id)
        if threading.current_thread() is not supervisor:
            supervisor.start()
            supervisor.join(0.3)
        return row

    monkeypatch.setattr(database, "job", job)
    assert runner.submit(queued("job"))
    supervisor.join(10)
    assert hub.states == ["queued", "running"]


def test_what_a_worker_cancelled_is_cancelled(runner: JobRunner, database: Database, worker: WorkerHandle) -> None:
    runner.submit(queued("job"))
    worker.tasks["job"] = Running("fast", began=0.0, deadline=1e12)
    runner._handle(worker, "cancelled", "job", None)
    row = database.job("job")
    assert row is not None
    assert (row.state, row.error) == ("cancelled", None)


DENSITY = DensityMap(np.zeros(10, np.float32), 0.0, 0.1)
RESULT = to_dict(CountResult("clip.mp4", "m", 3, 3.0, (), DENSITY, 0.9, False, 1.0, (0.0, 1.0)))
INFO = {"duration": 1.0, "width": 64, "height": 64, "fps": 30.0}


class Ended:
    """A process that makes one report."""

    killed = False

    def __init__(self, report: object) -> None:
        self._report = report

    def take(self) -> list[Any]:
        return parsed_report(json.dumps(self._report).encode(), 3)

    def kill(self) -> None:
        self.killed = True

    def death(self) -> str:
        return "its process died (SIGKILL: out of memory, or killed)"

    def end(self) -> None:
        """It has ended."""


@pytest.mark.parametrize(
    "report",
    [
        ["done", "job", {**RESULT, "model": ["m"]}],
        ["done", "job", {**RESULT, "count": {}}],
        ["done", "job", {**RESULT, "repetitions": [{"start": {}, "end": []}]}],
        ["done", "job", {**RESULT, "left_out": [{"start": "1", "end": 2.0, "score": None}]}],
        ["done", "job", {**RESULT, "range": ["0", 1.0]}],
        ["done", "job", {"model": "m", "count": 3, "confidence": 0.9, "unsure": False}],
        ["done", "job", [RESULT]],
        ["done", "other job", RESULT],
        ["info", "job", ["v", {**INFO, "width": [64]}]],
        ["info", "job", ["v", {**INFO, "name": 5}]],
        ["info", "job", ["another video", INFO]],
        ["info", "job", None],
        ["progress", "job", ["a", "b"]],
        ["progress", "job", [float("inf"), 1.0]],
        ["progress", "job", [float("nan"), 1.0]],
        ["progress", "other job", [1.0, 1.0]],
        ["cached", "", 5],
        ["ready", "", ["m"]],
        ["unusable", "", ["counting is over", True]],
        ["dance", "", None],
        ["job"],
    ],
)
def test_a_report_that_no_worker_of_ours_sends_ends_it_and_its_job(
    runner: JobRunner, database: Database, report: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    process = Ended(report)
    worker = WorkerHandle("cpu", cast(Child, process), ready=True)
    runner._pool.workers.append(worker)
    runner.submit(queued("job"))
    runner.submit(queued("other job"))
    worker.tasks["job"] = Running("slow", began=0.0, deadline=1e12, videos=frozenset({"v"}))
    runner._receive(worker)
    assert process.killed and runner._pool.workers == []
    job, other, video = database.job("job"), database.job("other job"), database.video("v")
    assert job is not None and other is not None and video is not None
    assert (job.state, job.error) == ("failed", "its worker process sent what is not a report")
    assert (other.state, video.duration, runner._pool.unusable) == ("queued", None, None)
    assert len(caplog.records) == 1 and caplog.records[0].exc_info is None


def test_a_worker_that_never_stops_talking_does_not_keep_the_queue(runner: JobRunner, worker: WorkerHandle) -> None:
    taken = []

    class Endless:
        def take(self) -> list[object]:
            taken.append(1)
            if len(taken) > 1000:
                raise EOFError
            return ["cached", "", []]

    runner._pool.workers.append(worker)
    worker.process = cast(Child, Endless())
    runner._receive(worker)
    assert runner._pool.workers and len(taken) < 1000
    assert runner._news.is_set(), "the next round comes at once"


def test_an_end_that_is_written_and_cannot_be_announced_is_not_the_workers_fault(
    runner: JobRunner, database: Database, worker: WorkerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report was handled again, taken for a forged one, and failed what else the worker was counting."""
    for name in ("job", "other"):
        runner.submit(queued(name))
        worker.tasks[name] = Running("slow", began=0.0, deadline=1e12)
    runner._pool.workers.append(worker)
    reports: list[list[object] | None] = [["done", "job", RESULT], None]
    process = SimpleNamespace(take=lambda: reports.pop(0))
    worker.process = cast(Child, process)

    def unreadable(job_id: str) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(runner, "_announce", unreadable)
        with pytest.raises(sqlite3.OperationalError):
            runner._receive(worker)
    runner._receive(worker)
    row = database.job("job")
    assert row is not None and row.state == "done"
    assert runner._pool.workers == [worker] and not worker.distrusted and list(worker.tasks) == ["other"]


def test_a_drawing_that_nobody_waits_for_any_more_harms_nobody(runner: JobRunner, worker: WorkerHandle) -> None:
    drawing: Future[str] = Future()
    runner._rendering["drawing"] = drawing
    worker.tasks["drawing"] = Running("slow", began=0.0, deadline=1e12)
    assert drawing.cancel(), "as when the browser went away"
    runner._handle(worker, "done", "drawing", "clip.png")
    assert worker.tasks == {}
    waited: Future[str] = Future()
    resolve(waited, EscountsError("no"))
    with pytest.raises(EscountsError, match="no"):
        waited.result(1)


def test_drawings_wait_in_a_queue_of_bounded_length(
    tmp_path: Path, database: Database, hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data=tmp_path, devices=(), max_queue=2)
    runner = JobRunner(settings, database, hub.publish)
    first, second = (runner.render(RenderTask(name, SOURCE, "clip.png", "png")) for name in "ab")
    with pytest.raises(EscountsError, match="2 drawings are waiting already"):
        runner.render(RenderTask("c", SOURCE, "clip.png", "png"))
    assert first.cancel(), "as when the browser went away"
    runner.render(RenderTask("d", SOURCE, "clip.png", "png"))
    begun: list[str] = []

    class Free:
        def begin(self, lane: str, task: RenderTask, seconds: float) -> None:
            begun.append(task.id)

    monkeypatch.setattr(runner._pool, "free", lambda lane, encoded=None: Free())
    runner._dispatch()
    assert begun == ["b", "d"], "what nobody waits for is not drawn"
    assert not second.done()


def run_aside(main: Coroutine[Any, Any, T]) -> T:
    """What it returns, run in a thread: in this one Playwright's own loop may be running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main).result()


def test_somebody_who_stopped_waiting_does_not_stop_the_news(
    runner: JobRunner, database: Database, hub: Listening
) -> None:
    runner.submit(queued("job"))
    service = cast(Service, SimpleNamespace(hub=hub, database=database))

    async def follow() -> list[str]:
        gone, patient = followed(service, "job"), followed(service, "job")
        states = [(await anext(waiting)).state for waiting in (gone, patient)]
        await gone.aclose()  # type: ignore[attr-defined]
        runner.cancel("job")
        return [*states, *[job.state async for job in patient]]

    assert run_aside(follow()) == ["queued", "queued", "cancelled"]
    assert (hub.states, hub.listeners) == (["queued", "cancelled"], 0)


def test_whoever_stops_listening_is_gone_though_much_is_said(hub: Listening) -> None:
    """Before Python 3.12 a wait_for cancelled as an event comes goes on: `wait` lasted until the job's end."""

    async def listen() -> None:
        async for _ in hub.listen():
            pass

    async def talk() -> None:
        while True:
            hub.publish(queued("other"))
            await asyncio.sleep(0)

    async def stop_again_and_again() -> set[asyncio.Task[None]]:
        talking = asyncio.ensure_future(talk())
        listening = [asyncio.ensure_future(listen()) for _ in range(20)]
        for one in listening:
            await asyncio.sleep(0.001)
            one.cancel()
        _, deaf = await asyncio.wait(listening, timeout=1)
        talking.cancel()
        hub.close()
        return deaf

    assert run_aside(stop_again_and_again()) == set()
    assert hub.listeners == 0


def test_a_full_disk_is_said_and_waited_for(
    tmp_path: Path, clips: dict[int, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with service_running(tmp_path) as (address, service), Client(address) as client:
        assert client.start_count(client.send_video(clips[7])["id"], wait=30)["state"] == "done"
        video, pid = client.send_video(clips[5])["id"], client.worker_pid()
        os.kill(pid, signal.SIGSTOP)
        job = client.start_count(video)["id"]
        eventually(lambda: client.job(job)["state"] == "running")
        limit_pages(service.database, full=True)
        os.kill(pid, signal.SIGCONT)
        health = eventually(lambda: (h := client.get("/healthz").json())["status"] == "failing" and h)
        assert "full" in health["error"]
        assert client.job(job)["state"] == "running", "its result waits to be written"
        limit_pages(service.database, full=False)
        assert client.ended(job)["state"] == "done"
        assert eventually(lambda: (h := client.get("/healthz").json())["status"] == "ok" and h)["error"] is None
        assert client.worker_pid() == pid, "the worker is not to blame"
        assert sum("stands still" in record.message for record in caplog.records) == 1


def limit_pages(database: Database, *, full: bool) -> None:
    """A database that may not grow raises what a full disk raises; the first result leaves no room in its page."""
    with database._lock:
        database._connection.execute("UPDATE results SET document = ?", (f'"{"x" * 3900}"',))
        pages = int(database._connection.execute("PRAGMA page_count").fetchone()[0])
        database._connection.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")


def test_a_box_of_the_picture_is_counted_alone(client: Client, tmp_path: Path) -> None:
    left, right = bouncing(4, 4.8), bouncing(8, 4.8)
    video = client.send_video(write_movie(tmp_path / "two.mp4", beside(left, right)))["id"]
    for box, count in (("0%,0%,50%,100%", 4), ("96,0,96,64", 8)):
        job = client.start_count(video, region=box, wait=30)
        assert (job["count"], job["region"]) == (count, box)
        assert job["result"]["region"] == ("0,0,96,64" if count == 4 else box)
    again = client.start_count(video, region="0%,0%,50%,100%", wait=30)
    assert again["count"] == 4, "one box's encoding is not another's"
    for wrong in ("1,2,3", "0%,0%,150%,100%", "left"):
        refused = client.post("/api/jobs", json={"video": video, "region": wrong})
        assert refused.status_code == 422 and "percent of the picture" in refused.text
    for more in ({"exemplars": [{"start": 0, "end": 1}]}, {"unit": "side"}):
        refused = client.post("/api/jobs", json={"video": video, "each": True, **more})
        assert refused.status_code == 422 and "each place has its own motion" in refused.text
    outside = client.ended(client.start_count(video, region="150,0,96,64")["id"])
    assert outside["state"] == "failed" and "does not lie in the picture" in outside["error"]


def test_each_place_of_the_picture_is_counted_by_itself(client: Client, tmp_path: Path) -> None:
    left, right = (bouncing(count, 9.0, size=(160, 160)) for count in (6, 11))
    video = client.send_video(write_movie(tmp_path / "two.mp4", beside(left, right)))["id"]
    job = client.ended(client.start_count(video, each=True, model="lite")["id"])
    assert job["state"] == "done", job["error"]
    assert job["each"] and [track["count"] for track in job["result"]["tracks"]] == [6, 11]
    assert [int(track["region"].split(",")[0]) for track in job["result"]["tracks"]] == [0, 160]
    assert client.get(f"/api/jobs/{job['id']}/download/csv").status_code == 200
    told = client.put(f"/api/jobs/{job['id']}/unit", json={"unit": "side"})
    assert told.status_code == 422 and "several places" in told.json()["detail"]
    assert client.job(job["id"])["count"] == 17, "a unit that it cannot have leaves it as it was"
