"""`escounts train synthetic`, `calibrate` and `mean`: the default model's recipe, from pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from escounts.cli.display import counting_display, training_display
from escounts.cli.numbers import COUNT, NONE_OR_MORE, SECONDS, SEED, Number
from escounts.nn.device import choose_device
from escounts.research.training.optimisation import synthetic_recipe
from escounts.research.training.run_folder import code_identity
from escounts.research.training.synthetic_run import (
    NETWORKS,
    RECIPE,
    SMOKE,
    SyntheticRun,
    calibrate_checkpoint,
    calibrate_on_labels,
    calibration_videos,
    clip_files,
    may_repeat,
    mean_of_runs,
    train_synthetic,
)
from escounts.synthetic import ClipBank, GeneratorConfig, MotionBank
from escounts.system.atomic_files import keep_existing

MODELS = ("lite", "lite-tiny")
SETTINGS = ("steps", "seconds", "batch_size", "lr", "warmup_steps", "ema", "compile", "seed")
"""Options of `synthetic` that are fields of its recipe."""
EXISTING = click.Path(path_type=Path, exists=True)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _footage_options(function: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option("--clips", type=EXISTING, help="Folder of clips to cut motion from."),
        click.option(
            "--clip-table",
            "clip_tables",
            multiple=True,
            type=EXISTING_FILE,
            help="CSV with file and licence; only permissively licensed rows are used, paths beside the table. "
            "May be given several times.",
        ),
        click.option(
            "--exclude", multiple=True, type=EXISTING, help="CSV with a file column to leave out; repeatable."
        ),
        click.option(
            "--coded-stills",
            type=NONE_OR_MORE,
            default=0,
            show_default=True,
            help="How many frames of the clips go through real codecs as still videos, in which nothing moves.",
        ),
        click.option(
            "--filmed",
            type=EXISTING_FILE,
            help="CSV with file and borders_s: repetitions of these clips that are shown as they were filmed.",
        ),
        click.option(
            "--labels",
            type=EXISTING_FILE,
            help="CSV with file, split, motion, count, rep_times, alternates, sure: its clips of the split `train` "
            "are shown as they were filmed. It needs other clips beside it.",
        ),
        click.option(
            "--every-licence", is_flag=True, help="Use all rows of the table. Such weights must not be shipped."
        ),
        click.option(
            "--mocap", type=EXISTING, help="motions.npz of motion-capture trials, with motions.csv beside it."
        ),
        click.option(
            "--generator",
            "choices",
            multiple=True,
            metavar="NAME=VALUE",
            help="Another value for a choice of the generator, such as dark=0.3 or period=3,60; may be given often.",
        ),
        click.option("--device", default="auto", show_default=True),
        click.option(
            "--workers", type=NONE_OR_MORE, default=0, show_default=True, help="Processes that draw plans ahead."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command("synthetic")
@click.option("--model", type=click.Choice(MODELS), default="lite", help="Which configuration to train.")
@_footage_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/lite"), show_default=True)
@click.option("--steps", type=COUNT, default=4000, show_default=True)
@click.option("--seconds", type=SECONDS, help="Stop after this long; the schedule follows the clock.")
@click.option("--batch", "batch_size", type=COUNT, default=24, show_default=True)
@click.option("--lr", type=Number(above=0, most=100), default=6e-4, show_default=True)
@click.option("--warmup", "warmup_steps", type=NONE_OR_MORE, default=200, show_default=True,
              help="Steps until the full rate.")  # fmt: skip
@click.option(
    "--ema",
    type=Number(above=0, below=1),
    default=0.998,
    show_default=True,
    help="Decay a step of the averaged weights, which are the ones kept.",
)
@click.option(
    "--compile/--no-compile",
    default=False,
    show_default=True,
    help="Fuse the encoder's frame stage with torch.compile: pays on a GPU that trains for minutes.",
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--renderers",
    type=NONE_OR_MORE,
    default=0,
    show_default=True,
    help="Processes that draw whole batches on the GPU, in place of --workers and a thread beside training.",
)
@click.option("--init", "initial", type=EXISTING, help="Start from this checkpoint.")
@click.option(
    "--smoke",
    is_flag=True,
    help="A minute on a CPU: a tiny model, short videos, few steps, where no option says otherwise.",
)
def synthetic(
    model: str,
    out: Path,
    choices: tuple[str, ...],
    initial: Path | None,
    smoke: bool,
    device: str,
    workers: int,
    renderers: int,
    **options: Any,
) -> None:
    """Train the default model on generated repetitions of clips, motion capture and drawn motion.

    A run that was stopped goes on where it was when the same command is given again.
    """
    settings = {name: options.pop(name) for name in SETTINGS}
    generator = _generator(choices)
    if smoke:  # its own values, except where the command line says otherwise
        given = _given()
        network = NETWORKS[model] if "model" in given else SMOKE.network
        train = replace(SMOKE.train, **{name: value for name, value in settings.items() if name in given})
        run = replace(SMOKE, network=network, train=train, generator=generator)
    else:
        run = SyntheticRun(network=NETWORKS[model], train=synthetic_recipe(**settings), generator=generator)
    bank, motion, provenance = _footage(workers=workers, **options)
    with training_display() as report:
        figures = train_synthetic(
            run,
            out=out,
            clips=bank,
            motion=motion,
            device=str(choose_device(device)),
            workers=workers,
            renderers=renderers,
            initial=initial,
            provenance=provenance,
            report=report,
        )
    for name, value in sorted(figures.items()):
        if name.startswith("val_"):
            click.echo(f"{name.removeprefix('val_'):10s} {value:.3f}")
    click.echo(f"wrote {out / 'last.safetensors'}")


def _given() -> set[str]:
    """Options of this call that were written on the command line."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def _generator(choices: tuple[str, ...]) -> GeneratorConfig:
    """The recipe's values with those of NAME=VALUE in their place; a range is two numbers with a comma."""
    own = asdict(RECIPE)
    changed: dict[str, Any] = {}
    try:
        for choice in choices:
            name, equals, text = choice.partition("=")
            if not equals:
                raise ValueError(f"{choice!r}: write NAME=VALUE")
            if name not in own:
                near = get_close_matches(name, own, cutoff=0.4) or own
                raise ValueError(f"the generator has no {name!r}; it has {', '.join(near)}")
            changed[name] = _like(own[name], text, name)
        return replace(RECIPE, **changed)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--generator") from None


