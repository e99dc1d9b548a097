"""Running `escounts …` as a user does: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from escounts.cli import app, main

NOBODY = 65534


@dataclass(frozen=True)
class Outcome:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *arguments: object,
    command: click.Command = app,
) -> Outcome:
    """`escounts arguments…` in this process; command: another program."""
    monkeypatch.setattr(sys, "argv", ["escounts", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main(command)
    out, err = capsys.readouterr()
    return Outcome(int(stopped.value.code or 0), out, err)


def spawn(*arguments: object, before: str = "", cwd: Path | None = None) -> subprocess.Popen[str]:
    """`escounts arguments…` in its own process; before: Python code that runs first (limits, another user)."""
    # A shell that runs the tests in the background has them, and so their children, ignore Ctrl-C.
    heeding = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = f"import os, resource, sys\n{heeding}{before}\nfrom escounts.cli import main\nmain()\n"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": "/tmp"},
    )


def finish(process: subprocess.Popen[str], *, timeout: float = 300) -> Outcome:
    """Wait for it."""
    out, err = process.communicate(timeout=timeout)
    return Outcome(process.returncode, out, err)


def as_nobody() -> str:
    """Code for `before`: root ignores permissions, so that tests of them must not run as root."""
    if os.getuid() != 0:
        return ""
    # Import first: the checkout may lie where nobody may look.
    return (
        "import difflib, tempfile, escounts.counter, escounts.video.files, escounts.counting.spectral\n"
        "import escounts.output, escounts.cli.count, escounts.cli.count_jobs\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    )
