"""kill -9 at random moments: every job ends counted or failed with a reason, and the database is sound."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from release_figures import SEED, Tally, share_of
from serving import Client, Command, eventually, service_running

import escounts
from escounts.serve.database import Database

RELEASE_KILLS, RELEASE_PARTS = 100, 10


@pytest.fixture(scope="module")
def expected(clips: dict[int, Path]) -> dict[str, int]:
    """What the library counts in each clip, by name."""
    counter = escounts.load("spectral")
    return {path.name: counter.count(path).count for path in clips.values()}


def kill_worker(client: Client) -> None:
    with contextlib.suppress(Exception):
        workers = client.get("/healthz", timeout=5).json()["workers"]
        if workers:
            os.kill(workers[0]["pid"], signal.SIGKILL)


def check_all(data: Path, submitted: dict[str, str], expected: dict[str, int]) -> dict[str, int]:
    """Every job has ended; done ones have the right count of the right video. Returns how many of each state."""
    path = data / "escounts.sqlite"
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database = Database(path)
    states: dict[str, int] = {}
    for job_id, name in submitted.items():
        job, result = database.job(job_id), database.result(job_id)
        assert job is not None, "no job is lost"
        states[job.state] = states.get(job.state, 0) + 1
        if job.state == "done":
            assert result is not None
            assert (result["video"], result["count"]) == (name, expected[name])
        else:
            assert job.state == "failed"
            assert job.error
            assert "SIGKILL" in job.error
    database.close()
    return states


def storm(data: Path, clips: dict[int, Path], expected: dict[str, int], *, jobs: int, seed: int, kills: int) -> Tally:
    """Submit jobs, kill workers and the server in between, start it again, and wait for the end."""
    dice = random.Random(seed)
    submitted: dict[str, str] = {}
    paths = list(clips.values())
    moments = {number: dice.choice(["worker", "server"]) for number in dice.sample(range(jobs), kills)}
    moments[min(moments)] = "server"
    tally = Tally(cases=kills)
    for killed in moments.values():
        tally.note(f"of the {killed}")
    server = Command(data)
    for number in range(jobs):
        path = dice.choice(paths)
        with Client(server.address) as client:
            job = client.start_count(client.send_video(path)["id"])
            submitted[job["id"]] = path.name
            time.sleep(dice.uniform(0, 0.15))
            if moments.get(number) == "worker":
                kill_worker(client)
        if moments.get(number) == "server":
            server.kill()
            server = Command(data)
    with Client(server.address) as client:
        for job_id in submitted:
            client.ended(job_id, 240)
    code, printed = server.interrupt()
    assert code == 0
    if "Traceback" in printed:
        tally.failures.append(("traceback", printed[-3000:]))
    states = check_all(data, submitted, expected)
    assert states.get("done", 0) >= jobs - kills, states
    return tally


def test_kills_of_workers_and_of_the_server(tmp_path: Path, clips: dict[int, Path], expected: dict[str, int]) -> None:
    assert storm(tmp_path, clips, expected, jobs=8, seed=7, kills=5).failures == []


@pytest.mark.release
@pytest.mark.parametrize("part", range(RELEASE_PARTS))
def test_a_hundred_kills(tmp_path: Path, clips: dict[int, Path], expected: dict[str, int], part: int) -> None:
    kills = share_of(RELEASE_KILLS // RELEASE_PARTS)
    tally = Tally(cases=kills)
    try:
        tally = storm(tmp_path, clips, expected, jobs=2 * kills, seed=1 + RELEASE_PARTS * SEED + part, kills=kills)
    except AssertionError as error:
        tally.failures.append(("hang" if "not within" in str(error) else "lost", str(error)))
    tally.publish("kill -9 in serve")
    assert tally.failures == []


def running_in_a_frozen_worker(client: Client, path: Path) -> tuple[str, int]:
    """A job that its worker has begun and will not end: (job, the worker's process id)."""
    video = client.send_video(path)["id"]
    pid = client.worker_pid()
    os.kill(pid, signal.SIGSTOP)
    job = client.start_count(video)["id"]
    eventually(lambda: client.job(job)["state"] == "running")
    return job, pid


def test_a_job_whose_worker_dies_is_tried_once_more_and_then_failed(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path) as (address, service), Client(address) as client:
        job, pid = running_in_a_frozen_worker(client, clips[5])
        os.kill(pid, signal.SIGKILL)
        assert client.ended(job)["state"] == "done", "tried once more"
        row = service.database.job(job)
        assert row is not None
        assert row.crashes == 1
        job, pid = running_in_a_frozen_worker(client, clips[7])
        with sqlite3.connect(service.settings.database) as connection:
            connection.execute("UPDATE jobs SET crashes = 1 WHERE id = ?", (job,))  # as if it were the second time
        os.kill(pid, signal.SIGKILL)
        failed = client.ended(job)
        assert (failed["state"], failed["error"]) == (
            "failed",
            "its process died (SIGKILL: out of memory, or killed), twice",
        )
        assert client.start_count(client.send_video(clips[5])["id"], wait=30)["state"] == "done"
        assert service.runner.tally["worker_crashes"] == 2


def test_a_job_past_its_time_fails_alone(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path, job_seconds=3.0) as (address, service), Client(address) as client:
        videos = [client.send_video(clips[n])["id"] for n in (5, 7)]
        os.kill(client.worker_pid(), signal.SIGSTOP)
        jobs = [client.start_count(video)["id"] for video in videos]
        first, second = (client.ended(job) for job in jobs)
        assert (first["state"], first["error"]) == ("failed", "took longer than the 3 s a job may take")
        assert second["state"] == "done"
        assert service.runner.tally["job_timeouts"] == 1


def test_a_worker_that_cannot_start_fails_its_jobs_with_the_reason(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path, model="no-such-model") as (address, _), Client(address) as client:
        job = client.start_count(client.send_video(clips[5])["id"])
        ended = client.ended(job["id"])
        assert (ended["state"], "no-such-model" in ended["error"]) == ("failed", True)
        assert client.get("/healthz").json()["status"] == "failing"


def test_an_upload_cut_short_by_a_kill_is_removed(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path, devices=()) as (address, _), Client(address) as client:
        video = client.send_video(clips[5])["id"]
    half = f".{'b' * 32}.mp4.0123abcd.partial"
    (tmp_path / "videos" / half).write_bytes(b"half")
    with service_running(tmp_path, devices=()):
        assert [path.name for path in (tmp_path / "videos").iterdir()] == [f"{video}.mp4"]


def test_what_has_expired_is_deleted(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path, devices=()) as (address, service), Client(address) as client:
        old, new = (client.send_video(clips[5])["id"] for _ in range(2))
        with sqlite3.connect(service.settings.database) as connection:
            connection.execute("UPDATE videos SET expires = 1 WHERE id = ?", (old,))
        assert [video.id for video in service.delete_expired()] == [old]
        assert [video["id"] for video in client.get("/api/videos").json()] == [new]
        assert [path.stem for path in service.settings.videos.iterdir()] == [new]
