"""Teaching it an action: labelled videos, a name, progress, before and after, the model by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from acting import choose, heard, recount, shown
from playwright.sync_api import Page, Route, expect
from serving import Client

VIDEOS = [
    {"video": "1", "name": "one.mp4", "labelled": 8, "before": 4, "after": 8, "fitted": 8},
    {
        "video": "2",
        "name": "two-with-a-name-too-long-for-phones.mp4",
        "labelled": 6,
        "before": 3,
        "after": 5,
        "fitted": 6,
    },
]
MESSAGE = "of 2 videos 1 is counted right (before: 0)"


class Lessons:
    """Answers in place of the service, whose training takes minutes; `tell` says how far it is."""

    def __init__(self, page: Page, *, models: tuple[str, ...] = ("lite", "spectral")) -> None:
        self.models = [{"name": name, "summary": "", "own": False, "default": name == "lite"} for name in models]
        self.asked: list[Any] = []
        self.training: dict[str, Any] | None = None
        self.streams: list[Route] = []
        page.route(re.compile("/api/trainings"), self.trainings)
        page.route("**/api/models", lambda route: route.fulfill(json=self.models))
        page.route("**/api/events", self.stream)

    def trainings(self, route: Route) -> None:
        if route.request.method == "GET":
            route.fulfill(json=[self.training] if self.training else [])
            return
        self.asked.append((route.request.url.rpartition("/")[2], route.request.post_data_json))
        if route.request.url.endswith("/cancel"):
            self.tell(state="cancelled")
        else:
            name = (route.request.post_data_json or {})["name"]
            blank = {"error": None, "report": None, "remaining_s": None}
            self.training = {
                "id": "7",
                "name": name,
                "state": "running",
                "stage": "encoding",
                "progress": 0.1,
                **blank,
            }
        route.fulfill(status=202, json=self.training)

    def stream(self, route: Route) -> None:
        """What there is to tell, then the browser comes again."""
        event = f"event: training\ndata: {json.dumps(self.training)}\n\n" if self.training else ""
        route.fulfill(body=f"retry: 100\n\n{event}", content_type="text/event-stream")

    def tell(self, **changes: Any) -> None:
        assert self.training is not None
        self.training = {**self.training, **changes}

    def end(self, *, helped: bool) -> None:
        assert self.training is not None
        name = self.training["name"]
        report = {"helped": helped, "message": MESSAGE, "model": name if helped else None, "videos": VIDEOS}
        self.tell(state="done", progress=1.0, stage=None, report=report)
        if helped:
            self.models.append({"name": name, "summary": "", "own": True, "default": False})


def label(client: Client, video: str, action: str = "bounce") -> None:
    spans = [{"start": 0.5, "end": 1.5}, {"start": 1.5, "end": 2.5}]
    answer = client.put(f"/api/videos/{video}/labels", json={"spans": spans, "action": action})
    assert answer.status_code == 200, answer.text


@pytest.fixture()
def labelled(page: Page, client: Client, other_clip: Path) -> None:
    """Two labelled videos of three, on the page."""
    choose(page, other_clip)
    first = client.get("/api/videos").json()[0]["id"]
    label(client, first)
    for name in ("second.mp4", "third.mp4"):
        video = client.send_video(other_clip, name)["id"]
        client.start_count(video, wait=30)
        if name == "second.mp4":
            label(client, video)
    page.reload()
    expect(page.locator(".video-card")).to_have_count(3)
    shown(page)


def label_third(client: Client) -> None:
    """The last of the three, so that there are enough."""
    third = next(video for video in client.get("/api/videos").json() if video["name"] == "third.mp4")
    label(client, third["id"])


def test_one_action_is_chosen_and_different_ones_are_warned_of(page: Page, client: Client, labelled: None) -> None:
    third = next(video for video in client.get("/api/videos").json() if video["name"] == "third.mp4")
    label(client, third["id"], "hop")
    page.reload()
    page.click("#teach-open")
    expect(page.locator("#teach-videos li")).to_have_count(3)
    assert page.locator("#teach-videos li:has(input:checked)").all_inner_texts() == [
        "second.mp4 · 2 bounce",
        "bounce.mp4 · 2 bounce",
    ]
    expect(page.locator("#teach-mixed")).to_be_hidden()
    page.locator("#teach-videos input").first.check()
    expect(page.locator("#teach-mixed")).to_contain_text("Different actions: hop, bounce.")


def begin(page: Page, name: str = "my-bounce") -> None:
    page.fill("#teach-name", name)
    page.click("#teach-start")


def test_it_is_taught_with_three_labelled_videos(page: Page, client: Client, labelled: None) -> None:
    lessons = Lessons(page)
    page.click("#teach-open")
    expect(page.locator("#teach-total")).to_have_text("2 labelled videos; 1 more needed")
    expect(page.locator("#teach-start")).to_be_disabled()
    label_third(client)
    page.reload()
    page.click("#teach-open")
    expect(page.locator("#teach-videos li")).to_have_text(
        ["third.mp4 · 2 bounce", "second.mp4 · 2 bounce", "bounce.mp4 · 2 bounce"]
    )
    page.locator("#teach-videos input").first.uncheck()
    expect(page.locator("#teach-start")).to_be_disabled()
    page.locator("#teach-videos input").first.check()
    begin(page)
    expect(page.locator("#teach-busy")).to_be_visible()
    lessons.tell(stage="checking", progress=0.8, remaining_s=12)
    expect(page.locator("#teach-stage")).to_have_text("my-bounce: leaving each video out once, 80 % 12 s left")
    lessons.end(helped=True)
    expect(page.locator("#teach-done")).to_be_visible()
    (_, asked) = lessons.asked[0]
    assert (asked["name"], asked["replace"], len(asked["videos"])) == ("my-bounce", False, 3)
    expect(page.locator("#teach-message")).to_have_text("Of 2 videos 1 is counted right (before: 0).")
    rows = page.locator("#teach-rows tr")
    expect(rows.nth(0)).to_have_text("one.mp4848")
    expect(rows.nth(0).locator("td").nth(3)).to_have_class("right")
    expect(rows.nth(1).locator("td").nth(3)).to_have_class("wrong")
    page.set_viewport_size({"width": 390, "height": 844})
    rights = page.evaluate(
        "['#teach-rows td:nth-child(4)', '#teach-dialog'].map("
        "(part) => document.querySelector(part).getBoundingClientRect().right)"
    )
    assert rights[0] <= rights[1], "what it learnt is in view on a phone"


def test_the_new_model_is_chosen_by_its_name(page: Page, client: Client, other_clip: Path) -> None:
    lessons = Lessons(page)
    choose(page, other_clip)
    lessons.training = {"id": "7", "name": "my-bounce", "state": "running", "stage": "training", "progress": 0.9}
    lessons.tell(error=None, report=None, remaining_s=None)
    page.reload()
    expect(page.locator("#verdict-done")).to_be_visible()
    lessons.end(helped=True)
    page.reload()
    expect(page.locator("#verdict-done")).to_be_visible()
    page.click("#teach-open")  # it ended while nobody looked: what it did is still there
    page.get_by_role("button", name="Count with my-bounce from now on").click()
    expect(page.locator("#teach-dialog")).to_be_hidden()
    expect(page.locator("#model-choice")).to_have_value("my-bounce")
    expect(page.locator("#toasts")).to_contain_text("my-bounce counts from now on. Press Recount")
    page.reload()
    expect(page.locator("#model-choice")).to_have_value("my-bounce")
    shown(page)
    counted: list[Any] = []

    def count(route: Route) -> None:
        if route.request.method == "POST":
            counted.append((route.request.post_data_json or {})["model"])
        route.continue_(post_data=json.dumps({**(route.request.post_data_json or {}), "model": None}))

    page.route("**/api/jobs", lambda route: count(route) if route.request.method == "POST" else route.continue_())
    recount(page)
    page.select_option("#model-choice", "lite")
    expect(page.locator("#toasts")).to_contain_text("lite counts from now on")
    recount(page)
    assert counted == ["my-bounce", None], "the server's own needs no name"


def test_what_did_not_help_is_not_offered(page: Page, client: Client, labelled: None) -> None:
    lessons = Lessons(page)
    label_third(client)
    page.reload()
    page.click("#teach-open")
    begin(page)
    expect(page.locator("#teach-busy")).to_be_visible()
    lessons.end(helped=False)
    expect(page.locator("#teach-done")).to_be_visible()
    expect(page.locator("#teach-use")).to_be_hidden()
    lessons.training = None
    page.click("#teach-again")
    expect(page.locator("#teach-form")).to_be_visible()


def test_training_is_cancelled(page: Page, client: Client, labelled: None) -> None:
    lessons = Lessons(page)
    label_third(client)
    page.reload()
    page.click("#teach-open")
    begin(page)
    page.click("#teach-cancel")
    expect(page.locator("#teach-form")).to_be_visible()
    assert lessons.asked[-1][0] == "cancel"


def test_a_model_taught_before_is_replaced_only_when_asked(page: Page, client: Client, labelled: None) -> None:
    lessons = Lessons(page)
    lessons.models.append({"name": "my-bounce", "summary": "", "own": True, "default": False})
    label_third(client)
    page.reload()
    page.click("#teach-open")
    begin(page)
    page.get_by_role("button", name="Keep it").click()
    assert lessons.asked == []
    begin(page)
    page.get_by_role("button", name="Replace it").click()
    expect(page.locator("#teach-busy")).to_be_visible()
    assert lessons.asked[0][1]["replace"] is True


def test_a_training_that_failed_before_its_start_was_answered_is_not_shown_as_running(
    page: Page, client: Client, labelled: None
) -> None:
    lessons = Lessons(page)
    label_third(client)
    held: list[Route] = []
    page.route(
        "**/api/trainings", lambda route: held.append(route) if route.request.method == "POST" else route.fallback()
    )
    page.reload()
    page.click("#teach-open")
    begin(page)
    heard(page, lambda: held)
    lessons.training = {"id": "7", "name": "my-bounce", "state": "running", "stage": None, "progress": 0.0}
    lessons.tell(error=None, report=None, remaining_s=None)
    started = lessons.training
    lessons.tell(state="failed", error="its process ended with SIGKILL")
    expect(page.locator("#teach-problem")).to_have_text("its process ended with SIGKILL")
    silent: list[Route] = []
    page.route(
        "**/api/events", lambda route: silent.append(route)
    )  # nothing more is told, so that what is shown now stays
    heard(page, lambda: silent)
    with page.expect_response("**/api/trainings"):
        held[0].fulfill(status=202, json=started)
    page.wait_for_timeout(200)
    expect(page.locator("#teach-busy")).to_be_hidden()
    expect(page.locator("#teach-problem")).to_be_visible()


def test_what_was_left_out_stays_left_out_when_a_training_fails(page: Page, client: Client, labelled: None) -> None:
    lessons = Lessons(page)
    label_third(client)
    page.reload()
    page.click("#teach-open")
    page.locator("#teach-videos input").first.uncheck()
    lessons.training = {"id": "7", "name": "my-bounce", "state": "failed", "stage": None, "progress": 0.0}
    lessons.tell(error="too few", report=None, remaining_s=None)
    expect(page.locator("#teach-problem")).to_have_text("too few")
    expect(page.locator("#teach-videos input").first).not_to_be_checked()
    expect(page.locator("#teach-start")).to_be_disabled()
