"""`escounts batch`: thousands of videos, one Parquet row each."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

import escounts
from escounts.batching.tasks import Settings
from escounts.cli.display import work_display
from escounts.cli.options import COUNT, NONE_OR_MORE, SECONDS, check_range, counting_options
from escounts.exemplars import parse_exemplar
from escounts.models import catalogue


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
@click.option("--exemplar", "exemplars", multiple=True, metavar="VIDEO@START-END",
              help="One repetition to look for in every video.")  # fmt: skip
@counting_options
@click.option("--limit", type=SECONDS, default=3600.0, show_default=True,
              help="Seconds that one video may take; then its row is an error.")  # fmt: skip
@click.option("--retry-errors", is_flag=True, help="Count again the videos whose row is an error.")
def batch_command(
    inputs: tuple[str, ...],
    out: str,
    **options: Any,
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
    counting = {field.name: options.pop(field.name) for field in fields(Settings)}
    check_range(counting)
    for exemplar in counting["exemplars"]:
        if parse_exemplar(exemplar).video is None:
            raise click.UsageError(f"--exemplar {exemplar}: name its video (ref.mp4@1.0-2.5); it is for all videos")
    if (options["readers"] or options["nvdec"]) and (options["jobs"] or options["ray"]):
        name = "--readers stands" if options["readers"] else "--nvdec stands"
        raise click.UsageError(f"{name} in the place of --jobs, on this machine; leave out --jobs and --ray")
    catalogue.find(counting["model"])  # an unknown name is known before any process starts
    with work_display() as (report, _):
        table = escounts.batch(inputs, out=out, settings=Settings(**counting), report=report, **options)
    rows = table.select(["video", "status", "count", "unsure", "error"]).to_pylist()
    errors = [row for row in rows if row["status"] == "error"]
    for row in errors[:10]:
        click.echo(f"escounts: {row['error']}", err=True)
    if len(errors) > 10:
        click.echo(f"escounts: … and {len(errors) - 10} more; the column `error` has all of them", err=True)
    counted = [row for row in rows if row["status"] == "counted"]
    total, none = sum(row["count"] for row in counted), sum(row["count"] == 0 for row in counted)
    unsure = sum(row["unsure"] for row in counted)
    click.echo(
        f"{out}: {len(rows)} videos, {len(errors)} of them errors; {total} repetitions in {len(counted) - none} "
        f"videos, none in {none}; {unsure} unsure"
    )
    return 1 if errors else 0
