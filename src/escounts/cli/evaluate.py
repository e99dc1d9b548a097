"""`escounts evaluate`, `table` and `figure`: any model on any dataset, with confidence intervals and what they cover;
the paper's tables beside ours (trains what is missing); its figures from a run's predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from escounts import __version__
from escounts.cli.display import counting_display, table_display
from escounts.cli.numbers import COUNT, whole_numbers
from escounts.errors import DataError
from escounts.nn.device import choose_device, chosen_devices
from escounts.research.datasets.registry import DATASETS, load_dataset
from escounts.research.evaluation.evaluating import evaluate_named
from escounts.research.evaluation.report import evaluation_document, exemplar_report, group_report, metric_report
from escounts.research.evaluation.table_making import TableMaker
from escounts.research.evaluation.table_spec import EvalSpec
from escounts.research.evaluation.tables import TABLES
from escounts.research.training.predictions import load_predictions
from escounts.system.atomic_files import write_text

if TYPE_CHECKING:
    from escounts.research.evaluation.figures import Locate
    from escounts.research.evaluation.rendering import FilledTable
    from escounts.research.training.predictions import Prediction

SOURCES = ("same", "other")
PATH = click.Path(path_type=Path)
REPORT = b'{\n "model": {'
"""How the file of --json begins."""


def _report_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Of files that are there only an older report is written over: not labels.csv, and no video."""
    if value is not None and value.exists():
        ours = False
        if value.is_file():
            with open(value, "rb") as file:
                ours = file.read(len(REPORT)) in (REPORT, b"")
        if not ours:
            raise click.BadParameter(f"{value} is there and is no report of an evaluation; choose another name")
    return value


FIGURES = ("groups", "classes", "off-by-n", "scatter", "qualitative", "localisation", "compilation")


def _places() -> str:
    """What the folder of each dataset holds, for the help."""
    lines = [f"  {name:15s} {entry.files}" for name, entry in DATASETS.items()]
    return "\b\nWhat --root holds:\n" + "\n".join(lines)


@click.command(epilog=_places())
@click.argument("model")
@click.option("--data", "dataset", type=click.Choice(list(DATASETS)), help="Default: what a run was trained on.")
@click.option("--root", type=PATH, help="The dataset's folder with labels and videos; see below.")
@click.option("--videos", type=PATH, help="Folder with the videos, when not the root.")
@click.option(
    "--tokens", type=PATH, default=Path("tokens"), show_default=True, help="Stored tokens, used where they fit."
)
@click.option(
    "--split", help="Default: the split of published numbers; all videos of your own folder. `all`: every split."
)
@click.option(
    "--shots", type=whole_numbers, default="0", show_default=True, help="Numbers of exemplars, such as 0,1,2,3."
)
@click.option(
    "--exemplars", default="same", show_default=True, help="From the same video, from other ones, or same,other."
)
@click.option(
    "--shifts", type=COUNT, default=4, show_default=True,
    help="K of the paper (heads on tokens; no more than the tokens have offsets).",
)  # fmt: skip
@click.option(
    "--released", is_flag=True, help="The released code's arithmetic end to end (RepCount, heads on tokens)."
)
@click.option("--limit-videos", type=COUNT, help="Only the first N videos of the split.")
@click.option(
    "--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True, help="Of a run."
)
@click.option("--out", type=PATH, help="Where predictions go (default: RUN/predictions, or tables/models/MODEL).")
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option(
    "--json",
    "document",
    type=PATH,
    callback=_report_file,
    help="Also write metrics, results by action and every count to a file.",
)
@click.option("--groups", is_flag=True, help="Also by count, repetition length, duration and action.")
@click.option("--device", default="auto", show_default=True)
@click.option("--jobs", type=COUNT, default=1, show_default=True, help="Processes that share the videos.")
@click.option("--devices", help="Share the videos among these, one process each at least: cuda:0,cuda:1.")
def evaluate_command(
    model: str,
    dataset: str | None,
    shots: tuple[int, ...],
    exemplars: str,
    shifts: int,
    released: bool,
    document: Path | None,
    groups: bool,
    device: str,
    devices: str | None,
    **options: Any,
) -> None:
    """Evaluate MODEL: a run folder, a checkpoint (.safetensors), `lite`, `spectral`, `mean`, or another name of
    `escounts models`, such as `escounts-repcount`, the authors' decoder.

    \b
    escounts evaluate lite --data quva --root QUVA/
    escounts evaluate spectral --data folder --root mine/
    escounts evaluate lite --data ucfrep --root UCF/ --shots 0,1,2,3 --exemplars same,other
    escounts evaluate runs/a --groups
    escounts evaluate escounts-repcount --data repcount --root RepCount/ --released

    The authors' decoder needs its files first: `escounts weights add repcount_trained.pyth`, and the encoder's, which
    `escounts models` names.

    Videos are read one by one, or their stored tokens where there are any (`escounts encode` stores them). One row
    per video is kept as soon as it is counted: a stopped evaluation goes on when the same command is given again, and
    any number can be recomputed. What could not be scored is named, rows of the labels that cannot be used too (the
    first ten; --json names all). `escounts data check DATASET --root FOLDER` says
    beforehand what is there and what is missing; `escounts table` prints published numbers beside these.
    """
    if released and (shots != (0,) or shifts != 4):
        raise click.UsageError("--released counts zero-shot with its own two shifts; leave out --shots and --shifts")
    specs = [
        EvalSpec(None, number, kind, shifts, released)  # type: ignore[arg-type]
        for number in shots
        for kind in (_kinds(exemplars) if number else ("same",))
    ]
    with counting_display("videos") as progress:
        found = evaluate_named(
            model,
            dataset,
            specs=specs,
            device=str(choose_device(device)),
            progress=progress,
            devices=chosen_devices(devices),
            **options,  # under the names that evaluate_named has for them
        )
    for evaluation in found:
        spec = evaluation.spec
        some = "1 exemplar" if spec.shots == 1 else f"{spec.shots} exemplars"
        given = f"{some}, {spec.exemplars} video" if spec.shots else "zero-shot"
        how = ", the released code's arithmetic" if released else ""
        click.echo(f"{model}, {given}{how} → {evaluation.path}")
        click.echo(f"  {evaluation.coverage.scored_text}")
        for line in evaluation.coverage.not_scored():
            click.echo(f"    {line}")
        if lacking := exemplar_report(evaluation.rows, spec.shots):
            click.echo(f"  {lacking}")
        if evaluation.rows:
            click.echo(metric_report(evaluation.rows))
        if groups and evaluation.rows:
            click.echo(group_report(evaluation.rows))
    if document is not None:
        about = {"name": model, "identity": dict(found[0].model), "escounts": __version__}
        write_text(document, json.dumps(evaluation_document(about, found), indent=1) + "\n")
        click.echo(f"wrote {document}")


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(","))
    if not set(kinds) <= set(SOURCES):
        raise click.BadParameter(f"--exemplars {text!r}: same, other, or same,other")
    return kinds


