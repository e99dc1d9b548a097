"""A box of a decoded picture, still in the codec's pixel format: nothing outside it is scaled or converted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av.error
from av import VideoFormat
from av.filter import Graph

from escounts.errors import VideoError
from escounts.regions import Box


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


class Cropper:
    """Cuts one box out of pictures by FFmpeg's filter, which moves pointers and copies nothing.

    box: of coded pictures of that (width, height). Its left upper corner moves by less than two pixels where colour
    is kept at half the size. A picture of another size, as streams may change to, is cut at the same place of it.
    """

    def __init__(self, box: Box, size: tuple[int, int]) -> None:
        self._box, self._size = box, size
        self._kind: tuple[int, int, str] | None = None
        self._graph: Any = None

    def __call__(self, picture: Any) -> Any:
        kind = (picture.width, picture.height, picture.format.name)
        try:
            if kind != self._kind:
                self._graph, self._kind = self._filter(*kind), kind
            self._graph.push(picture)
            return self._graph.pull()
        except (av.error.FFmpegError, ValueError) as error:
            raise VideoError(f"no box can be cut out of a frame in {picture.format.name}: {error}") from error

    def _filter(self, width: int, height: int, pixels: str) -> Any:
        across, down = width / self._size[0], height / self._size[1]
        left, top, wide, high = self._box
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
