"""Options that say what of a video is counted, and in which unit: `--from`, `--to`, `--region`, `--unit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click

from escounts.errors import EscountsError
from escounts.exemplars import parse_time
from escounts.video.regions import region


def _seconds(value: Any) -> float:
    """A time as people write it and as the output prints it: 5, 0:05.0, 1:02:03."""
    try:
        seconds = parse_time(str(value))
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise click.BadParameter(
            f"{value!r} is not a time; write seconds (5 or 5.5), m:s (0:05.5) or h:m:s (1:02:03)"
        )
    return seconds


def _region(value: str) -> str:
    """A box of the picture, in one spelling."""
    try:
        return str(region("region", value))
    except EscountsError as error:
        raise click.BadParameter(str(error)) from error


_OPTIONS = (
    click.option(
        "--from",
        "start",
        type=_seconds,
        metavar="TIME",
        default=0.0,
        help="Count from this time on: 5, 0:05 or 1:02:03.",
    ),
    click.option("--to", "end", type=_seconds, metavar="TIME", help="Count up to this time."),
    click.option(
        "--region",
        type=_region,
        metavar="X,Y,W,H",
        help="Look at this box of the picture alone, from its left upper corner: in pixels (40,30,320,200) or in "
        "percent (25%,0%,50%,100%).",
    ),
    click.option(
        "--unit",
        type=click.Choice(["auto", "cycle", "side"]),
        default="auto",
        show_default=True,
        help="Of a motion that alternates (left, right): count full cycles or single sides.",
    ),
)


def stretch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, under the names that `Counter.count` has for them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_range(counting: Mapping[str, Any]) -> None:
    """Wrong use where the range ends before it starts."""
    start, end = counting["start"], counting["end"]
    if end is not None and end <= start:
        raise click.UsageError(f"--to {end:g} must come after --from {start:g}")
