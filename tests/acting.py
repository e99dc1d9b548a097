"""A page in a browser, and what a person does on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect
from serving import eventually

# Milliseconds for everything that is waited for: a slow machine that others use is not a fault of the page.
PATIENCE = 180_000
expect.set_options(timeout=PATIENCE)
TOOK = re.compile(r"^in \d")
"""How long a recount took; the plain words would be found in "waiting", too."""


class opened:
    """A page that is checked for errors when it is closed. problems: what it logged and whom it asked."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        settings = {"viewport": {"width": 1440, "height": 960}, "accept_downloads": True, **options}
        self.context = browser.new_context(**settings)
        self.context.set_default_timeout(PATIENCE)
        self.context.grant_permissions(["camera"], origin=address)
        self.page = self.context.new_page()
        self.address = address
        self.problems: list[str] = []
        self.allowed: tuple[str, ...] = ()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        self.page.on("request", lambda r: self._asked(r.url))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.address, "blob:", "data:")):
            self.problems.append(f"asked {url}")

    def __enter__(self) -> Page:
        self.page.goto(self.address)
        self.page.wait_for_selector("#limits:not(:empty)")
        return self.page

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert not self.problems, self.problems


def choose(page: Page, *paths: Path) -> None:
    """Choose files and wait until the last one is counted and shown."""
    page.set_input_files("#file", [str(path) for path in paths])
    for path in paths:
        card = page.locator(".video-card", has_text=path.name).first
        expect(card).to_have_attribute("data-state", "done")
    shown(page)


def shown(page: Page) -> int:
    """The big number, once it is there."""
    expect(page.locator("#verdict-done")).to_be_visible()
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


def set_mode(page: Page, mode: str) -> None:
    """What dragging on the timeline does: "watch", "mark" or "correct"."""
    page.locator(f".segmented label:has(input[value={mode}])").click()
    expect(page.locator(f".tl[data-mode={mode}]")).to_have_count(1)


def mark(page: Page, start: float, end: float) -> None:
    """Mark an example between two fractions of the timeline's width."""
    set_mode(page, "mark")
    drag(page, start, end)


def recount(page: Page) -> int:
    """Press Recount and wait for the time it took to be stated."""
    page.evaluate("document.getElementById('recount-time').textContent = ''")
    page.click("#recount")
    expect(page.locator("#recount-time")).to_have_text(TOOK)
    return shown(page)


def answer_with(page: Page, **changes: Any) -> None:
    """Results come as the service made them, but for these fields. Several places have no counts by unit."""

    def changed(route: Route) -> None:
        answer = route.fetch()
        document = answer.json()
        if isinstance(document, dict) and document.get("result"):
            document["result"].update(changes)
            if len(changes.get("tracks", ())) > 1:
                document["counts"] = None
        route.fulfill(response=answer, json=document)

    page.route(re.compile(r"/api/jobs(/[0-9a-f]{32})?(\?unit=\w+)?$"), changed)


def heard(page: Page, check: Callable[[], Any]) -> None:
    """Until check is true, while the page's requests go on being answered by the test's own routes."""

    def look() -> Any:
        page.wait_for_timeout(20)
        return check()

    eventually(look)


def length(page: Page) -> float:
    """Seconds of the open video, once the player knows them: before that it neither plays nor seeks."""
    return float(eventually(lambda: page.evaluate("document.getElementById('player').duration || 0")))


def time_now(page: Page) -> float:
    return float(page.evaluate("document.getElementById('player').currentTime"))


def spans(page: Page) -> list[tuple[float, float]]:
    """Left and right edge of every repetition, in fractions of the timeline."""
    found = page.evaluate(
        "[...document.querySelectorAll('.region.rep')]"
        ".map((node) => [parseFloat(node.style.left), parseFloat(node.style.width)])"
    )
    return [(left / 100, (left + width) / 100) for left, width in found]
