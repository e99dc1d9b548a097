"""What the page says in each state, on a first visit, and in which words."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from acting import answer_with, choose, drag, mark, open_card, recount, set_mode, shown, spans
from playwright.sync_api import Page, Route, expect
from serving import Client, eventually

from escounts.output.text import headline
from escounts.results import CountResult
from escounts.serve.app import Service

PROJECT = Path(__file__).resolve().parents[2]


def test_a_first_visit_offers_a_sample_the_camera_and_three_steps(page: Page, client: Client) -> None:
    expect(page.locator(".steps li")).to_have_count(3)
    page.click("#welcome-record")
    expect(page.locator("#camera-dialog")).to_be_visible()
    page.locator("#camera-dialog [data-close]").click()
    page.click("#try-sample")
    expect(page.locator("#verdict-name")).to_have_text("sample.mp4")
    assert shown(page) == 8


def test_the_sample_of_the_page_is_the_one_of_the_project() -> None:
    served = PROJECT / "src" / "escounts" / "serve" / "static" / "sample.mp4"
    assert served.read_bytes() == (PROJECT / "examples" / "sample.mp4").read_bytes()


def test_a_failure_shows_its_reason_and_what_can_be_done(page: Page, client: Client, tmp_path: Path) -> None:
    bad = tmp_path / "letter.mp4"
    bad.write_text("Dear video,")
    page.set_input_files("#file", str(bad))
    expect(page.locator("#verdict-problem")).to_contain_text("letter.mp4")
    for part in ("#screen", "#timeline-card", "#panels", "#verdict-done"):
        expect(page.locator(part)).to_be_hidden()
    assert "all the same" not in page.inner_text("body")
    (video,) = client.get("/api/videos").json()
    page.click("#retry")
    eventually(lambda: len(client.get("/api/jobs", params={"video": video["id"]}).json()) == 2)
    expect(page.locator("#verdict-problem")).to_be_visible()
    page.click("#remove-video")
    expect(page.locator("#welcome")).to_be_visible()
    assert client.get("/api/videos").json() == []


@pytest.mark.parametrize("plays", [True, False])
def test_the_timeline_is_empty_until_there_is_one(
    page: Page, client: Client, sample: Path, still_clip: Path, plays: bool
) -> None:
    """While it is counted nothing is drawn that is not known: no curve, no repetitions, no made-up seconds."""
    worker = client.worker_pid()
    os.kill(worker, signal.SIGSTOP)
    try:
        page.set_input_files("#file", str(sample if plays else still_clip))
        expect(page.locator("#verdict-busy")).to_be_visible()
        if plays:
            expect(page.locator("#length")).to_have_text(" / 0:18.8")
        else:
            expect(page.locator("#unplayable")).to_contain_text("made once it is counted")
            expect(page.locator("#length")).to_have_text("")
            expect(page.locator(".tl-playhead")).to_be_hidden()
        assert (page.locator(".tl-tick").count() > 0) is plays, "seconds where they are known"
        assert page.locator(".tl-curve path:first-child").get_attribute("d") in (None, "")
        expect(page.locator(".region")).to_have_count(0)
        for part in (".tl-handle.end", "#modes", "#recount", "#panels"):
            expect(page.locator(part)).to_be_hidden()
        page.keyboard.press("c")
        drag(page, 0.2, 0.6)
        expect(page.locator(".region")).to_have_count(0)
        expect(page.locator("#labels-state")).to_have_text("")
        expect(page.locator("#hint")).to_have_text("The repetitions appear here once they are counted.")
    finally:
        os.kill(worker, signal.SIGCONT)
    shown(page)
    expect(page.locator(".tl-handle.end")).to_be_visible()
    expect(page.locator("#modes")).to_be_visible()
    assert page.locator(".tl-tick").count() > 0
    expect(page.locator("#hint")).to_contain_text("Drag anywhere")


def test_the_old_number_is_dimmed_while_it_recounts(page: Page, sample: Path) -> None:
    choose(page, sample)
    held: list[Route] = []
    page.route(
        "**/api/jobs", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    before = page.inner_text("#total")
    page.click("#recount")
    expect(page.locator("#verdict-done")).to_have_attribute("aria-busy", "true")
    assert page.inner_text("#total") == before
    eventually(lambda: page.evaluate("getComputedStyle(document.getElementById('total')).opacity < 0.5"))
    page.wait_for_timeout(50)
    held[0].continue_()
    expect(page.locator("#verdict-done")).to_have_attribute("aria-busy", "false")
    eventually(lambda: page.evaluate("getComputedStyle(document.getElementById('total')).opacity == 1"))


def test_no_repetitions_in_the_words_of_the_command_line(page: Page, client: Client, sample: Path) -> None:
    answer_with(page, count=0, repetitions=[], raw_count=0.0, hypotheses=[])
    choose(page, sample)
    assert page.inner_text("#total") == "0"
    assert page.inner_text("#total-unit") == "no repetitions"
    (video,) = client.get("/api/videos").json()
    assert page.inner_text("#total-unit") in headline(nothing(client, video["job"]["id"]))
    expect(page.locator("#tally")).to_be_hidden()


def nothing(client: Client, job: str) -> CountResult:
    from dataclasses import replace

    from escounts.output.json import from_dict

    return replace(from_dict(client.job(job)["result"]), count=0, repetitions=(), hypotheses=())


def test_a_corrected_count_is_the_persons(page: Page, sample: Path) -> None:
    answer_with(page, confidence_kind="probability", confidence=0.97, unsure=False)
    choose(page, sample)
    counted = shown(page)
    expect(page.locator("#confidence-box")).to_be_visible()
    set_mode(page, "correct")
    page.locator(".region.rep").first.focus()
    page.keyboard.press("Delete")
    expect(page.locator("#by-hand")).to_have_text(f"Corrected by you. The model counted {counted}.")
    expect(page.locator("#confidence-box")).to_be_hidden()
    expect(page.locator("#download-note")).to_contain_text("not in these files until you save")
    expect(page.locator("#kept")).to_contain_text(re.compile(r"Deleted on \w+ \d+, \d{4}"))
    page.click("#save-labels")
    expect(page.locator("#download-note")).to_contain_text(f"say {counted - 1}, with the model's {counted} beside it")
    expect(page.locator("#kept")).to_have_text("Kept until you delete it, because it has labels.")
    page.reload()
    expect(page.locator("#by-hand")).to_have_text(f"Corrected by you. The model counted {counted}.")
    assert shown(page) == counted - 1


def test_words_are_for_people(page: Page, sample: Path) -> None:
    choose(page, sample)
    left, right = spans(page)[1]
    mark(page, left, right)
    recount(page)
    said = page.evaluate("document.body.textContent").lower()
    for word in ("zero-shot", "sum of density", "exemplar", "prompt", "nothing repeats"):
        assert word not in said, word


def test_a_question_mark_opens_the_keys(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help-dialog")).to_be_hidden()


def test_a_chosen_unit_is_kept_with_the_video(page: Page, client: Client, service: Service, sample: Path) -> None:
    """Card, files, reload and recount say the number that was chosen."""
    choose(page, sample)
    (video,) = client.get("/api/videos").json()
    units = [{"count": 4, "unit": "cycle", "p": 0.99}, {"count": 8, "unit": "side", "p": 0.01}]
    job = video["job"]["id"]
    document = {**client.job(job)["result"], "hypotheses": units, "unit": "cycle", "count": 4}
    document["repetitions"] = [{"start": 2.0 * i, "end": 2.0 * i + 2, "score": None} for i in range(4)]
    service.database.finish_job(job, document)
    page.reload()
    choices = page.locator("#units button")
    expect(choices).to_have_text(["4 both sides as one", "8 each side"])
    expect(choices.nth(0)).to_have_attribute("aria-pressed", "true")
    choices.nth(1).click()
    expect(page.locator("#total")).to_have_text("8")
    assert len(spans(page)) == 8
    expect(page.locator(".video-card .badge")).to_have_text("8")
    page.reload()
    expect(page.locator("#total")).to_have_text("8")
    expect(page.locator(".video-card .badge")).to_have_text("8")
    expect(choices.nth(1)).to_have_attribute("aria-pressed", "true")
    with page.expect_download() as saved:
        page.click("#downloads [data-format=json]")
    assert json.loads(Path(saved.value.path()).read_text())["count"] == 8
    choices.nth(0).click()
    expect(page.locator("#total")).to_have_text("4")


def test_without_a_unit_a_person_doubles_or_halves(page: Page, client: Client, sample: Path) -> None:
    """The model of these tests gives no unit: the number is the person's doing, and the files say so."""
    choose(page, sample)
    counted = shown(page)
    choices = page.locator("#units button")
    half = -(-counted // 2)
    expect(choices).to_have_text([f"{half} both sides as one", f"{counted} as counted", f"{2 * counted} each side"])
    choices.nth(2).click()
    expect(page.locator("#total")).to_have_text(str(2 * counted))
    recount(page)
    expect(page.locator("#total")).to_have_text(str(2 * counted))
    (video,) = client.get("/api/videos").json()
    said = client.get(f"/api/jobs/{video['job']['id']}/download/text").text
    assert f"each side, as chosen; the model counted {counted} and gave no unit" in said
    choices.nth(1).click()
    expect(page.locator("#total")).to_have_text(str(counted))


def test_a_first_choice_of_cards_opens_them(page: Page, sample: Path, other_clip: Path) -> None:
    choose(page, sample, other_clip)
    open_card(page, other_clip.name)
    page.go_back()
    expect(page.locator("#verdict-name")).to_have_text(sample.name)
