"""Processes that begin with torch imported: a service of the tests starts dozens of workers, each 2 s of imports.

The workers are those of the package; only how they come into being differs (a fork of a process that has imported
what they need, instead of a new interpreter). The real way is tested where `escounts` runs as a command.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from typing import Any
from unittest.mock import patch

from escounts.system import child_processes

IMPORTED = ["torch", "av", "pytest", "httpx", "escounts.counter", "escounts.models.building", "escounts.output"]
IMPORTED += ["escounts.counting.spectral", "escounts.serve.app"]


def _as_spawned(environment: dict[str, str], folder: str, target: Callable[..., None], arguments: Any) -> None:
    """What a new interpreter would have from its parent, then the target."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    target(*arguments)


class _Process(ForkServerProcess):
    def __init__(self, *, target: Callable[..., None], args: Any = (), name: str | None = None, daemon: bool) -> None:
        arguments = (dict(os.environ), os.getcwd(), target, args)
        super().__init__(target=_as_spawned, args=arguments, name=name, daemon=daemon)


class _Context(ForkServerContext):
    Process = _Process


_context = _Context()
_context.set_forkserver_preload(IMPORTED)
_usual = multiprocessing.get_context


def _chosen(method: str | None = None) -> BaseContext:
    return _context if method == "spawn" else _usual(method)


@contextlib.contextmanager
def warm_processes() -> Iterator[None]:
    """While it lasts, whoever spawns a process gets a warm one."""
    with patch.object(multiprocessing, "get_context", _chosen), patch.object(child_processes, "_context", _context):
        yield
