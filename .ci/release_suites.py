"""The part of release_check.py that runs tests: every verdict is kept as it comes, so that a stopped run goes on.

Loaded into pytest (`-p release_suites`) this file is also the plugin that writes the verdicts and leaves out what has
passed before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from release_lanes import Run
from release_rows import Row, merged

ROOT = Path(__file__).resolve().parents[1]
VERDICTS = "ESCOUNTS_RELEASE_VERDICTS"
SLICE = "ESCOUNTS_RELEASE_SLICE"
ROW = "RELEASE-ROW "


@dataclass(frozen=True)
class Suite:
    """Tests under some paths: a row for each of their own figures, and one for their verdicts.

    slice: (k, n), of the tests as they are collected the k-th, from 0, and every n-th after it.
    """

    paths: tuple[str, ...]
    marker: str = "release"
    without: tuple[str, ...] = ()
    slice: tuple[int, int] = (0, 1)

    def run(self, share: float, limit: float, verdicts: Path) -> list[Row]:
        """verdicts: the file that they are kept in; tests that passed there are not run again."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "release_suites",
            "-m",
            self.marker,
            "-p",
            "no:cacheprovider",
        ]
        command += [*self.paths, *(f"--ignore={path}" for path in self.without)]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        failed = verdicts.parent / "failed"  # inputs that did, for the corpus
        failed.mkdir(exist_ok=True)
        env = {"ESCOUNTS_RELEASE_SHARE": str(share), VERDICTS: str(verdicts), "PYTHONPATH": path}
        env |= {"ESCOUNTS_RELEASE_KEEP": str(failed), SLICE: json.dumps(self.slice)}
        code, output = bounded(command, limit, env)
        found = kept(verdicts)
        rows = published([row for verdict in found.values() for row in verdict["rows"]])
        good = [one for one in found.values() if one["verdict"] == "passed"]
        skipped = sum(one["verdict"] == "skipped" for one in found.values())
        hung = int(code is None)
        whole = not hung and bool(found) and len(good) == len(found) and code in (0, 5)  # 5: all had passed before
        if not whole:
            print(output[-8000:], flush=True)
        slowest = sorted(found.items(), key=lambda pair: -pair[1]["seconds"])[:5]
        print("".join(f"{one['seconds']:8.0f} s  {test}\n" for test, one in slowest), end="", flush=True)
        name = f"tests of {', '.join(self.paths)}{' but the above' if self.without else ''}, marked {self.marker}"
        figures = {"did not run (skipped)": skipped} if skipped else {}
        return [*rows, Row(name, len(found) + hung, len(good), hangs=hung, figures=figures, failed=not whole)]


def split(suite: Suite, pieces: int) -> tuple[Run, ...]:
    """The suite in so many pieces, which can run side by side: each test is in one of them."""
    return tuple(replace(suite, slice=(number, pieces)).run for number in range(pieces))


def kept(verdicts: Path) -> dict[str, dict[str, Any]]:
    """By test, the last verdict in a file; a line that a kill has torn is left out."""
    found = {}
    for line in verdicts.read_text().splitlines() if verdicts.is_file() else ():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        found[one["test"]] = one
    return found


def published(printed: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows that suites printed (tests/release_figures.py); those of one name are one row."""
    return merged(
        Row(
            found["name"], found["cases"], found["survived"], found["lost"] + found["crash"], found["hang"],
            found["traceback"], figures=found["notes"],
        )
        for found in printed
    )  # fmt: skip


def bounded(command: Sequence[str], limit: float, env: Mapping[str, str] | None = None) -> tuple[int | None, str]:
    """Exit code (None past the limit, with all that it started) and what was printed."""
    started = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, **(env or {})}, start_new_session=True,
    )  # fmt: skip
    try:
        output = started.communicate(timeout=limit)[0]
        return started.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        return None, started.communicate()[0]
    except BaseException:  # Ctrl-C, SIGTERM: what was started does not go on alone
        os.killpg(started.pid, signal.SIGKILL)
        raise


_phases: dict[str, list[Any]] = {}


@pytest.hookimpl(trylast=True)  # after the marker has chosen: a slice is one of what is to run
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What belongs to another slice, or has passed in the kept verdicts, is left out."""
    first, step = json.loads(os.environ.get(SLICE, "[0, 1]"))
    passed = {test for test, one in kept(Path(os.environ[VERDICTS])).items() if one["verdict"] == "passed"}
    wanted = [item for item in items[first::step] if item.nodeid not in passed]
    chosen = set(wanted)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = wanted


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each test when it is over: the worst of its phases, its seconds, the rows that it printed."""
    phases = _phases.setdefault(report.nodeid, [])
    phases.append(report)
    if report.when != "teardown":
        return
    outcomes = {phase.outcome for phase in _phases.pop(report.nodeid)}
    verdict = next(one for one in ("failed", "skipped", "passed") if one in outcomes)
    rows = [json.loads(line[len(ROW) :]) for line in report.capstdout.splitlines() if line.startswith(ROW)]
    seconds = round(sum(phase.duration for phase in phases), 2)
    line = json.dumps({"test": report.nodeid, "verdict": verdict, "seconds": seconds, "rows": rows})
    with Path(os.environ[VERDICTS]).open("a") as file:
        file.write(f"\n{line}\n")  # begins a line of its own: the one before may be torn
