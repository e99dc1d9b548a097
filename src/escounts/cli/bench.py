"""`escounts bench`: how fast this machine counts, in the form of the docs."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import click

from escounts.cli.progress import counting_display


@click.command()
@click.option("--quick", is_flag=True, help="Ten seconds of video; only what counting uses. Under a minute.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--video", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Time this one (default: 720p30 that is drawn for it).")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True,
              help="All engines take turns so often; medians are shown.")  # fmt: skip
@click.option("--by-processor", is_flag=True,
              help="Rates per second of processor, not on the wall: where others use the machine, too.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all seconds instead of the table.")
def command(quick: bool, device: str, video: Path | None, rounds: int, by_processor: bool, as_json: bool) -> None:
    """Time every engine that runs here: the default model, baselines and rivals, each in a process of its own.

    Prints a Markdown table: seconds of video per second end to end, of decoding, encoder and decoder alone, and peak
    memory. Without --quick it takes several minutes on a CPU.
    """
    from escounts.benchmarking.table import as_values, bench, markdown  # noqa: PLC0415 - torch: two seconds

    with counting_display("measurements") as report:
        found = bench(video, device=device, quick=quick, rounds=rounds, report=report)
    click.echo(jsonlib.dumps(as_values(found)) if as_json else markdown(found, by_processor=by_processor))
