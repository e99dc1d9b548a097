"""`escounts bench`: how fast this machine counts. Rivals, and each part alone: `benchmarks/engines.py`."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import escounts
from escounts import __version__
from escounts.cli import device_option
from escounts.cli.numbers import COUNT
from escounts.models import catalogue

SAMPLE = Path(__file__).resolve().parent.parent / "serve" / "static" / "sample.mp4"


@click.command()
@click.option("--quick", is_flag=True, help="The default model alone.")
@device_option
@click.option("--video", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Time this one (default: the sample).")  # fmt: skip
@click.option("--rounds", type=COUNT, default=3, show_default=True, help="Medians are shown.")
@click.option(
    "--by-processor", is_flag=True, help="Rates per second of processor: where others use the machine, too."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all seconds instead of the table.")
def bench_command(
    quick: bool, device: str, video: Path | None, rounds: int, by_processor: bool, as_json: bool
) -> None:
    """Time counting on this machine: seconds of video per second, as a Markdown table."""
    path = video or SAMPLE
    duration = escounts.Video(path).info.duration
    rows = [{"model": "decoding alone"} | _timed(lambda: sum(1 for _ in escounts.Video(path).frames()), rounds)]
    for name in [catalogue.default_name(), *["spectral"] * (not quick)]:
        begun = time.perf_counter()
        counter = escounts.load(name, device=device)
        count = counter.count(path).raw_count  # untimed: a GPU plans its kernels here, a processor tries bf16
        start = time.perf_counter() - begun
        timed = _timed(lambda counter=counter: counter.count(path), rounds)  # type: ignore[misc]
        rows.append({"model": name, "start": start, "count": count} | timed)
    about = f"{platform.processor() or platform.machine()}, {device}, escounts {__version__}"
    if as_json:
        click.echo(json.dumps({"machine": about, "seconds": duration, "rows": rows}))
        return
    unit = "second of processor" if by_processor else "second"
    click.echo(f"{about}. Seconds of video per {unit}: more is faster; medians of {rounds} rounds.\n")
    click.echo("| model | speed | start and first count, s | count |\n|---|---|---|---|")
    for row in rows:
        speed = duration / row["processor" if by_processor else "wall"]
        first = f"{row['start']:.1f} | {row['count']:.2f}" if "start" in row else "– | –"
        click.echo(f"| {row['model']} | {speed:.3g} | {first} |")


def _timed(work: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Seconds of some work on the wall and of processor: medians."""
    wall, processor = [], []
    for _ in range(rounds):
        began, before = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - before)
    return {"wall": statistics.median(wall), "processor": statistics.median(processor)}
