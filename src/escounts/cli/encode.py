"""`escounts encode`: a dataset's videos into a token store; resumable, disk use stated before it starts."""

from __future__ import annotations

from pathlib import Path

import click

from escounts.datasets.registry import DATASETS


@click.command()
@click.argument("dataset", type=click.Choice(list(DATASETS)))
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Folder with labels and videos.")
@click.option("--videos", type=click.Path(path_type=Path), help="Folder with the videos, when not the root.")
@click.option("--tokens", type=click.Path(path_type=Path), default=Path("tokens"), show_default=True)
@click.option("--encoder", default="mae-vit-b", show_default=True, help="An encoder: see `escounts weights list`.")
@click.option("--pool", type=int, help="Average tokens to POOL×POOL (default 6 for the paper's encoders).")
@click.option("--shifts", type=int, default=4, show_default=True, help="Start offsets: K of the paper.")
@click.option("--exemplars", type=int, default=8, show_default=True, help="Repetitions stored a video, at most.")
@click.option("--every", type=int, help="Raw frames between sampled ones, when not the encoder's own.")
@click.option("--split", "splits", multiple=True, help="Only these splits.")
@click.option("--device", default="auto", show_default=True)
@click.option("--estimate", is_flag=True, help="Only say how much disk it takes.")
def command(
    dataset: str,
    root: Path,
    videos: Path | None,
    tokens: Path,
    encoder: str,
    pool: int | None,
    shifts: int,
    exemplars: int,
    every: int | None,
    splits: tuple[str, ...],
    device: str,
    estimate: bool,
) -> None:
    """Encode DATASET once, for training and evaluation. A stopped run goes on when called again."""
    from escounts.cli.counting_display import counting_display
    from escounts.datasets.encoders import open_encoder, store_path
    from escounts.datasets.encoding import disk_need, encode_dataset, layout_for
    from escounts.datasets.labels import save_labels
    from escounts.datasets.registry import load_dataset
    from escounts.nn.device import choose_device

    labels = load_dataset(dataset, root)
    model, identity = open_encoder(encoder, every=every, device=choose_device(device))
    side = pool or (min(model.spec.grid[0], 6) if model.spec.fps is None else None)
    grid = (side, side) if side else None
    layout = layout_for(model.spec, identity, pool=grid, shifts=shifts, exemplars=exemplars)
    wanted = [video for video in labels.videos if not splits or video.split in splits]
    need = disk_need(wanted, layout)
    click.echo(
        f"{len(wanted)} videos: about {_gb(need.store)} of tokens, {_gb(need.exemplars)} of it exemplars "
        f"(the released code's layout, float32 14×14 at stride 16: {_gb(need.released)})"
    )
    if estimate:
        return
    path = store_path(tokens, dataset, encoder, every)
    with counting_display("videos") as progress:
        store, problems = encode_dataset(
            labels, videos or root, path, model, layout, splits=splits or None, progress=progress
        )
    save_labels(path, labels)
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    click.echo(f"{path}: {len(store.entries)} videos, {_gb(store.bytes)}; {len(problems)} left out")


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
