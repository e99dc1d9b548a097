"""kill -9 at any moment: nothing finished is lost, nothing half-written passes for whole, a second run ends well."""

from __future__ import annotations

import csv
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from movies import bouncing, write_movie
from release_figures import SEED, Tally, share_of

from escounts.batching.rows import ResultFolder
from escounts.models.checkpoint import read_checkpoint

CI_KILLS, RELEASE_KILLS, RELEASE_PARTS = 5, 100, 10
LIMIT = 300.0
"""Seconds a command may take on a busy machine; more is a hang."""


class Zygote:
    """Runs commands to their end, or kills them after so many seconds."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py")), str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        )

    def run(self, arguments: list[str], *, kill_after: float | None = None) -> int:
        """The exit code; -9 for a killed one."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(arguments) + "\n")
        stdin.flush()
        child = int(stdout.readline().split()[1])
        ready, _, _ = select.select([stdout], [], [], LIMIT if kill_after is None else kill_after)
        if not ready:
            with suppress(ProcessLookupError):  # it has just ended: its exit code is on its way
                os.kill(child, signal.SIGKILL)
        code = int(stdout.readline().split()[1])
        if not ready and kill_after is None:
            raise TimeoutError(f"escounts {' '.join(arguments)} takes longer than {LIMIT:.0f} s")
        return code

    def tracebacks(self) -> int:
        return self.log.read_text().count("Traceback (most recent call last)")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=LIMIT)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    started = Zygote(tmp_path_factory.mktemp("zygote") / "log.txt")
    yield started
    started.close()


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four small videos with labels."""
    root = tmp_path_factory.mktemp("videos")
    with (root / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "start_s", "end_s", "class", "split"])
        for k in range(4):
            write_movie(root / f"v{k}.mp4", bouncing(3, 3.0, size=(64, 48)))
            for n in range(3):
                writer.writerow([f"v{k}.mp4", n, n + 1, "bounce", "train" if k < 2 else "valid"])
    return root


@dataclass(frozen=True)
class Command:
    """arguments: from the folder it writes to. whole: what a finished run leaves, in a form that can be compared."""

    arguments: Callable[[Path], list[str]]
    whole: Callable[[Path], Any]


def counted(out: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(out.glob("*.json")):
        values = json.loads(path.read_text())
        values.pop("timings")
        found[path.name] = values
    return found | {path.name: path.read_text() for path in sorted(out.glob("*.csv"))}


def encoded(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.*") if path.is_file()}


def trained(out: Path) -> list[int]:
    read_checkpoint(out / "best.safetensors")
    return [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]


def evaluated(out: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(out.glob("predictions/*.csv"))}


def batched(out: Path) -> list[dict[str, Any]]:
    assert not list((out / "rows").iterdir())
    return ResultFolder(str(out)).table().drop_columns(["spent"]).to_pylist()  # type: ignore[no-any-return]


def commands(videos: Path, finished_run: Path | None) -> dict[str, Command]:
    train = ["train", "folder", "--root", str(videos), "--init", "none", "--steps", "4", "--batch", "2"]
    return {
        "count": Command(
            lambda out: ["count", str(videos), "--model", "spectral", "-q", "-o", str(out), "-f", "json,csv"], counted
        ),
        "encode": Command(
            lambda out: ["encode", "folder", "--root", str(videos), "--tokens", str(out), "--encoder", "patches",
                         "--device", "cpu"],
            encoded,
        ),
        "batch": Command(
            lambda out: ["batch", str(videos), "--out", str(out), "--model", "spectral", "--jobs", "1"], batched
        ),
        "train": Command(lambda out: [*train, "--device", "cpu", "--out", str(out)], trained),
        "evaluate": Command(
            lambda out: ["evaluate", str(out), "--tokens", str(finished_run / "tokens"), "--shots", "0"]
            if finished_run else [],
            evaluated,
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def finished_run(videos: Path, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert zygote.run(commands(videos, None)["train"].arguments(out)) == 0, zygote.log.read_text()[-2000:]
    return out


def litter(out: Path) -> list[str]:
    return [str(path) for path in out.rglob("*.partial")]


def storm(name: str, kills: int, seed: int, videos: Path, run: Path, zygote: Zygote, place: Path) -> Tally:
    """Kill the command so often, each time somewhere else; after each a second run completes it."""
    command = commands(videos, run)[name]
    fresh = prepared(name, run, place / "reference")
    began = time.monotonic()
    assert zygote.run(command.arguments(fresh)) == 0, zygote.log.read_text()[-2000:]
    seconds = time.monotonic() - began
    reference = command.whole(fresh)
    assert reference and litter(fresh) == []
    dice, tally = random.Random(seed), Tally()
    for number in range(kills):
        out = prepared(name, run, place / str(number))
        moment = dice.uniform(0.02, seconds)
        tally.cases += 1
        began = time.monotonic()
        if zygote.run(command.arguments(out), kill_after=moment) == -9:
            tally.note("killed")
        else:  # the reference was slower, as on a machine that was busy then: later moments lie within this run
            seconds = min(seconds, time.monotonic() - began)
        before = zygote.tracebacks()
        if fault := after_a_second_run(command, out, reference, zygote):
            tally.failures.append((fault[0], f"{name}, killed after {moment:.3f} s: {fault[1]}"))
        elif zygote.tracebacks() > before:
            tally.failures.append(("traceback", zygote.log.read_text()[-2000:]))
        else:
            shutil.rmtree(out)
    return tally


def after_a_second_run(command: Command, out: Path, reference: Any, zygote: Zygote) -> tuple[str, str] | None:
    """What is wrong after the command ran to its end where another one was killed; None where all is well."""
    try:
        code = zygote.run(command.arguments(out))
    except TimeoutError as error:
        return "hang", str(error)
    if code != 0:
        return "lost", f"the second run ends with exit code {code}\n{zygote.log.read_text()[-2000:]}"
    if command.whole(out) != reference:
        return "lost", "the result is another one"
    return ("lost", f"left behind: {litter(out)}") if litter(out) else None


def prepared(name: str, run: Path, out: Path) -> Path:
    """An empty folder; for `train` with the tokens in it; for `evaluate` a finished run without its predictions."""
    out = out / "run"  # predictions name the run
    out.mkdir(parents=True)
    if name == "train":
        shutil.copytree(run / "tokens", out / "tokens")
    if name == "evaluate":
        for path in run.iterdir():
            if path.is_file() and path.name != "lock":
                (out / path.name).write_bytes(path.read_bytes())
    return out


KILLED = ["count", "encode", "batch", "train", "evaluate"]


def said(zygote: Zygote, arguments: list[str], **options: float) -> tuple[int, list[str]]:
    """Exit code and the whole JSON lines that a command printed."""
    before = zygote.log.stat().st_size
    code = zygote.run(arguments, **options)
    with zygote.log.open() as file:
        file.seek(before)
        return code, [line for line in file if line.startswith("{") and line.endswith("\n")]


def watch_storm(kills: int, seed: int, videos: Path, zygote: Zygote) -> Tally:
    """Kill `watch` so often: what it had printed is the beginning of what a whole run prints, line by line."""
    arguments = ["watch", str(videos / "v0.mp4"), "--json", "--speed", "inf", "--device", "cpu"]
    code, whole = said(zygote, arguments)
    assert code == 0 and json.loads(whole[-1])["kind"] == "end", whole
    began = time.monotonic()
    assert said(zygote, arguments) == (0, whole)
    seconds = time.monotonic() - began  # of the second run: the first one waits for the zygote's imports
    dice, tally = random.Random(seed), Tally()
    for _ in range(kills):
        moment = dice.uniform(0.1, 1.0) * seconds
        began = time.monotonic()
        code, lines = said(zygote, arguments, kill_after=moment)
        tally.cases += 1
        if code == -9:
            tally.note("killed")
        else:
            seconds = min(seconds, time.monotonic() - began)
        if lines != whole[: len(lines)]:
            tally.failures.append(("lost", f"watch, killed after {moment:.3f} s: {lines}"))
    return tally


def test_a_command_that_ends_just_before_its_kill_has_ended(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in 700 kills: the answer stayed unread, and every command after it got that of the one before."""
    waited: Any = select.select

    def too_late(readable: list[Any], *_: object) -> tuple[list[Any], list[Any], list[Any]]:
        waited(readable, [], [], LIMIT)
        return [], [], []

    monkeypatch.setattr(select, "select", too_late)
    assert zygote.run(["--version"], kill_after=0.1) == 0
    monkeypatch.undo()
    assert zygote.run(["--version"]) == 0 and zygote.run(["no-such-command"]) == 2


