"""Corrections, labels, downloads, the past, deleting."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from acting import choose, drag, length, mark, open_card, opened, set_mode, shown, spans, time_now
from playwright.sync_api import Browser, Page, Route, expect
from serving import Client, Command, eventually

from escounts.serve.app import Service


def drag_by(page: Page, x: float, y: float, by: float) -> None:
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by / 2, y, steps=3)
    page.mouse.move(x + by, y, steps=3)
    page.mouse.up()


def test_spans_are_moved_added_deleted_and_undone(page: Page, sample: Path) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    page.uncheck("#together")
    counted = spans(page)
    box = page.locator(".region.rep").nth(1).bounding_box()
    track = page.locator(".tl-track").bounding_box()
    assert box is not None
    assert track is not None
    y = box["y"] + box["height"] / 3
    drag_by(page, box["x"] + box["width"] - 3, y, -box["width"] * 0.3)
    shorter = spans(page)
    assert shorter[1][0] == pytest.approx(counted[1][0], abs=1e-4), "its start stays"
    assert shorter[1][1] == pytest.approx(counted[1][1] - 0.3 * box["width"] / track["width"], abs=0.01)
    drag_by(page, box["x"] + box["width"] * 0.3, y, -12)
    moved = spans(page)
    assert moved[1][0] == pytest.approx(shorter[1][0] - 12 / track["width"], abs=0.003)
    assert moved[1][1] - moved[1][0] == pytest.approx(shorter[1][1] - shorter[1][0], abs=1e-3)
    page.keyboard.press("Delete")
    assert len(spans(page)) == len(counted) - 1
    expect(page.locator("#by-hand")).to_contain_text(f"The model counted {len(counted)}")
    drag(page, 0.005, 0.035)
    assert len(spans(page)) == len(counted)
    for _ in range(4):
        page.click("#undo")
    assert spans(page) == counted
    expect(page.locator("#undo")).to_be_disabled()
    page.click("#add-span")
    assert len(spans(page)) == len(counted) + 1
    page.click("#delete-span")
    assert len(spans(page)) == len(counted)


def test_cycles_are_split_into_sides_and_labels_never_overlap(page: Page, sample: Path) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    page.uncheck("#together")
    counted = spans(page)
    start, end = counted[2]
    track = page.locator(".tl-track").bounding_box()
    ruler = page.locator(".tl-ruler").bounding_box()
    assert track is not None and ruler is not None
    page.mouse.click(track["x"] + track["width"] * (start + end) / 2, ruler["y"] + ruler["height"] / 2)
    expect(page.locator("#add-span")).to_have_text("Split here")
    page.click("#add-span")
    sides = spans(page)
    assert len(sides) == len(counted) + 1
    assert sides[2][0] == pytest.approx(start, abs=1e-4)
    assert sides[2][1] == pytest.approx((start + end) / 2, abs=0.005)
    assert sides[3] == pytest.approx((sides[2][1], end), abs=1e-4)
    box = page.locator(".region.rep").nth(3).bounding_box()
    assert box is not None
    drag_by(page, box["x"] + box["width"] / 2, box["y"] + box["height"] / 3, box["width"] * 0.4)
    moved = spans(page)
    assert moved[3][0] > sides[3][0] + 0.005, "it moved"
    assert moved[4][0] == pytest.approx(moved[3][1], abs=1e-4), "the next one gave way"
    page.locator(".region.rep").nth(6).click()
    page.keyboard.press("Delete")
    hole = moved[6]
    page.mouse.click(track["x"] + track["width"] * sum(hole) / 2, ruler["y"] + ruler["height"] / 2)
    expect(page.locator("#add-span")).to_have_text("Add here")
    page.click("#add-span")
    assert spans(page)[6] == pytest.approx(hole, abs=1e-3), "the hole is filled"
    border = track["x"] + track["width"] * counted[5][1]
    page.mouse.click(border, ruler["y"] + ruler["height"] / 2)
    page.click("#add-span")  # between two that touch: no room, and none to split
    expect(page.locator("#toasts")).to_contain_text("There is no room for another repetition here")
    assert len(spans(page)) == len(moved)
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_have_text(f"Saved: {len(moved)}")


def cleared(page: Page, sample: Path) -> float:
    """The sample, counted, in Correct, without repetitions; how long it lasts."""
    choose(page, sample)
    set_mode(page, "correct")
    page.locator(".region.rep").first.click()
    for _ in spans(page):
        page.keyboard.press("Delete")
    assert spans(page) == []
    return length(page)


def test_repetitions_are_marked_from_nothing_and_what_is_said_is_said_of_them(page: Page, sample: Path) -> None:
    seconds = cleared(page, sample)
    track = page.locator(".tl-track").bounding_box()
    assert track is not None
    borders = [0.2, 0.3, 0.4, 0.5, 0.6]
    for start, end in pairwise(borders):  # a hand does not begin on the border, where it would take hold of that
        drag(page, start + 4 / track["width"], end)
    marked = spans(page)
    assert len(marked) == 4
    for (_, end), (start, _) in pairwise(marked):
        assert start == pytest.approx(end, abs=1e-4), "the next begins where one ends"
    facts = page.inner_text("#facts")
    assert f"{0.1 * seconds:.2f} s" in facts and "where you put it" in facts, "not what the model's take"
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_have_text("Saved: 4")
    page.click("#revert")
    expect(page.locator("#facts")).to_contain_text("at any point of the motion")


def test_repetitions_are_marked_along_while_it_plays(page: Page, sample: Path) -> None:
    seconds = cleared(page, sample)
    page.select_option("#speed", "0.5")
    page.locator(".tl-ruler").click(position={"x": 60, "y": 6})
    page.click("#play")
    pressed: list[float] = []
    for _ in range(4):
        pressed.append(time_now(page))
        page.keyboard.press("a")
        eventually(lambda: time_now(page) > pressed[-1] + 0.6)
    assert page.evaluate("document.getElementById('player').paused") is False, "it plays on"
    page.keyboard.press(" ")
    marked = spans(page)
    assert len(marked) == 4
    expect(page.locator("#looping")).to_be_hidden()
    for (start, _), at in zip(marked, pressed, strict=True):
        assert start * seconds == pytest.approx(at, abs=0.35)
    for (_, end), (start, _) in pairwise(marked):
        assert start == pytest.approx(end, abs=1e-4), "one ends where the next begins"


def test_a_span_is_corrected_by_keyboard_alone(page: Page, sample: Path) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    page.uncheck("#together")
    before = spans(page)
    page.locator(".region.rep").nth(0).focus()
    page.keyboard.press("Alt+ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")
    after = spans(page)
    assert after[0][0] < before[0][0]
    assert after[0][1] < before[0][1]
    page.keyboard.press("Delete")
    assert len(spans(page)) == len(before) - 1
    page.keyboard.press("Control+z")
    assert spans(page) == after


def test_labels_are_saved_found_again_and_exported(page: Page, client: Client, sample: Path, tmp_path: Path) -> None:
    choose(page, sample)
    counted = shown(page)
    set_mode(page, "correct")
    page.locator(".region.rep").nth(0).focus()
    page.keyboard.press("Delete")
    page.fill("#action", "squat")
    expect(page.locator("#labels-state")).to_have_text("Not saved")
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_have_text(f"Saved: {counted - 1}")
    with page.expect_download() as csv_file:
        page.click("#labels-csv")
    rows = list(csv.DictReader(io.StringIO(Path(csv_file.value.path()).read_text())))
    assert len(rows) == counted - 1
    assert {(row["file"], row["class"]) for row in rows} == {(sample.name, "squat")}
    with page.expect_download() as studio:
        page.click("#label-studio")
    task = json.loads(Path(studio.value.path()).read_text())
    assert len(task[0]["annotations"][0]["result"]) == counted - 1
    page.reload()
    expect(page.locator("#labels-state")).to_have_text(f"Saved: {counted - 1}")
    assert len(spans(page)) == counted - 1
    task[0]["annotations"][0]["result"] = task[0]["annotations"][0]["result"][:2]
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(task))
    page.set_input_files("#import", str(edited))
    expect(page.locator("#labels-state")).to_have_text("Saved: 2")
    assert len(spans(page)) == 2
    expect(page.locator("#action")).to_have_value("squat")
    wrong = tmp_path / "wrong.json"
    wrong.write_text("not json")
    page.set_input_files("#import", str(wrong))
    expect(page.locator("#toasts")).to_contain_text("wrong.json is not JSON")
    assert len(spans(page)) == 2


def test_labels_saved_during_a_recount_belong_to_the_spans_on_screen(
    page: Page, client: Client, sample: Path
) -> None:
    choose(page, sample)
    (video,) = client.get("/api/videos").json()
    counted = len(spans(page))
    left, right = spans(page)[1]
    mark(page, left, right)
    held: list[Route] = []
    page.route(
        "**/api/jobs", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    page.click("#recount")
    expect(page.locator("#verdict-done")).to_have_attribute("aria-busy", "true")
    set_mode(page, "correct")
    page.locator(".region.rep").first.focus()
    page.keyboard.press("Delete")
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_have_text(f"Saved: {counted - 1}")
    saved = client.get(f"/api/videos/{video['id']}/labels").json()
    assert (saved["job"], len(saved["spans"])) == (video["job"]["id"], counted - 1)
    held[0].continue_()
    expect(page.locator("#verdict-done")).to_have_attribute("aria-busy", "false")
    assert client.get(f"/api/videos/{video['id']}/labels").json() == saved, "a recount takes no labels away"
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_have_text(f"Saved: {len(spans(page))}")
    (video,) = client.get("/api/videos").json()
    again = client.get(f"/api/videos/{video['id']}/labels").json()
    assert again["job"] == video["job"]["id"] != saved["job"], "now they are of the recount"


def test_labels_go_to_other_tools_and_come_back(page: Page, client: Client, sample: Path, tmp_path: Path) -> None:
    choose(page, sample)
    set_mode(page, "correct")
    page.click("#save-labels")
    expect(page.locator("#labels-state")).to_contain_text("Saved")
    with page.expect_download() as boris:
        page.select_option("#export", "boris")
    text = Path(boris.value.path()).read_text()
    assert sample.name in text
    with page.expect_download() as dataset:
        page.click("#dataset")
    with zipfile.ZipFile(dataset.value.path()) as archive:
        assert {"labels.csv", sample.name} <= {Path(name).name for name in archive.namelist()}
    other = tmp_path / "other.csv"
    other.write_text(f"file,start_s,end_s,class\n{sample.name},1.0,2.0,hop\nelsewhere.mp4,1,2,hop\n")
    page.set_input_files("#import-all", str(other))
    expect(page.locator("#toasts")).to_contain_text("Labels of 1 video imported. Not here: elsewhere.mp4.")
    expect(page.locator("#kept")).to_have_text("Kept until you delete it, because it has labels.")
    expect(page.locator("#labels-state")).to_have_text("Saved: 1")
    assert len(spans(page)) == 1
    expect(page.locator("#action")).to_have_value("hop")


@pytest.mark.parametrize(
    ("name", "magic"),
    [("json", b"{"), ("csv", b""), ("srt", b"1\n"), ("png", b"\x89PNG"), ("html", b"<!"), ("mp4", b"")],
)
def test_downloads(page: Page, sample: Path, name: str, magic: bytes) -> None:
    choose(page, sample)
    with page.expect_download() as download:
        page.click(f"#downloads [data-format={name}]")
    content = Path(download.value.path()).read_bytes()
    assert content.lower().startswith(magic.lower())
    assert len(content) > 100
    assert download.value.suggested_filename.startswith(sample.stem)
    assert download.value.suggested_filename.endswith(f".{name}")
    if name == "json":
        assert json.loads(content)["count"] == shown(page)
    expect(page.locator("#download-state")).to_contain_text("is ready")


def test_deleting_asks_and_forgets_and_can_be_taken_back(page: Page, client: Client, sample: Path) -> None:
    choose(page, sample)
    (video,) = client.get("/api/videos").json()
    client.put(f"/api/videos/{video['id']}/labels", json={"spans": [{"start": 2, "end": 4}], "action": "squat"})
    page.reload()
    expect(page.locator("img.there")).to_be_visible()  # a picture still on its way would be missed, and logged
    expect(page.locator(".tl-film i").first).to_be_attached()
    page.click("#delete-video")
    page.get_by_role("button", name="Keep", exact=True).click()
    assert len(client.get("/api/videos").json()) == 1
    page.click("#delete-video")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator("#videos")).to_contain_text("Nothing here yet")
    assert client.get("/api/videos").json() == []
    page.click("#trash-open")
    expect(page.locator("#trash li").first).to_contain_text("1 labelled repetition")
    page.locator("#trash button").first.click()
    expect(page.locator("#labels-state")).to_have_text("Saved: 1")
    assert [(one["id"], one["labelled_count"]) for one in client.get("/api/videos").json()] == [(video["id"], 1)]


def test_the_past_survives_a_kill_of_the_server(browser: Browser, sample: Path, tmp_path: Path) -> None:
    server = Command(tmp_path)
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(server.address)
        choose(page, sample)
        before = shown(page)
        server.kill()
        server = Command(tmp_path)
        page.goto(server.address)
        open_card(page, sample.name)
        assert shown(page) == before
    finally:
        context.close()
        server.interrupt()


def test_what_was_undone_is_redone_and_all_are_split_by_the_keyboard_after_a_click(page: Page, sample: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("#drop")
    chooser.value.set_files(str(sample))
    page.locator("#file").evaluate("node => node.focus()")  # where a click leaves the focus in a visible browser
    shown(page)
    page.keyboard.press("c")
    expect(page.locator(".tl[data-mode=correct]")).to_have_count(1)
    counted = spans(page)
    page.locator(".region.rep").nth(2).click()
    expect(page.locator("#add-span")).to_have_text("Split here")
    page.click("#add-span")
    middle = sum(counted[2]) / 2
    assert spans(page)[2:4] == [
        pytest.approx((counted[2][0], middle), abs=5e-3),
        pytest.approx((middle, counted[2][1]), abs=5e-3),
    ]
    page.keyboard.press("Control+z")
    page.click("#halve-all")
    halved = spans(page)
    assert len(halved) == 2 * len(counted)
    page.keyboard.press("Control+z")
    assert spans(page) == counted
    page.keyboard.press("Control+y")
    assert spans(page) == halved
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+Shift+Z")
    assert spans(page) == halved
    for undo, redo in (("Control+Z", "Control+Shift+z"), ("Meta+z", "Meta+Shift+Z")):  # Caps Lock, and Apple's keys
        page.keyboard.press(undo)
        assert spans(page) == counted
        page.keyboard.press(redo)
        assert spans(page) == halved
    expect(page.locator("#redo")).to_be_disabled()


def test_two_tabs_lose_nothing_of_each_other(
    page: Page, browser: Browser, running: tuple[str, Service], client: Client, sample: Path
) -> None:
    visit = opened(browser, running[0])
    with visit as page:
        choose(page, sample)
        counted = len(spans(page))
        (video,) = client.get("/api/videos").json()
        result = client.job(video["job"]["id"])["result"]
        said = [{name: one[name] for name in ("start", "end")} for one in result["repetitions"]]
        address = f"/api/videos/{video['id']}/labels"
        set_mode(page, "correct")
        page.locator(".region.rep").last.click()
        page.keyboard.press("Delete")
        client.put(address, json={"spans": said[1:], "action": "squat"})  # the other tab: without the first one
        page.click("#save-labels")
        expect(page.locator("#ask-text")).to_contain_text(f"saved {counted - 1} repetitions of this video meanwhile")
        page.click("[data-choice='']")
        expect(page.locator("#labels-state")).to_have_text("Not saved")
        page.click("#save-labels")
        page.click("[data-choice=merge]")
        expect(page.locator("#labels-state")).to_have_text(f"Saved: {counted - 2}")
        merged = client.get(address).json()
        assert [one["start"] for one in merged["spans"]] == pytest.approx(
            [one["start"] for one in said[1:-1]], abs=2e-3
        )
        assert merged["action"] == "squat"
        client.put(address, json={"spans": said[:2]})
        page.locator(".region.rep").first.click()
        page.keyboard.press("Delete")
        page.click("#save-labels")
        page.click("[data-choice=overwrite]")
        expect(page.locator("#labels-state")).to_have_text(f"Saved: {counted - 3}")
        assert len(client.get(address).json()["spans"]) == counted - 3
        visit.problems[:] = [problem for problem in visit.problems if "409" not in problem]
