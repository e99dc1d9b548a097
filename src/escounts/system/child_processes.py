"""Processes of our own: fresh interpreters, since torch's threads do not survive a fork.

Such a child first reads from its parent what it is to do. Where the parent is killed before it has written that,
Python has the child print a traceback of its own; here it ends without a word. Ctrl-C is the parent's to handle, from
the child's first instruction on: a terminal sends it to both.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker, spawn
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

_starting = threading.local()
_usual_command = spawn.get_command_line

PROGRAM = """\
import os, pickle
try:
    {usual}
except (EOFError, pickle.UnpicklingError):
    if os.getppid() == {parent}: raise
"""
"""What a child runs; with a parent that is there, an error is an error."""


def _command(**handles: Any) -> list[str]:
    """The command line of a child that is being started: Python's own; with `PROGRAM` around it if it is ours."""
    command = _usual_command(**handles)
    if getattr(_starting, "ours", False) and "-c" in command:
        place = command.index("-c") + 1
        command[place] = PROGRAM.format(usual=command[place], parent=os.getpid())
    return command


spawn.get_command_line = _command


class _Process(SpawnProcess):
    def start(self) -> None:
        """As ever, with Ctrl-C held back in the child."""
        if sys.platform == "win32":
            super().start()
            return
        resource_tracker.ensure_running()  # Python's own helper, whose start would let Ctrl-C through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        _starting.ours = True
        try:
            super().start()
        finally:
            _starting.ours = False
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    Process = _Process


_context: Any = _Context()


def spawn_context() -> Any:
    """What `multiprocessing.get_context("spawn")` is, whose processes end quietly when their parent is gone."""
    return _context


def started(target: Callable[..., None], *arguments: Any, name: str | None = None) -> tuple[Any, Connection]:
    """A child that calls target with its end of a pipe, then the arguments: its process, and our end."""
    context = spawn_context()
    ours, theirs = context.Pipe()
    try:
        process = context.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
        process.start()
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours
