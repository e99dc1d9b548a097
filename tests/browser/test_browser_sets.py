"""What stands beside the count: tempo, sets, what was left out, and why it is not sure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import answer_with, choose, length, set_mode, spans
from playwright.sync_api import Page, expect
from serving import Client


def visible(page: Page, part: str) -> bool:
    """Whether all of it is seen without scrolling."""
    return bool(
        page.locator(part).evaluate(
            "(node) => { const box = node.getBoundingClientRect();"
            " const frame = node.closest('.verdict').getBoundingClientRect();"
            " return box.height > 0 && box.bottom <= Math.min(frame.bottom, innerHeight) && box.top >= frame.top; }"
        )
    )


def test_sets_and_tempo_are_seen_at_once_and_a_set_is_counted_like(page: Page, client: Client, sample: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    choose(page, sample)
    repetitions = client.job(client.get("/api/videos").json()[0]["job"]["id"])["result"]["repetitions"]
    lasting = [one["end"] - one["start"] for one in repetitions]
    first, second = repetitions[:5], repetitions[5:]
    sets = [
        {"start": part[0]["start"], "end": part[-1]["end"], "count": len(part), "motion": motion, "tempo": tempo}
        for part, motion, tempo in ((first, "A", 1.84), (second, "B", 2.11))
    ]
    sure: dict[str, Any] = {"confidence_kind": "probability", "confidence": 0.95, "unsure": False}
    answer_with(page, **sure, sets=[sets[0] | {"rest_before": None}, sets[1] | {"rest_before": 44.7}])
    page.reload()
    rows = page.locator("#sets-rows tr")
    expect(rows).to_have_count(2)
    expect(page.locator("#sets-title")).to_have_text("2 sets, several motions")
    said = [["1 A", "", "5", "1.8 s", "–"], ["2 B", "", str(len(second)), "2.1 s", "45 s"]]
    assert [row.locator("td").all_inner_texts() for row in rows.all()] == said
    widths = [box["width"] for bar in page.locator(".set-bar i").all() if (box := bar.bounding_box())]
    assert widths[1] / widths[0] == pytest.approx(len(second) / 5, abs=0.02)
    assert page.locator(".tl-set").count() == 2
    for part in ("#tempo", "#sets"):
        assert visible(page, part), part
    assert page.locator("#tempo-axis span").last.inner_text() == "0"
    top = float(page.locator("#tempo-axis span").first.inner_text())
    bars = page.locator("#tempo-bars span")
    assert bars.all_inner_texts() == [f"{seconds:.1f}" for seconds in lasting]
    shares = bars.evaluate_all("nodes => nodes.map((node) => parseFloat(node.style.height) / 100)")
    assert shares == pytest.approx([seconds / top for seconds in lasting], abs=0.01), "the axis is theirs"
    page.locator("#sets-rows button").last.click()
    expect(page.locator("#history button")).to_have_count(2)
    (marked,) = client.get("/api/videos").json()[0]["job"]["exemplars"]
    assert second[0]["start"] <= marked["start"] < marked["end"] <= second[-1]["end"], "one of that set"


@pytest.mark.parametrize("phone", [False, True])
def test_beside_sets_only_the_first_reason_stands_open_where_room_is_short(
    page: Page, sample: Path, phone: bool
) -> None:
    page.set_viewport_size({"width": 390, "height": 844} if phone else {"width": 1280, "height": 800})
    one = {"start": 1.0, "end": 5.0, "count": 3, "motion": "A", "tempo": 1.8, "rest_before": 2.0}
    reasons = [f"from {second} to {second + 3} s something moves and nothing is counted" for second in (0, 53, 70)]
    answer_with(page, unsure=True, confidence_kind="probability", sets=[one] * 5, reasons=reasons)
    choose(page, sample)
    expect(page.locator("#unsure")).to_contain_text("Not sure. From 0 to 3 s")
    said = page.locator("#unsure").inner_text
    assert ("From 70 to 73 s" in said()) is phone
    if not phone:
        assert visible(page, "#sets"), "five rows"
        page.locator("#unsure summary").focus()
        page.keyboard.press("Space")
        assert "From 70 to 73 s" in said()


@pytest.mark.parametrize("kind", ["rate", "peaks"])
def test_under_a_rate_a_wave_shows_each_repetition(page: Page, sample: Path, kind: str) -> None:
    answer_with(page, density={"start": 0.0, "step": 1.0, "values": [0.5] * 18, "kind": kind})
    choose(page, sample)
    counted = len(spans(page))
    waves = page.locator(".tl-wave")
    assert (waves.get_attribute("d") or "").count("M") == (counted if kind == "rate" else 0)
    set_mode(page, "correct")
    page.locator(".region.rep").first.focus()
    page.keyboard.press("Delete")
    assert (waves.get_attribute("d") or "").count("M") == (counted - 1 if kind == "rate" else 0)


def test_what_was_left_out_is_grey_and_taken_in_by_a_click(page: Page, client: Client, sample: Path) -> None:
    others = [{"start": 0.2, "end": 0.9, "score": None}, {"start": 0.9, "end": 1.6, "score": None}]
    answer_with(
        page,
        left_out=others,
        unsure=True,
        confidence_kind="probability",
        reasons=["two units are likely: 4 as cycles, 8 as sides", "few frames"],
    )
    choose(page, sample)
    length(page)
    expect(page.locator("#unsure")).to_contain_text(
        "Not sure. Two units are likely: 4 as cycles, 8 as sides. Few frames. "
    )
    expect(page.locator("#hint")).to_have_text(
        "Grey: 2 other repetitions between 0:00.2 and 0:01.6, not counted. Click one to count these too."
    )
    page.locator(".tl-left-out").last.click()
    expect(page.locator("#history button")).to_have_count(2)
    (video,) = client.get("/api/videos").json()
    assert video["job"]["exemplars"] == [{"start": 0.9, "end": 1.6, "video": None}]
