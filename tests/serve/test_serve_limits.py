"""What one client can cost the others: large bodies, silent connections, guessed tokens, a full disk."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import httpx
import pytest
from serving import GUARD, PATIENCE, Client, eventually, get, post, service_running, uploaded
from starlette.requests import Request

from escounts.cli.serve import chosen_token, serve_command
from escounts.errors import EscountsError
from escounts.serve.app import Service, _gone, _unwritable
from escounts.serve.data_folder import DISK_RESERVE, DataFolder
from escounts.serve.database import Database
from escounts.serve.previews import preview_rate
from escounts.serve.security import GuessLimit
from escounts.serve.settings import Settings, hide_paths

KIND = {"Content-Type": "video/mp4"}
JSON = {"Content-Type": "application/json"}
LIMITS: dict[str, Any] = {
    "host": "0.0.0.0",
    "token": "open sesame",
    "devices": (),
    "max_body": 2000,
    "max_connections": 12,
    "max_guesses": 5,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    """A service with tight limits, no worker and a token."""
    with service_running(tmp_path_factory.mktemp("small"), **LIMITS) as (address, service):
        yield address, service


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    """The same, and it waits for a request hardly at all: for tests in which that is what is waited for."""
    with service_running(tmp_path_factory.mktemp("hasty"), **LIMITS, request_seconds=0.6) as (address, service):
        yield address, service


@pytest.fixture()
def known(small: tuple[str, Service]) -> Iterator[Client]:
    with Client(small[0]) as client:
        client.headers["Authorization"] = "Bearer open sesame"
        yield client


def connect(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    return connection


def answer(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(4096):
            received += part
    return received


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("path", "size"), [("/api/jobs", 3000), ("/api/session", 20_000)])
def test_a_body_that_is_too_large_is_refused_as_it_comes(known: Client, path: str, size: int, streamed: bool) -> None:
    body = iter([b"[" * 1000] * (size // 1000)) if streamed else b"[" * size
    refused = known.post(path, content=body, headers=JSON)
    assert refused.status_code == 413
    assert "larger than the" in refused.json()["detail"]


def test_a_large_body_of_a_stranger_is_not_read(small: tuple[str, Service]) -> None:
    with connect(small[0]) as connection:
        connection.sendall(
            b"POST /api/session HTTP/1.1\r\nHost: x\r\nX-Escounts: 1\r\nContent-Length: 300000000\r\n\r\n{"
        )
        assert b" 413 " in connection.recv(200), "answered before the body came"


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a line", "half a head"]
)
def test_a_request_that_never_comes_is_timed_out(hasty: tuple[str, Service], sent: bytes) -> None:
    with connect(hasty[0]) as connection:
        connection.sendall(sent)
        assert answer(connection) == b"", "closed, after a while"
    assert get(f"{hasty[0]}/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/api/session", "/api/videos"])
def test_a_body_that_stalls_is_timed_out(hasty: tuple[str, Service], path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Escounts: 1\r\nAuthorization: Bearer open sesame\r\n"
    with connect(hasty[0]) as connection:
        connection.sendall(head.encode() + b"Content-Type: video/mp4\r\nContent-Length: 900\r\n\r\nxx")
        received = answer(connection)
    assert b" 408 " in received
    assert b"too slowly" in received
    assert not list(hasty[1].settings.videos.glob("*.partial"))


def test_a_body_that_trickles_is_timed_out(hasty: tuple[str, Service]) -> None:
    head = b"POST /api/session HTTP/1.1\r\nHost: x\r\nX-Escounts: 1\r\nContent-Length: 900\r\n\r\n"
    began = time.monotonic()
    with connect(hasty[0]) as connection:
        connection.sendall(head)
        connection.settimeout(0.1)
        received = b""
        while not received and time.monotonic() - began < PATIENCE:
            connection.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                received = connection.recv(400)
    assert b" 408 " in received


@pytest.mark.parametrize("late", [False, True], ids=["with the head", "after the answer"])
def test_a_body_in_broken_chunks_is_answered_once(
    small: tuple[str, Service], caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    """The stranger is refused before the body is read, and the body by the protocol: one of the two is said."""
    head = b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nX-Escounts: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = b""
    with connect(small[0]) as connection:
        if late:
            connection.sendall(head)
            received, head = connection.recv(4096), b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(head + b"zz\r\n{}\r\n0\r\n\r\n")
        received += answer(connection)
    assert received.startswith(b"HTTP/1.1 401 " if late else b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1
    assert get(f"{small[0]}/healthz").status_code == 200
    assert not [record.getMessage() for record in caplog.records if record.exc_info], "no traceback"


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "], ids=["address", "header"])
def test_a_head_without_an_end_is_cut_off(small: tuple[str, Service], begun: bytes) -> None:
    sent, received = 0, b""
    with connect(small[0]) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(begun)
        while sent < 2**25:
            connection.sendall(b"a" * 2**16)
            sent += 2**16
        received = connection.recv(100)
    assert sent < 2**25 or b" 400 " in received
    assert get(f"{small[0]}/healthz").status_code == 200


def test_silent_connections_hold_no_places(tmp_path: Path) -> None:
    with service_running(tmp_path, devices=(), max_connections=12) as (address, _), contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connect(address))
        for _ in range(5):
            assert get(f"{address}/healthz").status_code == 200


def test_answers_that_nobody_reads_give_up_their_places(tmp_path: Path) -> None:
    """No token is needed for the page's own files: a stranger asked for many of them and read none, for ever."""
    ask = b"GET /sample.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(
            service_running(tmp_path, devices=(), max_connections=8, request_seconds=1.0, token="sesame")
        )
        for _ in range(8):
            deaf = stack.enter_context(connect(address))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            deaf.sendall(ask)
        eventually(lambda: get(f"{address}/healthz").status_code == 429, 20.0, 0.01)
        eventually(lambda: get(f"{address}/healthz").status_code == 200, 20.0, 0.3)


