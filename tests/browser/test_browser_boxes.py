"""Boxes on the picture: one that a count is kept to, and the places where something repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import answer_with, choose, length, recount, shown
from movies import beside, bouncing, write_movie
from playwright.sync_api import Page, expect
from serving import Client


@pytest.fixture(scope="module")
def two_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two motions side by side, 4 on the left and 8 on the right."""
    return write_movie(tmp_path_factory.mktemp("two") / "two.mp4", beside(bouncing(4, 4.8), bouncing(8, 4.8)))


def test_a_box_drawn_on_the_picture_is_counted_alone(page: Page, client: Client, two_people: Path) -> None:
    choose(page, two_people)
    length(page)
    page.click("#draw-box")
    layer = page.locator("#boxes").bounding_box()
    assert layer is not None
    assert layer["width"] / layer["height"] == pytest.approx(3, abs=0.02), "it lies on the picture, not beside it"
    page.mouse.move(layer["x"] + 0.505 * layer["width"], layer["y"] + 1)
    page.mouse.down()
    page.mouse.move(layer["x"] + 0.8 * layer["width"], layer["y"] + 0.7 * layer["height"], steps=3)
    page.mouse.move(layer["x"] + layer["width"], layer["y"] + layer["height"] - 1, steps=3)
    page.mouse.up()
    expect(page.locator(".region-box")).to_be_visible()
    assert recount(page) == 8
    job = client.get("/api/videos").json()[0]["job"]
    x, y, width, height = (float(side.rstrip("%")) for side in job["region"].split(","))
    assert [x, width] == pytest.approx([50.5, 49.5], abs=0.6) and y < 2 and height > 96
    page.fill("#region", "0%, 0%, 50%, 100%")
    page.press("#region", "Enter")
    assert recount(page) == 4
    expect(page.locator("#history button[aria-pressed=true]")).to_contain_text("box")
    page.reload()
    shown(page)
    assert page.locator(".region-box").evaluate("node => [node.style.left, node.style.width]") == ["0%", "50%"]
    page.click(".exemplar-chip button")
    expect(page.locator(".region-box")).to_be_hidden()
    recount(page)
    assert client.get("/api/videos").json()[0]["job"]["region"] is None


def test_places_have_their_own_numbers_on_the_picture(page: Page, client: Client, two_people: Path) -> None:
    def track(region: str, count: int) -> dict[str, Any]:
        lasting = 4.8 / count
        spans = [{"start": n * lasting, "end": (n + 1) * lasting, "score": None} for n in range(count)]
        return {"region": region, "count": count, "confidence": 0.9, "unsure": False, "repetitions": spans}

    tracks = [track("0,0,96,64", 4), track("96,0,96,64", 8)]
    spans = tracks[0]["repetitions"] + tracks[1]["repetitions"]
    answer_with(page, tracks=tracks, repetitions=spans)
    choose(page, two_people)
    length(page)
    lanes = page.locator(".region.rep").evaluate_all(
        "nodes => nodes.map((node) => [node.style.top, node.style.height])"
    )
    assert lanes == [["0%", "50%"]] * 4 + [["50%", "50%"]] * 8, "each place has a lane on the timeline"
    expect(page.locator(".region.rep .region-label")).to_have_text([*"1234", *"12345678"])
    expect(page.locator(".track button")).to_have_text(["0 of 4", "0 of 8"])
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".track button")).to_have_text(["2 of 4", "5 of 8"])
    expect(page.locator("#units")).to_be_hidden()  # each place has its own
    places = page.locator(".track").evaluate_all("nodes => nodes.map((node) => [node.style.left, node.style.width])")
    assert places == [["0%", "50%"], ["50%", "50%"]]
    page.unroute_all()
    page.locator(".track button").last.click()
    expect(page.locator("#total")).to_have_text("8")
    job = client.get("/api/videos").json()[0]["job"]
    assert (job["region"], job["each"], job["count"]) == ("96,0,96,64", False, 8), "it is counted alone"


def test_each_place_is_asked_for_by_a_button(page: Page, two_people: Path) -> None:
    choose(page, two_people)
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/api/jobs")) as asked:
        page.click("#each")
    assert '"each":true' in (asked.value.post_data or "")
    expect(page.locator("#toasts")).to_contain_text("does not look for places")  # spectral; lite does
    page.click("#each")
    expect(page.locator("#each")).to_have_attribute("aria-pressed", "false")
