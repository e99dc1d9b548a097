"""`escounts watch`, `batch` and `bench`, which run for a while: a stream's count as it happens, in the terminal or as
JSON lines; thousands of videos, one Parquet row each; how fast this machine counts."""

from __future__ import annotations

import json
import math
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from escounts.cli import device_option, lasting
from escounts.cli.display import counting_display
from escounts.cli.numbers import COUNT, NONE_OR_MORE, SECONDS, Number
from escounts.errors import EscountsError, ExemplarError
from escounts.exemplars import parse_exemplar
from escounts.models import catalogue

if TYPE_CHECKING:
    from escounts.live import LiveEvent, Watch

HEADER = f"count  {'start':>8} - {'end':<10}  known after"
"""Over the lines of `_show`."""
BAR = 20
"""Characters of the bar that shows the repetition going on."""


@click.command()
@click.argument("source", metavar="CAMERA|ADDRESS|FILE")
@click.option("--exemplar", "exemplars", multiple=True, metavar="[VIDEO@]START-END",
              help="One repetition to look for; without VIDEO@ a stretch of the source, used once seen.")  # fmt: skip
@click.option("--model", default="default", show_default=True, help="A name of `escounts models`.")
@device_option
@click.option("--assume-repeats", is_flag=True, help="Never answer that there are no repetitions.")
@click.option("--speed", type=Number(above=0, infinite=True), default=1.0, show_default=True,
              help="Of a file: 2 is twice its own speed, inf as fast as it can be counted.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event on stdout, nothing else.")
def watch_command(
    source: str,
    exemplars: tuple[str, ...],
    model: str,
    device: str,
    assume_repeats: bool,
    speed: float,
    as_json: bool,
) -> int:
    """Count a camera (its number), a stream (rtsp://, http://) or a file while it runs; Ctrl-C ends it.

    To mark an exemplar while it runs, press Enter where a repetition begins and again where it ends, or type the
    stretch in seconds (3.2-4.8).

    Exit code 0: the source ended, or was stopped; 2: it could not be opened.
    """
    for exemplar in exemplars:
        parse_exemplar(exemplar)
    with lasting():
        from escounts.live import watch  # noqa: PLC0415 - torch takes a second to load, and a mistyped option need not wait for it

    watching = watch(
        source, model=model, device=device, exemplars=exemplars, assume_repeats=assume_repeats, speed=speed
    )
    threading.Thread(target=_read_marks, args=(watching,), name="escounts-marks", daemon=True).start()
    last: LiveEvent | None = None
    try:
        for event in watching:
            if last is None and not as_json:  # the source is open
                click.echo(HEADER)
            last = event
            _show_json(event) if as_json else _show(event)
    except KeyboardInterrupt:
        watching.close()
        if not as_json:
            click.echo(f"\nstopped at {last.count if last else 0}", err=True)
    return 0


def _show_json(event: LiveEvent) -> None:
    values = {name: value for name, value in asdict(event).items() if value is not None}
    rounded = {name: round(v, 3) if isinstance(v, float) and math.isfinite(v) else v for name, v in values.items()}
    click.echo(json.dumps(rounded, ensure_ascii=False))


def _show(event: LiveEvent) -> None:
    """One line per repetition; on a terminal, a last line that shows what is going on."""
    terminal = sys.stdout.isatty()
    clear = "\r\x1b[K" if terminal else ""
    if event.kind == "repetition":
        click.echo(f"{clear}{event.count:5d}  {_stretch(event)}  {event.delay:.1f} s")
    elif event.kind == "gap":
        click.echo(f"{clear}       {_stretch(event)}  nothing seen: {event.reason}")
    elif event.kind == "exemplar":
        click.echo(f"{clear}{event.count:5d}  {_stretch(event)}  is the exemplar: counted anew like it")
    elif event.kind == "end":
        dropped = f", {event.dropped} frames dropped: this machine is too slow" if event.dropped else ""
        click.echo(f"{clear}{event.count} repetitions in {event.time:.1f} s{dropped}")
    if terminal and event.kind != "end":
        full = round(event.open * BAR)
        slow = f"  {event.dropped} frames dropped" if event.dropped else ""
        bar = "█" * full + "·" * (BAR - full)
        click.echo(f"{event.count:5d}  {bar}  {event.time:7.1f} s  {event.rate:4.2f} per s{slow}", nl=False)


def _stretch(event: LiveEvent) -> str:
    """Start and end in columns, in seconds."""
    assert event.start is not None and event.end is not None
    return f"{event.start:8.2f} - {f'{event.end:.2f} s':<10}"


def _read_marks(watching: Watch) -> None:
    """Exemplars from the keyboard: Enter at a repetition's start and at its end, or its times."""
    begun: float | None = None
    for line in sys.stdin:
        try:
            if line.strip():
                span = parse_exemplar(line.strip())
                if span.video is not None:
                    raise ExemplarError(f"{line.strip()}: another video's exemplar is given with --exemplar")
                watching.mark(span.start, span.end)
            elif begun is None:
                begun = watching.time
                click.echo(f"exemplar begins at {begun:.2f} s; Enter where it ends", err=True)
            else:
                start, begun = begun, None
                watching.mark(start, watching.time)
        except EscountsError as error:
            click.echo(f"escounts: {error}", err=True)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="VIDEO|FOLDER|ADDRESS...")
