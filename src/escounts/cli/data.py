"""`escounts data`, `encode` and `sample`: what of a dataset is there and what is odd, its videos into a token store
(resumable, disk and time stated before it starts), the generated dataset, the sample video."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from escounts.cli.display import duration_text, work_display
from escounts.cli.options import COUNT, NONE_OR_MORE, PATH, SEED, Number
from escounts.errors import DataError, OutputError
from escounts.nn.device import choose_device, chosen_devices
from escounts.output.mp4 import write_movie
from escounts.research.datasets.annotation_formats import FORMATS, Format, label_text, read_labels, write_labels
from escounts.research.datasets.annotation_formats.labels import label_problem
from escounts.research.datasets.annotation_formats.tables import merged_csv
from escounts.research.datasets.encoding_plan import plan_encoding
from escounts.research.datasets.folder import LABELS, video_seconds
from escounts.research.datasets.generated import SyntheticSet, create
from escounts.research.datasets.registry import DATASETS, check_files, load_dataset
from escounts.research.datasets.tokens import TokenStore
from escounts.synthetic import sample_video
from escounts.system.atomic_files import keep_existing, write_text

SHOWN = 10


@click.group()
def data_command() -> None:
    """Check a dataset, take labels in and out, or make the generated one."""


@data_command.command()
@click.argument("dataset", type=click.Choice(list(DATASETS)))
@click.option("--root", type=PATH, required=True, help="Folder with labels and videos.")
@click.option("--videos", type=PATH, help="Folder with the videos, when not the root.")
@click.option("--open", "open_videos", is_flag=True, help="Open every video and compare its length with its labels.")
@click.option("--all", "show_all", is_flag=True, help="Name every missing video and every oddity.")
def check(dataset: str, root: Path, videos: Path | None, open_videos: bool, show_all: bool) -> None:
    """What is there, what is missing, what is odd; by name."""
    found = load_dataset(dataset, root)
    missing, problems = check_files(found, videos or root, open_videos=open_videos)
    absent = {video.name for video in missing}
    click.echo(f"{dataset}: {DATASETS[dataset].summary}")
    for split in found.splits:
        usable = found.split(split)
        paper = f", the paper has {found.published[split]}" if split in found.published else ""
        here = sum(video.name not in absent for video in usable)
        click.echo(f"  {split}: {found.rows[split]} rows{paper}; {len(usable)} usable, {here} videos here")
    zero = sum(video.count == 0 for video in found.videos)
    click.echo(f"  {sum(v.count for v in found.videos)} repetitions; {zero} videos with none are kept")
    if found.actions:
        click.echo("  actions: " + ", ".join(f"{name} {count}" for name, count in list(found.actions.items())[:12]))
    _list("odd", [str(problem) for problem in (*found.problems, *problems)], show_all)
    _list("missing videos", [f"{video.split}/{video.file}" for video in missing], show_all)


@data_command.command()
@click.argument("dataset", type=click.Choice(["synthetic"]))
@click.option("--root", type=PATH, required=True, help="Folder to write to.")
@click.option("--train", type=NONE_OR_MORE, default=160, show_default=True)
@click.option("--valid", type=NONE_OR_MORE, default=16, show_default=True)
@click.option("--test", type=NONE_OR_MORE, default=48, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
def make(dataset: str, root: Path, train: int, valid: int, test: int, seed: int) -> None:
    """Draw the generated dataset: videos and label tables in the form of RepCount."""
    made = create(root, SyntheticSet(train=train, valid=valid, test=test, seed=seed))
    click.echo(f"{root}: {len(made.videos)} videos of {len(made.actions)} actions")


@data_command.command()
@click.argument("store", type=click.Path(path_type=Path, exists=True))
def verify(store: Path) -> None:
    """Read every file of a token STORE and compare it with the sha256 it was written with."""
    opened = TokenStore(store)
    damaged = opened.verify()
    if damaged:
        raise DataError(f"{store}: {len(damaged)} damaged: {', '.join(damaged)}; delete their files and encode again")
    click.echo(f"{store}: {len(opened.entries)} videos, all as written")


@data_command.command("import")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--root", type=PATH, required=True, help="Folder with your videos.")
@click.option("--format", "name", type=click.Choice(list(FORMATS)), help="Told by the file when left out.")
@click.option("--only", metavar="NAME", help="The behaviour, tier or label that is meant, when there are several.")
@click.option("--fps", type=Number(1, 1000), help="Frames a second of a Label Studio file that states none.")
def import_(source: Path, root: Path, name: Format | None, only: str | None, fps: float | None) -> None:
    """Take the labels of BORIS, ELAN, Label Studio or a CSV into the labels.csv of ROOT.

    Rows of other videos in it are kept as they are. Videos are found in ROOT by their file names.
    """
    found = read_labels(source, format=name, only=only, fps=fps)
    path = root / LABELS
    there = {video.file: root / video.file for video in found if (root / video.file).is_file()}
    durations = {file: video_seconds(video) for file, video in there.items()}
    for video in found:
        if (problem := label_problem(video, durations.get(video.file))) is not None:
            raise DataError(f"{source}: {video.file}: {problem}; nothing was changed")
    before = label_text(path) if path.exists() else ""
    try:
        text, kept, replaced = merged_csv(found, before)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    for video in found:
        missing = "" if video.file in there else f" (there is no {video.file} in {root} yet)"
        click.echo(f"{video.file}: {len(video.spans)} repetitions{missing}")
    if replaced:
        names = chain([".before"], (f".before-{number}" for number in count(2)))
        write_text(aside := next(p for end in names if not (p := path.with_name(LABELS + end)).exists()), before)
        click.echo(f"{', '.join(sorted(replaced))} had labels before; they are in {aside}")
    write_text(path, text)
    click.echo(f"wrote {path}: {len(kept) + len(found)} videos")


@data_command.command()
@click.option("--root", type=PATH, required=True, help="Folder with a labels.csv.")
@click.option("--format", "name", type=click.Choice(list(FORMATS)), required=True)
@click.option("-o", "--out", type=PATH, required=True, help="Folder to write to.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def export(root: Path, name: Format, out: Path, force: bool) -> None:
    """Write the labels.csv of ROOT for BORIS, ELAN or Label Studio."""
    files = write_labels(read_labels(root / LABELS, format="csv"), name)
    if not force:
        keep_existing((out / file for file in files), "export into another folder, or write over it with --force")
    elif LABELS in files and (out / LABELS).exists() and (out / LABELS).samefile(root / LABELS):
        raise OutputError(f"{out / LABELS} is what is exported; export into another folder")
    for file, text in files.items():
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


@click.command()
@click.argument("dataset", type=click.Choice(list(DATASETS)))
@click.option("--root", type=PATH, required=True, help="Folder with labels and videos.")
@click.option("--videos", type=PATH, help="Folder with the videos, when not the root.")
@click.option("--tokens", type=PATH, default=Path("tokens"), show_default=True)
@click.option("--encoder", default="mae-vit-b", show_default=True, help="An encoder: see `escounts weights list`.")
@click.option(
    "--pool", type=click.IntRange(1, 64), help="Average tokens to POOL×POOL (default 6 for the paper's encoders)."
)
@click.option("--shifts", type=COUNT, default=4, show_default=True, help="Start offsets: K of the paper.")
@click.option(
    "--exemplars", type=NONE_OR_MORE, default=8, show_default=True, help="Repetitions stored per video, at most."
)
@click.option("--every", type=COUNT, help="Raw frames between sampled ones, when not the encoder's own.")
@click.option("--padding", type=click.Choice(["last", "mean"]), default="last", show_default=True,
              help="Of a video's last window: its last frame, or the released code's mean colour.")  # fmt: skip
@click.option("--split", "splits", multiple=True, help="Only these splits.")
@click.option("--device", default="auto", show_default=True)
@click.option("--jobs", type=COUNT, default=1, show_default=True, help="Processes that share the videos.")
@click.option("--devices", help="Share the videos among these, one process each at least: cuda:0,cuda:1.")
@click.option("--estimate", is_flag=True, help="Only say how much disk and time it takes.")
def encode_command(
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
    store_bytes, exemplar_bytes, released_bytes = plan.need(plan.wanted)
    click.echo(
        f"{len(plan.wanted)} videos: about {_gb(store_bytes)} of tokens, {_gb(exemplar_bytes)} of it exemplars "
        f"(the released code's layout, float32 14×14 at stride 16: {_gb(released_bytes)})"
    )
    seconds = plan.seconds()
    if seconds is None:
        click.echo(f"none of them is under {plan.videos}: how long it takes is not known")
    else:
        click.echo(f"about {duration_text(seconds)} on this machine, by the first seconds of one of them")
    if estimate:
        return
    with work_display() as (progress, _):
        store, problems = plan.run(progress, devices=places, jobs=jobs)
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    click.echo(f"{plan.path}: {len(store.entries)} videos, {_gb(store.bytes)}; {len(problems)} left out")


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


@click.command()
@click.option("-o", "--output", type=PATH, default=Path("sample.mp4"), show_default=True)
@click.option("--repetitions", type=click.IntRange(1, 200), default=8, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True, help="The same seed draws the same video.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def sample_command(output: Path, repetitions: int, seed: int, force: bool) -> None:
    """Draw a figure doing squats; the true repetition times go into a .json file beside the video."""
    if not force:
        keep_existing(
            (output, output.with_suffix(".json")), "choose another name with -o, or write over it with --force"
        )
    video = sample_video(repetitions=repetitions, seed=seed)
    # One thread: several would split the work, and the file, differently on every machine.
    options = {"crf": "27", "preset": "slow", "threads": "1"}
    height, width = video.frames.shape[1:3]
    write_movie(output, video.frames, size=(width, height), rate=Fraction(video.fps), options=options)
    truth = {
        "count": len(video.spans),
        "repetitions": [[round(start, 3), round(end, 3)] for start, end in video.spans],
        "duration": round(len(video.frames) / video.fps, 3),
        "drawn_with": f"escounts sample --repetitions {repetitions} --seed {seed}",
    }
    write_text(output.with_suffix(".json"), json.dumps(truth) + "\n")
    click.echo(f"wrote {output} and {output.with_suffix('.json')}: {len(video.spans)} repetitions")