@click.command()
@click.argument("name", required=False)
@click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
@click.option("--root", "roots", multiple=True, metavar="DATASET=FOLDER",
              help="A dataset's videos, for rows of models that count files; may be repeated.")  # fmt: skip
@click.option("--out", type=PATH, default=Path("tables"), show_default=True)
@click.option("--data", type=click.Choice(["paper", "synthetic"]), default="paper", show_default=True,
              help="The table's own datasets, or generated videos instead.")  # fmt: skip
@click.option("--quick", is_flag=True, help="With --data synthetic: small runs, minutes on two CPU cores.")
@click.option("--seeds", type=COUNT, help="Runs of each row (default 1; 2 with --data synthetic).")
@click.option("--epochs", type=COUNT, help="Of every run on the paper's datasets (default 300, the paper's).")
@click.option("--limit-videos", type=COUNT, help="Evaluate on the first N videos of the split only.")
@click.option("--estimate", is_flag=True, help="Only say what would be trained, how long that takes, how much disk.")
@click.option("--device", default="auto", show_default=True)
@click.option("--list", "show_list", is_flag=True, help="The tables there are.")
def table_command(
    name: str | None,
    tokens: Path,
    roots: tuple[str, ...],
    out: Path,
    data: str,
    quick: bool,
    seeds: int | None,
    epochs: int | None,
    limit_videos: int | None,
    estimate: bool,
    device: str,
    show_list: bool,
) -> None:
    """Print table NAME, or `all` of them. Rows that cannot be run as they are labelled are printed as not run, with
    the command that makes them; no cell is ever made up, and no row shows another row's run.

    Before anything is trained it says how many runs there are and, from a few steps of one of them, how long they
    take on this machine; while videos are counted it says how long the rest of them take.
    """
    if show_list or name is None:
        for entry in TABLES.values():
            click.echo(f"{entry.name:13s} {entry.title}  ({', '.join(entry.datasets)})")
        return
    if name != "all" and name not in TABLES:
        raise click.BadParameter(f"no table {name!r}; there are {', '.join(TABLES)}, and all")
    if data == "synthetic" and (epochs or roots):
        raise click.UsageError(
            "--epochs and --root are of the paper's datasets; generated runs have their own length"
        )
    wanted = list(TABLES.values()) if name == "all" else [TABLES[name]]
    with table_display() as (report, progress):
        maker = TableMaker(
            out,
            tokens=tokens,
            roots=_folders(roots),
            synthetic=None if data == "paper" else ("quick" if quick else "full"),
            seeds=range(seeds or (1 if data == "paper" else 2)),
            epochs=epochs,
            limit_videos=limit_videos,
            device=str(choose_device(device)),
            report=report,
            progress=progress,
        )
        told = maker.estimate(wanted)
        if told is not None:
            click.echo(told[2], err=True)
        elif estimate:
            click.echo(maker.nothing_to_train(wanted), err=True)
        if estimate:
            return
        for table in wanted:
            filled, path = maker.make(table)
            _show(filled)
            click.echo(f"wrote {path} and .csv")


