"""Boxes of the picture: read as people write them (`40,30,320,200`, `25%,0%,50%,100%`), and cut out of frames."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av.error
from av import VideoFormat
from av.filter import Graph

from escounts.errors import EscountsError, VideoError
from escounts.system.arguments import items, number, refused

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
        parts = items(value) or []
        if len(parts) != 4:
            raise refused(name, value, TAKES)
        x, y, width, height = (number(name, part, TAKES) for part in parts)
    found = Region(x, y, width, height, percent=isinstance(value, str) and "%" in value)
    outside = found.percent and max(found.x + found.width, found.y + found.height) > 100.0 + 1e-6
    if min(found.x, found.y) < 0 or min(found.width, found.height) <= 0 or outside:
        raise refused(name, value, TAKES + ", inside the picture")
    return found


def coded_box(box: Box, upright: tuple[int, int], rotation: int) -> Box:
    """A box of the upright picture, of that (width, height), as it lies in the coded one.

    rotation: degrees to the left that turn the coded picture upright, a multiple of 90.
    """
    left, top, width, height = box
    right, bottom = upright[0] - left - width, upright[1] - top - height
    return {
        0: (left, top, width, height),
        90: (bottom, left, height, width),
        180: (right, bottom, width, height),
        270: (top, right, height, width),
    }[rotation]


Crop = Callable[[Any], Any]
"""From a decoded picture to what is looked at of it."""


def cropper(box: Box, size: tuple[int, int]) -> Crop:
    """Cuts one box out of pictures by FFmpeg's filter, which moves pointers and copies nothing.

    box: of coded pictures of that (width, height). Its left upper corner moves by less than two pixels where colour
    is kept at half the size. A picture of another size, as streams may change to, is cut at the same place of it.
    """
    graphs: dict[tuple[int, int, str], Any] = {}

    def crop(picture: Any) -> Any:
        kind = (picture.width, picture.height, picture.format.name)
        try:
            if kind not in graphs:
                graphs.clear()
                graphs[kind] = _crop_filter(box, size, *kind)
            graphs[kind].push(picture)
            return graphs[kind].pull()
        except (av.error.FFmpegError, ValueError) as error:
            raise VideoError(f"no box can be cut out of a frame in {picture.format.name}: {error}") from error

    return crop


def _crop_filter(box: Box, size: tuple[int, int], width: int, height: int, pixels: str) -> Any:
    across, down = width / size[0], height / size[1]
    left, top, wide, high = box
    values = (round(wide * across), round(high * down), round(left * across), round(top * down))
    graph = Graph()
    # The clock is of no concern: frames keep their own.
    clock = Fraction(1, 1_000_000)
    source = graph.add_buffer(width=width, height=height, format=VideoFormat(pixels), time_base=clock)
    crop = graph.add("crop", ":".join(str(value) for value in values))
    sink = graph.add("buffersink")
    source.link_to(crop)
    crop.link_to(sink)
    graph.configure()
    return graph
