"""`escounts data`: what of a dataset is there, what is missing, what is odd; and the generated dataset."""

from __future__ import annotations

from pathlib import Path

import click

from escounts.datasets.generated import SyntheticSet, create
from escounts.datasets.registry import DATASETS, check_files, load_dataset
from escounts.datasets.tokens import TokenStore
from escounts.errors import DataError

SHOWN = 10


@click.group()
def command() -> None:
    """Check a dataset, or make the generated one."""


@command.command()
@click.argument("dataset", type=click.Choice(list(DATASETS)))
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Folder with labels and videos.")
@click.option("--videos", type=click.Path(path_type=Path), help="Folder with the videos, when not the root.")
@click.option("--open", "open_videos", is_flag=True, help="Open every video and compare its length with its labels.")
@click.option("--all", "show_all", is_flag=True, help="Name every missing video and every oddity.")
def check(dataset: str, root: Path, videos: Path | None, open_videos: bool, show_all: bool) -> None:
    """What is there, what is missing, what is odd; by name."""
    found = load_dataset(dataset, root)
    files = check_files(found, videos or root, open_videos=open_videos)
    missing = {video.name for video in files.missing}
    click.echo(f"{dataset}: {DATASETS[dataset].summary}")
    for split in found.splits:
        usable = found.split(split)
        paper = f", the paper has {found.published[split]}" if split in found.published else ""
        here = sum(video.name not in missing for video in usable)
        click.echo(f"  {split}: {found.rows[split]} rows{paper}; {len(usable)} usable, {here} videos here")
    zero = sum(video.count == 0 for video in found.videos)
    click.echo(f"  {sum(v.count for v in found.videos)} repetitions; {zero} videos with none are kept")
    if found.actions:
        click.echo("  actions: " + ", ".join(f"{name} {count}" for name, count in list(found.actions.items())[:12]))
    _list("odd", [str(problem) for problem in (*found.problems, *files.problems)], show_all)
    _list("missing videos", [f"{video.split}/{video.file}" for video in files.missing], show_all)


@command.command()
@click.argument("dataset", type=click.Choice(["synthetic"]))
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--train", type=int, default=160, show_default=True)
@click.option("--valid", type=int, default=16, show_default=True)
@click.option("--test", type=int, default=48, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def make(dataset: str, root: Path, train: int, valid: int, test: int, seed: int) -> None:
    """Draw the generated dataset: videos and label tables in the form of RepCount."""
    made = create(root, SyntheticSet(train=train, valid=valid, test=test, seed=seed))
    click.echo(f"{root}: {len(made.videos)} videos of {len(made.actions)} actions")


@command.command()
@click.argument("store", type=click.Path(path_type=Path, exists=True))
def verify(store: Path) -> None:
    """Read every file of a token STORE and compare it with the sha256 it was written with."""
    opened = TokenStore(store)
    damaged = opened.verify()
    if damaged:
        raise DataError(f"{store}: {len(damaged)} damaged: {', '.join(damaged)}; delete their files and encode again")
    click.echo(f"{store}: {len(opened.entries)} videos, all as written")


def _list(title: str, lines: list[str], show_all: bool) -> None:
    if not lines:
        click.echo(f"  {title}: none")
        return
    click.echo(f"  {title}: {len(lines)}")
    for line in lines if show_all else lines[:SHOWN]:
        click.echo(f"    {line}")
    if len(lines) > SHOWN and not show_all:
        click.echo(f"    … and {len(lines) - SHOWN} more: --all names them")