def _like(own: int | float | tuple[float, float], text: str, name: str) -> int | float | tuple[float, ...]:
    """The text as a value of the same kind."""
    kind = int if isinstance(own, int) else float
    wanted = 2 if isinstance(own, tuple) else 1
    try:
        numbers = tuple(kind(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != wanted:
        what = "two numbers with a comma" if wanted == 2 else "a whole number" if kind is int else "a number"
        raise ValueError(f"{name} takes {what}, not {text!r}")
    return numbers if wanted == 2 else numbers[0]


@click.command("mean")
@click.argument("checkpoints", nargs=-1, required=True, type=EXISTING_FILE)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The checkpoint to write.")
@click.option("--videos", type=COUNT, default=240, show_default=True, help="Generated videos to calibrate on.")
@_footage_options
def mean(
    checkpoints: tuple[Path, ...],
    out: Path,
    videos: int,
    choices: tuple[str, ...],
    device: str,
    workers: int,
    **footage: Any,
) -> None:
    """Average the weights of runs that began from one checkpoint, and calibrate the result.

    Two seeds that went different ways from the same start agree on what is not chance. The checkpoint that they
    started from may be among them; one that is named twice counts twice.
    """
    if any(out.exists() and out.samefile(checkpoint) for checkpoint in checkpoints):
        raise click.UsageError(f"{out} is one of the checkpoints that are averaged; choose another --out")
    keep_existing([out], "choose another --out, or move it away")
    recipe = _generator(choices)
    bank, motion, provenance = _footage(workers=workers, **footage)
    mean_of_runs(checkpoints, out, provenance=provenance)
    generator = calibration_videos(recipe, clips=bank, motion=motion)
    with counting_display("videos") as progress:
        fitted = calibrate_checkpoint(out, generator, videos, device=choose_device(device), progress=progress)
    click.echo(fitted.to_json())
    click.echo(f"wrote {out}")


@click.command("calibrate")
@click.argument("checkpoint", type=EXISTING_FILE)
@click.option(
    "--labels", type=EXISTING_FILE, required=True, help="Table of labelled clips, as for `train synthetic`."
)
@click.option("--split", default="val", show_default=True, help="Its clips: none that the weights were trained on.")
@click.option("--device", default="auto", show_default=True)
def calibrate(checkpoint: Path, labels: Path, split: str, device: str) -> None:
    """Fit gate, choice of views, "no repetitions", unit and confidence on labelled clips, and write them into the
    checkpoint."""
    with counting_display("clips") as progress:
        fitted = calibrate_on_labels(checkpoint, labels, split=split, device=choose_device(device), progress=progress)
    click.echo(fitted.to_json())


def _footage(
    *,
    clips: Path | None,
    clip_tables: tuple[Path, ...],
    exclude: tuple[Path, ...],
    coded_stills: int,
    filmed: Path | None,
    labels: Path | None,
    every_licence: bool,
    mocap: Path | None,
    workers: int,
) -> tuple[ClipBank | None, MotionBank | None, dict[str, str]]:
    """The banks that the options name, and what a checkpoint says of them."""
    bank = None
    if clips is not None or clip_tables:
        files = clip_files(clips, clip_tables, every_licence=every_licence, exclude=exclude)
        click.echo(f"decoding {len(files)} clips", err=True)
        bank = ClipBank.from_files(files, workers=max(1, workers)).without_negatives_of(may_repeat(exclude))
        if filmed is not None:
            bank = bank.with_filmed_repetitions(filmed)
        if coded_stills:
            click.echo(f"coding {coded_stills} stills", err=True)
            bank = bank.with_coded_stills(coded_stills, workers=max(1, workers))
        if labels is not None:
            bank = bank.with_labelled(labels, workers=max(1, workers))
    elif labels is not None:
        raise click.UsageError("--labels needs clips to cut motion from: give --clips or --clip-table")
    motion = None
    if mocap is not None:
        motion = MotionBank.from_npz(mocap, mocap.with_suffix(".csv"), workers=max(1, workers))
    provenance = {
        "commit": code_identity(),
        "footage": "every licence" if every_licence else "permissive" if bank else "none",
        "clips": str(len(bank.names) - coded_stills - len(bank.labelled)) if bank else "0",
        "labelled_clips": str(len(bank.labelled) if bank else 0),
        "coded_stills": str(coded_stills if bank else 0),
        "filmed_repetitions": str(len(bank.segments.filmed) if bank else 0),
        "mocap": "yes" if motion else "no",
    }
    return bank, motion, provenance
