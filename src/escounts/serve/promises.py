"""What was asked of the workers and is waited for, as futures that any thread may wait on and give up."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from escounts.errors import EscountsError
from escounts.serve.worker import RenderTask

T = TypeVar("T")


class JobError(EscountsError):
    """Something asked of the service that it could not do; the text says what and why."""


@dataclass
class Render:
    """A file to be drawn. future: its path, or a JobError."""

    task: RenderTask
    future: Future[str] = field(default_factory=Future)


def settle(future: Future[T], outcome: T | JobError) -> None:
    """Give a future its value or its error; one that was given up meanwhile stays given up."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, JobError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
