"""What commands show: results of `escounts count`, its table at the end and summary.csv; how far a command is, over
the seconds of a video, a number of things or a training's steps, in plain lines where it is not a terminal."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from escounts.errors import OutputError, one_line, without_controls
from escounts.output.json import to_dict
from escounts.output.text import csv_text, describe, headline, set_lines
from escounts.results import CountResult, two_digits
from escounts.system.atomic_files import printable, write_text

if TYPE_CHECKING:
    from rich.progress import Progress, Task

MOST_ROWS = 100
"""Of more videos the table shows only those that somebody has to look at."""
COLUMNS = ("video", "status", "count", "unit", "confidence", "confidence_kind", "unsure", "duration_s", "reason")
SUMMARY_BEGINS = ",".join(COLUMNS) + "\n"

LINE_EVERY = 30.0
"""Seconds between plain lines about a number of things."""
Report = Callable[[int, int, dict[str, float]], None]
Count = Callable[[int, int, str], None]
FIGURES = ("loss", "val_mae", "val_mae_0", "val_mae_1", "val_obo_0", "val_obo_1")
"""What is shown of a training."""


@dataclass(frozen=True)
class Row:
    """One video of a batch. about: the result's facts (see `facts`), None where it failed."""

    video: Path
    status: Literal["counted", "finished before", "failed"]
    about: Mapping[str, Any] | None = None
    reason: str = ""

    @property
    def unsure(self) -> bool:
        return self.about is not None and bool(self.about.get("unsure"))


def facts(result: CountResult) -> dict[str, Any]:
    """What is kept of a finished video, so that a later run can say it again without counting."""
    return {
        "headline": headline(result),
        "count": result.count,
        "unit": result.unit,
        "confidence": round(result.confidence, 4),
        "confidence_kind": result.confidence_kind,
        "unsure": result.unsure,
        "duration_s": round(result.duration, 3),
    }


def say(text: str, *, err: bool = False) -> None:
    """Lines; a name that is not UTF-8 is shown with replacement characters, and none commands the terminal."""
    click.echo(without_controls(printable(text), keep="\n\t"), err=err)


def show(result: CountResult, *, as_json: bool, quiet: bool, sets: bool = False) -> None:
    """One result on stdout; with its sets where they are asked for."""
    if as_json:
        say(json.dumps(to_dict(result), ensure_ascii=False))
        return
    width = max(20, min(shutil.get_terminal_size().columns - 4, 96))
    say(headline(result) if quiet else describe(result, width=width))
    if sets:
        say("\n".join(set_lines(result.sets)))


def show_finished(about: Mapping[str, Any], *, quiet: bool) -> None:
    """The count of a video that an earlier run has finished."""
    note = "" if quiet else " · finished already; --force counts it again"
    say(f"{about['headline']}{note}")


def summary_line(rows: Sequence[Row]) -> str:
    """`60 videos: 55 counted, 2 finished before, 7 unsure, 3 failed`."""
    number = Counter(row.status for row in rows)
    before = f", {number['finished before']} finished before" if number["finished before"] else ""
    unsure = sum(row.unsure for row in rows)
    return f"{len(rows)} videos: {number['counted']} counted{before}, {unsure} unsure, {number['failed']} failed"


def table(rows: Sequence[Row]) -> str:
    """A line per video, or per failed and unsure video of very many, and the totals."""
    shown = (
        rows if len(rows) <= MOST_ROWS else [row for row in rows if row.unsure or row.status == "failed"][:MOST_ROWS]
    )
    width = min(48, max((len(one_line(printable(row.video.name))) for row in shown), default=5))
    lines = [f"{'video':<{width}}  {'count':>6}  {'confidence':>10}  "]
    for row in shown:
        name = one_line(printable(row.video.name))
        name = name if len(name) <= width else name[: width - 1] + "…"
        if row.about is None:
            reason = printable(row.reason.removeprefix(f"{row.video}: "))
            lines.append(f"{name:<{width}}  {'failed':>6}  {'':>10}  {reason}")
            continue
        probability = row.about.get("confidence_kind") == "probability"
        confidence = two_digits(row.about["confidence"], unsure=row.unsure) if probability else "–"
        lines.append(f"{name:<{width}}  {row.about['count']:>6}  {confidence:>10}  {'unsure' if row.unsure else ''}")
    if len(shown) < len(rows):
        lines.append(f"… {len(rows) - len(shown)} more")
    return "\n".join(line.rstrip() for line in [*lines, summary_line(rows)])