@click.option("--out", default="results", show_default=True, metavar="FOLDER|ADDRESS",
              help="Where the Parquet files go.")  # fmt: skip
@click.option("--jobs", type=COUNT, help="Videos at a time (default: one for two cores).")
@click.option("--readers", type=NONE_OR_MORE,
              help="Processes that read ahead of those that count, not --jobs; default on cuda.")  # fmt: skip
@click.option("--nvdec", type=NONE_OR_MORE, default=0,
              help="Readers beside them that decode on an NVIDIA GPU's video engines ([nvdec]).")  # fmt: skip
@click.option("--ray", metavar="ADDRESS", help="Count on a Ray cluster: its address, `auto`, or `local`.")
@click.option("--model", default="default", show_default=True, help="A name of `escounts models`.")
@device_option
@click.option("--exemplar", "exemplars", multiple=True, metavar="VIDEO@START-END",
              help="One repetition to look for in every video.")  # fmt: skip
@click.option("--thorough", is_flag=True, help="More frame rates and time shifts: three times the work.")
@click.option("--assume-repeats", is_flag=True, help="Never answer that there are no repetitions.")
@click.option("--limit", type=SECONDS, default=3600.0, show_default=True,
              help="Seconds that one video may take; then its row is an error.")  # fmt: skip
@click.option("--retry-errors", is_flag=True, help="Count again the videos whose row is an error.")
def batch_command(
    inputs: tuple[str, ...],
    out: str,
    jobs: int | None,
    readers: int | None,
    nvdec: int,
    ray: str | None,
    model: str,
    device: str,
    exemplars: tuple[str, ...],
    thorough: bool,
    assume_repeats: bool,
    limit: float,
    retry_errors: bool,
) -> int:
    """Count thousands of videos: files, folders, or addresses of object storage (s3://bucket/videos).

    \b
    escounts batch videos/                        on this machine
    escounts batch s3://bucket/videos --ray auto  on the Ray cluster that this machine belongs to
    python -c 'import pandas; print(pandas.read_parquet("results"))'

    The results are Parquet files, one row per video: count, confidence, start and end of every repetition, or why it
    could not be counted. Stopped and started again, it goes on where it was; a video that has a row is not counted
    again. To try it out, give one video and --model spectral. Addresses need a driver: s3fs for s3://, gcsfs for
    gs://.

    Exit code 0: all counted; 1: some rows are errors; 2: wrong use.
    """
    for exemplar in exemplars:
        if parse_exemplar(exemplar).video is None:
            raise click.UsageError(f"--exemplar {exemplar}: name its video (ref.mp4@1.0-2.5); it is for all videos")
    if (readers or nvdec) and (jobs or ray):
        name = "--readers stands" if readers else "--nvdec stands"
        raise click.UsageError(f"{name} in the place of --jobs, on this machine; leave out --jobs and --ray")
    catalogue.find(model)  # an unknown name is known before any process starts
    from escounts.batching.batch import batch  # noqa: PLC0415 - the extra [batch]; help needs none of it
    from escounts.batching.tasks import Settings  # noqa: PLC0415 - the extra [batch]; help needs none of it

    settings = Settings(
        model=model,
        device=device,
        exemplars=exemplars,
        thorough=thorough,
        assume_repeats=assume_repeats,
        limit=limit,
    )
    with counting_display("videos") as report:
        table = batch(
            inputs,
            out=out,
            settings=settings,
            jobs=jobs,
            readers=readers,
            nvdec=nvdec,
            ray=ray,
            retry_errors=retry_errors,
            report=report,
        )
    errors = [row for row in table.select(["video", "status", "error"]).to_pylist() if row["status"] == "error"]
    for row in errors[:10]:
        click.echo(f"escounts: {row['error']}", err=True)
    if len(errors) > 10:
        click.echo(f"escounts: … and {len(errors) - 10} more; the column `error` has all of them", err=True)
    click.echo(f"{out}: {len(table)} videos, {len(errors)} of them errors")
    return 1 if errors else 0


@click.command()
@click.option("--quick", is_flag=True, help="Ten seconds of video; only what counting uses. Under a minute.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--video", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Time this one (default: 720p30 that is drawn for it).")  # fmt: skip
@click.option("--rounds", type=COUNT, default=1, show_default=True,
              help="All engines take turns so often; medians are shown.")  # fmt: skip
@click.option("--by-processor", is_flag=True,
              help="Rates per second of processor, not on the wall: where others use the machine, too.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all seconds instead of the table.")
def bench_command(
    quick: bool, device: str, video: Path | None, rounds: int, by_processor: bool, as_json: bool
) -> None:
    """Time every engine that runs here: the default model, baselines and rivals, each in a process of its own.

    Prints a Markdown table: seconds of video per second end to end, of decoding, encoder and decoder alone, and peak
    memory. Without --quick it takes several minutes on a CPU.
    """
    from escounts.benchmarking.table import as_values, bench, markdown  # noqa: PLC0415 - torch: two seconds

    with counting_display("measurements") as report:
        found = bench(video, device=device, quick=quick, rounds=rounds, report=report)
    click.echo(json.dumps(as_values(found)) if as_json else markdown(found, by_processor=by_processor))
