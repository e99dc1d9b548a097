"""`escounts count`: videos in, counts out; one bad file is reported and the others go on."""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from escounts import __version__
from escounts.cli.inputs import output_names, videos_among
from escounts.cli.loading import lasting
from escounts.errors import EscountsError, OutputError
from escounts.exemplars import parse_exemplar
from escounts.zoo import catalogue

if TYPE_CHECKING:
    from escounts.counter import Counter
    from escounts.output.finished import Ledger
    from escounts.results import CountResult

FORMATS = ("text", "json", "csv", "srt", "png", "mp4", "html")


@dataclass(frozen=True)
class Job:
    """What was asked for, apart from the videos. Times in seconds.

    weights: what tells the user's own weights from others in the same place; None for a model of the package.
    """

    model: str
    weights: list[Any] | None
    device: str
    exemplars: tuple[str, ...]
    start: float
    end: float | None
    thorough: bool
    assume_repeats: bool
    folder: Path | None
    formats: tuple[str, ...]
    json: bool
    force: bool
    quiet: bool

    @property
    def settings(self) -> dict[str, Any]:
        """What changes a result: two runs with equal settings write equal files."""
        return {
            "escounts": __version__,
            "model": self.model,
            "weights": self.weights,
            "exemplars": list(self.exemplars),
            "from": self.start,
            "to": self.end,
            "thorough": self.thorough,
            "assume_repeats": self.assume_repeats,
        }


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
@click.option("--from", "start", type=click.FloatRange(min=0), default=0.0, help="Count from this second.")
@click.option("--to", "end", type=click.FloatRange(min=0), help="Count up to this second.")
@click.option("--model", default="default", show_default=True, help="A name of `escounts models`.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--thorough",
    is_flag=True,
    help="More frame rates and time shifts, where the model has them: three times the work, seldom better.",
)
@click.option("--assume-repeats", is_flag=True, help="Never answer that nothing repeats.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout, nothing else.")
@click.option("--force", is_flag=True, help="Count again what is finished.")
@click.option("-q", "--quiet", is_flag=True, help="Only the headline of each video.")
def command(
    inputs: tuple[Path, ...],
    output: Path | None,
    formats: tuple[str, ...] | None,
    exemplars: tuple[str, ...],
    start: float,
    end: float | None,
    model: str,
    device: str,
    thorough: bool,
    assume_repeats: bool,
    as_json: bool,
    force: bool,
    quiet: bool,
) -> int:
    """Count the repetitions in videos, folders of videos or folders of images.

    Exit code 0: all counted; 1: some files failed; 2: wrong use.
    """
    if end is not None and end <= start:
        raise click.UsageError(f"--to {end:g} must come after --from {start:g}")
    for exemplar in exemplars:
        parse_exemplar(exemplar)
    writes = output is not None or formats is not None
    model = model if Path(model).is_file() else catalogue.find(model).name
    job = Job(
        model=model,
        weights=_weights(model) if writes else None,
        device=device,
        exemplars=exemplars,
        start=start,
        end=end,
        thorough=thorough,
        assume_repeats=assume_repeats,
        folder=(output or Path(".")) if writes else None,
        formats=formats or (("json",) if writes else ()),
        json=as_json,
        force=force,
        quiet=quiet,
    )
    return run(inputs, job)


def _weights(model: str) -> list[Any] | None:
    from escounts.output.finished import stamp
    from escounts.zoo.store import stored_path

    # os.path: a store that this user may not look into is a store without the model, not an error.
    path = Path(model) if os.path.isfile(model) else stored_path(model)
    return stamp(path) if os.path.isfile(path) else None


def run(inputs: tuple[Path, ...], job: Job) -> int:
    """Count every video; 0, or 1 when some failed."""
    ledger: Ledger | None = None
    if job.folder is not None:
        from escounts.output.finished import Ledger

        _check_writable(job.folder)
        ledger = Ledger(job.folder)
    videos, failures = videos_among(inputs)
    for failure in failures:
        click.echo(f"escounts: {failure}", err=True)
    counter: Counter | None = None
    failed = len(failures)
    for video, name in output_names(videos):
        try:
            if ledger is not None and not job.force and _skipped(ledger, video, name, job):
                continue
            if counter is None:
                counter = _load(job)
            _show(_counted(counter, ledger, video, name, job), job)
            if job.folder is not None and not job.json:
                for file in _file_names(name, job):
                    click.echo(f"wrote {job.folder / file}", err=True)
        except (EscountsError, OSError, MemoryError) as error:
            failed += 1
            click.echo(f"escounts: {error or type(error).__name__}", err=True)
    return 1 if failed else 0


def _load(job: Job) -> Counter:
    from escounts.counter import load

    try:
        with lasting():
            return load(job.model, device=job.device)
    except EscountsError as error:
        raise click.UsageError(str(error)) from error  # no video can be counted: not one file's fault


def _counted(counter: Counter, ledger: Ledger | None, video: Path, name: str, job: Job) -> CountResult:
    """Count one video and write what was asked for; the ledger hears of it when all files are there."""
    with _progress(video, job) as progress:
        result = counter.count(
            video,
            exemplars=job.exemplars,
            start=job.start,
            end=job.end,
            thorough=job.thorough,
            assume_repeats=job.assume_repeats,
            progress=progress,
        )
    if job.folder is not None and ledger is not None:
        from escounts.output import WRITERS

        files = _file_names(name, job)
        for kind, file in zip(job.formats, files, strict=True):
            WRITERS[kind](result, job.folder / file, video=video)
        ledger.add(name, video, job.settings, files)
    return result


def _skipped(ledger: Ledger, video: Path, name: str, job: Job) -> bool:
    assert job.folder is not None
    files = _file_names(name, job)
    if not ledger.has(name, video, job.settings, files):
        return False
    if job.json:
        if "json" not in job.formats:
            return False  # the result has to be on stdout, and is not kept anywhere
        stored = jsonlib.loads((job.folder / f"{name}.json").read_text(encoding="utf-8"))
        click.echo(jsonlib.dumps(stored, ensure_ascii=False))
    else:
        click.echo(f"{video}: finished already; --force counts it again", err=True)
    return True


def _show(result: CountResult, job: Job) -> None:
    from escounts.output.json import to_dict
    from escounts.output.text import describe, headline

    if job.json:
        click.echo(jsonlib.dumps(to_dict(result), ensure_ascii=False))
    elif job.quiet:
        click.echo(headline(result))
    else:
        width = max(20, min(shutil.get_terminal_size().columns - 4, 96))
        click.echo(describe(result, width=width))


def _file_names(name: str, job: Job) -> list[str]:
    from escounts.output import SUFFIXES

    return [name + SUFFIXES[kind] for kind in job.formats]


def _check_writable(folder: Path) -> None:
    """Find out before hours of work, not after."""
    from escounts.atomic_files import atomic_file

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(folder / ".escounts-check") as temporary:
            temporary.touch()
        (folder / ".escounts-check").unlink()
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written to: {error.strerror or error}") from error


@contextmanager
def _progress(video: Path, job: Job) -> Iterator[Callable[[float, float], None] | None]:
    """A bar with the time left on stderr, where somebody is looking."""
    if job.json or job.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(video.name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
