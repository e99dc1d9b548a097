"""`escounts sample`: draw the sample video with the project's own generator."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import click

from escounts.atomic_files import write_text
from escounts.movie_files import write_movie
from escounts.synthetic.render import render
from escounts.synthetic.sample import RATE, SIZE, sample_plan


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("sample.mp4"), show_default=True)
@click.option("--repetitions", type=click.IntRange(1, 200), default=8, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed draws the same video.")
def command(output: Path, repetitions: int, seed: int) -> None:
    """Draw a figure doing squats; the true repetition times go into a .json file beside the video."""
    plan = sample_plan(repetitions=repetitions, seed=seed)
    frames_THWC = render([plan], device="cpu", size=SIZE).frames_BTCHW[0].permute(0, 2, 3, 1).numpy()
    # One thread: several would split the work, and the file, differently on every machine.
    options = {"crf": "27", "preset": "slow", "threads": "1"}
    height, width = SIZE
    write_movie(output, frames_THWC, size=(width, height), rate=Fraction(RATE), options=options)
    truth = {
        "count": len(plan.spans),
        "repetitions": [[round(start / RATE, 3), round(end / RATE, 3)] for start, end in plan.spans],
        "duration": round(plan.length / RATE, 3),
        "drawn_with": f"escounts sample --repetitions {repetitions} --seed {seed}",
    }
    write_text(output.with_suffix(".json"), json.dumps(truth) + "\n")
    click.echo(f"wrote {output} and {output.with_suffix('.json')}: {len(plan.spans)} repetitions")