def test_every_place_taken_is_said(small: tuple[str, Service], known: Client) -> None:
    headers = "".join(f"{name}: {value}\r\n" for name, value in known.headers.items() if name != "connection")
    ask = f"GET /api/events HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            stream = stack.enter_context(connect(small[0]))
            stream.sendall(ask)
            assert b" 200 " in stream.recv(300)
        refused = known.get("/api/videos")
        assert refused.status_code == 429
        assert "12 requests" in refused.json()["detail"]
    eventually(lambda: small[1].hub.listeners == 0)
    assert known.get("/api/videos").status_code == 200, "places are free again"


def test_tokens_cannot_be_guessed_for_ever(tmp_path: Path) -> None:
    options = {"host": "0.0.0.0", "token": "open sesame", "devices": (), "max_guesses": 5}
    with service_running(tmp_path, **options) as (address, service):

        def bearer(token: str) -> httpx.Response:
            return get(f"{address}/api/videos", headers={"Authorization": f"Bearer {token}"})

        for _ in range(20):
            assert bearer("yesterday's token").status_code == 401, "the same one again is one guess"
        for number in range(4):
            given = {"token": f"guess {number}"}
            assert post(f"{address}/api/session", json=given, headers=GUARD).status_code == 401
        refused = bearer("open sesame")
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert "wrong tokens" in refused.json()["detail"]
        session = post(f"{address}/api/session", json={"token": "open sesame"}, headers=GUARD)
        assert (session.status_code, "retry-after" in session.headers) == (429, True)
        assert get(f"{address}/healthz").status_code == 200
        assert get(f"{address}/api/videos").status_code == 401, "who shows no token is not guessing"
        service.guesses._guesses.clear()
        assert bearer("open sesame").status_code == 200


