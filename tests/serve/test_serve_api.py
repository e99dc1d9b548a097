"""The REST service from outside: upload, count, recount, follow, download, delete."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from serving import Client, eventually

import escounts
from escounts.serve.app import Service


@pytest.fixture()
def counted(client: Client, clips: dict[int, Path]) -> dict[str, Any]:
    """A finished count of seven repetitions."""
    video = client.send_video(clips[7])
    job = client.start_count(video["id"], wait=30)
    assert job["state"] == "done", job
    return job


def test_a_count_is_what_the_library_counts(client: Client, clips: dict[int, Path]) -> None:
    expected = escounts.load("spectral").count(clips[7])
    video = client.send_video(clips[7], "my squats.mp4")
    assert (video["name"], video["size"]) == ("my squats.mp4", clips[7].stat().st_size)
    assert video["expires"] == pytest.approx(time.time() + 7 * 86400, abs=120)
    job = client.start_count(video["id"], wait=30)
    assert (job["state"], job["count"]) == ("done", expected.count)
    result = job["result"]
    assert result["video"] == "my squats.mp4"
    assert [r["start"] for r in result["repetitions"]] == pytest.approx(
        [r.start for r in expected.repetitions], abs=1e-3
    )
    assert result["density"]["values"] == pytest.approx(expected.density.values.tolist(), abs=1e-5)
    seen = client.get(f"/api/videos/{video['id']}").json()
    assert seen["duration"] == pytest.approx(5.6, abs=0.1)
    assert seen["job"]["id"] == job["id"]


def test_a_recount_follows_its_exemplar_without_encoding_again(
    client: Client, service: Service, counted: dict[str, Any]
) -> None:
    before = service.runner.tally["recounts"]
    exemplars = [{"start": 0.8, "end": 2.4}]
    again = client.start_count(counted["video"], exemplars=exemplars, wait=30)
    assert again["state"] == "done"
    assert again["result"]["exemplars"] == [{"start": 0.8, "end": 2.4, "video": None}]
    assert again["result"]["timings"]["encode"] == counted["result"]["timings"]["encode"]
    assert service.runner.tally["recounts"] == before + 1
    assert again["finished"] - again["created"] < 2
    ranged = client.start_count(counted["video"], start=0.0, end=2.5, wait=30)
    assert ranged["result"]["range"] == [0.0, 2.5]
    assert 2 <= ranged["count"] <= 4 < counted["count"]


def test_an_exemplar_of_another_video(client: Client, counted: dict[str, Any], clips: dict[int, Path]) -> None:
    other = client.send_video(clips[9])
    exemplars = [{"start": 0.8, "end": 1.6, "video": counted["video"]}]
    job = client.start_count(other["id"], exemplars=exemplars, wait=30)
    assert job["state"] == "done", job
    assert job["result"]["exemplars"] == [{"start": 0.8, "end": 1.6, "video": counted["video"]}]


@pytest.mark.parametrize(
    ("exemplar", "reason"),
    [({"start": 4.0, "end": 400.0}, "400"), ({"start": 90.0, "end": 91.0}, "90")],
)
def test_an_exemplar_outside_the_video_fails_with_a_reason(
    client: Client, counted: dict[str, Any], exemplar: dict[str, float], reason: str
) -> None:
    job = client.start_count(counted["video"], exemplars=[exemplar], wait=30)
    assert job["state"] == "failed"
    assert reason in job["error"]
    assert "/" not in job["error"].replace("bounce7.mp4", ""), "no path of the server is shown"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"this is no video at all", "bad.mp4"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "playlist"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "playlist"),
    ],
)
def test_a_bad_file_fails_alone_with_a_reason(client: Client, tmp_path: Path, content: bytes, reason: str) -> None:
    bad = tmp_path / "bad.mp4"
    bad.write_bytes(content)
    job = client.start_count(client.send_video(bad)["id"], wait=30)
    assert job["state"] == "failed"
    assert reason in job["error"]
    assert str(tmp_path) not in job["error"]
    assert client.get("/healthz").json()["status"] == "ok"


def test_downloads(client: Client, counted: dict[str, Any]) -> None:
    begins = {"json": b"{", "csv": b"", "srt": b"1\n", "text": b"", "png": b"\x89PNG", "html": b"<!", "mp4": b""}
    for name, start in begins.items():
        response = client.get(f"/api/jobs/{counted['id']}/download/{name}")
        assert response.status_code == 200, (name, response.text)
        assert response.content.lower().startswith(start.lower()), name
        assert len(response.content) > 20
        assert "attachment" in response.headers["content-disposition"]
    data = client.get(f"/api/jobs/{counted['id']}/download/json").json()
    assert (data["count"], len(data["repetitions"])) == (counted["count"], counted["count"])
    assert b"ftyp" in client.get(f"/api/jobs/{counted['id']}/download/mp4").content[:64]


def test_the_file_comes_back_whole_and_in_ranges(
    client: Client, counted: dict[str, Any], clips: dict[int, Path]
) -> None:
    address = f"/api/videos/{counted['video']}/file"
    whole = client.get(address)
    assert whole.content == clips[7].read_bytes()
    assert whole.headers["content-type"] == "video/mp4"
    part = client.get(address, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, clips[7].read_bytes()[10:20])


def test_a_preview_is_made_for_browsers(client: Client, counted: dict[str, Any], tmp_path: Path) -> None:
    response = client.get(f"/api/videos/{counted['video']}/preview")
    assert response.status_code == 200
    copy = tmp_path / "preview.mp4"
    copy.write_bytes(response.content)
    from escounts.video.files import Video

    assert Video(copy).info.duration == pytest.approx(counted["result"]["duration"], abs=0.1)


def test_events_of_a_job_end_with_it(client: Client, clips: dict[int, Path]) -> None:
    job = client.start_count(client.send_video(clips[9])["id"])
    states = []
    with client.stream("GET", f"/api/jobs/{job['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data:"):
                states.append(json.loads(line[5:])["state"])
    assert states[-1] == "done"
    assert set(states) <= {"queued", "running", "done"}


def test_every_page_hears_of_every_job(client: Client, clips: dict[int, Path]) -> None:
    video = client.send_video(clips[5])
    with client.stream("GET", "/api/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        with Client(str(client.base_url)) as other:
            job = other.start_count(video["id"])
        for line in lines:
            event = json.loads(line[5:]) if line.startswith("data:") else {}
            if event.get("id") == job["id"] and event["state"] == "done":
                assert event["count"] == client.job(job["id"])["count"]
                break


def test_cancel_a_job_that_waits_and_one_that_hangs(client: Client, clips: dict[int, Path]) -> None:
    pid = client.worker_pid()
    os.kill(pid, signal.SIGSTOP)  # a worker that no longer reacts, as with a file that hangs its decoder
    first = client.start_count(client.send_video(clips[5])["id"])
    eventually(lambda: client.job(first["id"])["state"] == "running")
    second = client.start_count(client.send_video(clips[7])["id"])
    assert client.post(f"/api/jobs/{second['id']}/cancel").status_code == 202
    assert client.ended(second["id"])["state"] == "cancelled"
    client.post(f"/api/jobs/{first['id']}/cancel")
    assert client.ended(first["id"])["state"] == "cancelled"
    assert client.worker_pid() != pid, "the worker that hung was replaced"
    third = client.start_count(client.send_video(clips[7])["id"], wait=30)
    assert third["state"] == "done"


def test_delete_takes_everything_with_it(client: Client, service: Service, clips: dict[int, Path]) -> None:
    video = client.send_video(clips[5])
    job = client.start_count(video["id"], wait=30)
    client.get(f"/api/jobs/{job['id']}/download/png")
    assert list(service.settings.renders.glob(f"{job['id']}*"))
    assert client.delete(f"/api/videos/{video['id']}").status_code == 204
    assert client.get(f"/api/jobs/{job['id']}").status_code == 404
    assert not list(service.settings.videos.glob(f"{video['id']}*"))
    assert not list(service.settings.renders.glob(f"{job['id']}*"))


def test_one_count_can_be_deleted_alone(client: Client, counted: dict[str, Any]) -> None:
    again = client.start_count(counted["video"], start=0, end=3, wait=30)
    assert client.delete(f"/api/jobs/{again['id']}").status_code == 204
    assert [job["id"] for job in client.get("/api/jobs", params={"video": counted["video"]}).json()] == [
        counted["id"]
    ]


def test_the_media_root_is_offered_and_nothing_else(client: Client, service: Service) -> None:
    assert client.get("/api/media").json() == ["sub/seven.mp4"]
    for file in (
        "link.mp4",
        "circle.mp4",
        "pipe.mp4",
        "notes.txt",
        "../secret.mp4",
        "/etc/passwd",
        "sub/../sub/seven.mp4",
        "",
    ):
        assert client.post("/api/media", json={"file": file}).status_code == 404, file
    video = client.post("/api/media", json={"file": "sub/seven.mp4"}).json()
    assert video["expires"] is None
    assert client.start_count(video["id"], wait=30)["count"] == 7
    assert client.post("/api/media", json={"file": "sub/seven.mp4"}).json()["id"] == video["id"]
    client.delete(f"/api/videos/{video['id']}")
    assert client.get("/api/media").json() == ["sub/seven.mp4"], "the server's own file stays"


def test_health_metrics_and_description(client: Client, counted: dict[str, Any]) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/api/limits").json()["model"] == counted["model"]
    metrics = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines())
    assert float(metrics['escounts_jobs{state="done"}']) >= 1
    assert float(metrics["escounts_workers_ready"]) == 1
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/videos", "/api/jobs", "/api/events", "/healthz"} <= set(paths)
