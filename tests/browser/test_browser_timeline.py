"""The hand on the timeline: scrubbing, the picture that follows, the loop, the filmstrip, the curve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from acting import choose, length, mark, set_mode, spans, time_now
from playwright.sync_api import Page, expect
from serving import Client, eventually


def place(page: Page, selector: str, fraction: float, height: float = 0.5) -> tuple[float, float]:
    """A point of the timeline: a fraction of its width, at a height of one of its parts."""
    part, track = page.locator(selector).first.bounding_box(), page.locator(".tl-track").bounding_box()
    assert part is not None
    assert track is not None
    return track["x"] + track["width"] * fraction, part["y"] + part["height"] * height


@contextmanager
def held(page: Page, start: tuple[float, float], end: tuple[float, float]) -> Iterator[None]:
    """The mouse button is down from start on, and still down at end."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, end[1], steps=4)
    page.mouse.move(*end, steps=4)
    yield
    page.mouse.up()


def shows(page: Page, seconds: float) -> None:
    """The picture arrives at a time."""
    eventually(lambda: abs(time_now(page) - seconds) < 0.12)


@pytest.mark.parametrize("part", [".tl-ruler", ".tl-track", ".tl-film"])
def test_ruler_timeline_and_pictures_scrub(page: Page, sample: Path, part: str) -> None:
    choose(page, sample)
    duration = length(page)
    x, y = place(page, part, 0.03)
    page.mouse.move(x, y)
    page.mouse.down()
    shows(page, 0.03 * duration)
    page.mouse.move(*place(page, part, 0.6), steps=5)
    shows(page, 0.6 * duration)
    page.mouse.move(*place(page, part, 0.4), steps=5)
    shows(page, 0.4 * duration)
    page.mouse.up()
    assert page.locator(".exemplar-chip").count() == 0, "watching marks nothing"


def test_of_two_seeks_the_later_one_stays_whenever_the_first_arrives(page: Page) -> None:
    shown = page.evaluate(
        """async () => {
            const { Player } = await import("/js/player.js");
            const video = Object.assign(new EventTarget(), { currentTime: 0, videoWidth: 1, paused: true });
            const player = new Player(video, { onTime() {}, onLength() {}, onState() {}, onProblem() {} });
            video.dispatchEvent(new Event("loadedmetadata"));
            player.seek(1);
            video.seeking = true;
            player.seek(2);
            video.seeking = false; // it has arrived, its event is on the way
            player.seek(3);
            video.dispatchEvent(new Event("seeked"));
            return video.currentTime;
        }"""
    )
    assert shown == 3


def test_the_playhead_is_dragged_and_playing_goes_on_after_it(page: Page, sample: Path) -> None:
    choose(page, sample)
    duration = length(page)
    page.mouse.click(*place(page, ".tl-ruler", 0.3))
    shows(page, 0.3 * duration)
    page.evaluate("document.getElementById('player').playbackRate = 0.1")  # it must be where it was seen when grasped
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    head = page.locator(".tl-playhead").bounding_box()
    assert head is not None
    with held(page, (head["x"] + 9, head["y"] + 16), place(page, ".tl-ruler", 0.7)):
        shows(page, 0.7 * duration)
        assert page.evaluate("document.getElementById('player').paused"), "it waits while it is dragged"
    eventually(lambda: time_now(page) > 0.7 * duration + 0.2)


def test_the_picture_follows_what_is_dragged(page: Page, sample: Path) -> None:
    choose(page, sample)
    duration = length(page)
    set_mode(page, "mark")
    with held(page, place(page, ".tl-track", 0.3), place(page, ".tl-track", 0.45)):
        shows(page, 0.45 * duration)
    right = page.locator(".region.exemplar .grip.right").bounding_box()
    assert right is not None
    with held(page, (right["x"] + 5, right["y"] + 20), (right["x"] + 85, right["y"] + 20)):
        shows(page, float(page.evaluate(EXEMPLAR_END)) * duration)
        moved = time_now(page)
    assert moved > 0.47 * duration
    page.get_by_role("button", name=re.compile("Remove example")).click()
    set_mode(page, "correct")
    border = page.locator(".region.rep .grip.left").nth(2).bounding_box()
    track = page.locator(".tl-track").bounding_box()
    assert border is not None
    assert track is not None
    start = (border["x"] + 6, border["y"] + 20)
    with held(page, start, (start[0] + 15, start[1])):
        shows(page, (start[0] + 15 - track["x"]) / track["width"] * duration)


