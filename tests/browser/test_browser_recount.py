"""Exemplars and ranges: mark, recount, remove, borrow, and the counts made before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from acting import TOOK, choose, heard, mark, open_card, opened, recount, set_mode, shown, spans
from playwright.sync_api import Browser, Page, Route, expect
from serving import Client, eventually

from escounts.serve.app import Service


def newest(client: Client, name: str) -> dict[str, Any]:
    video = next(v for v in client.get("/api/videos").json() if v["name"] == name)
    return dict(client.job(video["job"]["id"]))


def test_one_repetition_is_marked_and_counted_like(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    zero_shot = shown(page)
    left, right = spans(page)[2]
    mark(page, left, right)
    expect(page.locator(".exemplar-chip")).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("^Example"))).to_have_count(1)
    with_exemplar = recount(page)
    job = newest(client, sample.name)
    assert with_exemplar == job["count"] == len(spans(page))
    (exemplar,) = job["exemplars"]
    duration = job["result"]["duration"]
    assert abs(exemplar["start"] / duration - left) < 0.01
    assert abs(exemplar["end"] / duration - right) < 0.01
    said = [page.inner_text("#recount-time")]
    while not re.fullmatch(r"in \d+ ms", said[-1]) and len(said) < 9:  # others may be busy on this machine
        recount(page)
        said.append(page.inner_text("#recount-time"))
    assert re.fullmatch(r"in \d+ ms", said[-1]), f"under a second, was {said}"
    page.get_by_role("button", name=re.compile("Remove example")).click()
    expect(page.locator(".exemplar-chip")).to_have_count(0)
    assert recount(page) == zero_shot
    assert newest(client, sample.name)["exemplars"] == []
    expect(page.locator("#history li")).to_have_count(len(said) + 2)


def test_a_long_exemplar_changes_the_count(page: Page, sample: Path) -> None:
    choose(page, sample)
    zero_shot = shown(page)
    edges = spans(page)
    mark(page, edges[1][0], edges[2][1])
    assert recount(page) != zero_shot, "twice as long an example is another count"


def test_a_recount_that_takes_long_says_how_far_it_is(page: Page, sample: Path) -> None:
    choose(page, sample)

    def unfinished(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "state": "running", "progress": 0.37})

    page.route("**/api/jobs", unfinished)
    page.evaluate(
        """() => {
            const shown = document.getElementById("recount-time");
            window.said = [];
            new MutationObserver(() => window.said.push(shown.textContent)).observe(shown, { childList: true });
        }"""
    )
    assert recount(page) == len(spans(page))
    assert "37 %" in page.evaluate("window.said")


def test_what_is_marked_during_a_recount_stays(page: Page, sample: Path) -> None:
    choose(page, sample)
    edges = spans(page)
    mark(page, *edges[1])
    held: list[Route] = []
    page.route(
        "**/api/jobs", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    page.click("#recount")
    expect(page.locator("#verdict-done")).to_have_attribute("aria-busy", "true")
    mark(page, *edges[3])
    expect(page.locator(".exemplar-chip")).to_have_count(2)
    held[0].continue_()
    expect(page.locator("#recount-time")).to_have_text(TOOK)
    expect(page.locator(".exemplar-chip")).to_have_count(2)
    expect(page.locator("#history button[aria-pressed=true]")).to_contain_text("1 example")
    page.unroute("**/api/jobs")
    recount(page)
    expect(page.locator("#history button[aria-pressed=true]")).to_contain_text("2 examples")
    page.locator("#history button", has_text="no example").click()
    expect(page.locator(".exemplar-chip")).to_have_count(0)


def test_a_recount_of_one_video_leaves_the_others_alone(
    browser: Browser, running: tuple[str, Service], client: Client, sample: Path, other_clip: Path
) -> None:
    visit = opened(browser, running[0])
    polls: list[int] = []
    held: list[str] = []

    def unfinished(route: Route) -> None:
        """The first recount goes on until it is let go; its second poll goes unanswered."""
        job = route.request.url.rpartition("/")[2]
        if route.request.method == "POST" and not held:
            response = route.fetch()
            held.append(response.json()["id"])
            route.fulfill(response=response, json={**response.json(), "state": "running", "progress": 0.37})
        elif job in held:
            polls.append(503 if len(polls) == 1 else 200)
            response = route.fetch()
            late = {**response.json(), "state": "running", "progress": 0.38}
            route.fulfill(status=polls[-1], json=late if polls[-1] == 200 else {"detail": "not now"})
        else:
            route.continue_()

    with visit as page:
        choose(page, sample, other_clip)
        open_card(page, sample.name)
        page.route("**/api/jobs", unfinished)
        page.route("**/api/jobs/*", unfinished)
        page.click("#recount")
        expect(page.locator("#recount-time")).to_have_text("38 %")
        open_card(page, other_clip.name)
        expect(page.locator("#recount")).to_be_enabled()
        asked = len(polls)
        heard(page, lambda: len(polls) > asked + 2)
        assert page.inner_text("#recount-time") == "", "the other video's progress is not written here"
        recount(page)
        open_card(page, sample.name)
        expect(page.locator("#recount")).to_be_disabled()
        expect(page.locator("#recount-time")).to_have_text("38 %")
        held.clear()
        held.append("nobody")
        expect(page.locator("#recount-time")).to_have_text(TOOK)
        expect(page.locator("#recount")).to_be_enabled()
        assert 503 in polls
        visit.problems[:] = [problem for problem in visit.problems if "503" not in problem]


def test_an_exemplar_is_moved_and_removed_by_keyboard(page: Page, sample: Path) -> None:
    choose(page, sample)
    mark(page, 0.30, 0.42)
    region = page.locator(".region.exemplar")
    before = page.locator(".exemplar-chip").inner_text()
    region.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".exemplar-chip").inner_text() != before
    page.locator(".region.exemplar").focus()
    page.keyboard.press("Delete")
    expect(page.locator(".exemplar-chip")).to_have_count(0)


def test_the_repetition_under_the_playhead_is_the_example(page: Page, sample: Path) -> None:
    choose(page, sample)
    page.locator(".region.rep").nth(1).click()
    page.keyboard.press("e")
    expect(page.locator(".exemplar-chip")).to_have_count(1)
    page.keyboard.press("r")
    expect(page.locator("#recount-time")).to_have_text(TOOK)


def test_an_exemplar_is_borrowed_from_another_video(
    page: Page, client: Client, sample: Path, other_clip: Path
) -> None:
    choose(page, sample, other_clip)
    open_card(page, sample.name)
    expect(page.locator("#other option")).to_have_count(2)
    page.select_option("#other", label=other_clip.name)
    dialog = page.locator("#borrow-dialog")
    wanted = dialog.get_by_role("option").nth(1)
    expect(wanted).to_have_attribute("aria-selected", "false")  # another one is offered first
    wanted.click()
    expect(wanted).to_have_attribute("aria-selected", "true")
    lender = next(v for v in client.get("/api/videos").json() if v["name"] == other_clip.name)
    second = client.job(lender["job"]["id"])["result"]["repetitions"][1]
    shows = "const v = document.getElementById('borrow-video'); return v.currentTime"
    eventually(lambda: second["start"] - 0.1 <= page.evaluate(f"() => {{ {shows} }}") <= second["end"] + 0.1)
    page.click("#borrow-use")
    chip = page.locator(".exemplar-chip")
    expect(chip).to_contain_text(other_clip.name)
    assert page.locator(".region.exemplar").count() == 0, "it is not on this timeline"
    recount(page)
    expect(page.locator("#unsure")).to_contain_text("mark one repetition of this video")
    job = newest(client, sample.name)
    (borrowed,) = job["exemplars"]
    assert borrowed["video"] == lender["id"]
    assert borrowed["start"] == pytest.approx(second["start"], abs=0.002), "the one that was chosen"


def test_of_a_labelled_video_the_persons_repetitions_are_lent(
    page: Page, client: Client, sample: Path, other_clip: Path
) -> None:
    choose(page, sample, other_clip)
    open_card(page, other_clip.name)
    set_mode(page, "correct")
    counted = len(spans(page))
    page.locator(".region.rep").first.focus()
    page.keyboard.press("Delete")
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_have_text(f"Saved: {counted - 1}")
    lender = next(v for v in client.get("/api/videos").json() if v["name"] == other_clip.name)
    first = client.get(f"/api/videos/{lender['id']}/labels").json()["spans"][0]
    open_card(page, sample.name)
    page.select_option("#other", label=other_clip.name)
    options = page.locator("#borrow-dialog").get_by_role("option")
    expect(options).to_have_count(counted - 1)
    expect(options.first).to_contain_text(f"{first['start']:.1f}–{first['end']:.1f} s")


def test_the_range_is_dragged_typed_and_reset(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    whole = shown(page)
    handle = page.get_by_role("slider", name="Count to")
    box, track = handle.bounding_box(), page.locator(".tl-track").bounding_box()
    assert box is not None
    assert track is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + track["width"] * 0.5, box["y"] + 5, steps=5)
    page.mouse.up()
    part = recount(page)
    assert 0 < part < whole
    job = newest(client, sample.name)
    assert abs(job["end"] / job["result"]["duration"] - 0.5) < 0.02
    page.fill("#range-end", "3")
    page.press("#range-end", "Enter")
    recount(page)
    assert newest(client, sample.name)["end"] == 3.0
    page.get_by_role("slider", name="Count from").focus()
    page.keyboard.press("PageUp")
    expect(page.locator("#range-start")).to_have_value("1.0")
    page.click("#range-all")
    assert recount(page) == whole
    assert newest(client, sample.name)["end"] is None


def test_an_earlier_count_is_shown_again(page: Page, sample: Path) -> None:
    choose(page, sample)
    whole = shown(page)
    page.fill("#range-end", "3")
    page.press("#range-end", "Enter")
    assert recount(page) != whole
    expect(page.locator("#history button[aria-pressed=true]")).to_contain_text("spectral, no example, 0.0–3.0 s")
    page.locator("#history button", has_text=f"{whole} · spectral, no example").last.click()
    expect(page.locator("#total")).to_have_text(str(whole))
    expect(page.locator("#range-end")).not_to_have_value("3.0")
