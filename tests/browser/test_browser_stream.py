"""What the page was told and when: answers that come late, events that come twice or too late."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from acting import choose, heard, open_card, opened, set_mode, shown
from playwright.sync_api import Browser, Page, Route, expect
from serving import Client, eventually

from escounts.serve.app import Service


@pytest.fixture()
def visit(browser: Browser, running: tuple[str, Service], client: Client) -> opened:
    """A page that is not opened yet, on a service without videos."""
    for video in client.get("/api/videos").json():
        client.delete(f"/api/videos/{video['id']}")
    return opened(browser, running[0])


def hold_first(page: Page) -> list[Route]:
    """Keeps the first request for the list of videos waiting; the list returned has it once it was made."""
    held: list[Route] = []

    def handle(route: Route) -> None:
        if route.request.method == "GET" and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/videos", handle)
    return held


@pytest.mark.parametrize("known", ["nothing", "counting"])
def test_a_count_that_ends_before_the_list_is_there_is_shown(
    visit: opened, client: Client, sample: Path, known: str
) -> None:
    held = hold_first(visit.page)
    with visit as page:
        heard(page, lambda: held)  # before the video: asked for later, an empty list would say that it was deleted
        page.set_input_files("#file", str(sample))
        eventually(lambda: client.get("/api/videos").json() and client.get("/api/videos").json()[0]["job"])
        (video,) = client.get("/api/videos").json()
        client.ended(video["job"]["id"])
        expect(page.locator("#verdict-name")).to_have_text(sample.name)
        late = {**video, "duration": None, "job": {**video["job"], "state": "running", "progress": 0.1}}
        held[0].fulfill(json=[] if known == "nothing" else [late])
        card = page.locator(".video-card", has_text=sample.name)
        expect(card).to_have_attribute("data-state", "done")
        expect(page.locator("#verdict-done")).to_be_visible()
        page.wait_for_timeout(300)
        assert card.get_attribute("data-state") == "done", "the late answer does not undo it"
        assert shown(page) == client.job(video["job"]["id"])["count"]


def test_an_answer_slower_than_the_stream_does_not_undo_its_news(page: Page, client: Client, sample: Path) -> None:
    def slow(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        response = route.fetch()
        eventually(lambda: client.job(response.json()["id"])["state"] == "running")
        page.wait_for_timeout(300)
        route.fulfill(response=response, json={**response.json(), "state": "queued"})

    pid = client.worker_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        page.route("**/api/jobs", slow)
        page.set_input_files("#file", str(sample))
        expect(page.locator("#busy-text")).to_contain_text("Counting")
        assert page.locator(".video-card").get_attribute("data-state") == "running"
    finally:
        os.kill(pid, signal.SIGCONT)
    shown(page)


def test_what_is_on_the_stage_survives_a_new_list(page: Page, client: Client, sample: Path, other_clip: Path) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_contain_text("Saved")
    page.evaluate(
        """async () => {
            const { api } = await import("/js/api.js");
            window.labelsAsked = 0;
            const plain = api.labels;
            api.labels = (video) => { window.labelsAsked += 1; return plain(video); };
        }"""
    )
    page.route("**/api/videos", without_labels)
    client.start_count(client.send_video(other_clip)["id"])  # a video of somebody else: the list is asked for anew
    open_card(page, other_clip.name)
    open_card(page, sample.name)
    assert page.evaluate("window.labelsAsked") == 1


def without_labels(route: Route) -> None:
    """A list that was read just before the labels were saved."""
    if route.request.method != "GET":
        route.continue_()
        return
    response = route.fetch()
    route.fulfill(response=response, json=[{**video, "labelled": False} for video in response.json()])


def test_a_late_event_does_not_bring_back_what_has_ended(visit: opened, client: Client, sample: Path) -> None:
    job = client.start_count(client.send_video(sample)["id"], wait=30)
    late = {**job, "result": None, "state": "queued", "progress": 0.0}
    streams: list[str] = []

    def stream(route: Route) -> None:
        event = f"event: job\ndata: {json.dumps(late)}\n\n" if streams else ""
        streams.append(event)
        route.fulfill(body=f"retry: 200\n\n{event}", content_type="text/event-stream")

    visit.page.route("**/api/events", stream)
    with visit as page:
        open_card(page, sample.name)
        heard(page, lambda: len(streams) > 3)
        card = page.locator(".video-card", has_text=sample.name)
        states: list[Any] = page.evaluate(
            """async (node) => {
                const seen = [];
                new MutationObserver(() => seen.push(node.dataset.state)).observe(node, { attributes: true });
                await new Promise((resolve) => setTimeout(resolve, 1000));
                return seen;
            }""",
            card.element_handle(),
        )
        assert set(states) <= {"done"}
        assert card.get_attribute("data-state") == "done"
        assert shown(page) == job["count"]
