"""Processes that begin with torch imported: a service of the tests starts dozens of workers, each 2 s of imports.

The workers are those of the package; only how they come into being differs (a fork of a process that has imported
what they need, instead of a new interpreter). The real way is tested where `escounts` runs as a command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from unittest.mock import patch

from escounts.system import processes

IMPORTED = [
    "torch",
    "av",
    "pytest",
    "httpx",
    "escounts.counter",
    "escounts.models.from_checkpoint",
    "escounts.output",
]
IMPORTED += ["escounts.counting.spectral", "escounts.serve.app"]
_spawned = processes.spawned
_context = ForkServerContext()
_context.set_forkserver_preload(IMPORTED)


def _as_spawned(
    environment: dict[str, str], folder: str, path: list[str], commands: Connection, reports: Connection
) -> None:
    """What a new interpreter would have from its parent, then the life of a child."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = path
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    for pipe, usual in ((commands, 0), (reports, 1)):
        os.dup2(pipe.fileno(), usual)
        pipe.close()
    processes.run_child()


class _WarmProcess:
    """As much of a `subprocess.Popen` as the package needs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        commands, self_in = os.pipe()
        self_out, reports = os.pipe()
        theirs = Connection(commands, writable=False), Connection(reports, readable=False)
        arguments = ({**os.environ, **environment}, os.getcwd(), sys.path, *theirs)
        self._process = _context.Process(target=_as_spawned, args=arguments, daemon=True)
        self._process.start()
        for pipe in theirs:
            pipe.close()
        self.stdin, self.stdout = FileIO(self_in, "wb"), FileIO(self_out, "rb")
        self.pid = self._process.pid
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        with self._asking:
            return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (1e9 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a warm process", timeout or 0.0)
            time.sleep(0.005)
        return code


@contextlib.contextmanager
def warm_processes() -> Iterator[None]:
    """While it lasts, whoever starts a child gets a warm one."""
    with patch.object(processes, "spawned", _WarmProcess):
        yield


@contextlib.contextmanager
def new_processes() -> Iterator[None]:
    """While it lasts, whoever starts a child gets a new interpreter, as outside the tests."""
    with patch.object(processes, "spawned", _spawned):
        yield
