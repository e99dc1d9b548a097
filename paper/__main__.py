"""`python -m paper`: the paper's tables beside ours, its figures, its evaluation protocol, rivals' training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from escounts.cli import main
from escounts.cli.display import work_display
from escounts.cli.evaluate import evaluate_and_print, evaluate_command
from escounts.cli.options import COUNT
from escounts.cli.train import run_options, say, training
from escounts.errors import DataError
from escounts.nn.device import choose_device
from escounts.research.datasets.registry import DATASETS, load_dataset
from escounts.research.training.predictions import Prediction, load_predictions
from escounts.research.training.recipes import train_dataset
from paper import figures
from paper.making import TableMaker
from paper.released import ReleasedSpec, open_released
from paper.rendering import FilledTable
from paper.rivals import RivalRecipe, open_with_rivals
from paper.tables import TABLES

PATH = click.Path(path_type=Path)
FIGURES = (*figures.FIGURES, "compilation")


@click.group()
def app() -> None:
    """The paper's tables, figures, rivals and evaluation protocol, on the package escounts."""


@app.command("table")
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
def table(
    name: str | None,
    data: str,
    quick: bool,
    seeds: int | None,
    roots: tuple[str, ...],
    estimate: bool,
    device: str,
    show_list: bool,
    **options: Any,
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
    if data == "synthetic" and (options["epochs"] or roots):
        raise click.UsageError(
            "--epochs and --root are of the paper's datasets; generated runs have their own length"
        )
    wanted = list(TABLES.values()) if name == "all" else [TABLES[name]]
    with work_display() as (progress, report):
        maker = TableMaker(
            roots=_folders(roots),
            synthetic=None if data == "paper" else ("quick" if quick else "full"),
            seeds=range(seeds or (1 if data == "paper" else 2)),
            device=str(choose_device(device)),
            report=report,
            progress=progress,
            **options,
        )
        told = maker.estimate(wanted)
        if told is not None:
            click.echo(told[2], err=True)
        elif estimate:
            click.echo(maker.nothing_to_train(wanted), err=True)
        if estimate:
            return
        for entry in wanted:
            filled, path = maker.make(entry)
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


@app.command("figure")
@click.argument("kind", type=click.Choice(FIGURES))
@click.option("--run", type=click.Path(path_type=Path, exists=True), help="A run that was evaluated.")
@click.option("--predictions", type=click.Path(path_type=Path, exists=True), help="A file of predictions instead.")
@click.option("--out", type=PATH, help="Default: KIND.png (compilation.mp4) beside them.")
@click.option("--data", "dataset", help="For compilation: the dataset, when not the predictions' own.")
@click.option("--root", type=PATH, help="For compilation: folder with labels and videos.")
@click.option("--videos", type=PATH, help="For compilation: the videos, when not in the root.")
def figure(kind: str, run: Path | None, predictions: Path | None, out: Path | None, **videos: Any) -> None:
    """Draw KIND from the predictions that `escounts evaluate` or `python -m paper table` kept."""
    source = predictions or _predictions(run)
    rows = load_predictions(source)
    path = out or source.with_name(f"{source.stem}-{kind}" + (".mp4" if kind == "compilation" else ".png"))
    if kind == "compilation":
        clips = figures.write_compilation(rows, _locator(rows, **videos), path)
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


def _locator(rows: list[Prediction], dataset: str | None, root: Path | None, videos: Path | None) -> figures.Locate:
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


@app.command(
    "evaluate",
    params=[
        *evaluate_command.params,
        click.Option(["--released"], is_flag=True, help="The released code's arithmetic end to end (RepCount)."),
    ],
)
@click.pass_context
def evaluate(ctx: click.Context, /, **options: Any) -> None:
    """As `escounts evaluate`, also of rivals' runs, and of heads on tokens with the released code's arithmetic.

    \b
    python -m paper evaluate escounts-repcount --data repcount --root RepCount/ --released
    python -m paper evaluate runs/repnet
    """
    if not options.pop("released"):
        ctx.invoke(evaluate_command, **options, opener=open_with_rivals)
        return
    shots, shifts, _ = options.pop("shots"), options.pop("shifts"), options.pop("exemplars")
    if shots != (0,) or shifts != 4:
        raise click.UsageError("--released counts zero-shot with its own two shifts; leave out --shots and --shifts")
    model, dataset = options.pop("model"), options.pop("dataset")
    how = ", the released code's arithmetic"
    evaluate_and_print(model, dataset, [ReleasedSpec()], opener=open_released, how=how, **options)


@app.command("train")
@click.argument("dataset", type=click.Choice(list(DATASETS)))
@click.option("--decoder", "method", type=click.Choice(["repnet", "transrac"]), required=True, help="Whose head.")
@click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
@click.option("--encoder", help="Whose tokens, when there are several.")
@click.option("--out", type=PATH, required=True, help="The run's folder.")
@run_options
def train(dataset: str, method: Any, tokens: Path, encoder: str | None, **options: Any) -> None:
    """Train a rival's head on a dataset's stored tokens with the paper's trainer; `escounts train` has ESCounts."""
    recipe = RivalRecipe(dataset=dataset, method=method)
    with training(options) as (how, _):
        figures = train_dataset(recipe, tokens, options["out"], encoder=encoder, **how)
    say(figures, options["out"])


if __name__ == "__main__":
    main(app)
