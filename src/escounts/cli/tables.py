"""`escounts table` and `figure`: the paper's tables, ours beside the published numbers (trains what is missing),
and its figures from a run's predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from escounts.cli.display import training_display
from escounts.datasets.registry import load_dataset
from escounts.errors import DataError
from escounts.evaluation.table_making import TableMaker
from escounts.evaluation.tables import TABLES
from escounts.nn.device import choose_device
from escounts.training.predictions import load_predictions

if TYPE_CHECKING:
    from escounts.evaluation.figures import Locate
    from escounts.evaluation.rendering import FilledTable
    from escounts.training.predictions import Prediction

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("name", required=False)
@click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
@click.option("--root", "roots", multiple=True, metavar="DATASET=FOLDER",
              help="A dataset's videos, for rows of models that count files; may be repeated.")  # fmt: skip
@click.option("--out", type=PATH, default=Path("tables"), show_default=True)
@click.option("--data", type=click.Choice(["paper", "synthetic"]), default="paper", show_default=True,
              help="The table's own datasets, or generated videos instead.")  # fmt: skip
@click.option("--quick", is_flag=True, help="With --data synthetic: small runs, minutes on two CPU cores.")
@click.option("--seeds", type=int, help="Runs of each row (default 1; 2 with --data synthetic).")
@click.option("--epochs", type=int, help="Of every run on the paper's datasets (default 300, the paper's).")
@click.option("--limit-videos", type=int, help="Evaluate on the first N videos of the split only.")
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
    take on this machine.
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
    with training_display() as report:
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
        )
        told = maker.estimate(wanted)
        if told is not None:
            click.echo(told.text(), err=True)
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


KINDS = ("groups", "classes", "off-by-n", "scatter", "qualitative", "localisation", "compilation")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--run", type=click.Path(path_type=Path, exists=True), help="A run that was evaluated.")
@click.option("--predictions", type=click.Path(path_type=Path, exists=True), help="A file of predictions instead.")
@click.option("--out", type=click.Path(path_type=Path), help="Default: KIND.png (compilation.mp4) beside them.")
@click.option("--data", "dataset", help="For compilation: the dataset, when not the predictions' own.")
@click.option("--root", type=click.Path(path_type=Path), help="For compilation: folder with labels and videos.")
@click.option("--videos", type=click.Path(path_type=Path), help="For compilation: the videos, when not in the root.")
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
    from escounts.evaluation import figures  # noqa: PLC0415 - PyAV: tables are made where there is none

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
