"""`escounts train`: on a dataset's tokens, on your own folder of videos, or on generated repetitions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from escounts.cli.display import Count, work_display
from escounts.cli.options import COUNT, NONE_OR_MORE, PATH, SEED, Number, together, whole_numbers
from escounts.models.catalogue import is_own_model, own_model_path
from escounts.nn.device import choose_device
from escounts.research.training.publishing import open_hub, push_run
from escounts.research.training.recipes import Recipe, train_dataset, train_folder
from escounts.research.training.synthetic_run import (
    NETWORKS,
    SMOKE,
    SyntheticRun,
    calibrate_on_labels,
    changed,
    clip_bank,
    clip_files,
    provenance_of,
    train_synthetic,
)
from escounts.synthetic import MotionBank
from escounts.system.atomic_files import keep_existing
from escounts.teach.own_action import learn_folder

if TYPE_CHECKING:
    from escounts.research.datasets.annotations import Problem

EXISTING = click.Path(path_type=Path, exists=True)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def train_command() -> None:
    """Train a counter. A stopped run goes on where it was when the same command is given again."""


def _sigma(text: Any) -> float | Literal["variable"]:
    return "variable" if text == "variable" else Number(0, 1000, min_open=True).convert(text, None, None)


run_options = together(
    click.option("--steps", type=COUNT, help="Optimiser steps."),
    click.option("--batch", "batch_size", type=COUNT, help="Videos per step (default 8; 24 generated ones)."),
    click.option(
        "--lr",
        type=Number(0, 100, min_open=True),
        help="Learning rate (default 5e-5 on a dataset, 1e-4 on a folder, 6e-4 on generated repetitions).",
    ),
    click.option("--seed", type=SEED, default=0, show_default=True),
    click.option(
        "--ema", type=Number(0, 1, min_open=True, max_open=True), help="Decay of averaged weights, such as 0.999."
    ),
    click.option("--precision", type=click.Choice(["auto", "float32", "bf16"]), default="auto"),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any other field of the recipe, such as window_blocks=4, betas=[0.9,0.95], same_class=false.",
    ),
    click.option("--device", default="auto", show_default=True),
)
"""The options of every training; what is left out is as the recipe has it."""
EPOCHS = click.option("--epochs", type=COUNT, help="Instead of steps; default: 300, the paper's.")
PUSH = click.option(
    "--push-to-hub", "repository", metavar="ORG/NAME", help="Put the best weights there, with a card of its figures."
)


def _dataset_command(group_name: str, datasets: tuple[str, ...]) -> None:
    """Add the command of one family of datasets, such as repcount and repcount-open."""

    @train_command.command(group_name, help=f"Train on stored tokens of {', '.join(datasets)}: the paper's recipe.")
    @click.option("--form", type=click.Choice(datasets), default=datasets[0], show_default=True)
    @click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
    @click.option("--encoder", help="Whose tokens, when there are several.")
    @click.option(
        "--shots", type=whole_numbers, default="0,1,2", show_default=True, help="Numbers of exemplars drawn from."
    )
    @click.option("--other-video", type=Number(0, 1), default=0.4, show_default=True, help="p of the paper.")
    @click.option(
        "--sigma", type=_sigma, default="0.5", show_default=True, help="Width of the peaks in cells, or variable."
    )
    @click.option(
        "--objective",
        type=click.Choice(["paper", "released"]),
        default="paper",
        show_default=True,
        help="eq. 6, or the released code's arithmetic of it.",
    )
    @click.option("--out", type=PATH, required=True, help="The run's folder.")
    @click.option("--self-attention-only", is_flag=True, help="No exemplars in the decoder (Table 3a).")
    @click.option(
        "--decoder",
        type=click.Choice(["paper", "released"]),
        default="paper",
        show_default=True,
        help="The paper's, or the released code's with its objective.",
    )
    @EPOCHS
    @PUSH
    @run_options
    def train(
        form: str,
        tokens: Path,
        encoder: str | None,
        objective: str,
        decoder: str,
        repository: str | None,
        **options: Any,
    ) -> None:
        recipe = Recipe(
            dataset=form,
            **{name: options.pop(name) for name in ("shots", "other_video", "sigma", "self_attention_only")},
            released_decoder=decoder == "released",
            released_objective=objective == "released" or decoder == "released",
        )
        with pushing(repository, options["out"]):
            with training(options) as (how, _):
                figures = train_dataset(recipe, tokens, options["out"], encoder=encoder, **how)
            say(figures, options["out"])


_dataset_command("repcount", ("repcount", "repcount-open"))
_dataset_command("countix", ("countix-frames", "countix", "countix-av"))
_dataset_command("ucfrep", ("ucfrep",))
_dataset_command("ovr", ("ovr-ego4d", "ovr-kinetics"))


@train_command.command()
@click.option("--root", type=PATH, help="Your videos, with a labels.csv (default: the folder of --labels).")
@click.option(
    "--labels", type=PATH, help="A label file of BORIS, ELAN, Label Studio, or a CSV, in place of that one."
)
@click.option(
    "--only", metavar="ACTION", help="Which behaviour, tier, label or class is meant, when there are several."
)
@click.option("--as", "name", metavar="NAME", help="Name of the new model: `escounts count --model NAME`.")
@click.option(
    "--replace",
    "replace_old",
    is_flag=True,
    help="Write over a model of that name or in that folder that was taught before.",
)
@click.option("--out", type=PATH, help="A folder for the model, instead of a name; the run's, with --whole-decoder.")
@click.option("--init", "initial", default="lite", show_default=True, help="A model, a checkpoint, or none.")
@click.option("--whole-decoder", is_flag=True, help="For hundreds of videos: train the decoder on stored tokens.")
@click.option("--tokens", type=PATH, help="Where to keep those tokens (default: in the run's folder).")
@click.option(
    "--encoder",
    help="Likewise, a fresh decoder on the frozen tokens of i3d, hf:ORG/NAME, timm:NAME or another encoder.",
)
@EPOCHS
@PUSH
@run_options
def folder(
    root: Path | None,
    labels: Path | None,
    only: str | None,
    name: str | None,
    replace_old: bool,
    out: Path | None,
    initial: str,
    whole_decoder: bool,
    tokens: Path | None,
    encoder: str | None,
    repository: str | None,
    **options: Any,
) -> None:
    """Teach the model your own action from three to ten labelled videos.

    labels.csv has file, start_s, end_s, [class] per repetition, or file, count per video. Each video is left out in
    turn to see whether what was learnt counts it better; if not, the old model is kept and said so. The options of a
    longer run (--epochs, --steps, --batch, --lr, --seed, --ema, --precision, --push-to-hub) are for --whole-decoder,
    --encoder and --init none.
    """
    if (name is None) == (out is None):
        raise click.UsageError("give the new model a name with --as NAME, or a folder with --out")
    if labels is not None and root is None:
        root = labels.parent
    if root is None:
        raise click.UsageError("give the folder of your videos with --root, or a label file with --labels")
    long = whole_decoder or initial == "none" or encoder is not None
    if not long:
        if repository is not None:
            raise click.UsageError("--push-to-hub is for the longer runs: --whole-decoder, --encoder, --init none")
        path = out / "best.safetensors" if out is not None else own_model_path(str(name), replace_old=replace_old)
        if out is not None and not (replace_old and is_own_model(path)):
            keep_existing([path], "choose another folder, or write over a model that was taught with --replace")
        _teach(root, path, str(name or path), labels=labels, only=only, initial=initial, device=options["device"])
        return
    if labels is not None or only is not None:
        raise click.UsageError(
            "--whole-decoder, --encoder and --init none read all of ROOT/labels.csv; `escounts data import` makes it"
        )
    if out is None:
        raise click.UsageError("--whole-decoder, --encoder and --init none train long and need a folder: --out RUN")

    with pushing(repository, out):
        with training(options) as (how, progress):
            figures, problems = train_folder(
                root, out, tokens=tokens, initial=initial, encoder=encoder, progress=progress, **how
            )
        _say_problems(problems)
        say(figures, out)
    if initial != "none" or encoder is not None:
        click.echo(f"count with it: escounts count --model {out / 'best.safetensors'} VIDEO")


def _teach(root: Path, path: Path, called: str, **how: Any) -> None:
    """Learn the action of labelled videos, as `learn_folder` does, and print what it did, video by video."""
    with work_display("per cent") as (display, _):
        report, problems = learn_folder(
            root, path, progress=lambda stage, share: display(round(100 * share), 100, stage), **how
        )
    _say_problems(problems)
    click.echo(f"{'labelled':>9s} {'before':>7s} {'left out':>9s} {'learnt':>7s}")
    for video in report.videos:
        click.echo(f"{video.labelled:9d} {video.before:7d} {video.after:9d} {video.fitted:7d}  {video.name}")
    click.echo(report.message)
    if report.helped:
        click.echo(f"count with it: escounts count --model {called} VIDEO")


def _say_problems(problems: Iterable[Problem]) -> None:
    for problem in problems:
        click.echo(f"{'left out' if problem.unusable else 'odd'}: {problem}", err=True)


@contextmanager
def training(options: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Count]]:
    """What the library's training functions take of the common options, with a display of its progress; and what
    shows the videos that are read before."""
    names = ("epochs", "steps", "batch_size", "lr", "warmup_steps", "ema", "precision", "compile")
    changes = {name: options[name] for name in names if options.get(name) is not None}
    pairs = [text.partition("=") for text in options["settings"]]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise click.BadParameter(f"--set {wrong[0]}: write KEY=VALUE, such as window_blocks=4")
    changes["settings"] = {name: value for name, _, value in pairs}
    with work_display() as (progress, report):
        device = str(choose_device(options["device"]))
        yield {"seed": options["seed"], "changes": changes, "device": device, "report": report}, progress


@contextmanager
def pushing(repository: str | None, run: Path) -> Iterator[None]:
    """Ask the hub before the training inside, and give it the run afterwards; nothing without a repository."""
    if repository is None or os.environ.get("RANK", "0") != "0":
        yield
        return
    api = open_hub(repository)
    yield
    push_run(api, run, repository)
    click.echo(f"pushed to {repository}")


def say(figures: dict[str, float], out: Path) -> None:
    """Print the last validation."""
    if os.environ.get("RANK", "0") != "0":  # torchrun: one process speaks
        return
    for name, value in sorted(figures.items()):
        if name.startswith("val_"):
            click.echo(f"{name.removeprefix('val_'):10s} {value:.3f}")
    click.echo(f"wrote {out}")


@train_command.command()
@click.option("--model", type=click.Choice(list(NETWORKS)), help="Which configuration to train.  [default: lite]")
@click.option("--clips", type=EXISTING, help="Folder of clips to cut motion from.")
@click.option(
    "--clip-table",
    "clip_tables",
    multiple=True,
    type=EXISTING_FILE,
    help="CSV with file and licence; only permissively licensed rows are used, paths beside the table. Repeatable.",
)
@click.option("--exclude", multiple=True, type=EXISTING, help="CSV with a file column to leave out; repeatable.")
@click.option(
    "--coded-stills",
    type=NONE_OR_MORE,
    default=0,
    show_default=True,
    help="How many frames of the clips go through real codecs as still videos, in which nothing moves.",
)
@click.option(
    "--filmed",
    type=EXISTING_FILE,
    help="CSV with file and borders_s: repetitions of these clips that are shown as they were filmed.",
)
@click.option(
    "--labels",
    type=EXISTING_FILE,
    help="CSV with file, split, motion, count, rep_times, alternates, sure: its clips of the split `train` are shown "
    "as they were filmed. It needs other clips beside it.",
)
@click.option("--mocap", type=EXISTING, help="motions.npz of motion-capture trials, with motions.csv beside it.")
@click.option(
    "--generator",
    "choices",
    multiple=True,
    metavar="NAME=VALUE",
    help="A choice of the generator, such as dark=0.3 or period=3,60: short for --set generator.NAME=VALUE.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that decode clips and look for motion in them, before training.",
)
@click.option(
    "--renderers",
    type=NONE_OR_MORE,
    help="Processes that draw batches ahead, on the GPU where there is one (default 1 there, else 0).",
)
@click.option("--warmup", "warmup_steps", type=NONE_OR_MORE, help="Steps until the full rate (default 200).")
@click.option(
    "--compile/--no-compile",
    default=None,
    help="Fuse the encoder's frame stage with torch.compile and record steps: pays on a GPU that trains for minutes.",
)
@click.option("--init", "initial", type=EXISTING, help="Start from this checkpoint.")
@click.option("--out", type=PATH, default=Path("runs/lite"), show_default=True)
@click.option(
    "--smoke",
    is_flag=True,
    help="A minute on a CPU: a tiny model, short videos, few steps, where no option says otherwise.",
)
@run_options
def synthetic(
    model: str | None,
    clips: Path | None,
    clip_tables: tuple[Path, ...],
    exclude: tuple[Path, ...],
    mocap: Path | None,
    choices: tuple[str, ...],
    workers: int,
    renderers: int | None,
    initial: Path | None,
    out: Path,
    smoke: bool,
    **options: Any,
) -> None:
    """Train the default model on generated repetitions of clips, motion capture and drawn motion."""
    options["settings"] += tuple(f"generator.{choice}" for choice in choices)
    special = {name: options.pop(name) for name in ("filmed", "coded_stills", "labels")}
    with training(options) as (how, _):
        run = changed(SMOKE if smoke else SyntheticRun(), model=model, seed=how.pop("seed"), **how.pop("changes"))
        bank = None
        if clips is not None or clip_tables:
            files = clip_files(clips, clip_tables, exclude)
            click.echo(f"decoding {len(files)} clips", err=True)
            bank = clip_bank(files, exclude=exclude, workers=workers, **special)
        elif special["labels"] is not None:
            raise click.UsageError("--labels needs clips to cut motion from: give --clips or --clip-table")
        motion = MotionBank.from_npz(mocap, mocap.with_suffix(".csv"), workers=workers) if mocap else None
        figures = train_synthetic(
            run,
            out=out,
            clips=bank,
            motion=motion,
            renderers=(1 if how["device"] != "cpu" else 0) if renderers is None else renderers,
            initial=initial,
            provenance=provenance_of(bank, motion, permissive=clips is None),
            **how,
        )
    say(figures, out / "last.safetensors")


@train_command.command()
@click.argument("checkpoint", type=EXISTING_FILE)
@click.option(
    "--labels", type=EXISTING_FILE, required=True, help="Table of labelled clips, as for `train synthetic`."
)
@click.option("--split", default="val", show_default=True, help="Its clips: none that the weights were trained on.")
@click.option("--device", default="auto", show_default=True)
def calibrate(checkpoint: Path, labels: Path, split: str, device: str) -> None:
    """Fit gate, choice of views, "no repetitions", unit and confidence on labelled clips, and write them into the
    checkpoint."""
    with work_display("clips") as (progress, _):
        fitted = calibrate_on_labels(checkpoint, labels, split=split, device=choose_device(device), progress=progress)
    click.echo(fitted.to_json())
