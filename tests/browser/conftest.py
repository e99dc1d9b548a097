"""A real Chromium on a real service. A page that logs an error, or asks another host, fails its test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs escounts[serve]")
pytest.importorskip("playwright", reason="needs escounts[test]")

from acting import opened
from movies import bouncing, noise, write_movie
from playwright.sync_api import Browser, Page, sync_playwright
from serving import Client, service_running

from escounts.serve.app import Service

CHROMIUM = next((Path(p) for p in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(p).exists()), None)
SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample.mp4"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample video of the project; a drawn stand-in where the checkout has none."""
    if SAMPLE.exists():
        return SAMPLE
    return write_movie(tmp_path_factory.mktemp("sample") / "sample.mp4", bouncing(8, 8.0, size=(320, 240)))


@pytest.fixture(scope="session")
def other_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("other") / "bounce.mp4", bouncing(6, 6.0, size=(160, 120)))


@pytest.fixture(scope="session")
def still_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something that moves and does not repeat, in a codec no browser plays."""
    folder = tmp_path_factory.mktemp("noise")
    return write_movie(folder / "wander.avi", noise(4.0), codec="mpeg4")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, other_clip: Path) -> Iterator[tuple[str, Service]]:
    base = tmp_path_factory.mktemp("browser")
    (base / "media").mkdir()
    (base / "media" / "on the server.mp4").write_bytes(other_clip.read_bytes())
    # The tests need a counter that is quick; the documentation's pictures show the default one.
    model = "lite" if os.environ.get("ESCOUNTS_PICTURES") else "spectral"
    with service_running(base / "data", media_root=base / "media", model=model) as (address, service):
        yield address, service


@pytest.fixture()
def service(running: tuple[str, Service]) -> Service:
    return running[1]


@pytest.fixture()
def client(running: tuple[str, Service]) -> Iterator[Client]:
    with Client(running[0]) as client:
        client.worker_pid()
        yield client


@pytest.fixture()
def page(browser: Browser, running: tuple[str, Service], client: Client) -> Iterator[Page]:
    """The page, empty: every video of earlier tests is deleted first."""
    for video in client.get("/api/videos").json():
        client.delete(f"/api/videos/{video['id']}")
    with opened(browser, running[0]) as page:
        yield page
