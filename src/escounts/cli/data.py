"""`escounts data`: what of a dataset is there, what is missing, what is odd; and the generated dataset."""

from __future__ import annotations

from pathlib import Path

import click

from escounts.atomic_files import write_text
from escounts.datasets.annotation_formats import FORMATS, Format, LabelError, read_labels, write_labels
from escounts.datasets.annotation_formats.plain_csv import write_file
from escounts.datasets.annotations import overlap_problem
from escounts.datasets.folder import LABELS
from escounts.datasets.generated import SyntheticSet, create
from escounts.datasets.registry import DATASETS, check_files, load_dataset
from escounts.datasets.tokens import TokenStore
from escounts.errors import DataError

SHOWN = 10


@click.group()
def command() -> None:
    """Check a dataset, take labels in and out, or make the generated one."""


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


@command.command("import")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Folder with your videos.")
@click.option("--format", "name", type=click.Choice(list(FORMATS)), help="Told by the file when left out.")
@click.option("--only", metavar="NAME", help="The behaviour, tier or label that is meant, when there are several.")
@click.option("--fps", type=float, help="Frames a second of a Label Studio file that states none.")
def import_(source: Path, root: Path, name: Format | None, only: str | None, fps: float | None) -> None:
    """Take the labels of BORIS, ELAN, Label Studio or a CSV into the labels.csv of ROOT.

    Labels of other videos in it are kept. Videos are found in ROOT by their file names.
    """
    found = read_labels(source, format=name, only=only, fps=fps)
    path = root / LABELS
    kept = {video.file: video for video in (read_labels(path, format="csv") if path.exists() else [])}
    for video in found:
        kept[video.file] = video
        if (problem := overlap_problem(video.spans)) is not None:
            raise LabelError(f"{source}: {video.file}: {problem}")
        missing = "" if (root / video.file).exists() else f" (there is no {video.file} in {root} yet)"
        click.echo(f"{video.file}: {len(video.spans)} repetitions{missing}")
    root.mkdir(parents=True, exist_ok=True)
    write_file(path, list(kept.values()))
    click.echo(f"wrote {path}: {len(kept)} videos")


@command.command()
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Folder with a labels.csv.")
@click.option("--format", "name", type=click.Choice(list(FORMATS)), required=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
def export(root: Path, name: Format, out: Path) -> None:
    """Write the labels.csv of ROOT for BORIS, ELAN or Label Studio."""
    for file, text in write_labels(read_labels(root / LABELS, format="csv"), name).items():
        write_text(out / file, text)
        click.echo(f"wrote {out / file}")


def _list(title: str, lines: list[str], show_all: bool) -> None:
    if not lines:
        click.echo(f"  {title}: none")
        return
    click.echo(f"  {title}: {len(lines)}")
    for line in lines if show_all else lines[:SHOWN]:
        click.echo(f"    {line}")
    if len(lines) > SHOWN and not show_all:
        click.echo(f"    … and {len(lines) - SHOWN} more: --all names them")
