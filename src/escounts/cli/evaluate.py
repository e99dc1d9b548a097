"""`escounts evaluate`: any model on any dataset, all metrics with confidence intervals and what they cover."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escounts import __version__
from escounts.atomic_files import write_text
from escounts.cli.display import counting_display
from escounts.datasets.registry import DATASETS
from escounts.evaluation.evaluating import evaluate_named
from escounts.evaluation.report import evaluation_document, group_report, metric_report
from escounts.evaluation.table_spec import EvalSpec
from escounts.nn.device import choose_device, chosen_devices

SOURCES = ("same", "other")
PATH = click.Path(path_type=Path)


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
@click.option("--shots", default="0", show_default=True, help="Numbers of exemplars, such as 0,1,2,3.")
@click.option(
    "--exemplars", default="same", show_default=True, help="From the same video, from other ones, or same,other."
)
@click.option("--shifts", type=int, default=4, show_default=True, help="K of the paper (heads on tokens).")
@click.option(
    "--released", is_flag=True, help="The released code's arithmetic end to end (RepCount, heads on tokens)."
)
@click.option("--limit-videos", type=int, help="Only the first N videos of the split.")
@click.option(
    "--checkpoint", type=click.Choice(["best", "last"]), default="best", show_default=True, help="Of a run."
)
@click.option("--out", type=PATH, help="Where predictions go (default: RUN/predictions, or tables/models/MODEL).")
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option(
    "--json", "document", type=PATH, help="Also write metrics, results by action and every count to a file."
)
@click.option("--groups", is_flag=True, help="Also by count, repetition length, duration and action.")
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that share the videos."
)
@click.option("--devices", help="Share the videos among these, one process each at least: cuda:0,cuda:1.")
def evaluate_command(
    model: str,
    dataset: str | None,
    root: Path | None,
    videos: Path | None,
    tokens: Path,
    split: str | None,
    shots: str,
    exemplars: str,
    shifts: int,
    released: bool,
    limit_videos: int | None,
    checkpoint: str,
    out: Path | None,
    form: str,
    document: Path | None,
    groups: bool,
    device: str,
    jobs: int,
    devices: str | None,
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
    any number can be recomputed. What could not be scored is named. `escounts data check DATASET --root FOLDER` says
    beforehand what is there and what is missing; `escounts table` prints published numbers beside these.
    """
    if released and (shots != "0" or shifts != 4):
        raise click.UsageError("--released counts zero-shot with its own two shifts; leave out --shots and --shifts")
    specs = [
        EvalSpec(None, number, kind, shifts, released)  # type: ignore[arg-type]
        for number in _whole(shots)
        for kind in (_kinds(exemplars) if number else ("same",))
    ]
    with counting_display("videos") as progress:
        found = evaluate_named(
            model,
            dataset,
            root=root,
            videos=videos,
            tokens=tokens,
            split=split,
            specs=specs,
            out=out,
            checkpoint=checkpoint,
            device=str(choose_device(device)),
            limit_videos=limit_videos,
            form=form,
            progress=progress,
            jobs=jobs,
            devices=chosen_devices(devices),
        )
    for evaluation in found:
        spec = evaluation.spec
        some = "1 exemplar" if spec.shots == 1 else f"{spec.shots} exemplars"
        given = f"{some}, {spec.exemplars} video" if spec.shots else "zero-shot"
        how = ", the released code's arithmetic" if released else ""
        click.echo(f"{model}, {given}{how} → {evaluation.path}")
        click.echo(f"  {evaluation.coverage.text()}")
        if evaluation.rows:
            click.echo(metric_report(evaluation.rows))
        if groups and evaluation.rows:
            click.echo(group_report(evaluation.rows))
    if document is not None:
        about = {"name": model, "identity": dict(found[0].model), "escounts": __version__}
        write_text(document, json.dumps(evaluation_document(about, found), indent=1) + "\n")
        click.echo(f"wrote {document}")


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
