"""Live counts over HTTP: the engine of `watch` in a process of its own, its limits, and what ends it."""

from __future__ import annotations

import io
import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
from fastapi import HTTPException
from movies import Picture, bouncing
from serving import Client, eventually, service_running

from escounts.errors import VideoError
from escounts.results import DensityMap
from escounts.serve import live_api
from escounts.serve.app import Service
from escounts.serve.live_worker import MAX_PIXELS, shown_density
from escounts.serve.settings import Settings
from escounts.system.processes import Line
from escounts.video.files import jpeg_reader

BYTES = {"Content-Type": "application/octet-stream"}


def jpeg(picture: Picture) -> bytes:
    data = io.BytesIO()
    with av.open(data, "w", format="mjpeg") as container:
        stream = container.add_stream("mjpeg", rate=30)
        stream.height, stream.width = picture.shape[:2]
        stream.pix_fmt = "yuvj420p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return data.getvalue()


def body(frames: list[tuple[float, bytes]]) -> bytes:
    return b"".join(struct.pack("<dI", seconds, len(data)) + data for seconds, data in frames)


def counting_frames(line: Line, settings: Settings, assume_repeats: bool) -> None:
    """In place of the process with the model: every frame is a repetition."""
    line.report("ready", settings.model)
    count = 0
    while True:
        command, argument = line.receive()
        if command == "frames":
            count += len(argument)
            line.report("state", {"count": count, "time": argument[-1][0]})
        elif command == "end":
            line.report("ended", {"count": count})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    """A service without workers: a live count brings its own process."""
    with service_running(tmp_path_factory.mktemp("live"), model="lite", devices=()) as (address, service):
        yield address, service


@pytest.fixture()
def client(running: tuple[str, Service]) -> Iterator[Client]:
    with Client(running[0]) as client:
        yield client
    for session in list(running[1].live._sessions.values()):
        session.end("ended")


@pytest.fixture()
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_api, "run", counting_frames)


def begun(client: Client) -> str:
    """The id of a session that is ready."""
    answer = client.post("/api/live", json={})
    assert answer.status_code == 201, answer.text
    session = str(answer.json()["id"])
    eventually(lambda: client.get(f"/api/live/{session}").json()["state"] == "ready", 120)
    return session


def sent(client: Client, session: str, frames: list[tuple[float, bytes]]) -> dict[str, Any]:
    answer = client.post(f"/api/live/{session}/frames", content=body(frames), headers=BYTES)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ended(client: Client, session: str) -> dict[str, Any]:
    """The session, once it is over."""

    def check() -> dict[str, Any] | None:
        state = client.get(f"/api/live/{session}").json()
        return state if state["state"] in ("ended", "failed") else None

    return dict(eventually(check))


def paced(client: Client, session: str, frames: list[tuple[float, bytes]]) -> Iterator[dict[str, Any]]:
    """Send frames half a second at a time, as fast as they are counted; what is known after each."""
    for first in range(0, len(frames), 15):
        began = time.monotonic()
        state = sent(client, session, frames[first : first + 15])
        while state["time"] < frames[first][0] - 0.2 and time.monotonic() < began + 4:
            time.sleep(0.02)
            state = client.get(f"/api/live/{session}").json()
        yield state
        # An estimate is followed by a rest as long as it took: frames that came during it would be counted with the
        # next ones, and be waited for in vain.
        time.sleep(time.monotonic() - began)


def test_the_count_rises_while_frames_come_and_never_goes_back(client: Client) -> None:
    """The whole way, with the shipped model: eight bounces, an exemplar marked at the end of them."""
    pictures = bouncing(8, 9.6, size=(160, 120))
    frames = [(index / 30, jpeg(picture)) for index, picture in enumerate(pictures)]
    session = begun(client)
    states = list(paced(client, session, frames[:240]))
    counts = [state["count"] for state in states]
    assert counts == sorted(counts) and len(set(counts)) >= 4 and 3 <= max(counts) <= 7, counts
    state = states[-1]
    assert 0 <= state["open"] <= 1 and 0 < state["confidence"] <= 1 and state["problem"] is None
    assert state["rate"] == pytest.approx(8 / 9.6, rel=0.4)
    density = state["density"]
    assert density["start"] + density["step"] * len(density["values"]) == pytest.approx(state["time"], abs=0.2)
    assert sum(density["values"]) == pytest.approx(state["count"] + state["open"], abs=1.2)
    assert len(state["repetitions"]) == state["count"]
    assert client.post(f"/api/live/{session}/exemplars", json={"start": 2, "end": 1}).status_code == 422
    assert client.post(f"/api/live/{session}/exemplars", json={"start": 1.2, "end": 2.4}).status_code == 200
    list(paced(client, session, frames[240:]))
    last = client.delete(f"/api/live/{session}").json()
    assert last["state"] == "ended" and last["error"] is None and abs(last["count"] - 8) <= 1
    assert last["exemplars"] == [{"start": 1.2, "end": 2.4}]
    assert len(last["repetitions"]) == last["count"], "each once, though they were counted anew"
    again = client.post(f"/api/live/{session}/frames", content=body(frames[:1]), headers=BYTES)
    assert again.status_code == 409 and "has ended" in again.json()["detail"]