EXEMPLAR_END = """(() => { const { left, width } = document.querySelector('.region.exemplar').style;
                            return (parseFloat(left) + parseFloat(width)) / 100; })()"""


def test_the_chosen_repetition_loops(page: Page, sample: Path) -> None:
    choose(page, sample)
    duration = length(page)
    start, end = (edge * duration for edge in spans(page)[2])
    page.locator(".region.rep").nth(2).click()
    shows(page, start)
    expect(page.locator("#looping")).to_contain_text("repetition 3")
    page.evaluate(
        """() => {
            const player = document.getElementById("player");
            window.seen = [];
            player.playbackRate = 2;
            const look = () => { window.seen.push(player.currentTime); requestAnimationFrame(look); };
            look();
        }"""
    )
    page.keyboard.press(" ")
    again = "window.seen.some((time, i) => i && time < window.seen[i - 1] - 0.5)"
    eventually(lambda: page.evaluate(again))
    seen = page.evaluate("window.seen")
    past = [time > end + 0.05 for time in seen]
    assert not any(map(all, zip(past, past[1:], past[2:], strict=False))), "it does not run on from frame to frame"
    assert min(seen[10:]) > start - 0.2
    page.keyboard.press("Escape")
    expect(page.locator("#looping")).to_be_hidden()
    eventually(lambda: time_now(page) > end + 0.3)


def test_the_chosen_repetition_becomes_the_example(page: Page, sample: Path) -> None:
    choose(page, sample)
    page.locator(".region.rep").nth(1).click()
    page.click("#use-chosen")
    left, right = spans(page)[1]
    found = page.evaluate("(() => { const s = document.querySelector('.region.exemplar').style; return s.left; })()")
    assert float(found.rstrip("%")) / 100 == pytest.approx(left, abs=1e-3)
    assert right > left


def test_pictures_under_the_curve_are_of_their_moment(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    cells = page.locator(".tl-film i")
    expect(cells.first).to_be_attached()
    shown = [int(value) for value in cells.evaluate_all("(nodes) => nodes.map((node) => node.dataset.picture)")]
    assert len(shown) >= 5
    expected = [int((index + 0.5) / len(shown) * 60) for index in range(len(shown))]
    assert shown == expected
    (video,) = client.get("/api/videos").json()
    style = cells.nth(2).evaluate("(node) => [node.style.backgroundImage, node.style.backgroundPosition]")
    assert f"{video['id']}/filmstrip" in style[0]
    assert float(style[1].split("px")[0]) < 0
    film, track = page.locator(".tl-film").bounding_box(), page.locator(".tl-track").bounding_box()
    assert film is not None
    assert track is not None
    assert film["y"] >= track["y"] + track["height"] - 1, "under the density"


def test_the_curve_is_the_one_that_was_computed(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    (video,) = client.get("/api/videos").json()
    result = client.job(video["job"]["id"])["result"]
    density = result["density"]
    drawn = page.locator(".tl-curve path:first-child").get_attribute("d")
    assert drawn is not None
    points = [tuple(map(float, pair)) for pair in re.findall(r"L([\d.]+) ([\d.]+)", drawn)][1:-2]
    peak = max(density["values"])
    assert len(points) == len(density["values"]) <= 1600
    for index, (x, y) in enumerate(points):
        centre = density["start"] + (index + 0.5) * density["step"]
        assert x == pytest.approx(1000 * centre / result["duration"], abs=0.02)
        assert (100 - y) / 96 == pytest.approx(max(density["values"][index], 0) / peak, abs=0.002)
    assert page.locator(".tl-track svg").count() == 1, "no other curve is drawn on it"


def test_an_example_is_marked_and_recounted_in_one_place(page: Page, sample: Path) -> None:
    choose(page, sample)
    left, right = spans(page)[2]
    mark(page, left, right)
    card, button = page.locator("#timeline-card").bounding_box(), page.locator("#recount").bounding_box()
    chip = page.locator(".exemplar-chip").bounding_box()
    assert card is not None
    for box in (button, chip):
        assert box is not None
        assert card["y"] <= box["y"]
        assert box["y"] + box["height"] <= card["y"] + card["height"]
