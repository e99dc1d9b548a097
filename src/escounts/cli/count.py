"""`escounts count`: videos in, counts out; one bad file is reported and the others go on."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import escounts
from escounts import __version__
from escounts.cli import collector_paused
from escounts.cli.count_jobs import (
    Done,
    Ledger,
    Task,
    attempt,
    file_identity,
    output_names,
    remembered_interrupt,
    side_by_side,
    videos_among,
)
from escounts.cli.display import (
    SUMMARY_BEGINS,
    Row,
    check_replaceable,
    facts,
    progress_bar,
    say,
    show,
    show_finished,
    table,
    write_summary,
)
from escounts.cli.options import COUNT, check_range, counting_options
from escounts.errors import EscountsError, OutputError, one_line
from escounts.exemplars import parse_exemplar, states_of_videos
from escounts.models import catalogue
from escounts.models.store import stored_path
from escounts.output import FORMATS
from escounts.system.atomic_files import remove_partials

if TYPE_CHECKING:
    from escounts.counter import Counter


COUNTING = ("exemplars", "like_set", "start", "end", "region", "unit", "each", "assume_repeats")
"""Options that `Counter.count` takes, under its names."""


@dataclass(frozen=True)
class Job:
    """What was asked for, apart from the videos.

    weights: what tells the user's own weights from others in the same place; None for a model of the package.
    counting: what `Counter.count` takes beside the video, under its names.
    """

    model: str
    weights: list[Any] | None
    device: str
    counting: dict[str, Any]
    folder: Path | None
    formats: tuple[str, ...]
    summary: Path | None
    jobs: int
    json: bool
    force: bool
    quiet: bool
    sets: bool
    sandbox: bool

    @property
    def settings(self) -> dict[str, Any]:
        """What changes a result, as JSON has it: two runs with equal settings write equal files."""
        names = {"start": "from", "end": "to"}
        counting = {names.get(name, name): value for name, value in self.counting.items()}
        counting["exemplars"] = list(counting["exemplars"])
        if videos := states_of_videos(counting["exemplars"]):
            counting["exemplar_videos"] = videos
        return {"escounts": __version__, "model": self.model, "weights": self.weights, **counting}


def _table_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """--summary a.mp4 b.mp4 would write the table over the first of the videos."""
    if value is not None and value.suffix.lower() != ".csv" and value.exists():
        raise click.BadParameter(f"{value} is there and is no .csv; it takes the name of the table to write")
    return value


def _formats(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    unknown = [name for name in names if name not in FORMATS]
    if unknown or not names:
        raise click.BadParameter(f"{value!r}; known formats: {', '.join(FORMATS)}")
    return names


@click.command()
@click.argument(
    "inputs",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, readable=False),
    metavar="VIDEO|FOLDER...",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the files (default: here).")
@click.option("-f", "--format", "formats", callback=_formats, help=f"Comma-separated: {', '.join(FORMATS)}.")
@click.option("--exemplar", "exemplars", multiple=True, metavar="[VIDEO@]START-END",
              help="One repetition to look for, in seconds; may be given several times. Without VIDEO@ it is "
              "looked up in each video that is counted.")  # fmt: skip
@click.option("--set", "like_set", type=COUNT, metavar="N",
              help="Count like a repetition of the Nth set that --sets prints.")  # fmt: skip
@click.option("--sets", is_flag=True, help="Print the sets: counts, rests and tempo.")
@click.option("--each", is_flag=True, help="Find the places of the picture where something repeats, count each.")
@counting_options
@click.option("-j", "--jobs", type=COUNT, default=1, show_default=True, help="Videos counted at once.")
@click.option("--summary", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.csv", callback=_table_file,
              help="One row per video, failures too, in a CSV file.")  # fmt: skip
@click.option("--json", is_flag=True, help="One JSON object per line on stdout, nothing else.")
@click.option("--force", is_flag=True, help="Count again what is finished, and replace files of the same names.")
@click.option("-q", "--quiet", is_flag=True, help="Only the headline of each video.")
def count_command(
    inputs: tuple[Path, ...],
    output: Path | None,
    formats: tuple[str, ...] | None,
    model: str,
    **options: Any,
) -> int:
    """Count the repetitions in videos, folders of videos or folders of images.

    Exit code 0: all counted; 1: some files failed; 2: wrong use.
    """
    counting = {name: options.pop(name) for name in COUNTING}
    check_range(counting)
    for exemplar in counting["exemplars"]:
        parse_exemplar(exemplar)
    if counting["each"] and counting["exemplars"]:
        raise click.UsageError("--each and --exemplar: an exemplar shows one place's motion; count it with --region")
    writes = output is not None or formats is not None
    model = model if Path(model).is_file() else catalogue.find(model).name
    job = Job(
        model=model,
        weights=_weights(model) if writes else None,
        counting=counting,
        folder=(output or Path(".")) if writes else None,
        formats=formats or (("json",) if writes else ()),
        **options,  # under the names that they have in Job
    )
    return run(inputs, job)


def _weights(model: str) -> list[Any] | None:
    # os.path: a store that this user may not look into is a store without the model, not an error.
    own = next((path for path in (model, os.path.join(model, catalogue.DESCRIPTION)) if os.path.isfile(path)), None)
    path = stored_path(model) if own is None else Path(own)
    return file_identity(path) if os.path.isfile(path) else None


def run(inputs: tuple[Path, ...], job: Job) -> int:
    """Count every video; 0, or 1 when some failed."""
    ledger = None
    if job.summary is not None:
        what = "summary of escounts; give another name, --force replaces it"
        check_replaceable(job.summary, SUMMARY_BEGINS, what, force=job.force)
    if job.folder is not None:
        check_writable(job.folder)
        ledger = Ledger(job.folder)
    given = videos_among(inputs)
    # One place for each, in the order given, whatever order they end in.
    rows: dict[Path, Row | None] = {
        path: Row(path, "failed", reason=reason) if reason else None for path, reason in given
    }
    for _, reason in given:
        if reason:
            say(f"escounts: {reason}", err=True)
    videos = [path for path, reason in given if not reason]
    tasks = []
    for video, name in output_names(videos, ledger.owners if ledger else None):
        task = _with_stale(Task(video, name, job.counting, job.folder, job.formats), job, ledger)
        about = None if ledger is None or job.force else _finished(ledger, task, job)
        in_the_way = [] if ledger is None or job.force else ledger.foreign_files(task.files)
        if about is not None:
            rows[video] = Row(video, "finished before", about)
        elif in_the_way:
            reason = f"{video}: not counted, {_refusal(job.folder, in_the_way)}"
            say(f"escounts: {reason}", err=True)
            rows[video] = Row(video, "failed", reason=reason)
        else:
            tasks.append(task)
    try:
        for task, done in _counted(tasks, job, several=len(videos) > 1):
            rows[task.video] = _report(task, done, job, ledger)
    except KeyboardInterrupt:
        _close([row for row in rows.values() if row], job)
        raise
    finally:
        if ledger is not None:
            ledger.drop_if_empty()
    ended = [row for row in rows.values() if row]
    _close(ended, job)
    return 1 if any(row.reason for row in ended) else 0


def _with_stale(task: Task, job: Job, ledger: Ledger | None) -> Task:
    """The task with the formats that lie there already, of this video and of other settings: all are made again, so
    that no two files of a video contradict each other."""
    if ledger is None:
        return task
    try:
        stale = ledger.stale(task.name, task.video, job.settings, task.files)
    except EscountsError:  # counting it says why it cannot be looked at
        return task
    kinds = [kind for kind, known in FORMATS.items() if task.name + known.suffix in stale]
    if kinds and not job.quiet:
        names = ", ".join(task.name + FORMATS[kind].suffix for kind in kinds)
        say(f"{names}: of other settings, made again", err=True)
    return replace(task, formats=(*task.formats, *kinds))


def _refusal(folder: Path | None, files: list[str]) -> str:
    there = ", ".join(str((folder or Path()) / file) for file in files)
    return f"{there} is there and was not written by escounts; -o writes elsewhere, --force replaces it"


def _counted(tasks: list[Task], job: Job, *, several: bool) -> Iterator[tuple[Task, Done]]:
    if (job.jobs > 1 and len(tasks) > 1) or (job.sandbox and tasks):
        number = 0
        for number, pair in enumerate(side_by_side(job.model, job.device, tasks, job.jobs, sandbox=job.sandbox), 1):
            yield pair
            if not job.json and not job.quiet:
                say(f"{number} of {len(tasks)} done", err=True)
        return
    counter: Counter | None = None
    wanted = not job.json and not job.quiet
    with remembered_interrupt() as interrupted:
        for number, task in enumerate(tasks, 1):
            counter = counter or _load(job)
            label = (f"{number} of {len(tasks)}  " if several else "") + one_line(task.video.name)
            if several and wanted and not sys.stderr.isatty():
                say(label, err=True)
            with progress_bar(label, wanted=wanted) as progress:
                done = attempt(counter, task, progress)
            if interrupted():
                raise KeyboardInterrupt
            yield task, done


def _report(task: Task, done: Done, job: Job, ledger: Ledger | None) -> Row:
    """Print one outcome, remember it where all files are written."""
    result, failure, written = done
    if result is not None:
        show(result, as_json=job.json, quiet=job.quiet, sets=job.sets)
    if written and result is not None and ledger is not None and job.folder is not None:
        try:
            ledger.add(task.name, task.video, job.settings, written, facts(result))
        except OutputError as error:  # the disk is full, or the video was taken away: the others go on
            failure = f"{failure}; {error}" if failure else str(error)
        for file in written if not (job.json or job.quiet) else ():
            say(f"wrote {job.folder / file}", err=True)
    if failure is not None:
        say(f"escounts: {failure}", err=True)
    about = None if result is None else facts(result)
    return Row(task.video, "failed" if about is None else "counted", about, failure or "")


def _close(rows: list[Row], job: Job) -> None:
    """The table of several videos, and summary.csv where it was asked for."""
    if len(rows) > 1 and not job.json and not job.quiet:
        say("\n" + table(rows))
    if job.summary is not None and rows:
        write_summary(job.summary, rows)
        if not job.quiet:
            say(f"wrote {job.summary}", err=True)


def _finished(ledger: Ledger, task: Task, job: Job) -> Mapping[str, Any] | None:
    """What an earlier run found in a video, printed; None where it has to be counted."""
    assert job.folder is not None
    try:
        about = ledger.about(task.name, task.video, job.settings, task.files)
    except EscountsError:
        return None  # the video is gone or cannot be looked at: counting it says so
    if about is None or "headline" not in about:
        return None
    if not job.json:
        show_finished(about, quiet=job.quiet)
        return about
    if "json" not in job.formats:
        return None  # the result has to be on stdout, and is not kept anywhere
    try:
        stored = jsonlib.loads((job.folder / f"{task.name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    say(jsonlib.dumps(stored, ensure_ascii=False))
    return about


def _load(job: Job) -> Counter:
    try:
        with collector_paused():
            return escounts.load(job.model, device=job.device)
    except EscountsError as error:
        raise click.UsageError(str(error)) from error  # no video can be counted: not one file's fault


def check_writable(folder: Path) -> None:
    """Find out before hours of work, not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partials(folder, older=3600.0)
        tempfile.TemporaryFile(dir=folder).close()  # nameless: another run may begin here at this moment
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written to: {error.strerror or error}") from error
