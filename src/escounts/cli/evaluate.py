"""`escounts evaluate`: all metrics of a run with confidence intervals, by group, with and without exemplars."""

from __future__ import annotations

from pathlib import Path

import click

from escounts.datasets.registry import DATASETS

SOURCES = ("same", "other")


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option("--data", "dataset", type=click.Choice(list(DATASETS)), help="Default: what the run trained on.")
@click.option("--tokens", type=click.Path(path_type=Path), default=Path("tokens"), show_default=True)
@click.option("--split", help="Default: the split that published numbers are of.")
@click.option("--shots", default="0", show_default=True, help="Numbers of exemplars, such as 0,1,2,3.")
@click.option("--exemplars", default="same", show_default=True, help="From the same video, from other ones, or both.")
@click.option("--shifts", type=int, default=4, show_default=True, help="K of the paper.")
@click.option("--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True)
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option("--groups", is_flag=True, help="Also by count, repetition length, duration and action.")
@click.option("--device", default="auto", show_default=True)
def command(
    run: Path,
    dataset: str | None,
    tokens: Path,
    split: str | None,
    shots: str,
    exemplars: str,
    shifts: int,
    checkpoint: str,
    form: str,
    groups: bool,
    device: str,
) -> None:
    """Evaluate RUN. Predictions go to RUN/predictions, one row a video, so any number can be recomputed."""
    from escounts.datasets.encoders import find_store
    from escounts.datasets.labels import load_labels
    from escounts.datasets.registry import dataset_entry
    from escounts.datasets.tokens import TokenStore
    from escounts.evaluation.report import group_report, metric_report
    from escounts.evaluation.workbench import Source, evaluate_videos
    from escounts.nn.device import choose_device
    from escounts.training.predictions import save_predictions
    from escounts.training.recipes import Test
    from escounts.training.token_run import RunMetadata, load_trained, refuse_leakage

    about = RunMetadata.read(run)
    name = dataset or about.dataset
    path = find_store(tokens, name, about.layout.encoder)
    store, labels = TokenStore(path), load_labels(path)
    store.require(about.layout)
    chosen = split or dataset_entry(name).test
    videos = labels.split(chosen)
    refuse_leakage(about, labels.name, videos)
    network = load_trained(run, which=checkpoint, device=choose_device(device))
    (run / "predictions").mkdir(exist_ok=True)
    for number in _whole(shots):
        for kind in _kinds(exemplars) if number else ("same",):
            test = Test(name, number, kind, shifts)  # type: ignore[arg-type]
            rows = evaluate_videos(
                network,
                Source(labels, store, chosen),
                videos,
                test,
                device=choose_device(device),
                by_window=about.run.tokens.by_window,
            )
            file = run / "predictions" / f"{labels.name}-{chosen}-{number}-{kind}-K{shifts}.{form}"
            save_predictions(file, rows)
            given = f"{number} shots, {kind} video" if number else "zero-shot"
            click.echo(f"{labels.name} {chosen}, {given}: {len(rows)} of {len(videos)} videos → {file}")
            click.echo(metric_report(rows))
            if groups:
                click.echo(group_report(rows))


def _whole(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"--shots {text!r}: numbers with commas, such as 0,1,2,3") from None


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(","))
    if not set(kinds) <= set(SOURCES):
        raise click.BadParameter(f"--exemplars {text!r}: same, other, or same,other")
    return kinds