@pytest.mark.usefixtures("quick")
def test_one_per_client_and_so_many_in_all(client: Client, running: tuple[str, Service]) -> None:
    sessions = running[1].live
    first = begun(client)
    second = client.post("/api/live", json={})
    assert second.status_code == 409 and "running already" in second.json()["detail"]
    sessions.begin("192.0.2.7", model=None, assume_repeats=False)
    with pytest.raises(HTTPException, match="2 live counts are running") as refused:
        sessions.begin("192.0.2.8", model=None, assume_repeats=False)
    assert refused.value.status_code == 429 and "escounts_live_counts 2" in client.get("/metrics").text
    sent(client, first, [(0.0, b"a"), (0.1, b"b")])
    assert client.delete(f"/api/live/{first}").json()["count"] == 2, "what was sent before the end is counted"
    begun(client)


@pytest.mark.usefixtures("quick")
def test_a_killed_process_ends_its_session_alone(client: Client, running: tuple[str, Service]) -> None:
    killed = begun(client)
    os.kill(running[1].live.find(killed).process.pid or 0, signal.SIGKILL)
    state = ended(client, killed)
    assert state["state"] == "failed" and "ended unexpectedly" in state["error"]
    begun(client)


@pytest.mark.usefixtures("quick")
def test_a_session_ends_when_nothing_comes(
    client: Client, running: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_api, "IDLE", 0.3)
    silent = begun(client)
    sent(client, silent, [(0.0, b"a")])
    state = ended(client, silent)
    assert state["state"] == "ended" and state["error"] == "no frames came for 0.3 s" and state["count"] == 1
    eventually(lambda: not running[1].live.find(silent).process.is_alive())
    unused = begun(client)
    monkeypatch.setattr(live_api, "UNUSED", 0.3)
    assert ended(client, unused)["error"] == "no frames came for 0.3 s", "a camera that is never started"


@pytest.mark.usefixtures("quick")
def test_a_session_may_last_so_long(tmp_path: Path) -> None:
    with service_running(tmp_path, devices=(), live_seconds=0.5) as (address, _), Client(address) as client:
        session = begun(client)
        sent(client, session, [(0.0, b"a")])
        assert "may last 0.5 s on this server" in ended(client, session)["error"]


def test_what_is_not_a_picture_is_refused_by_name() -> None:
    read = jpeg_reader(32, max_pixels=MAX_PIXELS)
    picture = np.full((48, 64, 3), 200, np.uint8)
    assert read(0.5, jpeg(picture)).image.shape == (32, 32, 3)
    for wrong in (b"not a picture", jpeg(picture)[:40], jpeg(np.zeros((1200, 1800, 3), np.uint8))):
        with pytest.raises(VideoError, match=r"the frame at 0\.50 s is not a JPEG picture"):
            read(0.5, wrong)


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "0 frames"),
        (b"abc", "within the head of frame 1"),
        (struct.pack("<dI", 0.0, 9) + b"x", "said to have 9 bytes"),
        (struct.pack("<dI", float("nan"), 1) + b"x", "has the time nan"),
        (body([(1.0, b"x"), (1.0, b"x")]), "not later than the one before"),
        (body([(float(n), b"x") for n in range(121)]), "1 to 120"),
    ],
)
def test_a_body_that_is_not_frames_is_refused(client: Client, content: bytes, detail: str) -> None:
    answer = client.post(f"/api/live/{'0' * 32}/frames", content=content, headers=BYTES)
    assert answer.status_code == 422 and detail in answer.json()["detail"]


def test_too_many_bytes_and_an_unknown_session(client: Client) -> None:
    answer = client.post(f"/api/live/{'0' * 32}/frames", content=bytes(5_000_000), headers=BYTES)
    assert answer.status_code == 413
    answer = client.post(f"/api/live/{'0' * 32}/frames", content=body([(0.0, b"x")]), headers=BYTES)
    assert answer.status_code == 404 and "no such live count" in answer.json()["detail"]


def test_other_sites_and_unknown_clients_are_kept_out(running: tuple[str, Service], tmp_path: Path) -> None:
    with httpx.Client(base_url=running[0]) as stranger:
        assert stranger.post("/api/live", json={}).status_code == 403, "the header is missing"
        foreign = {"X-Escounts": "1", "Origin": "http://elsewhere.example"}
        assert stranger.post("/api/live", json={}, headers=foreign).status_code == 403
    options: dict[str, Any] = {"devices": (), "host": "0.0.0.0", "token": "open sesame"}
    with service_running(tmp_path, **options) as (address, service), Client(address) as client:
        assert client.post("/api/live", json={}).status_code == 401
        assert service.live.running == 0


def test_the_shown_density_is_the_newest_half_minute() -> None:
    density = DensityMap(np.full(40 * 30, 1 / 30, np.float32), start=5.0, step=1 / 30, kind="rate")
    shown = shown_density(density)
    assert shown["start"] == pytest.approx(15.0) and len(shown["values"]) == 300
    assert sum(shown["values"]) == pytest.approx(30.0, abs=0.1)
    assert shown_density(None)["values"] == []


def test_sessions_are_looked_through_under_the_lock(running: tuple[str, Service]) -> None:
    sessions = live_api.LiveSessions(running[1].settings)

    class Watched(dict[str, live_api.LiveSession]):
        def values(self) -> Any:
            assert sessions._lock.locked(), "another thread may begin a session meanwhile"
            return super().values()

    sessions._sessions = Watched()
    assert sessions.running == 0
    sessions.stop()
