"""Progress over a number of things, such as videos; plain lines now and then when it is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY = 30.0
"""Seconds between plain lines."""


@contextmanager
def counting_display(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function to call with (done, in all, name of the one in hand)."""
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        began = last = time.monotonic()

        def report(done: int, total: int, name: str) -> None:
            nonlocal last
            progress.update(bar, completed=done, total=total, description=name)
            now = time.monotonic()
            if not console.is_terminal and now - last > LINE_EVERY:
                last = now
                left = f", {time_left(done, total, now - began)} left" if done else ""
                console.print(f"{done}/{total} {what}{left}  {name}", highlight=False)

        yield report


def time_left(done: int, total: int, seconds: float) -> str:
    """How long the rest takes at the pace so far, for a person."""
    return f"about {duration_text((total - done) * seconds / done)}"


def duration_text(seconds: float) -> str:
    """Minutes or hours, for a person."""
    minutes = seconds / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{max(1, round(minutes))} min"