def test_a_killed_watch_said_nothing_that_a_whole_one_does_not_say(videos: Path, zygote: Zygote) -> None:
    tally = watch_storm(CI_KILLS, 5, videos, zygote)
    assert tally.failures == [] and tally.notes.get("killed", 0) > 0


@pytest.mark.release
@pytest.mark.parametrize("part", range(RELEASE_PARTS))
def test_watch_is_killed_a_hundred_times(part: int, videos: Path, zygote: Zygote) -> None:
    kills = share_of(RELEASE_KILLS // RELEASE_PARTS)
    tally = watch_storm(kills, 100 + RELEASE_PARTS * SEED + part, videos, zygote)
    tally.publish("kill -9 in watch")
    assert tally.failures == []


@pytest.mark.parametrize("name", KILLED)
def test_killed_and_run_again(name: str, videos: Path, finished_run: Path, zygote: Zygote, tmp_path: Path) -> None:
    tally = storm(name, CI_KILLS, 5, videos, finished_run, zygote, tmp_path)
    assert tally.failures == [] and tally.notes.get("killed", 0) > 0


@pytest.mark.release
@pytest.mark.parametrize("part", range(RELEASE_PARTS))
@pytest.mark.parametrize("name", KILLED)
def test_killed_a_hundred_times(
    name: str, part: int, videos: Path, finished_run: Path, zygote: Zygote, tmp_path: Path
) -> None:
    kills = share_of(RELEASE_KILLS // RELEASE_PARTS)
    tally = storm(name, kills, 100 + RELEASE_PARTS * SEED + part, videos, finished_run, zygote, tmp_path)
    tally.publish(f"kill -9 in {name}")
    assert tally.failures == []
