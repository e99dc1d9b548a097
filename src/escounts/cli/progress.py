"""Progress in the terminal, over a number of things or over a training's steps; plain lines when it is not one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY = 30.0
"""Seconds between plain lines about a number of things."""
Report = Callable[[int, int, dict[str, float]], None]
FIGURES = ("loss", "val_mae", "val_mae_0", "val_mae_1", "val_obo_0", "val_obo_1")
"""What is shown of a training."""


def _bar(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def counting_display(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function to call with (done, in all, name of the one in hand)."""
    console = Console(stderr=True)
    with _bar(console) as progress:
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


@contextmanager
def training_display() -> Iterator[Report]:
    """Gives a function to call with (step, steps in all, figures)."""
    console = Console(stderr=True)
    with _bar(console) as progress:
        bar = progress.add_task("", total=None)
        shown: dict[str, float] = {}

        def report(step: int, total: int, figures: dict[str, float]) -> None:
            shown.update({name: figures[name] for name in FIGURES if name in figures})
            line = "  ".join(f"{name.removeprefix('val_')} {value:.3f}" for name, value in shown.items())
            progress.update(bar, completed=step, total=total, description=line)
            if not console.is_terminal and any(name.startswith("val_") for name in figures):
                console.print(f"step {step}/{total}  {line}", highlight=False)

        yield report


def time_left(done: int, total: int, seconds: float) -> str:
    """How long the rest takes at the pace so far, for a person."""
    return f"about {duration_text((total - done) * seconds / done)}"


def duration_text(seconds: float) -> str:
    """Minutes or hours, for a person."""
    minutes = seconds / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{max(1, round(minutes))} min"
