"""Downloads follow corrections; labelled videos stay."""

from __future__ import annotations

import csv
import io
import sqlite3
import time
from pathlib import Path
from typing import Any

import av
import pytest
from serving import Client, service_running

from escounts.serve.app import Service

SAID = [{"start": 0.1, "end": 0.9}, {"start": 0.9, "end": 1.7}, {"start": 2.0, "end": 3.0}]


@pytest.fixture()
def counted(client: Client, clips: dict[int, Path]) -> dict[str, Any]:
    job = client.start_count(client.send_video(clips[7])["id"], wait=30)
    assert job["state"] == "done", job
    return job


def fetch(client: Client, job: dict[str, Any], format: str, **options: Any) -> bytes:
    answer = client.get(f"/api/jobs/{job['id']}/download/{format}", params=options)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_downloads_say_what_the_person_said(client: Client, counted: dict[str, Any]) -> None:
    before = {name: fetch(client, counted, name) for name in ("png", "mp4", "html")}
    assert client.put(f"/api/videos/{counted['video']}/labels", json={"spans": SAID}).status_code == 200
    data = client.get(f"/api/jobs/{counted['id']}/download/json").json()
    assert (data["count"], data["corrected"], data["confidence"]) == (3, True, None)
    assert data["machine"]["count"] == counted["count"] == 7
    assert [(r["start"], r["end"]) for r in data["repetitions"]] == [(s["start"], s["end"]) for s in SAID]
    rows = list(csv.DictReader(io.StringIO(fetch(client, counted, "csv").decode())))
    assert [(r["corrected"], r["machine_count"], r["confidence"]) for r in rows] == [("yes", "7", "")] * 3
    for name in ("text", "srt", "html"):
        assert b"corrected by hand, the model counted 7" in fetch(client, counted, name), name
    for name, old in before.items():
        assert fetch(client, counted, name) != old, f"the {name} was drawn anew"
    with av.open(io.BytesIO(fetch(client, counted, "mp4"))) as movie:
        assert movie.streams.video[0].frames > 10
    machine = client.get(f"/api/jobs/{counted['id']}/download/json", params={"corrected": False}).json()
    assert (machine["count"], machine["corrected"]) == (7, False)
    assert fetch(client, counted, "png", corrected=False) == before["png"]


def test_another_correction_replaces_the_drawing(client: Client, service: Service, counted: dict[str, Any]) -> None:
    drawn = []
    for spans in (SAID, SAID[:1]):
        client.put(f"/api/videos/{counted['video']}/labels", json={"spans": spans})
        drawn.append(fetch(client, counted, "png"))
    assert drawn[0] != drawn[1]
    assert list((service.settings.renders / ".matplotlib").glob("fontlist*")), "made once, not by every worker"
    assert len(list(service.settings.renders.glob(f"{counted['id']}.corrected-*.png"))) == 1


def test_the_list_has_the_persons_count(client: Client, counted: dict[str, Any]) -> None:
    video = client.get(f"/api/videos/{counted['video']}").json()
    assert (video["labelled"], video["labelled_count"], video["job"]["count"]) == (False, None, 7)
    assert video["expires"] > time.time()
    client.put(f"/api/videos/{counted['video']}/labels", json={"spans": SAID})
    video = next(v for v in client.get("/api/videos").json() if v["id"] == counted["video"])
    assert (video["labelled"], video["labelled_count"], video["job"]["count"]) == (True, 3, 7)
    assert video["expires"] is None
    assert client.job(counted["id"])["result"]["count"] == 7, "a job says what the model counted"


def test_a_count_without_a_unit_cannot_be_turned_into_another(client: Client, counted: dict[str, Any]) -> None:
    for path in (f"/api/jobs/{counted['id']}", f"/api/jobs/{counted['id']}/download/json"):
        refused = client.get(path, params={"unit": "side"})
        assert (refused.status_code, "without a unit" in refused.json()["detail"]) == (422, True)


