"""`--sandbox`: what opens the videos reaches nothing else, and where that cannot be had nothing is opened."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import Outcome, run
from movies import bouncing, write_movie

from escounts.batching import tasks
from escounts.cli import count_jobs, watch
from escounts.cli.count_jobs import Done
from escounts.cli.watch import checked_event
from escounts.errors import EscountsError
from escounts.system import sandbox
from escounts.system.processes import Line
from escounts.system.sandbox import missing_protections

Command = Callable[..., Outcome]
needs_linux = pytest.mark.skipif(bool(missing_protections()), reason="this machine cannot confine a process")


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return partial(run, capsys, monkeypatch)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    return write_movie(tmp_path / "a.mp4", bouncing(4, 4.0))


def seen(video: str | Path) -> str:
    """What a process that has the video can read of it and of its neighbour."""
    found = []
    for path in (Path(video), Path(video).with_name("secret.txt")):
        try:
            found.append(f"{len(path.read_bytes()) > 0}")
        except PermissionError:
            found.append("refused")
    return " ".join(found)


def peeking(model: str, device: str) -> Callable[[Any], Done]:
    return lambda task: (None, seen(task.video), [])


def peeking_batch(settings: Any) -> Callable[[Any], dict[str, Any]]:
    return lambda task: {"status": "error", "error": seen(task.video)}


def peeking_watch(line: Line, source: str, options: dict[str, Any]) -> None:
    line.report("failed", seen(source))


@needs_linux
def test_count_watch_and_batch_open_videos_in_the_sandbox(
    escounts: Command, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # where `watch` takes marks from
    monkeypatch.setattr(count_jobs, "counting_work", peeking)
    monkeypatch.setattr(watch, "watch_work", peeking_watch)
    monkeypatch.setattr(tasks, "_counter", peeking_batch)
    counted = escounts("count", video, "--model", "spectral", "--sandbox")
    watched = escounts("watch", video, "--sandbox")
    batched = escounts("batch", video, "--out", tmp_path / "out", "--model", "spectral", "--sandbox")
    for done in (counted, watched, batched):
        assert "True refused" in done.err, done.err


@needs_linux
def test_a_count_in_the_sandbox_is_the_same_with_its_files(escounts: Command, video: Path, tmp_path: Path) -> None:
    results = []
    for name, options in {"free": [], "confined": ["--sandbox"]}.items():
        done = escounts("count", video, "-o", tmp_path / name, "-f", "json,png,mp4", "--model", "spectral", *options)
        assert done.code == 0, done.err
        results.append(json.loads((tmp_path / name / "a.json").read_text()))
        assert {path.suffix for path in (tmp_path / name).iterdir() if path.name[0] != "."} == {
            ".json",
            ".png",
            ".mp4",
        }
    free, confined = results
    assert free["count"] == confined["count"] == 4 and free["repetitions"] == confined["repetitions"]


@needs_linux
def test_watch_in_the_sandbox_counts_a_file(escounts: Command, video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = escounts("watch", video, "--sandbox", "--speed", "inf", "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0 and events[-1]["kind"] == "end" and events[-1]["count"] == 4, done.err


@pytest.mark.parametrize("command", ["count", "watch", "batch"])
def test_where_it_cannot_be_had_nothing_is_opened(
    command: str, escounts: Command, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "missing_protections", lambda: {"files": "no Landlock here"})
    monkeypatch.chdir(tmp_path)
    done = escounts(command, video, "--sandbox")
    assert done.code == 2 and done.out == ""
    assert "--sandbox cannot be had on this machine (files: no Landlock here)" in done.err


def test_a_batch_of_addresses_is_not_confined() -> None:
    from escounts.batching.batch import _confined

    task = tasks.Task("0" * 24, "s3://bucket/a.mp4")
    with pytest.raises(EscountsError, match="has no network; copy the videos"):
        _confined([task], tasks.Settings(), "")


EVENT = {"kind": "repetition", "time": 1.0, "count": 1, "open": 0.0, "rate": 1.0, "confidence": 0.9}


@pytest.mark.parametrize(
    "changed",
    [{"kind": "command"}, {"count": "\x1b[2J"}, {"start": "0"}, {"dropped": [1]}, {"more": 1}, {"time": None}],
)
def test_what_is_no_event_is_not_shown(changed: dict[str, Any]) -> None:
    assert checked_event(EVENT).count == 1 and math.isclose(checked_event(EVENT).time, 1.0)
    with pytest.raises(ValueError, match="not an event"):
        checked_event({**EVENT, **changed})


def test_a_reason_from_the_process_is_one_line_without_commands() -> None:
    shown = checked_event({**EVENT, "kind": "gap", "reason": "a\n\x1b[2Jb"}).reason
    assert shown is not None and "\n" not in shown and "\x1b" not in shown