def test_behind_a_proxy_on_this_machine_every_client_has_guesses_of_its_own(tmp_path: Path) -> None:
    """As docs/serve.md says: the proxy names the client in X-Forwarded-For, and is believed on loopback."""
    options = {"host": "0.0.0.0", "token": "open sesame", "devices": (), "max_guesses": 3}
    with service_running(tmp_path, **options) as (address, _):

        def ask(client: str, token: str) -> int:
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": client}
            return httpx.get(f"{address}/api/videos", headers=headers).status_code

        assert [ask("203.0.113.7", f"guess {n}") for n in range(4)] == [401, 401, 401, 429]
        assert ask("203.0.113.7", "open sesame") == 429
        assert ask("198.51.100.9, 203.0.113.7", "open sesame") == 429, "what a client says of itself is not believed"
        assert ask("198.51.100.9", "open sesame") == 200


def test_guesses_are_counted_by_address_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = GuessLimit(2)
    now = [100.0]
    # The clock of this module alone: on another's, the services of this file would never hear that they are to stop.
    monkeypatch.setattr("escounts.serve.security.time", SimpleNamespace(monotonic=lambda: now[0]))
    for guess in ("a", "b", "c"):
        limit.note("2001:db8::1", guess)
    assert limit.seconds_left("2001:db8::77") == 60, "an IPv6 network is one client"
    assert limit.seconds_left("10.0.0.1") == 0
    now[0] += 61
    assert limit.seconds_left("2001:db8::1") == 0
    for number in range(5000):
        limit.note(f"10.{number // 250}.{number % 250}.1", "a")
    assert len(limit._guesses) <= 1000


def test_an_aborted_upload_is_one_line_in_the_log(
    small: tuple[str, Service], caplog: pytest.LogCaptureFixture
) -> None:
    head = "POST /api/videos HTTP/1.1\r\nHost: x\r\nX-Escounts: 1\r\nAuthorization: Bearer open sesame\r\n"
    with caplog.at_level(logging.WARNING), connect(small[0]) as connection:
        connection.sendall(head.encode() + b"Content-Type: video/mp4\r\nContent-Length: 90000\r\n\r\n" + b"x" * 5000)
        eventually(lambda: list(small[1].settings.videos.glob("*.partial")))
        connection.close()
        eventually(lambda: not list(small[1].settings.videos.glob("*.partial")))
        eventually(lambda: caplog.records)
    assert [record.exc_info for record in caplog.records] == [None]
    assert "went away" in caplog.records[0].getMessage()


def test_no_address_writes_a_line_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    about = {"type": "http", "method": "PUT", "headers": [(b"host", b"x")], "query_string": b"", "scheme": "http"}
    request = Request({**about, "path": "/api/x\nERROR\x1b[2J", "server": ("x", 80)})
    for answer in (_gone, _unwritable):
        answer(request, OSError("full"))
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert "PUT /api/xERROR\\u001b[2J: " in record.getMessage() and len(record.getMessage().splitlines()) == 1


