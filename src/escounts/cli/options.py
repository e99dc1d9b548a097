"""What the options of several commands take: numbers, sizes, times, boxes; and the options that they share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from escounts.errors import EscountsError
from escounts.exemplars import parse_time
from escounts.video.regions import region

UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
MOST_BYTES = 2**60


class Number(click.FloatRange):
    """click's range of numbers, but NaN, which is none, lies in no range. One without an upper end takes infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; anything else is wrong use."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a finite number; {self._describe_range()} is taken.", param, ctx)
        return number


def size(least: str = "1") -> Callable[[str], int]:
    """A type of options that takes "500M", "2G" or a plain number of bytes; least: the fewest, written so, too."""

    def parsed(text: str) -> int:
        found = _bytes(text)
        if found is None or not 0 < found <= MOST_BYTES:
            raise click.BadParameter(f"{text[:40]!r} is not a size; write for example 500M or 2G")
        if found < (_bytes(least) or 0):
            raise click.BadParameter(f"{text} is too small to work with; at least {least} is taken")
        return int(found)

    parsed.__name__ = "size"
    return parsed


def _bytes(text: str) -> float | None:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)i?b?\s*", text.lower(), re.ASCII)
    return float(match[1]) * UNITS[match[2]] if match is not None else None


COUNT = click.IntRange(min=1)
NONE_OR_MORE = click.IntRange(min=0)
SEED = click.IntRange(0, 2**31 - 1)
SECONDS = Number(0, 1e9, min_open=True)


def whole_numbers(text: Any) -> tuple[int, ...]:
    """Whole numbers from 0 with commas, as a type of options."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (-1,)
    if min(numbers) < 0:
        raise click.BadParameter(f"{text!r}: whole numbers from 0 with commas are taken, such as 0,1,2")
    return numbers


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


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """One decorator that adds all these options to a command."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return added


PATH = click.Path(path_type=Path)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
    help="auto: a CUDA GPU where there is one. mps (Apple's GPUs) is untested.",
)
model_option = click.option("--model", default="default", show_default=True, help="A name of `escounts models`.")
assume_repeats_option = click.option(
    "--assume-repeats", is_flag=True, help='Count even where the answer would be "no repetitions".'
)
sandbox_option = click.option(
    "--sandbox", is_flag=True, help="Open videos in confined processes (Linux; `escounts doctor` says what that is)."
)
counting_options = together(
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
    model_option,
    device_option,
    assume_repeats_option,
    sandbox_option,
)
"""What every way of counting files takes, under the names that `Counter.count` has for it."""


def check_range(counting: Mapping[str, Any]) -> None:
    """Wrong use where the range ends before it starts."""
    start, end = counting["start"], counting["end"]
    if end is not None and end <= start:
        raise click.UsageError(f"--to {end:g} must come after --from {start:g}")
