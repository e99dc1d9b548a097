"""Progress of a training run in the terminal; plain lines when it is not one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Report = Callable[[int, int, dict[str, float]], None]
SHOWN = ("loss", "val_mae", "val_mae_0", "val_mae_1", "val_obo_0", "val_obo_1")


@contextmanager
def training_display() -> Iterator[Report]:
    """Gives a function to call with (step, steps in all, figures)."""
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        shown: dict[str, float] = {}

        def report(step: int, total: int, figures: dict[str, float]) -> None:
            shown.update({name: figures[name] for name in SHOWN if name in figures})
            line = "  ".join(f"{name.removeprefix('val_')} {value:.3f}" for name, value in shown.items())
            progress.update(bar, completed=step, total=total, description=line)
            if not console.is_terminal and any(name.startswith("val_") for name in figures):
                console.print(f"step {step}/{total}  {line}", highlight=False)

        yield report
