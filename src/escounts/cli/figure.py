"""`escounts figure`: a figure of the paper from a run's predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from escounts.datasets.registry import load_dataset
from escounts.errors import DataError
from escounts.evaluation.compilation import write_compilation
from escounts.evaluation.figures import save_figure
from escounts.training.predictions import load_predictions

if TYPE_CHECKING:
    from escounts.training.predictions import Prediction

KINDS = ("groups", "classes", "off-by-n", "scatter", "qualitative", "localisation", "compilation")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--run", type=click.Path(path_type=Path, exists=True), help="A run that was evaluated.")
@click.option("--predictions", type=click.Path(path_type=Path, exists=True), help="A file of predictions instead.")
@click.option("--out", type=click.Path(path_type=Path), help="Default: KIND.png (compilation.mp4) beside them.")
@click.option("--data", "dataset", help="For compilation: the dataset, when not the predictions' own.")
@click.option("--root", type=click.Path(path_type=Path), help="For compilation: folder with labels and videos.")
@click.option("--videos", type=click.Path(path_type=Path), help="For compilation: the videos, when not in the root.")
def command(
    kind: str,
    run: Path | None,
    predictions: Path | None,
    out: Path | None,
    dataset: str | None,
    root: Path | None,
    videos: Path | None,
) -> None:
    """Draw KIND from the predictions that `escounts evaluate` or `escounts table` kept."""
    source = predictions or _predictions(run)
    rows = load_predictions(source)
    path = out or source.with_name(f"{source.stem}-{kind}" + (".mp4" if kind == "compilation" else ".png"))
    if kind == "compilation":
        clips = _compile(rows, dataset, root, videos, path)
        click.echo(f"wrote {path}: {clips} clips")
        return

    save_figure(kind, rows, path)
    click.echo(f"wrote {path}: {len(rows)} videos of {source.name}")


def _predictions(run: Path | None) -> Path:
    if run is None:
        raise click.UsageError("give --run or --predictions")
    found = sorted((run / "predictions").glob("*.csv")) + sorted((run / "predictions").glob("*.parquet"))
    zero_shot = [path for path in found if "-0-" in path.name]
    if not found:
        raise DataError(f"{run} has no predictions yet; make them with: escounts evaluate {run}")
    return (zero_shot or found)[0]


def _compile(rows: list[Prediction], dataset: str | None, root: Path | None, videos: Path | None, path: Path) -> int:
    if root is None:
        raise click.UsageError("a compilation shows the videos: give their folder with --root")
    labels = load_dataset(dataset or rows[0].dataset, root)
    known = {video.name: video for video in labels.videos}

    def locate(row: Prediction) -> tuple[Path, float] | None:
        video = known.get(row.name)
        file = labels.locate(videos or root, video) if video else None
        return (file, video.begin) if file and video else None

    return write_compilation(rows, locate, path)