def check_replaceable(path: Path, beginning: str, what: str, *, force: bool = False) -> None:
    """Raise OutputError where something is there that is not empty and does not begin as ours does: it is not ours
    to write over. what: it ought to be, and what to do where it is not. force: any file is, but nothing else."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise OutputError(f"{path}: cannot be written: it is a folder, a pipe or a device")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if file.read(len(beginning)) not in ("", beginning) and not force:
                raise OutputError(f"{path} is there and is no {what}")
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_summary(path: Path, rows: Sequence[Row]) -> None:
    """summary.csv: one row per video, failures with their reason."""
    table = []
    for row in rows:
        about = {**(row.about or {}), "video": printable(str(row.video)), "status": row.status, "reason": row.reason}
        if row.about is not None:
            about["unsure"] = "yes" if row.unsure else "no"
        table.append([about.get(column) for column in COLUMNS])
    write_text(path, csv_text(COLUMNS, table))


def _bar(*, seconds: bool = False) -> Progress:
    """A bar on stderr, drawn where that is a terminal: over a number of things, or over seconds, gone at the end."""
    from rich import console, progress  # noqa: PLC0415 - 0.1 s that `escounts count` into a pipe does not wait for

    screen = console.Console(stderr=True)
    name = progress.TextColumn("{task.description}", markup=False)  # "[/x]" in a path is not a command to rich
    bar, left = progress.BarColumn(), progress.TimeRemainingColumn()
    columns: tuple[progress.ProgressColumn, ...] = (name, bar, progress.TaskProgressColumn(), left)
    if not seconds:
        columns = (bar, progress.MofNCompleteColumn(), left, name)
    return progress.Progress(
        *columns,
        console=screen,
        transient=seconds,
        disable=not screen.is_terminal,
        speed_estimate_period=math.inf,  # a video may take minutes
        get_time=time.monotonic,
    )


def _task(progress: Progress, name: str = "") -> Task:
    progress.add_task(name, total=None, visible=bool(name))  # one without a name has it with its first report
    return progress.tasks[-1]


@contextmanager
def progress_bar(label: str, *, wanted: bool) -> Iterator[Callable[[float, float], None] | None]:
    """A bar with the time left on stderr, where somebody is looking; None where nobody is."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    with _bar(seconds=True) as progress:
        task = _task(progress, printable(label))

        def report(done: float, total: float) -> None:
            if done < task.completed:  # it begins anew: the video was read, and is drawn now
                progress.reset(task.id, description=f"{printable(label)}: drawing")
            progress.update(task.id, completed=done, total=total)

        yield report


@contextmanager
def work_display(what: str = "videos") -> Iterator[tuple[Count, Report]]:
    """Gives two functions, since a terminal shows one display at a time: one to call with (things done, in all, name
    of the one in hand), and one for a training, with (step, steps in all, figures)."""
    with _bar() as progress:
        yield _counting(what, progress), _training(progress)


def _counting(what: str, progress: Progress) -> Count:
    task, screen = _task(progress), progress.console
    last = time.monotonic()

    def report(done: int, total: int, name: str) -> None:
        nonlocal last
        if done < task.completed or not task.completed:  # a row of a table begins at 1, often long after the display
            progress.reset(task.id)
        progress.update(task.id, completed=done, total=total, description=printable(name), visible=True)
        now = time.monotonic()
        if not screen.is_terminal and now - last > LINE_EVERY:
            last = now
            left = f", about {duration_text(task.time_remaining)} left" if task.time_remaining else ""
            screen.print(f"{done}/{total} {what}{left}  {printable(name)}", highlight=False, markup=False)

    return report


def _training(progress: Progress) -> Report:
    task, screen = _task(progress), progress.console
    shown: dict[str, float] = {}

    def report(step: int, total: int, figures: dict[str, float]) -> None:
        shown.update({name: figures[name] for name in FIGURES if name in figures})
        line = "  ".join(f"{name.removeprefix('val_')} {value:.3f}" for name, value in shown.items())
        if step < task.completed or not task.completed:  # the next run
            progress.reset(task.id)
        progress.update(task.id, completed=step, total=total, description=line, visible=True)
        if not screen.is_terminal and any(name.startswith("val_") for name in figures):
            screen.print(f"step {step}/{total}  {line}", highlight=False)

    return report


def duration_text(seconds: float) -> str:
    """Minutes or hours, for a person."""
    minutes = seconds / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{max(1, round(minutes))} min"
