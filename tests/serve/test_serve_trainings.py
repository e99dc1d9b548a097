"""Teaching over HTTP: from labels to a model with a name that counts; cancelled, killed, cut off."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from serving import Client, Command, eventually, service_running

from escounts.errors import EscountsError
from escounts.models import store
from escounts.serve import training_api
from escounts.serve.app import EventHub, Service
from escounts.serve.database import Database
from escounts.serve.schemas import Training
from escounts.serve.settings import Settings, Source
from escounts.serve.training_api import Trainings
from escounts.system import processes
from escounts.system.sandbox import missing_protections
from escounts.teach import own_action

BOUNCE = 0.8
"""Seconds of a repetition in the clips."""


@pytest.fixture(scope="module")
def teaching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Service]]:
    """A service with a store of weights of its own."""
    base = tmp_path_factory.mktemp("teaching")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ESCOUNTS_CACHE", str(base / "cache"))
        with service_running(base / "data") as (address, service), Client(address) as client:
            client.worker_pid()
            yield client, service


@pytest.fixture(scope="module")
def halves(teaching: tuple[Client, Service], clips: dict[int, Path]) -> dict[str, int]:
    """Three videos whose labels count each half of a bounce: id → label."""
    client, _ = teaching
    labelled = {}
    for count, path in clips.items():
        video = client.send_video(path, f"bounce{count}.mp4")["id"]
        client.start_count(video, wait=30)
        edges = [round(BOUNCE / 2 * half, 3) for half in range(2 * count + 1)]
        spans = [{"start": a, "end": b} for a, b in pairwise(edges)]
        assert client.put(f"/api/videos/{video}/labels", json={"spans": spans, "action": "half"}).is_success
        labelled[video] = 2 * count
    return labelled


def ended(client: Client, training: str) -> dict[str, Any]:
    def check() -> dict[str, Any] | None:
        now = client.get(f"/api/trainings/{training}").json()
        return now if now["state"] != "running" else None

    return dict(eventually(check, 300))


def test_from_labels_to_a_model_that_counts(teaching: tuple[Client, Service], halves: dict[str, int]) -> None:
    client, service = teaching
    with client.stream("GET", "/api/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        started = client.post("/api/trainings", json={"name": "my-halves", "action": "half"})
        assert started.status_code == 202, started.text
        assert (started.json()["state"], started.json()["stage"]) == ("running", "encoding")
        again = client.post("/api/trainings", json={"name": "second"})
        assert again.status_code == 409 and "my-halves is being learnt" in again.json()["detail"]
        heard = []
        for line in lines:
            if line == "event: training":
                heard.append(json.loads(next(lines).removeprefix("data: ")))
                if heard[-1]["state"] != "running":
                    break
    assert {event["stage"] for event in heard} >= {"encoding", "checking", None}
    done = ended(client, started.json()["id"])
    assert done["state"] == "done", done["error"]
    report = done["report"]
    assert report["helped"] and report["model"] == "my-halves"
    assert {row["video"]: row["fitted"] for row in report["videos"]} == halves
    assert {row["name"] for row in report["videos"]} == {"bounce5.mp4", "bounce7.mp4", "bounce9.mp4"}
    assert report["after"]["error"] < report["before"]["error"]
    (model,) = [model for model in client.get("/api/models").json() if model["own"]]
    assert (model["name"], model["training"], model["default"]) == ("my-halves", done["id"], False)
    assert [path.name for path in service.settings.models.iterdir()] == ["my-halves.safetensors"]
    assert not store.stored(), "nothing outside the data folder, unless it is asked for"
    shared = client.post("/api/trainings", json={"name": "my-halves", "shared": True})
    assert shared.status_code == 422 and "in the data folder" in shared.json()["detail"]
    video, label = next(iter(halves.items()))
    job = client.start_count(video, model="my-halves", wait=30)
    job = client.ended(job["id"])
    assert (job["count"], job["model"], job["unsure"]) == (label, "my-halves", True)
    assert client.ended(client.start_count(video, wait=30)["id"])["model"] == "spectral"
    taken = client.post("/api/trainings", json={"name": "my-halves"})
    assert taken.status_code == 422 and "already" in taken.json()["detail"]
    assert client.delete("/api/models/my-halves").status_code == 204
    assert client.post("/api/jobs", json={"video": video, "model": "my-halves"}).status_code == 422


@pytest.mark.parametrize("end", ["cancel", "kill"])
def test_what_is_ended_leaves_nothing_behind(
    teaching: tuple[Client, Service], halves: dict[str, int], end: str
) -> None:
    client, service = teaching
    training = client.post("/api/trainings", json={"name": "short"}).json()["id"]
    if end == "cancel":
        assert client.post(f"/api/trainings/{training}/cancel").status_code == 202
    else:
        running = service.trainings._running
        assert running is not None
        eventually(lambda: running.share > 0)  # one that is killed before it is ready is started again
        process = running.process._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
    after = ended(client, training)
    assert after["state"] == ("cancelled" if end == "cancel" else "failed")
    assert after["error"] == (None if end == "cancel" else "its process died (SIGKILL: out of memory, or killed)")
    kept = [*service.settings.models.glob("*"), *store.store_folder().glob("*")]
    assert not [path for path in kept if "short" in path.name or training in path.name]
    assert client.post("/api/trainings", json={"name": "short"}).status_code == 202, "the next one may begin"
    second = client.get("/api/trainings").json()[0]["id"]
    client.post(f"/api/trainings/{second}/cancel")
    assert ended(client, second)["state"] == "cancelled"


def test_too_few_labels_and_bad_names_are_refused(teaching: tuple[Client, Service], halves: dict[str, int]) -> None:
    client, _ = teaching
    few = client.post("/api/trainings", json={"name": "few", "videos": list(halves)[:2]})
    assert few.status_code == 422 and "2 labelled videos; label at least 3" in few.json()["detail"]
    for name in ("lite", "../etc", "", "a b"):
        assert client.post("/api/trainings", json={"name": name}).status_code == 422, name
    assert client.delete("/api/models/lite").status_code == 404
    video = next(iter(halves))
    refused = client.post("/api/jobs", json={"video": video, "model": "/etc/passwd"})
    assert refused.status_code == 422 and "there is no model" in refused.json()["detail"]


def test_a_training_cut_off_by_a_kill_has_failed_at_the_next_start(tmp_path: Path) -> None:
    command = Command(tmp_path / "data")
    command.kill()
    database = Database(tmp_path / "data" / "escounts.sqlite")
    database.add_training(Training(id="0" * 32, name="mine", videos=[], created=1.0))
    database.close()
    left = tmp_path / "data" / "renders" / f".{'0' * 32}.training.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    command = Command(tmp_path / "data")
    with Client(command.address) as client:
        row = client.get(f"/api/trainings/{'0' * 32}").json()
    command.interrupt()
    assert row["state"] == "failed" and "start it again" in row["error"]
    assert not left.exists()


OPTIONS = Settings(Path("data"), model="lite", devices=("cpu",), worker_memory=2**33, worker_threads=1)
Learn = Callable[[tuple[training_api.Labelled, str]], dict[str, Any]]


def asked(name: str) -> Training:
    """A training as the API asks for it."""
    return Training(id=name * 32, name="mine", videos=[], created=1.0)


@pytest.fixture()
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "escounts.sqlite")
    yield database
    database.close()


def done_at_once(settings: Settings, tell: object) -> Learn:
    """In place of what learns: it says that it helped, and has written nothing."""
    score = {"right": 0, "within_one": 0, "error": 1.0}
    report = {"helped": True, "message": "", "before": score, "after": score, "videos": []}
    return lambda task: report


def test_an_end_that_goes_wrong_does_not_block_the_next_training(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_api, "prepare", done_at_once)
    monkeypatch.setattr(training_api, "RETRY_SECONDS", 0.01)
    write, broken = database.end_training, [sqlite3.OperationalError("disk is full")]

    def end_training(*arguments: Any, **options: Any) -> None:
        if broken:
            raise broken.pop()
        write(*arguments, **options)

    monkeypatch.setattr(database, "end_training", end_training)
    teaching = Trainings(database, EventHub().publish, Settings(tmp_path, job_seconds=60))
    for name in ("a", "b"):
        teaching.start(asked(name), (), tmp_path / "w" / "mine.safetensors", "lite")
        eventually(lambda: teaching._running is None, 60)
        eventually(lambda: all(row.state != "running" for row in database.trainings()))
        (row,) = database.trainings(name * 32)
        assert row.state == "failed" and "could not be kept" in str(row.error)
    teaching.stop()


def test_a_process_that_cannot_be_started_is_a_failed_training(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(environment: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(processes, "spawned", start)
    teaching = Trainings(database, EventHub().publish, Settings(tmp_path, job_seconds=60))
    teaching.start(asked("a"), (), tmp_path / "w" / "mine.safetensors", "lite")
    eventually(lambda: all(row.state != "running" for row in database.trainings()))
    assert [(row.state, row.error) for row in database.trainings()] == [
        ("failed", "no process could be started: Cannot allocate memory")
    ]
    assert teaching._running is None
    assert not list(tmp_path.rglob(".*"))


def test_an_error_of_the_disk_while_learning_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(*_: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(own_action, "learn_action", learn)
    monkeypatch.setattr(training_api, "settle", lambda options: None)
    monkeypatch.setattr(os, "nice", lambda by: 0)
    with pytest.raises(EscountsError, match=r"could not be learnt: OSError.*No space left"):
        training_api.prepare(OPTIONS, lambda told: None)(((), str(tmp_path / "mine.safetensors")))


def attempting(settings: Settings, tell: object) -> Learn:
    """What learns, taken over: tells what it may still do."""

    def learn(task: tuple[training_api.Labelled, str]) -> dict[str, Any]:
        own = Path(task[1]).parent
        done = []
        for work in (
            lambda: (own / "a.txt").write_text("x"),
            lambda: (own.parent / "a.txt").write_text("x"),
            lambda: (own.parents[1] / "weights" / "a.txt").write_text("x"),
            lambda: (own.parents[1] / "escounts.sqlite").read_bytes(),
            lambda: os.utime(own.parents[1] / "escounts.sqlite"),
        ):
            try:
                work()
                done.append("done")
            except PermissionError:
                done.append("refused")
        raise EscountsError(" ".join(done))

    return learn


@pytest.mark.skipif(bool(missing_protections()), reason="this machine cannot confine a process")
def test_the_process_that_learns_is_confined(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_api, "prepare", attempting)
    (tmp_path / "weights").mkdir()
    teaching = Trainings(database, EventHub().publish, Settings(tmp_path))
    teaching.start(asked("a"), (), tmp_path / "w" / "mine.safetensors", "lite")
    eventually(lambda: all(row.state != "running" for row in database.trainings()), 60)
    (row,) = database.trainings()
    assert row.error == "done refused refused refused refused"
    teaching.stop()


@pytest.mark.parametrize(
    ("limits", "word"), [({"max_duration": 2.0}, "up to 2 s"), ({"max_pixels": 1000}, "megapixels")]
)
def test_videos_past_the_limits_are_not_learnt_from(
    tmp_path: Path, clips: dict[int, Path], limits: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_api, "settle", lambda options: None)
    monkeypatch.setattr(os, "nice", lambda by: 0)
    videos = tuple((Source(str(n), str(path), f"{n}.mp4"), ((0.0, 0.8),)) for n, path in clips.items())
    learn = training_api.prepare(replace(OPTIONS, **limits), lambda told: None)
    with pytest.raises(EscountsError, match=word):
        learn((videos, str(tmp_path / "mine.safetensors")))
