"""`escounts sample`: draw the sample video with the project's own generator."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import click

from escounts.atomic_files import write_text
from escounts.movie_files import write_movie
from escounts.synthetic import sample_video


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("sample.mp4"), show_default=True)
@click.option("--repetitions", type=click.IntRange(1, 200), default=8, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed draws the same video.")
def command(output: Path, repetitions: int, seed: int) -> None:
    """Draw a figure doing squats; the true repetition times go into a .json file beside the video."""
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
