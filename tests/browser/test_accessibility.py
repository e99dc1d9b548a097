"""axe finds nothing on the main views, in both themes, on a laptop and on a phone.

Needs the npm package axe-core: ESCOUNTS_AXE names its `axe.min.js`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from acting import answer_with, choose, opened, shown
from playwright.sync_api import Browser, Page
from serving import Client

from escounts.serve.app import Service

AXE = Path(os.environ.get("ESCOUNTS_AXE", ""))
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SIZES = {"laptop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}

pytestmark = pytest.mark.skipif(
    not AXE.is_file(),
    reason="ESCOUNTS_AXE is not set: it names axe.min.js of npm's axe-core, which .ci/run installs",
)


def findings(page: Page, view: str) -> list[str]:
    """What axe finds on the page as it is: the view, the rule, and where."""
    found = page.evaluate("(rules) => axe.run(document, { runOnly: rules })", RULES)["violations"]
    return [f"{view}: {rule['id']} {[node['target'] for node in rule['nodes']]}" for rule in found]


@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_on_the_main_views(
    page: Page, browser: Browser, running: tuple[str, Service], client: Client, other_clip: Path, size: str
) -> None:
    client.start_count(client.send_video(other_clip)["id"], wait=30)
    found: list[str] = []
    # Only a test may run scripts that the page's policy keeps out.
    with opened(browser, running[0], viewport=SIZES[size], bypass_csp=True) as visit:
        visit.evaluate(AXE.read_text(encoding="utf-8"))
        found += findings(visit, "list")
        visit.click(".video-open")
        shown(visit)
        for theme in ("light", "dark"):
            visit.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
            found += findings(visit, f"{theme} video")
            visit.keyboard.press("c")
            visit.locator(".region.rep").first.click()
            found += findings(visit, f"{theme} correcting")
            visit.keyboard.press("w")
            visit.click("#help")
            found += findings(visit, f"{theme} help")
            visit.keyboard.press("Escape")
        visit.click("#to-videos" if size == "phone" else "#home")
        found += findings(visit, "dark list")
    assert not found


def test_axe_finds_nothing_beside_a_table_of_sets(browser: Browser, page: Page, client: Client, sample: Path) -> None:
    one = {"start": 1.0, "end": 5.0, "count": 3, "motion": "A", "tempo": 1.8, "rest_before": 2.0}
    with opened(browser, page.url, viewport=SIZES["laptop"], bypass_csp=True) as visit:
        answer_with(visit, unsure=True, sets=[one, one | {"motion": "B"}], reasons=["few frames", "it is dark"])
        choose(visit, sample)
        visit.evaluate(AXE.read_text(encoding="utf-8"))
        found = findings(visit, "folded")
        visit.click("#unsure summary")
        assert not found + findings(visit, "open")
