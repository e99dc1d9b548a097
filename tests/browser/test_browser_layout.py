"""What is in view where: a laptop's screen, a phone's, and swipes over the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from acting import choose, length, open_card, opened, set_mode, time_now
from playwright.sync_api import Browser, Page, expect
from serving import Client, eventually

from escounts.serve.app import Service

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def inside(page: Page, selector: str, height: int) -> None:
    box = page.locator(selector).bounding_box()
    assert box is not None
    assert box["y"] >= 0, selector
    assert box["y"] + box["height"] <= height, f"{selector} ends at {box['y'] + box['height']}"


@pytest.mark.parametrize("mode", ["watch", "mark", "correct"])
def test_video_timeline_and_verdict_fit_a_laptop(
    browser: Browser, running: tuple[str, Service], client: Client, sample: Path, mode: str
) -> None:
    with opened(browser, running[0], viewport={"width": 1280, "height": 800}) as page:
        choose(page, sample)
        set_mode(page, mode)
        if mode != "mark":
            page.locator(".region.rep").nth(1).click()
        for part in ("#screen", "#verdict", "#timeline-card", "#recount" if mode != "correct" else "#save-labels"):
            inside(page, part, 800)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        said = {"labels-state": "Saved: 120", "recount-time": "in 777 ms"}
        page.evaluate(
            "(said) => { for (const id in said) document.getElementById(id).textContent = said[id]; }", said
        )
        assert page.locator(".transport").evaluate("(node) => node.clientHeight") < 50, "it stays in one line"
        verdict = page.locator("#verdict")
        assert verdict.evaluate("(node) => node.scrollHeight <= node.clientHeight + 1"), "all of it is in view"


def test_on_a_phone_the_video_is_on_top_the_timeline_next_the_facts_last(
    browser: Browser, running: tuple[str, Service], client: Client, sample: Path
) -> None:
    with opened(browser, running[0], **PHONE) as page:
        choose(page, sample)
        tops = [page.locator(part).bounding_box() for part in ("#screen", "#timeline-card", "#verdict", "#panels")]
        assert all(box is not None for box in tops)
        assert [box["y"] for box in tops if box] == sorted(box["y"] for box in tops if box)
        inside(page, ".timeline", 844)
        page.evaluate("scrollTo(0, 600)")
        eventually(lambda: page.evaluate("scrollY > 0"))
        page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
        inside(page, "#screen", 844)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.evaluate("scrollTo(0, 0)")
        page.tap("#to-videos")
        expect(page.locator(".video-card").first).to_be_visible()
        open_card(page, sample.name)
        page.go_back()
        expect(page.locator("#workspace")).to_be_hidden()


CUT = """() => [...document.querySelectorAll("body *")].filter((node) => {
  const box = node.getBoundingClientRect();
  if (!node.checkVisibility() || box.width < 2 || !node.textContent.trim()) return false;
  const clips = getComputedStyle(node).overflowX !== "visible" && node.id !== "timeline";
  const outside = (box.left < -1 && box.right > 0) || box.right > innerWidth + 1;
  return outside || (clips && node.scrollWidth > node.clientWidth + 1);
}).map((node) => `${node.id || node.className}: ${node.textContent.trim().slice(0, 60)}`)"""
"""Words that are not shown to their end."""


def test_on_a_phone_no_word_is_cut_off(
    browser: Browser, running: tuple[str, Service], page: Page, client: Client, sample: Path, tmp_path: Path
) -> None:
    long = tmp_path / "left_and_right_exercise_366_videos__preacher-curl.mp4"
    long.write_bytes(sample.read_bytes())
    bad = tmp_path / "a letter with a name that is rather long.mp4"
    bad.write_text("Dear video,")
    with opened(browser, running[0], **PHONE) as page:

        def whole(state: str) -> None:
            assert page.evaluate(CUT) == [], state

        whole("welcome")
        choose(page, long)
        whole("counted")
        for mode in ("mark", "correct"):
            set_mode(page, mode)
            whole(mode)
        lines = page.locator(".transport").evaluate("(node) => node.clientHeight")
        page.locator(".region.rep").nth(1).click()
        page.click("#save-labels")
        expect(page.locator("#labels-state")).to_contain_text("Saved")
        whole("saved")
        save, modes = page.locator("#save-labels").bounding_box(), page.locator("#modes").bounding_box()
        assert save is not None and modes is not None
        assert abs(save["y"] - modes["y"]) < 12, "Save stays beside Correct"
        assert page.locator(".transport").evaluate("(node) => node.clientHeight") <= lines + 30
        handle, box = page.locator(".tl-handle.end").bounding_box(), page.locator(".timeline").bounding_box()
        assert handle is not None and box is not None
        assert handle["x"] + handle["width"] <= box["x"] + box["width"] + 0.5, "the handle is whole"
        page.tap("#to-videos")
        page.set_input_files("#file", str(bad))
        expect(page.locator("#verdict-problem")).to_be_visible()
        whole("failed")
        page.tap("#to-videos")
        expect(page.locator(".video-card")).to_have_count(2)
        whole("list")
        page.tap("#teach-open")
        whole("teach")
        page.keyboard.press("Escape")
        page.tap("#help")
        whole("help")
        inside(page, "#help-title", 844)


def swipe(page: Page, selector: str, dx: float, dy: float) -> None:
    """A finger over a part of the page."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for step in range(1, 16):
        point = {"x": x + dx * step / 15, "y": y + dy * step / 15}
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def to_top(page: Page) -> None:
    """Scroll there, and stay: what a swipe before set going runs on for a moment."""
    eventually(
        lambda: page.evaluate("new Promise((r) => { scrollTo(0, 0); setTimeout(() => r(scrollY === 0), 150); })")
    )


def test_a_vertical_swipe_over_the_timeline_scrolls(
    browser: Browser, running: tuple[str, Service], client: Client, sample: Path
) -> None:
    with opened(browser, running[0], **PHONE) as page:
        choose(page, sample)
        length(page)
        for mode in ("watch", "mark", "correct"):
            to_top(page)
            set_mode(page, mode)
            before = time_now(page)
            swipe(page, ".tl-track", 0, -300)
            eventually(lambda: page.evaluate("scrollY > 150"))
            assert page.locator(".exemplar-chip").count() == 0
            assert time_now(page) == before, "it does not move the picture"
            expect(page.locator("#labels-state")).to_have_text("")
        to_top(page)
        set_mode(page, "watch")
        swipe(page, ".tl-track", 90, 0)
        eventually(lambda: time_now(page) > before + 1)
        assert page.evaluate("scrollY") == 0, "a horizontal one moves the picture"
