"""Numbers that options take: finite, within bounds, and sizes in bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import click

UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
MOST_BYTES = 2**60


class Number(click.FloatRange):
    """A number that is no NaN and, unless `infinite`, finite.

    Args:
        least: the smallest that is taken.
        most: the largest that is taken.
        above: taken is only what is larger, instead of `least`.
        below: taken is only what is smaller, instead of `most`.
        infinite: whether "inf" is taken, too.
    """

    def __init__(
        self,
        least: float | None = None,
        most: float | None = None,
        *,
        above: float | None = None,
        below: float | None = None,
        infinite: bool = False,
    ) -> None:
        super().__init__(
            above if least is None else least,
            below if most is None else most,
            min_open=least is None and above is not None,
            max_open=most is None and below is not None,
        )
        self.infinite = infinite

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; anything else is wrong use."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
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
SECONDS = Number(above=0, most=1e9)


def whole_numbers(text: Any) -> tuple[int, ...]:
    """Whole numbers from 0 with commas, as a type of options."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (-1,)
    if min(numbers) < 0:
        raise click.BadParameter(f"{text!r}: whole numbers from 0 with commas are taken, such as 0,1,2")
    return numbers
