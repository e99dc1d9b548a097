"""Corrections are not lost by accident, and one border put right puts all of them right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from acting import choose, open_card, set_mode, shown, spans
from playwright.sync_api import Dialog, Page, expect
from serving import Client, eventually

QUESTION = "Save your corrections?"


def delete_first(page: Page) -> int:
    """One repetition less, not saved; how many are left."""
    set_mode(page, "correct")
    before = len(spans(page))
    page.locator(".region.rep").first.focus()
    page.keyboard.press("Delete")
    assert len(spans(page)) == before - 1
    return before - 1


LEAVING: dict[str, Callable[[Page], None]] = {
    "another video": lambda page: page.locator(".video-card", has_text="bounce").locator(".video-open").click(),
    "home": lambda page: page.click("#home"),
    "back": lambda page: page.evaluate("history.back()"),
    "recount": lambda page: page.evaluate("document.getElementById('recount').click()"),
}


@pytest.mark.parametrize("way", LEAVING)
def test_leaving_asks_first(page: Page, client: Client, sample: Path, other_clip: Path, way: str) -> None:
    choose(page, sample, other_clip)
    open_card(page, other_clip.name)
    open_card(page, sample.name)
    left = delete_first(page)
    LEAVING[way](page)
    dialog = page.locator("#ask-dialog")
    expect(dialog).to_contain_text(QUESTION)
    dialog.get_by_role("button", name="Keep correcting").click()
    expect(page.locator("#verdict-name")).to_have_text(sample.name)
    assert len(spans(page)) == left, "nothing is lost"
    here = client.get("/api/videos").json()
    place = "#video=" + next(video["id"] for video in here if video["name"] == sample.name)
    eventually(lambda: page.evaluate("location.hash") == place)  # "back" is taken back
    LEAVING[way](page)
    dialog.get_by_role("button", name="Save labels").click()
    expect(page.locator(".video-card", has_text=sample.name).locator(".tag.labelled")).to_be_visible()
    video = next(video for video in client.get("/api/videos").json() if video["name"] == sample.name)
    assert len(client.get(f"/api/videos/{video['id']}/labels").json()["spans"]) == left
    if way == "another video":
        expect(page.locator("#verdict-name")).to_have_text(other_clip.name)


ASKED_TWICE = """async () => {
  const { ask } = await import("/js/dialogs.js");
  const pressed = (value) => document.querySelector(`#ask-choices [data-choice=${value}]`).click();
  const choices = [["save", "Save", ""], ["stay", "Stay", ""]];
  const first = ask("First?", "", choices);
  pressed("stay");
  const second = ask("Second?", "", choices);
  await new Promise((done) => setTimeout(done, 100));
  pressed("save");
  const third = ask("Third?", "", choices);
  await new Promise((done) => setTimeout(done, 100));
  document.getElementById("ask-dialog").close();  // as Escape does
  const none = new Promise((done) => setTimeout(() => done("no answer"), 1000));
  return Promise.all([first, second, third].map((asked) => Promise.race([asked, none])));
}"""


def test_the_end_of_one_question_does_not_answer_the_next(page: Page) -> None:
    """A dialog's close event comes after the next question may have been put: "Save labels" then saved nothing."""
    assert page.evaluate(ASKED_TWICE) == ["stay", "save", ""]


def test_corrections_are_discarded_when_asked_to(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    delete_first(page)
    page.click("#home")
    page.get_by_role("button", name="Discard them").click()
    expect(page.locator("#welcome")).to_be_visible()
    assert not client.get("/api/videos").json()[0]["labelled"]
    page.click("#home")
    assert not page.locator("#ask-dialog").is_visible(), "there is nothing left to ask about"


def test_closing_the_tab_asks_first(page: Page, sample: Path) -> None:
    choose(page, sample)
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    page.reload()
    assert asked == []
    shown(page)
    delete_first(page)
    page.reload()
    assert asked == ["beforeunload"]


def grip(page: Page, index: int) -> tuple[float, float]:
    box = page.locator(".region.rep .grip.left").nth(index).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2 + 1, box["y"] + 25


def drag_grip(page: Page, index: int, by: float, *, alone: bool = False) -> None:
    x, y = grip(page, index)
    if alone:
        page.keyboard.down("Alt")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by / 2, y, steps=3)
    page.mouse.move(x + by, y, steps=3)
    page.mouse.up()
    if alone:
        page.keyboard.up("Alt")


def test_one_border_moves_all_by_the_same_phase(page: Page, sample: Path) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    before = spans(page)
    track = page.locator(".tl-track").bounding_box()
    assert track is not None
    length = before[3][1] - before[3][0]
    drag_grip(page, 3, 0.3 * length * track["width"])
    after = spans(page)
    assert len(after) == len(before), "as many as before"
    moved = [(new[0] - old[0]) / (old[1] - old[0]) for new, old in zip(after, before, strict=True)]
    assert moved == pytest.approx([0.3] * len(before), abs=0.03), "each the same part of its own length"
    assert after[-1][1] == pytest.approx(before[-1][1], abs=1e-3), "not past the end of the motion"
    page.click("#undo")
    assert spans(page) == before
    drag_grip(page, 3, -0.3 * length * track["width"])
    earlier = spans(page)
    assert earlier[0][0] == pytest.approx(before[0][0], abs=1e-3), "nor before its beginning"
    assert earlier[3][0] == pytest.approx(before[3][0] - 0.3 * (before[2][1] - before[2][0]), abs=0.01)


@pytest.mark.parametrize("how", ["Alt", "unchecked"])
def test_one_border_can_be_moved_alone(page: Page, sample: Path, how: str) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    before = spans(page)
    if how == "unchecked":
        page.uncheck("#together")
    drag_grip(page, 3, 15, alone=how == "Alt")
    after = spans(page)
    assert after[3][0] > before[3][0]
    assert [span for index, span in enumerate(after) if index != 3] == [
        span for index, span in enumerate(before) if index != 3
    ]
