"""The list of videos: it scrolls on its own, shows what each is, is filtered, and stays quick with 200 of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from acting import choose, opened, set_mode
from playwright.sync_api import Browser, Page, Route, expect
from serving import Client, eventually

from escounts.serve.app import Service


def test_cards_show_picture_and_what_is_known(
    page: Page, client: Client, sample: Path, other_clip: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "letter.mp4"
    bad.write_text("Dear video,")
    choose(page, sample, other_clip)
    page.set_input_files("#file", str(bad))
    failed = page.locator(".video-card", has_text="letter.mp4")
    expect(failed.locator(".tag.failed")).to_have_text("failed")
    assert failed.locator("img").get_attribute("src") is None, "nothing is asked for that cannot be drawn"
    card = page.locator(".video-card", has_text=sample.name)
    expect(card.locator(".tag.unsure")).to_have_text("not sure")
    expect(card.locator("img.there")).to_be_visible()
    assert card.locator("img").evaluate("(image) => image.naturalWidth") > 20
    card.locator(".video-open").click()
    set_mode(page, "correct")
    page.locator(".region.rep").first.focus()
    page.keyboard.press("Delete")
    page.click("#save-labels")
    expect(card.locator(".tag.labelled")).to_have_text("labelled")
    left = page.locator(".region.rep").count()
    expect(card.locator(".badge")).to_have_text(str(left))
    assert card.locator(".tag.unsure").count() == 0, "a person's word is not unsure"
    page.reload()
    expect(card.locator(".tag.labelled")).to_have_text("labelled")
    expect(card.locator(".badge")).to_have_text(str(left))


def test_failures_are_removed_at_once(page: Page, client: Client, sample: Path, tmp_path: Path) -> None:
    names = ["one.mp4", "two.mp4"]
    for name in names:
        (tmp_path / name).write_text("Dear video,")
    choose(page, sample)
    page.set_input_files("#file", [str(tmp_path / name) for name in names])
    expect(page.locator("#remove-failed")).to_have_text("Remove 2 failed")
    page.click("#remove-failed")
    page.get_by_role("button", name="Keep", exact=True).click()
    assert page.locator(".video-card").count() == 3
    page.click("#remove-failed")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".video-card")).to_have_count(1)
    assert [video["name"] for video in client.get("/api/videos").json()] == [sample.name]
    expect(page.locator("#remove-failed")).to_be_hidden()


def many(client: Client, clip: Path, number: int) -> list[dict[str, Any]]:
    """A list as a service with that many videos would send it."""
    job = client.start_count(client.send_video(clip)["id"], wait=30)
    job.pop("result")
    video = client.get(f"/api/videos/{job['video']}").json()
    videos = []
    for index in range(number):
        kind = index % 10
        state = {"state": "failed", "error": "broken", "count": None} if kind == 7 else {"unsure": kind == 3}
        one = {**job, "id": f"{index:032x}", "confidence": 0.9, "count": index, "unsure": False, **state}
        identifier = video["id"] if index == 0 else f"{index + 1000:032x}"
        videos.append(
            {**video, "id": identifier, "name": f"clip {index:03}.mp4", "labelled": kind == 5}
            | {"job": {**one, "video": identifier}}
        )
    return videos


@pytest.fixture()
def crowd(browser: Browser, running: tuple[str, Service], client: Client, other_clip: Path) -> opened:
    visit = opened(browser, running[0], viewport={"width": 1280, "height": 800})
    videos = many(client, other_clip, 200)
    picture = client.get(f"/api/videos/{videos[0]['id']}/thumbnail").content
    visit.page.route("**/api/videos", lambda route: route.fulfill(json=videos))
    visit.page.route("**/thumbnail", lambda route: route.fulfill(body=picture, content_type="image/jpeg"))
    return visit


def test_the_list_scrolls_on_its_own_and_is_filtered(crowd: opened) -> None:
    with crowd as page:
        cards = page.locator(".video-card")
        expect(cards).to_have_count(200)
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), (
            "the page itself does not scroll"
        )
        page.locator("#videos").hover()
        page.mouse.wheel(0, 3000)
        eventually(lambda: page.evaluate("document.getElementById('videos').scrollTop > 1000"))
        assert page.evaluate("scrollY") == 0
        page.fill("#filter", "clip 01")
        expect(cards).to_have_count(10)
        page.fill("#filter", "")
        page.get_by_role("button", name="Failed 20").click()
        expect(cards).to_have_count(20)
        expect(page.locator(".tag.failed")).to_have_count(20)
        page.get_by_role("button", name="Not sure 20").click()
        expect(page.locator(".tag.unsure")).to_have_count(20)
        page.get_by_role("button", name="Labelled 20").click()
        expect(page.locator(".tag.labelled")).to_have_count(20)
        page.fill("#filter", "no such thing")
        expect(page.locator("#videos")).to_contain_text("No video matches.")


def test_200_videos_stay_usable(crowd: opened) -> None:
    asked: list[str] = []
    crowd.page.on("request", lambda request: asked.append(request.url) if "thumbnail" in request.url else None)
    with crowd as page:
        expect(page.locator(".video-card")).to_have_count(200)
        expect(page.locator("img.there").first).to_be_visible()
        before = -1
        while before < len(asked):
            before = len(asked)
            page.wait_for_timeout(700)
        assert 5 <= len(asked) <= 40, "pictures are asked for when they come into view"
        took = page.evaluate(
            """async () => {
                const next = () => new Promise((resolve) => requestAnimationFrame(resolve));
                const filter = document.getElementById("filter");
                const timed = async (act) => {
                    const began = performance.now();
                    act();
                    await next();
                    await next();
                    return performance.now() - began;
                };
                const typed = (text) => () => { filter.value = text; filter.dispatchEvent(new Event("input")); };
                const list = document.getElementById("videos");
                const scrolled = (top) => () => { list.scrollTop = top; };
                const acts = { filter: typed("clip 01"), all: typed(""), down: scrolled(6000), up: scrolled(0) };
                const best = {};
                for (let turn = 0; turn < 4; turn += 1) {
                    for (const [name, act] of Object.entries(acts)) {
                        best[name] = Math.min(best[name] ?? Infinity, await timed(act));
                    }
                }
                return best;
            }"""
        )
        print("200 videos, ms:", json.dumps(took))
        assert max(took.values()) < 1000, "the best of four turns, on a machine that others use, too"


def test_news_of_one_video_redraws_only_its_card(crowd: opened) -> None:
    news: list[str] = []

    def stream(route: Route) -> None:
        route.fulfill(body="retry: 100\n\n" + "".join(news), content_type="text/event-stream")

    crowd.page.route("**/api/events", stream)
    with crowd as page:
        expect(page.locator(".video-card")).to_have_count(200)
        changed = page.evaluate_handle(
            """() => {
                const changed = new Set();
                new MutationObserver((list) => list.forEach(({ target }) => {
                    const card = target.closest?.(".video-card");
                    if (card && target.tagName !== "IMG") changed.add(card.dataset.id);
                })).observe(document.getElementById("videos"), { subtree: true, childList: true, attributes: true });
                return changed;
            }"""
        )
        card = page.locator(".video-card", has_text="clip 004.mp4")
        identifier = card.get_attribute("data-id")
        job = {"id": f"{9:032x}", "video": identifier, "state": "running", "progress": 0.4, "remaining_s": 3}
        news.append(f"event: job\ndata: {json.dumps({**job, 'created': time.time() + 9, 'exemplars': []})}\n\n")
        expect(card).to_have_attribute("data-state", "running")
        eventually(lambda: page.evaluate("(changed) => changed.size", changed) > 0)
        assert page.evaluate("(changed) => [...changed]", changed) == [identifier]
