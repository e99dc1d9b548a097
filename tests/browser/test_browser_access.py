"""Who can use the page: keyboard, screen readers, phones, light and dark, and who has the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acting import answer_with, choose, opened, set_mode, shown
from playwright.sync_api import Browser, Page, expect
from serving import Client, eventually, service_running

from escounts.serve.app import Service

UNNAMED = """() =>
  [...document.querySelectorAll("button, a[href], input, select, video, [role=slider], [role=meter]")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.getAttribute("aria-label") || node.labels?.[0]?.innerText.trim() || node.innerText?.trim()
                      || node.title))
  .map((node) => node.outerHTML)"""

CONTRAST = """() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (text, under) => {
    canvas.fillStyle = `rgb(${under.join(",")})`; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const behind = (node) => {
    const chain = [];
    for (let n = node; n; n = n.parentElement) chain.unshift(getComputedStyle(n).backgroundColor);
    return chain.reduce((under, colour) => parse(colour, under), [255, 255, 255]);
  };
  const poor = [];
  const ids = "total total-unit confidence-text hint recount correct-text kept clock limits";
  for (const id of ids.split(" ")) {
    const node = document.getElementById(id);
    const back = behind(node);
    const [a, b] = [light(parse(getComputedStyle(node).color, back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${id}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def test_everything_has_a_name(page: Page, sample: Path) -> None:
    answer_with(page, confidence_kind="probability")
    choose(page, sample)
    assert page.evaluate(UNNAMED) == []
    assert page.get_by_role("slider").count() == 3
    assert page.get_by_role("meter", name="Confidence").count() == 1
    expect(page.locator("#announcer")).to_contain_text("repetitions,")
    assert page.locator("html").get_attribute("lang") == "en"


def test_the_timeline_is_reached_by_tab_alone(page: Page, sample: Path) -> None:
    choose(page, sample)
    page.locator("#play").focus()
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.className || document.activeElement.id"))
    assert {"region rep", "tl-handle at-edge"} <= {name.replace(" now", "").replace(" past", "") for name in seen}
    assert any("primary" in name for name in seen), "Recount is reached"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(
    browser: Browser, running: tuple[str, Service], client: Client, sample: Path, scheme: str
) -> None:
    with opened(browser, running[0], color_scheme=scheme) as page:
        choose(page, sample)
        assert page.locator("html").get_attribute("data-theme") == scheme
        assert page.evaluate(CONTRAST) == []
        page.click("#theme")
        other = {"light": "dark", "dark": "light"}[scheme]
        assert page.locator("html").get_attribute("data-theme") == other
        page.reload()
        assert page.locator("html").get_attribute("data-theme") == other, "the choice is kept"


def test_a_phone_can_use_it(browser: Browser, running: tuple[str, Service], client: Client, sample: Path) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with opened(browser, running[0], **phone) as page:
        choose(page, sample)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
        for name, mode in (("#play", "watch"), ("#recount", "mark"), ("#save-labels", "correct")):
            set_mode(page, mode)
            box = page.locator(name).bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) >= 36, f"{name} is large enough for a finger"
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360


def test_zooming_widens_the_timeline(page: Page, sample: Path) -> None:
    choose(page, sample)
    width = page.locator(".tl").bounding_box()
    page.click("#zoom-in")
    wider = page.locator(".tl").bounding_box()
    assert width is not None
    assert wider is not None
    assert wider["width"] == pytest.approx(2 * width["width"], rel=0.01)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_running(tmp_path_factory.mktemp("locked"), token="sesame") as (address, _):
        yield address


def test_a_token_is_asked_for(browser: Browser, locked: str, sample: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(locked)
    expect(page.locator("#token-dialog")).to_be_visible()
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#token-problem")).to_contain_text("not the token")
    page.fill("#token", "sesame")
    page.keyboard.press("Enter")
    expect(page.locator("#token-dialog")).to_be_hidden()
    choose(page, sample)
    assert page.evaluate("document.getElementById('player').readyState") >= 0
    context.close()


def test_the_printed_address_lets_in(browser: Browser, locked: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{locked}/#token=sesame")
    expect(page.locator("#limits")).to_contain_text("Up to")
    assert "sesame" not in page.url, "the token does not stay in the address"
    context.close()


def test_a_file_no_browser_plays_is_shown_as_a_copy(page: Page, still_clip: Path) -> None:
    choose(page, still_clip)
    eventually(lambda: page.evaluate("document.getElementById('player').videoWidth > 0"))
    expect(page.locator("#unplayable")).to_be_hidden()
    assert shown(page) >= 0
