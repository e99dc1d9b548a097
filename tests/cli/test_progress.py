"""Plain progress lines say how long the rest takes."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from escounts.cli import display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The module's own clock: a server of another test may run in this process, and it needs the real one."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(display, "time", clock)
    return clock


def test_plain_lines_say_how_long_the_rest_takes(capsys: pytest.CaptureFixture[str], clock: SimpleNamespace) -> None:
    with display.work_display() as (report, _):
        for clock.now, done in ((10.0, 1), (130.0, 2), (140.0, 3)):
            report(done, 4, f"{done}.mp4")
    assert capsys.readouterr().err.splitlines() == ["2/4 videos, about 4 min left  2.mp4"]


def test_time_left_ignores_videos_done_before(capsys: pytest.CaptureFixture[str], clock: SimpleNamespace) -> None:
    """An evaluation that goes on at 100 of 150, and the next row of a table, which begins again at 1."""
    with display.work_display() as (report, _):
        for done, total in ((101, 150), (102, 150), (150, 150), (1, 3), (2, 3)):
            clock.now += 60.0
            report(done, total, "x")
    assert capsys.readouterr().err.splitlines() == [
        "101/150 videos  x",
        "102/150 videos, about 48 min left  x",
        "150/150 videos  x",
        "1/3 videos  x",
        "2/3 videos, about 1 min left  x",
    ]


def test_time_left_ignores_the_training_before_the_first_video(
    capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
) -> None:
    """A run of four minutes once said 2.4 h: the first of 40 videos was taken to have lasted as long as training."""
    with display.work_display() as (report, _):
        for clock.now, done in ((200.0, 1), (260.0, 2)):
            report(done, 40, "x")
    assert capsys.readouterr().err.splitlines() == ["1/40 videos  x", "2/40 videos, about 38 min left  x"]


@pytest.mark.parametrize("terminal", [False, True])
def test_names_with_brackets_and_bad_bytes_are_shown(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets are not rich's markup, and bytes that are no UTF-8 are shown as such."""
    monkeypatch.setattr(display, "LINE_EVERY", -1.0)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with display.work_display() as (report, _):
        report(1, 2, "in/[/x].mp4")
        report(2, 2, "caf\udce9 [red].mp4")
    shown = capsys.readouterr().err
    assert "caf\ufffd [red].mp4" in shown
    assert terminal or "in/[/x].mp4" in shown


def test_the_bar_begins_anew_where_the_counted_video_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with display.progress_bar("squats.mp4", wanted=True) as report:
        assert report is not None
        report(10.0, 10.0)
        report(1.0, 10.0)
    assert "squats.mp4: drawing" in capsys.readouterr().err
