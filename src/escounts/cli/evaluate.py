"""`escounts evaluate`: any model on any dataset, with confidence intervals and what they cover.

`table` and `figure`, the paper's own, say where they are: in `paper/` of a checkout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from escounts import __version__
from escounts.cli.display import check_replaceable, work_display
from escounts.cli.options import COUNT, PATH, whole_numbers
from escounts.nn.device import choose_device, chosen_devices
from escounts.research.datasets.registry import DATASETS
from escounts.research.evaluation.by_name import Opener, evaluate_named, open_model
from escounts.research.evaluation.models import EvalSpec
from escounts.research.evaluation.report import (
    evaluation_document,
    exemplar_report,
    group_report,
    metric_report,
    video_report,
)
from escounts.system.atomic_files import write_text

SOURCES = ("same", "other")
REPORT = '{\n "model": {'
"""How the file of --json begins."""


def _report_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Of files that are there only an older report is written over: not labels.csv, and no video."""
    if value is not None:
        check_replaceable(value, REPORT, "report of an evaluation; choose another name")
    return value


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
@click.option("--per-video", is_flag=True, help="Also a line per video: its true count and the one found.")
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
    **options: Any,
) -> None:
    """Evaluate MODEL: a run folder, a checkpoint (.safetensors), `lite`, `spectral`, `mean`, or another name of
    `escounts models`, such as `escounts-repcount`, the authors' decoder.

    \b
    escounts evaluate lite --data quva --root QUVA/
    escounts evaluate spectral --data folder --root mine/
    escounts evaluate lite --data ucfrep --root UCF/ --shots 0,1,2,3 --exemplars same,other
    escounts evaluate runs/a --groups

    The authors' decoder needs its files first: `escounts weights add repcount_trained.pyth`, and the encoder's, which
    `escounts models` names.

    Videos are read one by one, or their stored tokens where there are any (`escounts encode` stores them). One row
    per video is kept as soon as it is counted: a stopped evaluation goes on when the same command is given again, and
    any number can be recomputed. What could not be scored is named, rows of the labels that cannot be used too (the
    first ten; --json names all). `escounts data check DATASET --root FOLDER` says
    beforehand what is there and what is missing.
    """
    specs = [
        EvalSpec(None, number, kind, shifts)  # type: ignore[arg-type]
        for number in shots
        for kind in (_kinds(exemplars) if number else ("same",))
    ]
    evaluate_and_print(model, dataset, specs, **options)


def evaluate_and_print(
    model: str,
    dataset: str | None,
    specs: Sequence[EvalSpec],
    *,
    document: Path | None,
    groups: bool,
    per_video: bool = False,
    device: str,
    devices: str | None,
    opener: Opener = open_model,
    how: str = "",
    **options: Any,
) -> None:
    """Evaluate, print what was found, and write the document of --json. how: the arithmetic, for the text."""
    with work_display() as (progress, _):
        found = evaluate_named(
            model,
            dataset,
            specs=specs,
            device=str(choose_device(device)),
            progress=progress,
            devices=chosen_devices(devices),
            opener=opener,
            **options,  # under the names that evaluate_named has for them
        )
    for evaluation in found:
        spec = evaluation.spec
        some = "1 exemplar" if spec.shots == 1 else f"{spec.shots} exemplars"
        given = f"{some}, {spec.exemplars} video" if spec.shots else "zero-shot"
        click.echo(f"{model}, {given}{how} → {evaluation.path}")
        click.echo(f"  {evaluation.coverage.scored_text}")
        for line in evaluation.coverage.not_scored():
            click.echo(f"    {line}")
        if lacking := exemplar_report(evaluation.rows, spec.shots):
            click.echo(f"  {lacking}")
        if evaluation.rows:
            click.echo(metric_report(evaluation.rows))
        if per_video and evaluation.rows:
            click.echo(video_report(evaluation.rows))
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


def _of_the_paper(name: str) -> click.Command:
    @click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
    def command() -> None:
        raise click.UsageError(
            f"the paper's {name}s are made from a checkout of the project, in its folder: python -m paper {name}"
        )

    return command


table_command, figure_command = _of_the_paper("table"), _of_the_paper("figure")
