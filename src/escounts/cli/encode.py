"""`escounts encode`: a dataset's videos into a token store; resumable, disk and time stated before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from escounts.cli.progress import counting_display, duration_text
from escounts.datasets.encoding_plan import plan_encoding
from escounts.datasets.registry import DATASETS
from escounts.nn.device import choose_device, chosen_devices

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("dataset", type=click.Choice(list(DATASETS)))
@click.option("--root", type=PATH, required=True, help="Folder with labels and videos.")
@click.option("--videos", type=PATH, help="Folder with the videos, when not the root.")
@click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
@click.option("--encoder", default="mae-vit-b", show_default=True, help="An encoder: see `escounts weights list`.")
@click.option("--pool", type=int, help="Average tokens to POOL×POOL (default 6 for the paper's encoders).")
@click.option("--shifts", type=int, default=4, show_default=True, help="Start offsets: K of the paper.")
@click.option("--exemplars", type=int, default=8, show_default=True, help="Repetitions stored per video, at most.")
@click.option("--every", type=int, help="Raw frames between sampled ones, when not the encoder's own.")
@click.option("--padding", type=click.Choice(["last", "mean"]), default="last", show_default=True,
              help="Of a video's last window: its last frame, or the released code's mean colour.")  # fmt: skip
@click.option("--split", "splits", multiple=True, help="Only these splits.")
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that share the videos."
)
@click.option("--devices", help="Share the videos among these, one process each at least: cuda:0,cuda:1.")
@click.option("--estimate", is_flag=True, help="Only say how much disk and time it takes.")
def command(
    dataset: str,
    root: Path,
    tokens: Path,
    device: str,
    jobs: int,
    devices: str | None,
    estimate: bool,
    **options: Any,
) -> None:
    """Encode DATASET once, for training and evaluation. A stopped run goes on when called again.

    Divisions of the same videos (repcount, repcount-open) share one store.
    """
    places = chosen_devices(devices)
    plan = plan_encoding(dataset, root, tokens, device=str(choose_device(device)), **options)
    need = plan.need
    click.echo(
        f"{len(plan.wanted)} videos: about {_gb(need.store)} of tokens, {_gb(need.exemplars)} of it exemplars "
        f"(the released code's layout, float32 14×14 at stride 16: {_gb(need.released)})"
    )
    seconds = plan.seconds()
    if seconds is None:
        click.echo(f"none of them is under {plan.videos}: how long it takes is not known")
    else:
        click.echo(f"about {duration_text(seconds)} on this machine, by the first seconds of one of them")
    if estimate:
        return
    with counting_display("videos") as progress:
        store, problems = plan.run(progress, devices=places, jobs=jobs)
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    click.echo(f"{plan.path}: {len(store.entries)} videos, {_gb(store.bytes)}; {len(problems)} left out")


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
