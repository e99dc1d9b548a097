"""Who is kept out: other sites, other hosts, clients without the token, names that would be paths, too much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Client, get, post, service_running

from escounts.serve.settings import Settings
from escounts.serve.video_api import content_type, safe_suffix, shown_name

ZERO = "0" * 32


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service bound elsewhere in its settings, with a token, small limits and no worker."""
    data = tmp_path_factory.mktemp("guarded")
    options = {"host": "0.0.0.0", "token": "open sesame", "max_upload": 5000, "max_queue": 2, "devices": ()}
    with service_running(data, **options) as (address, _):
        yield address


@pytest.mark.parametrize(
    "path", ["/api/videos", "/api/limits", "/api/events", "/metrics", f"/api/videos/{ZERO}/file"]
)
def test_without_the_token_nothing_is_told(guarded: str, path: str) -> None:
    assert get(guarded + path).status_code == 401
    for wrong in ("Bearer wrong", "Bearer", "Basic b3BlbiBzZXNhbWU=", "Bearer öpen"):
        assert get(guarded + path, headers=[(b"Authorization", wrong.encode())]).status_code == 401


def test_the_token_opens_and_becomes_a_cookie(guarded: str) -> None:
    bearer = get(f"{guarded}/api/videos", headers={"Authorization": "Bearer open sesame"})
    assert bearer.status_code == 200
    with Client(guarded) as client:
        assert client.post("/api/session", json={"token": "wrong"}).status_code == 401
        answer = client.post("/api/session", json={"token": "open sesame"})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert re.search("samesite=strict", cookie, re.IGNORECASE)
        assert "sesame" not in cookie
        assert client.get("/api/videos").status_code == 200


def test_the_page_itself_needs_no_token(guarded: str) -> None:
    assert get(f"{guarded}/").status_code == 200
    assert get(f"{guarded}/healthz").status_code == 200


def test_limits_have_clear_messages(guarded: str) -> None:
    with Client(guarded) as client:
        client.headers["Authorization"] = "Bearer open sesame"
        kind = {"Content-Type": "video/mp4"}
        large = client.post("/api/videos", content=b"x" * 6000, headers=kind)
        assert (large.status_code, "MiB this server takes" in large.json()["detail"]) == (413, True)
        streamed = client.post("/api/videos", content=iter([b"x" * 3000, b"x" * 3000]), headers=kind)
        assert streamed.status_code == 413
        assert client.post("/api/videos", content=b"", headers=kind).status_code == 422
        for wrong in ("text/html", "application/json", "multipart/form-data; boundary=x", ""):
            refused = client.post("/api/videos", content=b"x", headers={"Content-Type": wrong})
            assert refused.status_code == 415, wrong
        video = client.post("/api/videos", content=b"x" * 100, headers=kind).json()["id"]
        for _ in range(2):
            assert client.post("/api/jobs", json={"video": video}).status_code == 202
        full = client.post("/api/jobs", json={"video": video})
        assert (full.status_code, "2 jobs are waiting" in full.json()["detail"]) == (429, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X-Escounts": "1", "Origin": "http://evil.example"}, 403),
        ({"X-Escounts": "1", "Origin": "null"}, 403),
        ({"X-Escounts": "1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-Escounts": "1", "Sec-Fetch-Site": "same-site"}, 403),
        ({"X-Escounts": "1", "Host": "evil.example"}, 421),
        ({"X-Escounts": "1", "Host": "127.0.0.1.evil.example"}, 421),
        ({"X-Escounts": "1", "Host": "[::bad"}, 421),
        ({"X-Escounts": "1"}, 404),
        ({"X-Escounts": "1", "Sec-Fetch-Site": "same-origin"}, 404),
    ],
)
def test_other_sites_cannot_change_anything(
    running: tuple[str, object], headers: dict[str, str], status: int
) -> None:
    answer = post(f"{running[0]}/api/jobs", json={"video": ZERO}, headers=headers)
    assert answer.status_code == status


def test_the_own_origin_is_let_in(running: tuple[str, object]) -> None:
    headers = {"X-Escounts": "1", "Origin": running[0]}
    assert post(f"{running[0]}/api/jobs", json={"video": ZERO}, headers=headers).status_code == 404


def test_other_sites_cannot_read_either(running: tuple[str, object]) -> None:
    assert get(f"{running[0]}/api/videos", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert get(f"{running[0]}/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/js/app.js", "/api/videos", "/api/nothing", "/api/videos/zzz"])
def test_every_answer_carries_the_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_the_page_asks_nobody_else() -> None:
    static = Path(__import__("escounts.serve.app", fromlist=["STATIC"]).STATIC)
    for file in [*static.glob("*.html"), *static.glob("css/*.css"), *static.glob("js/*.js")]:
        addresses = re.findall(r"https?://[^\s\"'`)]+", file.read_text())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, file.name
        assert not re.search(r"\sstyle=|\son[a-z]+=\"|<script>", file.read_text()), f"{file.name}: inline code"


@pytest.mark.parametrize(
    "path",
    [
        "/../settings.py",
        "/%2e%2e/settings.py",
        "/js/..%2f..%2fsettings.py",
        "/..%5csettings.py",
        "/api/videos/..%2f..%2fx/file",
    ],
)
def test_no_path_leads_out(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404, 422)
    assert "class Settings" not in answer.text


@pytest.mark.parametrize(
    ("sent", "shown", "suffix"),
    [
        ("../../etc/passwd", "passwd", ""),
        ("..\\..\\boot.MP4", "boot.MP4", ".mp4"),
        ("a\x00b\n.mov", "ab.mov", ".mov"),
        ("..", "video", ""),
        ("", "video", ""),
        ("x" * 500 + ".mp4", "x" * 120, ".mp4"),
        ("list.m3u8", "list.m3u8", ""),
        ("page.html", "page.html", ""),
        ("\u202egnp.mp4", "gnp.mp4", ".mp4"),
    ],
)
def test_names_are_never_paths(sent: str, shown: str, suffix: str) -> None:
    assert (shown_name(sent), safe_suffix(sent)) == (shown, suffix)


def test_an_upload_is_never_served_as_a_page(client: Client, tmp_path: Path) -> None:
    page = tmp_path / "evil.html"
    page.write_text("<script>alert(1)</script>")
    video = client.send_video(page, "evil.html")
    answer = client.get(f"/api/videos/{video['id']}/file")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert content_type("x.svg") == "application/octet-stream"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.8.8.8", True),
        ("0.0.0.0", False),
        ("example.org", False),
    ],
)
def test_which_hosts_are_loopback(host: str, loopback: bool, tmp_path: Path) -> None:
    assert Settings(data=tmp_path, host=host).loopback is loopback


def test_no_process_that_opens_videos_is_told_the_token(tmp_path: Path) -> None:
    told = Settings(tmp_path, token="sesame", devices=("cuda:0", "cuda:1")).of_process("cuda:1", "lite")
    assert (told.token, told.devices, told.model) == (None, ("cuda:1",), "lite")
