"""What a person does on the page, as functions."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

PATIENCE = 60_000


def choose(page: Page, *paths: Path) -> None:
    """Choose files and wait until the last one is counted and shown."""
    page.set_input_files("#file", [str(path) for path in paths])
    for path in paths:
        card = page.locator(".video-card", has_text=path.name).first
        expect(card).to_have_attribute("data-state", "done", timeout=PATIENCE)
    shown(page)


def shown(page: Page) -> int:
    """The big number, once it is there."""
    expect(page.locator("#verdict-done")).to_be_visible(timeout=PATIENCE)
    return int(page.inner_text("#total"))


def open_card(page: Page, name: str) -> None:
    page.locator(".video-card", has_text=name).first.locator(".video-open").click()
    expect(page.locator("#verdict-name")).to_have_text(name)
    shown(page)


def drag(page: Page, start: float, end: float, *, height: float = 0.3) -> None:
    """Drag on the timeline between two fractions of its width."""
    box = page.locator(".tl-track").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] * height
    page.mouse.move(box["x"] + box["width"] * start, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * (start + end) / 2, y, steps=3)
    page.mouse.move(box["x"] + box["width"] * end, y, steps=3)
    page.mouse.up()


def recount(page: Page) -> int:
    """Press Recount and wait for the time it took to be stated."""
    page.evaluate("document.getElementById('recount-time').textContent = ''")
    page.click("#recount")
    expect(page.locator("#recount-time")).to_contain_text("in ", timeout=PATIENCE)
    return shown(page)


def time_now(page: Page) -> float:
    return float(page.evaluate("document.getElementById('player').currentTime"))


def spans(page: Page) -> list[tuple[float, float]]:
    """Left and right edge of every repetition, in fractions of the timeline."""
    found = page.evaluate(
        "[...document.querySelectorAll('.region.rep')]"
        ".map((node) => [parseFloat(node.style.left), parseFloat(node.style.width)])"
    )
    return [(left / 100, (left + width) / 100) for left, width in found]