def _folders(given: tuple[str, ...]) -> dict[str, Path]:
    found = {}
    for text in given:
        dataset, _, folder = text.partition("=")
        if not folder:
            raise click.BadParameter(f"--root {text!r}: write DATASET=FOLDER, such as ucfrep=UCF-101/")
        if dataset not in DATASETS:
            raise click.BadParameter(f"--root {text!r}: no dataset {dataset!r}; there are {', '.join(DATASETS)}")
        found[dataset] = Path(folder)
    return found


def _show(filled: FilledTable) -> None:
    shown = Table(title=f"Table {filled.name}: {filled.title}", title_justify="left")
    for header in filled.headers:
        shown.add_column(header)
    for row in filled.rows:
        texts = row.texts()
        shown.add_row(*texts, style="bold" if any(row.measured) else None)
    console = Console(width=None if Console().is_terminal else 140)
    console.print(shown)
    for note in filled.notes:
        console.print(f"· {note}", highlight=False)


@click.command()
@click.argument("kind", type=click.Choice(FIGURES))
@click.option("--run", type=click.Path(path_type=Path, exists=True), help="A run that was evaluated.")
@click.option("--predictions", type=click.Path(path_type=Path, exists=True), help="A file of predictions instead.")
@click.option("--out", type=PATH, help="Default: KIND.png (compilation.mp4) beside them.")
@click.option("--data", "dataset", help="For compilation: the dataset, when not the predictions' own.")
@click.option("--root", type=PATH, help="For compilation: folder with labels and videos.")
@click.option("--videos", type=PATH, help="For compilation: the videos, when not in the root.")
def figure_command(
    kind: str,
    run: Path | None,
    predictions: Path | None,
    out: Path | None,
    dataset: str | None,
    root: Path | None,
    videos: Path | None,
) -> None:
    """Draw KIND from the predictions that `escounts evaluate` or `escounts table` kept."""
    from escounts.research.evaluation import figures  # noqa: PLC0415 - PyAV: tables are made where there is none

    source = predictions or _predictions(run)
    rows = load_predictions(source)
    path = out or source.with_name(f"{source.stem}-{kind}" + (".mp4" if kind == "compilation" else ".png"))
    if kind == "compilation":
        clips = figures.write_compilation(rows, _locator(rows, dataset, root, videos), path)
        click.echo(f"wrote {path}: {clips} clips")
        return
    figures.save_figure(kind, rows, path)
    click.echo(f"wrote {path}: {len(rows)} videos of {source.name}")


def _predictions(run: Path | None) -> Path:
    if run is None:
        raise click.UsageError("give --run or --predictions")
    found = sorted((run / "predictions").glob("*.csv")) + sorted((run / "predictions").glob("*.parquet"))
    zero_shot = [path for path in found if "-0-" in path.name]
    if not found:
        raise DataError(f"{run} has no predictions yet; make them with: escounts evaluate {run}")
    return (zero_shot or found)[0]


def _locator(rows: list[Prediction], dataset: str | None, root: Path | None, videos: Path | None) -> Locate:
    """Prediction → its video's file, and the second in it at which the labelled part begins."""
    if root is None:
        raise click.UsageError("a compilation shows the videos: give their folder with --root")
    labels = load_dataset(dataset or rows[0].dataset, root)
    known = {video.name: video for video in labels.videos}

    def locate(row: Prediction) -> tuple[Path, float] | None:
        video = known.get(row.name)
        file = labels.locate(videos or root, video) if video else None
        return (file, video.begin) if file and video else None

    return locate
