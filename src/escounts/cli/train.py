"""`escounts train`: on a dataset's tokens, on your own folder of videos, or on generated repetitions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from escounts.datasets.annotations import Dataset
    from escounts.datasets.tokens import TokenStore
    from escounts.training.token_run import TokenRun

PATH = click.Path(path_type=Path)
PIXELS = ("synthetic", "mean")


class TrainGroup(click.Group):
    """`synthetic` and `mean` train from pixels and have a file of their own, imported only when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *PIXELS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in PIXELS:
            from escounts.cli import train_synthetic

            return getattr(train_synthetic, cmd_name)  # type: ignore[no-any-return]
        return super().get_command(ctx, cmd_name)


@click.group(cls=TrainGroup)
def command() -> None:
    """Train a counter. A stopped run goes on where it was when the same command is given again."""


def _run_options(function: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option("--out", type=PATH, required=True, help="The run's folder."),
        click.option("--epochs", type=int, help="Default: 300, the paper's."),
        click.option("--steps", type=int, help="Optimiser steps, instead of epochs."),
        click.option("--batch", "batch_size", type=int, help="Videos a step (default 8)."),
        click.option("--lr", type=float, help="Learning rate (default 5e-5 on a dataset, 1e-4 on a folder)."),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option("--ema", type=float, help="Decay of averaged weights, such as 0.999."),
        click.option("--precision", type=click.Choice(["auto", "float32", "bf16"]), default="auto"),
        click.option("--device", default="auto", show_default=True),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _dataset_command(group_name: str, datasets: tuple[str, ...]) -> None:
    """Add the command of one family of datasets, such as repcount and repcount-open."""

    @command.command(group_name, help=f"Train on stored tokens of {', '.join(datasets)}: the paper's recipe.")
    @click.option("--form", type=click.Choice(datasets), default=datasets[0], show_default=True)
    @click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
    @click.option("--encoder", help="Whose tokens, when there are several.")
    @click.option("--shots", default="0,1,2", show_default=True, help="Numbers of exemplars drawn from.")
    @click.option("--other-video", type=float, default=0.4, show_default=True, help="p of the paper.")
    @click.option("--sigma", default="0.5", show_default=True, help="Width of the peaks in cells, or variable.")
    @click.option(
        "--objective",
        type=click.Choice(["paper", "released"]),
        default="paper",
        show_default=True,
        help="eq. 6, or the released code's arithmetic of it.",
    )
    @click.option("--self-attention-only", is_flag=True, help="No exemplars in the decoder (Table 3a).")
    @_run_options
    def train(
        form: str,
        tokens: Path,
        encoder: str | None,
        shots: str,
        other_video: float,
        sigma: str,
        objective: str,
        self_attention_only: bool,
        **options: Any,
    ) -> None:
        from escounts.datasets.encoders import find_store
        from escounts.datasets.labels import load_labels
        from escounts.datasets.tokens import TokenStore
        from escounts.training.objective import RELEASED_OBJECTIVE
        from escounts.training.recipes import Recipe

        path = find_store(tokens, form, encoder)
        store, dataset = TokenStore(path), load_labels(path)
        recipe = Recipe(
            dataset=form,
            shots=_numbers(shots),
            other_video=other_video,
            sigma="variable" if sigma == "variable" else float(sigma),
            self_attention_only=self_attention_only,
        )
        run = recipe.paper_run(store.layout, options["seed"])
        if objective == "released":
            run = replace(run, objective=RELEASED_OBJECTIVE)
        _fit(run, dataset, store, None, options)


_dataset_command("repcount", ("repcount", "repcount-open"))
_dataset_command("countix", ("countix-frames", "countix", "countix-av"))
_dataset_command("ucfrep", ("ucfrep",))
_dataset_command("ovr", ("ovr-ego4d", "ovr-kinetics"))


@command.command()
@click.option("--root", type=PATH, required=True, help="Your videos, with a labels.csv.")
@click.option("--tokens", type=PATH, help="Where to keep the tokens (default: in the run's folder).")
@click.option("--init", "initial", default="lite", show_default=True, help="lite, a checkpoint, or none.")
@_run_options
def folder(root: Path, tokens: Path | None, initial: str, **options: Any) -> None:
    """Train on your own videos: labels.csv has file, start_s, end_s, [class] a repetition, or file, count."""
    from escounts.cli.counting_display import counting_display
    from escounts.datasets.encoders import network_encoder, open_encoder, store_path
    from escounts.datasets.encoding import encode_dataset, layout_for
    from escounts.datasets.labels import save_labels
    from escounts.datasets.registry import load_dataset
    from escounts.errors import DataError
    from escounts.nn.device import choose_device
    from escounts.training.own_videos import folder_run
    from escounts.zoo.catalogue import LITE_WEIGHTS

    dataset = load_dataset("folder", root)
    for problem in dataset.problems:
        click.echo(f"odd: {problem}", err=True)
    start = {"lite": LITE_WEIGHTS, "none": None}.get(initial, Path(initial))
    if start is not None and not start.exists():
        raise DataError(f"no checkpoint {start} to start from; --init none trains from nothing")
    device = choose_device(options["device"])
    encoder, identity = (
        open_encoder("patches", device=device) if start is None else network_encoder(start, device=device)
    )
    layout = layout_for(encoder.spec, identity, shifts=2)
    path = store_path(tokens or options["out"] / "tokens", "folder", encoder.spec.name)
    with counting_display("videos") as progress:
        store, problems = encode_dataset(dataset, root, path, encoder, layout, progress=progress)
    save_labels(path, dataset)
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    _fit(folder_run(layout, start, seed=options["seed"]), dataset, store, start, options)
    best = options["out"] / "best.safetensors"
    if start is not None:
        click.echo(f"count with it: escounts count --model {best} VIDEO")


def _fit(run: TokenRun, dataset: Dataset, store: TokenStore, initial: Path | None, options: dict[str, Any]) -> None:
    """Train as the options say and print the last validation."""
    from escounts.cli.training_display import training_display
    from escounts.nn.device import choose_device
    from escounts.training.token_run import train_on_tokens

    names = ("epochs", "steps", "batch_size", "lr", "ema")
    changes = {name: options[name] for name in names if options[name] is not None}
    if options["epochs"] is not None:
        changes.setdefault("steps", None)
    train = replace(run.train, **changes, precision=options["precision"])
    run = replace(run, train=train, tokens=replace(run.tokens, batch_size=train.batch_size))
    device = str(choose_device(options["device"]))
    with training_display() as report:
        figures = train_on_tokens(run, dataset, store, options["out"], device=device, initial=initial, report=report)
    if os.environ.get("RANK", "0") != "0":  # torchrun: one process speaks
        return
    for name, value in sorted(figures.items()):
        if name.startswith("val_"):
            click.echo(f"{name.removeprefix('val_'):6s} {value:.3f}")
    click.echo(f"wrote {options['out']}")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: numbers with commas, such as 0,1,2") from None