def test_a_count_by_sides(client: Client, service: Service, counted: dict[str, Any]) -> None:
    document = {**counted["result"], "unit": "cycle"}
    service.database.finish_job(counted["id"], document)
    sides = client.get(f"/api/jobs/{counted['id']}", params={"unit": "side"}).json()
    assert (sides["count"], sides["result"]["count"], sides["result"]["unit"]) == (14, 14, "side")
    data = client.get(f"/api/jobs/{counted['id']}/download/json", params={"unit": "side"}).json()
    assert data == sides["result"]
    assert client.job(counted["id"])["count"] == 7


def test_a_chosen_unit_stays(client: Client, counted: dict[str, Any]) -> None:
    """In list, files and recounts; null takes it back. This model gives none: 14 is a person's word."""
    answer = client.put(f"/api/jobs/{counted['id']}/unit", json={"unit": "side"})
    assert (answer.status_code, answer.json()["count"], answer.json()["result"]["without_unit"]) == (200, 14, 7)
    assert answer.json()["counts"] == {"cycle": 4, "side": 14}, "of seven sides the last is a cycle by itself"
    assert client.get(f"/api/videos/{counted['video']}").json()["job"]["count"] == 14
    data = client.get(f"/api/jobs/{counted['id']}/download/json").json()
    assert (data["count"], data["unit"], data["without_unit"], len(data["repetitions"])) == (14, "side", 7, 14)
    again = client.start_count(counted["video"], wait=30)
    assert (again["unit"], again["count"]) == ("side", 14)
    halved = client.put(f"/api/jobs/{again['id']}/unit", json={"unit": "cycle"}).json()
    assert (halved["count"], len(halved["result"]["repetitions"])) == (4, 4)
    assert client.put(f"/api/jobs/{again['id']}/unit", json={"unit": None}).json()["count"] == 7
    assert client.put(f"/api/jobs/{again['id']}/unit", json={"unit": "leg"}).status_code == 422


def test_one_border_moves_all(client: Client, service: Service, counted: dict[str, Any]) -> None:
    before = counted["result"]["repetitions"]
    at = before[2]["start"] + 0.2
    moved = client.get(f"/api/jobs/{counted['id']}", params={"at": at}).json()["result"]
    assert (moved["count"], moved["phase"]) == (7, "corrected")
    shifts = [new["start"] - old["start"] for new, old in zip(moved["repetitions"], before, strict=True)]
    assert shifts[1:] == pytest.approx([0.2] * 6, abs=0.05)
    data = client.get(f"/api/jobs/{counted['id']}/download/json", params={"at": at}).json()
    assert data["repetitions"] == moved["repetitions"]
    assert fetch(client, counted, "png", at=at) != fetch(client, counted, "png")
    fetch(client, counted, "png", at=at + 0.1)
    kept = [path.name.split(".")[1] for path in service.settings.renders.glob(f"{counted['id']}.*.png")]
    assert sorted(kept) == ["counted", f"counted-{round((at + 0.1) * 1000)}"], "one drawing, not one for each place"
    assert client.get(f"/api/jobs/{counted['id']}", params={"at": 500}).status_code == 422


def test_a_labelled_video_never_expires(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path, devices=()) as (address, service), Client(address) as client:
        labelled, bare = (client.send_video(clips[5])["id"] for _ in range(2))
        with sqlite3.connect(service.settings.database) as connection:
            connection.execute("UPDATE videos SET duration = 4.0")
        assert client.put(f"/api/videos/{labelled}/labels", json={"spans": SAID}).status_code == 200
        with sqlite3.connect(
            service.settings.database
        ) as connection:  # after the labels: the service tidies up by itself
            connection.execute("UPDATE videos SET expires = 1")
        service.maintain()
        assert [video["id"] for video in client.get("/api/videos").json()] == [labelled]
        assert (service.settings.videos / f"{labelled}.mp4").exists()
        assert not (service.settings.videos / f"{bare}.mp4").exists()
