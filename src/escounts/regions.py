"""Boxes in the picture as people write them: `40,30,320,200` in pixels, `25%,0%,50%,100%` of the picture."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from escounts.errors import EscountsError
from escounts.system.arguments import number, refused

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels of the upright picture."""
TAKES = "x,y,width,height in pixels (40,30,320,200) or in percent of the picture (25%,0%,50%,100%)"
SMALLEST = 16
"""Pixels of a side: in less, hardly a motion is seen."""
_NUMBER = r"\s*(\d*\.?\d+)\s*"
_PIXELS = re.compile(",".join([_NUMBER] * 4))
_PERCENT = re.compile(",".join([_NUMBER + r"%\s*"] * 4))


@dataclass(frozen=True)
class Region:
    """A box of the upright picture, from its left upper corner; in pixels, or in percent of width and height."""

    x: float
    y: float
    width: float
    height: float
    percent: bool = False

    def __str__(self) -> str:
        """As it is written on the command line."""
        sign = "%" if self.percent else ""
        return ",".join(f"{value:g}{sign}" for value in (self.x, self.y, self.width, self.height))

    def box(self, width: int, height: int) -> Box:
        """In whole pixels of a picture of that size; EscountsError where it does not lie inside."""
        across, down = (width / 100, height / 100) if self.percent else (1.0, 1.0)
        left, right = round(self.x * across), round((self.x + self.width) * across)
        top, bottom = round(self.y * down), round((self.y + self.height) * down)
        if right > width or bottom > height:
            raise EscountsError(f"region {self} does not lie in the picture, which is {width}x{height} pixels")
        if min(right - left, bottom - top) < SMALLEST:
            raise EscountsError(
                f"region {self} is {right - left}x{bottom - top} of {width}x{height} pixels; it takes a box of "
                f"{SMALLEST}x{SMALLEST} or more"
            )
        return left, top, right - left, bottom - top


def region(name: str, value: Any) -> Region:
    """A check for `checked`: text as above, a Region, or four numbers (pixels)."""
    if isinstance(value, Region):
        return value
    if isinstance(value, str):
        match = _PIXELS.fullmatch(value) or _PERCENT.fullmatch(value)
        if match is None:
            raise refused(name, value, TAKES)
        x, y, width, height = (float(part) for part in match.groups())
    else:
        parts = list(value) if isinstance(value, Iterable) else []
        if len(parts) != 4:
            raise refused(name, value, TAKES)
        x, y, width, height = (number(name, part, TAKES) for part in parts)
    found = Region(x, y, width, height, percent=isinstance(value, str) and "%" in value)
    outside = found.percent and max(found.x + found.width, found.y + found.height) > 100.0 + 1e-6
    if min(found.x, found.y) < 0 or min(found.width, found.height) <= 0 or outside:
        raise refused(name, value, TAKES + ", inside the picture")
    return found