def test_an_upload_of_unknown_length_leaves_the_reserve(
    known: Client, small: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escounts.serve.video_api.CHECK_BYTES", 1000)
    real = small[1].folder.free_bytes()
    room = iter([real, real, *([DISK_RESERVE + 500] * 1000)])  # less than the next piece above what is kept free
    monkeypatch.setattr(DataFolder, "free_bytes", lambda self: next(room))
    refused = known.post("/api/videos", content=iter([b"x" * 900] * 9), headers=KIND)
    assert refused.status_code == 507
    assert "too full" in refused.json()["detail"]
    assert not list(small[1].settings.videos.iterdir())


def test_a_full_disk_is_told_and_can_be_freed(tiny_disk: Path) -> None:
    settings = Settings(data=tiny_disk / "data", devices=())
    DataFolder(settings).prepare()
    database = Database(settings.database)
    video = "a" * 32
    (settings.videos / f"{video}.mp4").write_bytes(b"x" * 1_500_000)
    database.add_video(uploaded(video, size=1_500_000, duration=5000.0))
    database.close()
    with service_running(settings.data, devices=()) as (address, _), Client(address) as client:
        with contextlib.suppress(OSError), open(tiny_disk / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        assert shutil.disk_usage(tiny_disk).free < 4096
        health = client.get("/healthz").json()
        assert health["status"] == "failing"
        assert "disk is full" in health["error"]
        assert health["disk_free"] < 4096
        assert client.post("/api/videos", content=b"x" * 100, headers=KIND).status_code == 507
        spans = [{"start": n, "end": n + 0.5} for n in range(2000)]
        refused = client.put(f"/api/videos/{video}/labels", json={"spans": spans})
        assert (refused.status_code, "disk is full" in refused.json()["detail"]) == (507, True)
        assert client.delete(f"/api/videos/{video}").status_code == 204
        assert client.get("/api/videos").json() == []
        assert shutil.disk_usage(tiny_disk).free > 1_000_000


def test_more_regions_than_a_video_may_have_are_refused_before_they_are_saved(
    tmp_path: Path, clips: dict[int, Path]
) -> None:
    with service_running(tmp_path, devices=()) as (address, service), Client(address) as client:
        video = client.send_video(clips[5])["id"]
        service.database.describe_video(video, duration=30_000.0, width=64, height=64, fps=25.0)
        regions = [
            {"type": "timelinelabels", "value": {"ranges": [{"start": 1 + 25 * n, "end": 20 + 25 * n}]}}
            for n in range(20_001)
        ]
        refused = client.post(f"/api/videos/{video}/label-studio", json={"annotations": [{"result": regions}]})
        assert (refused.status_code, "20001 repetitions" in refused.json()["detail"]) == (422, True)
        assert client.get(f"/api/videos/{video}/labels").status_code == 404, "nothing was saved"
        document = {"annotations": [{"result": regions[:-1]}]}
        assert client.post(f"/api/videos/{video}/label-studio", json=document).status_code == 200


def test_pictures_of_a_video_obey_the_limits_too(tmp_path: Path, clips: dict[int, Path]) -> None:
    with service_running(tmp_path, max_duration=1.0) as (address, _), Client(address) as client:
        video = client.send_video(clips[7], "long.mp4")["id"]
        for what in ("preview", "thumbnail", "filmstrip"):
            refused = client.get(f"/api/videos/{video}/{what}")
            assert refused.status_code == 503, what
            assert "up to 1 s" in refused.json()["detail"], what


def test_a_long_preview_has_fewer_frames() -> None:
    assert preview_rate(60.0, 10.0) == 30
    assert preview_rate(25.0, 10.0) == 25
    assert float(preview_rate(30.0, 4 * 3600.0)) * 4 * 3600 == pytest.approx(54_000, rel=0.01)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/data/renders/0a.png: cannot be written: No space", "0a.png: cannot be written: No space"),
        ("no such file: '/srv/models/x.safetensors'", "no such file: 'x.safetensors'"),
        ("3/4 of it, http://localhost:1/a/b, and/or", "3/4 of it, http://localhost:1/a/b, and/or"),
        ("/srv/data/, gone", "data, gone"),
    ],
)
def test_no_path_of_the_server_is_in_an_answer(text: str, shown: str) -> None:
    assert hide_paths(text) == shown


def test_a_worker_that_cannot_start_tells_no_path(tmp_path: Path, clips: dict[int, Path]) -> None:
    model = str(tmp_path / "secret place" / "model.safetensors")
    with service_running(tmp_path / "data", model=model) as (address, _), Client(address) as client:
        job = client.ended(client.start_count(client.send_video(clips[5])["id"])["id"])
        health = eventually(lambda: client.get("/healthz").text)
    assert job["state"] == "failed"
    for text in (job["error"], health):
        assert str(tmp_path) not in text


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from the file\nsecond line\n")
    assert chosen_token(None, file) == "from the file"
    assert chosen_token("given", None) == "given"
    with pytest.raises(click.UsageError, match="not both"):
        chosen_token("given", file)
    file.write_text("\n")
    with pytest.raises(EscountsError, match="first line"):
        chosen_token(None, file)
    assert {"ESCOUNTS_TOKEN", "ESCOUNTS_TOKEN_FILE"} <= {option.envvar for option in serve_command.params}
