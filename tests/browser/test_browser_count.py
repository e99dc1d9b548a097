"""Videos in, counts out: upload, drop, server files, webcam, progress, cancel, watching."""

from __future__ import annotations

import base64
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from acting import answer_with, choose, length, open_card, shown, spans, time_now
from playwright.sync_api import Page, expect
from serving import Client, eventually


def test_several_videos_are_chosen_and_counted(page: Page, client: Client, sample: Path, other_clip: Path) -> None:
    expect(page.locator("#welcome")).to_be_visible()
    choose(page, sample, other_clip)
    videos = client.get("/api/videos").json()
    assert {video["name"] for video in videos} == {sample.name, other_clip.name}
    for video in videos:
        open_card(page, video["name"])
        assert shown(page) == video["job"]["count"] == len(spans(page))
        assert page.locator(".video-card.selected .badge").inner_text() == str(video["job"]["count"])


def test_a_video_is_dropped(page: Page, sample: Path) -> None:
    content = base64.b64encode(sample.read_bytes()).decode()
    page.evaluate(
        """async ([content, name]) => {
            const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], name, { type: "video/mp4" }));
            for (const kind of ["dragenter", "dragover"])
              window.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
            if (!document.body.classList.contains("dropping")) throw new Error("no sign of where to drop");
            window.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        [content, "dropped.mp4"],
    )
    expect(page.locator("#verdict-name")).to_have_text("dropped.mp4")
    assert shown(page) > 0


def test_a_file_on_the_server_is_chosen(page: Page) -> None:
    page.click("#browse")
    page.fill("#media-filter", "nothing like it")
    expect(page.locator("#media")).to_contain_text("No videos")
    page.fill("#media-filter", "server")
    page.get_by_role("button", name="on the server.mp4").click()
    expect(page.locator("#verdict-name")).to_have_text("on the server.mp4")
    assert shown(page) > 0
    expect(page.locator("#kept")).to_contain_text("belongs to the server")


def test_a_recording_of_the_webcam_is_counted(page: Page, client: Client) -> None:
    page.click("#record")
    page.click("#camera-start")
    expect(page.locator("#camera-clock")).to_contain_text(re.compile(r"0:0[2-9]|0:[1-5]"))
    page.click("#camera-stop")
    expect(page.locator("#verdict-name")).to_contain_text(re.compile(r"Recording 20\d\d-\d\d-\d\d \d\d\.\d\d"))
    shown(page)
    video = client.get("/api/videos").json()[0]
    assert video["source"] == "camera"
    assert 1.0 < video["duration"] < 60.0


def test_counting_shows_progress_and_is_cancelled(page: Page, client: Client, sample: Path) -> None:
    pid = client.worker_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        page.set_input_files("#file", str(sample))
        card = page.locator(".video-card", has_text=sample.name)
        expect(card).to_have_attribute("data-state", "running")
        expect(page.locator("#busy-text")).to_contain_text("Counting")
        card.get_by_role("button", name="Cancel counting").click()
        expect(card).to_have_attribute("data-state", "cancelled")
        expect(page.locator("#verdict-problem")).to_have_text("This count was cancelled.")
    finally:
        if client.worker_pid() == pid:
            os.kill(pid, signal.SIGCONT)


def test_an_upload_shows_progress_and_is_cancelled(page: Page, client: Client, tmp_path: Path) -> None:
    large = tmp_path / "large.mp4"
    large.write_bytes(bytes(3_000_000))
    session = page.context.new_cdp_session(page)
    conditions = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 100_000}
    session.send("Network.emulateNetworkConditions", conditions)
    page.set_input_files("#file", str(large))
    card = page.locator(".video-card.uploading")
    expect(card.locator(".video-meta")).to_contain_text(re.compile(r"Uploading 2\.9 MB · (\d+ s left|\d+ %)"))
    card.get_by_role("button", name="Cancel uploading large.mp4").click()
    expect(card).to_have_count(0)
    session.send("Network.emulateNetworkConditions", {**conditions, "uploadThroughput": -1})
    assert client.get("/api/videos").json() == []


def test_a_bad_file_says_why(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "letter.mp4"
    bad.write_text("Dear video,")
    page.set_input_files("#file", str(bad))
    # The card that is sent may stand beside the one that the stream has told of for a moment.
    expect(page.locator(".video-card[data-id]", has_text="letter.mp4")).to_have_attribute("data-state", "failed")
    expect(page.locator("#verdict-problem")).to_contain_text("letter.mp4")


def test_the_count_runs_up_as_it_plays(page: Page, sample: Path) -> None:
    choose(page, sample)
    total, duration = len(spans(page)), length(page)
    assert page.inner_text("#tally-now") == "0"
    page.click("#player")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    begin = float(page.evaluate("parseFloat(document.querySelector('.tl-playhead').style.left)"))
    eventually(lambda: page.inner_text("#tally-now") not in ("", "0"))
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Play")
    now = float(page.evaluate("parseFloat(document.querySelector('.tl-playhead').style.left)"))
    assert now > begin
    position = time_now(page) / duration
    past = sum(end <= position + 1e-3 for _, end in spans(page))
    assert abs(int(page.inner_text("#tally-now")) - past) <= 1
    assert page.inner_text("#tally-all") == f"of {total}"


def test_spans_are_clicked_and_keys_move(page: Page, sample: Path) -> None:
    choose(page, sample)
    regions = page.locator(".region.rep")
    edges = spans(page)
    duration = length(page)
    regions.nth(2).click()
    assert abs(time_now(page) - edges[2][0] * duration) < 0.1
    page.keyboard.press("n")
    eventually(lambda: abs(time_now(page) - edges[3][0] * duration) < 0.1)
    page.keyboard.press("p")
    eventually(lambda: abs(time_now(page) - edges[2][0] * duration) < 0.15)
    before = time_now(page)
    page.keyboard.press("ArrowRight")
    eventually(lambda: abs(time_now(page) - before - 1) < 0.1)
    page.keyboard.press("Shift+ArrowLeft")
    eventually(lambda: abs(time_now(page) - before - 0.9) < 0.1)
    assert page.locator(".region.rep.now").count() <= 1


@pytest.mark.parametrize(("unsure", "confidence"), [(False, 0.93), (True, 0.21)])
def test_how_sure_it_is(page: Page, sample: Path, unsure: bool, confidence: float) -> None:
    answer_with(page, confidence_kind="probability", confidence=confidence, unsure=unsure, reasons=["three units"])
    choose(page, sample)
    expect(page.locator("#confidence-text")).to_contain_text(f"{round(confidence * 100)} % sure")
    expect(page.get_by_role("meter", name="Confidence")).to_have_attribute("aria-valuenow", f"{confidence:.2f}")
    assert page.locator("#unsure").is_visible() is unsure
    if unsure:
        expect(page.locator("#unsure")).to_contain_text(
            "Not sure. Three units. Look at it, or mark one repetition and recount."
        )


def test_an_example_of_most_of_the_video_is_said_to_be_the_reason(page: Page, sample: Path) -> None:
    example = {"start": 0.2, "end": 18.0, "video": None}
    answer_with(page, confidence_kind="probability", confidence=0.5, unsure=True, exemplars=[example])
    choose(page, sample)
    expect(page.locator("#unsure")).to_contain_text("most of what was counted. Mark one repetition only.")


@pytest.mark.parametrize("unsure", [False, True])
def test_an_example_across_a_cut_is_told_of_however_sure_the_count_is(page: Page, sample: Path, unsure: bool) -> None:
    example, confidence = {"start": 2.0, "end": 4.0, "video": None}, 0.5 if unsure else 0.95
    told: dict[str, Any] = {"exemplars": [example], "details": {"exemplar_cut": 3.2}}
    answer_with(page, confidence_kind="probability", confidence=confidence, unsure=unsure, **told)
    choose(page, sample)
    expect(page.locator("#unsure")).to_be_visible()
    expect(page.locator("#unsure")).to_contain_text(
        "across a cut of the film at 0:03.2. Mark one repetition on one side"
    )


def test_a_hundred_repetitions_stay_inside_their_card(page: Page, sample: Path) -> None:
    many = [{"start": 0.18 * i, "end": 0.18 * (i + 1)} for i in range(100)]
    answer_with(page, count=100, repetitions=many)
    choose(page, sample)
    expect(page.locator("#tempo-bars span")).to_have_count(100)
    bars, card = page.locator("#tempo-bars span").last.bounding_box(), page.locator("#verdict").bounding_box()
    assert bars is not None and card is not None
    assert bars["x"] + bars["width"] <= card["x"] + card["width"] - 17, "not past its padding"


def test_agreement_is_not_called_sure(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    (video,) = client.get("/api/videos").json()
    assert client.job(video["job"]["id"])["result"]["confidence_kind"] == "agreement"
    expect(page.locator("#unsure")).to_contain_text("Not sure. This model cannot say how sure it is. Look at it")
    expect(page.locator("#confidence")).to_be_hidden()
    expect(page.locator("#confidence-text")).to_be_hidden()
    said = page.inner_text("body")
    assert "% sure" not in said and said.count("Not sure") == said.count("how sure") == 1, "one truth, said once"
