"""The pictures of the documentation, taken from the page itself.

They are written to docs/images when ESCOUNTS_PICTURES is set, and to a temporary folder otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from acting import choose, mark, open_card, opened, recount, spans
from PIL import Image
from playwright.sync_api import Browser, Page
from serving import Client, eventually

from escounts.serve.app import Service

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    if not os.environ.get("ESCOUNTS_PICTURES"):
        return tmp_path
    IMAGES.mkdir(parents=True, exist_ok=True)
    return IMAGES


def take(page: Page, path: Path) -> None:
    """A PNG of what is in view; fails when there is next to nothing on it."""
    page.mouse.move(2, 2)
    page.wait_for_timeout(400)
    page.evaluate("document.fonts.ready")
    page.screenshot(path=str(path))
    image = Image.open(path).convert("RGB")
    pixels = np.asarray(image.resize((64, 64)), dtype=float)
    assert pixels.std() > 8, "the picture is blank"
    image.save(path, optimize=True)
    assert path.stat().st_size < 900_000


@pytest.fixture(autouse=True)
def no_videos(client: Client) -> None:
    """Deleted before the page is opened: it would ask for pictures of what is being deleted."""
    for video in client.get("/api/videos").json():
        client.delete(f"/api/videos/{video['id']}")


def prepare(page: Page, *paths: Path) -> None:
    choose(page, *paths)
    if page.locator("#to-videos").is_visible():
        page.click("#to-videos")
    open_card(page, paths[0].name)
    eventually(lambda: page.evaluate("document.getElementById('player').readyState >= 2"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page(
    browser: Browser,
    running: tuple[str, Service],
    client: Client,
    sample: Path,
    other_clip: Path,
    folder: Path,
    scheme: str,
) -> None:
    size = {"width": 1360, "height": 1260}
    with opened(browser, running[0], color_scheme=scheme, viewport=size) as page:
        prepare(page, sample, other_clip)
        if scheme == "dark":
            left, right = spans(page)[4]
            mark(page, left, right)
            recount(page)
        page.locator(".region.rep").nth(5).click()
        for _ in range(6):
            page.keyboard.press("Shift+ArrowRight")
        page.evaluate("document.activeElement.blur()")
        page.evaluate("scrollTo(0, 0)")
        take(page, folder / f"serve-{scheme}.png")


def test_the_phone(
    browser: Browser, running: tuple[str, Service], client: Client, sample: Path, other_clip: Path, folder: Path
) -> None:
    size = {"width": 390, "height": 844}
    with opened(browser, running[0], color_scheme="light", viewport=size, device_scale_factor=2) as page:
        prepare(page, sample, other_clip)
        page.evaluate("document.getElementById('next').click()")
        page.evaluate("scrollTo(0, 0)")
        take(page, folder / "serve-phone.png")
