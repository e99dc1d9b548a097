"""The camera counts while it runs: Chromium plays a drawn motion as its camera, the shipped model counts it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from acting import opened
from movies import bouncing
from playwright.sync_api import Browser, Page, expect
from serving import Client, eventually, service_running

from escounts.serve.app import Service

PATIENCE = 240_000
"""Milliseconds; a process has to load the model on a machine that others use, too."""


@pytest.fixture(scope="module")
def bounces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten bounces in twelve seconds, as raw pictures; Chromium plays them over and over."""
    path = tmp_path_factory.mktemp("camera") / "bounces.y4m"
    with open(path, "wb") as file:
        file.write(b"YUV4MPEG2 W160 H120 F30:1 Ip A1:1 C420jpeg\n")
        for picture in bouncing(10, 12.0, size=(160, 120)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            file.write(b"FRAME\n" + frame.to_ndarray().tobytes())
    return path


@pytest.fixture(scope="module")
def moving(browser: Browser, bounces: Path) -> Iterator[Browser]:
    """A browser with that camera."""
    camera = [f"--use-file-for-fake-video-capture={bounces}"]
    arguments = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", *camera]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    started = browser.browser_type.launch(executable_path=chromium, args=arguments)
    yield started
    started.close()


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    """A service that counts live only: nothing else takes the cores."""
    with service_running(tmp_path_factory.mktemp("live"), model="lite", devices=()) as (address, service):
        yield address, service


def count(page: Page) -> int:
    return int(page.inner_text("#live-count"))


LISTEN = """() => {
  window.spoken = [];
  window.beeps = 0;
  speechSynthesis.speak = (what) => spoken.push(what.text);
  const { start } = OscillatorNode.prototype;
  OscillatorNode.prototype.start = function () { beeps += 1; start.call(this); };
}"""


def test_the_number_rises_while_the_camera_runs(moving: Browser, counting: tuple[str, Service]) -> None:
    with opened(moving, counting[0]) as page:
        page.click("#record")
        expect(page.locator("#camera-start")).to_be_enabled(timeout=PATIENCE)
        assert page.is_hidden("#live-tally") and page.is_hidden("#live-mark")
        page.click("#camera-start")
        expect(page.locator("#live-tally")).to_be_visible()
        expect(page.locator("#live-sound")).to_have_value("off")
        page.evaluate(LISTEN)
        page.select_option("#live-sound", "speak")
        seen = [count(page)]

        def risen() -> bool:
            """A busy machine counts several at once; then it takes more of them to see that it goes on."""
            seen.append(count(page))
            return seen[-1] >= 4 and len(set(seen)) >= 3

        eventually(risen, PATIENCE / 1000, 0.2)
        assert seen == sorted(seen) and seen[0] == 0, "it rises while it runs, and never goes back"
        said = [int(number) for number in page.evaluate("spoken")]
        assert said and set(said) >= set(seen[-1:]) and said == sorted(set(said)), (
            "each number that came is said once"
        )
        page.select_option("#live-sound", "beep")
        eventually(lambda: page.evaluate("beeps > 0"), PATIENCE / 1000, 0.2)
        assert [int(number) for number in page.evaluate("spoken")][: len(said)] == said
        page.select_option("#live-sound", "off")
        assert page.is_visible("#camera-stop"), "it is still running"
        assert page.locator("#live-curve path").get_attribute("d"), "the density so far is drawn"
        assert page.locator("#live-curve rect.repetition").count() >= 2
        expect(page.locator("#live-tally")).to_have_attribute("aria-label", f"{count(page)} repetitions so far")
        page.click("#live-mark")
        expect(page.locator("#live-note")).to_contain_text("Press again")
        page.wait_for_timeout(1200)
        page.click("#live-mark")
        expect(page.locator("#live-mark")).to_have_text("Mark one")
        expect(page.locator("#live-curve")).to_be_visible()
        assert counting[1].live.running == 1
        page.locator("#camera-dialog [data-close]").click()
        eventually(lambda: counting[1].live.running == 0)


def test_leaving_the_page_ends_the_session(moving: Browser, counting: tuple[str, Service]) -> None:
    with opened(moving, counting[0]) as page:
        page.click("#record")
        eventually(lambda: counting[1].live.running == 1)
        page.goto("about:blank")
        eventually(lambda: counting[1].live.running == 0)


def test_where_it_cannot_count_live_it_says_so_and_counts_afterwards(page: Page, client: Client) -> None:
    page.click("#record")
    expect(page.locator("#live-note")).to_contain_text("Not counted live: model 'spectral'", timeout=PATIENCE)
    page.click("#camera-start")
    assert page.is_hidden("#live-tally") and page.is_hidden("#live-mark")
    expect(page.locator("#camera-clock")).to_contain_text(re.compile(r"0:0[2-9]"), timeout=20_000)
    page.click("#camera-stop")
    expect(page.locator("#verdict-name")).to_contain_text("Recording", timeout=PATIENCE)
    assert client.get("/api/videos").json()[0]["source"] == "camera"


SLOW_CAMERA = """() => {
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  window.streams = [];
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    const stream = await open(wanted);
    window.streams.push(stream);
    if (window.streams.length === 1) await new Promise((resolve) => { window.release = resolve; });
    return stream;
  };
}"""


def test_a_camera_that_opens_after_its_dialog_was_closed_is_let_go(
    moving: Browser, counting: tuple[str, Service]
) -> None:
    with opened(moving, counting[0]) as page:
        ready = {"id": "a" * 32, "state": "ready"}
        page.route(re.compile("/api/live"), lambda route: route.fulfill(json=ready))
        page.evaluate(SLOW_CAMERA)
        page.click("#record")
        eventually(lambda: page.evaluate("!!window.release"))
        page.keyboard.press("Escape")
        expect(page.locator("#camera-dialog")).to_be_hidden()
        page.click("#record")
        expect(page.locator("#camera-start")).to_be_enabled()
        page.evaluate("window.release()")
        eventually(lambda: page.evaluate("window.streams[0].getTracks()[0].readyState") == "ended")
        assert page.evaluate("window.streams[1].getTracks()[0].readyState") == "live"
        assert page.evaluate("document.getElementById('camera').srcObject === window.streams[1]")


def test_a_live_count_that_fails_is_ended_on_the_server(moving: Browser, counting: tuple[str, Service]) -> None:
    session = "a" * 32
    visit = opened(moving, counting[0])
    with visit as page:
        page.route("**/api/live", lambda route: route.fulfill(status=201, json={"id": session, "state": "ready"}))
        page.route("**/frames", lambda route: route.fulfill(status=422, json={"detail": "not a picture"}))
        page.route(f"**/api/live/{session}", lambda route: route.fulfill(json={"id": session, "state": "ended"}))
        page.click("#record")
        expect(page.locator("#camera-start")).to_be_enabled()
        with page.expect_request(lambda request: request.method == "DELETE"):
            page.click("#camera-start")
        expect(page.locator("#live-note")).to_contain_text("not a picture")
        visit.problems[:] = [problem for problem in visit.problems if "422" not in problem]
