"""Plain progress lines say how long the rest takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from escounts.cli import display
from escounts.cli.display import time_left


def test_time_left_is_told_at_the_pace_so_far() -> None:
    assert time_left(10, 40, 100.0) == "about 5 min"
    assert time_left(1, 1000, 60.0) == "about 16.6 h"
    assert time_left(9, 10, 9.0) == "about 1 min"


def test_plain_lines_when_it_is_not_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 10.0, 120.0, 130.0])
    # The module's own clock: a server of another test may run in this process, and it needs the real one.
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with display.counting_display("videos") as report:
        report(1, 4, "a.mp4")
        report(2, 4, "b.mp4")
    assert capsys.readouterr().err.splitlines() == ["2/4 videos, about 2 min left  b.mp4"]


def test_what_was_done_before_does_not_make_the_rest_look_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation that goes on at 100 of 150, and the next row of a table, which begins again at 1."""
    now = iter([0.0, 60.0, 120.0, 180.0, 210.0, 270.0])
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with display.table_display() as (_, report):
        for done, total in ((101, 150), (102, 150), (150, 150), (1, 3), (2, 3)):
            report(done, total, "x")
    assert capsys.readouterr().err.splitlines() == [
        "101/150 videos, about 49 min left  x",
        "102/150 videos, about 48 min left  x",
        "150/150 videos  x",
        "2/3 videos, about 1 min left  x",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_any_name_can_be_shown(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets are not rich's markup, and bytes that are no UTF-8 are shown as such."""
    monkeypatch.setattr(display, "LINE_EVERY", -1.0)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with display.counting_display("videos") as report:
        report(1, 2, "in/[/x].mp4")
        report(2, 2, "caf\udce9 [red].mp4")
    shown = capsys.readouterr().err
    assert "caf\ufffd [red].mp4" in shown
    assert terminal or "in/[/x].mp4" in shown
