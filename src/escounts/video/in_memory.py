"""Videos whose pictures lie in memory: a program's own arrays, and a file's pictures that are read more than once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np

from escounts.errors import VideoError
from escounts.system.arguments import refused
from escounts.system.arrays import Image
from escounts.video.decoding import Probe, RawFrame
from escounts.video.files import Video

HELD_SIDE = 256
"""Pixels of a side at most: a quarter of the picture is then still as large as models look at."""
HELD_BYTES = 256 * 2**20
"""Of a file's pictures that are held; 45 seconds where both sides are the longest."""
NAME = "frames"
"""What results call a video that has no file."""


class PicturesInMemory:
    """A source of frames, like a file. rate: pictures a second; begin: seconds of the first one."""

    def __init__(self, pictures: Sequence[Image], rate: float, *, begin: float = 0.0) -> None:
        self.pictures, self.rate, self.begin = pictures, rate, begin

    def probe(self) -> Probe:
        height, width = self.pictures[0].shape[:2]
        return Probe(width, height, 0, self.rate, len(self.pictures) / self.rate, "memory", complete=False)

    def frames(self, start: float = 0.0) -> Iterator[RawFrame]:
        first = max(0, int((start - self.begin) * self.rate))
        for index in range(first, len(self.pictures)):
            picture = av.VideoFrame.from_ndarray(self.pictures[index], format="rgb24")
            yield RawFrame(self.begin + index / self.rate, 1.0 / self.rate, picture)


class VideoInMemory(Video):
    """A video of arrays: (height, width, 3) RGB or (height, width) grey, uint8.

    Args:
        frames: the arrays, in a list, one array or anything that gives one after another; of larger ones than
            HELD_SIDE a smaller copy is kept.
        fps: frames a second.

    >>> escounts.count(VideoInMemory(array_TxHxWx3, fps=30))
    """

    def __init__(self, frames: Iterable[Any], *, fps: float) -> None:
        if not math.isfinite(fps) or fps <= 0:
            raise refused("fps", fps, "frames a second above 0")
        pictures = [_held(_picture(index, frame)) for index, frame in enumerate(frames)]
        if len(pictures) < 2:
            raise VideoError(f"{len(pictures)} frames; nothing can repeat in fewer than two")
        if len({picture.shape for picture in pictures}) > 1:
            raise VideoError("the frames are of several sizes; all of a video have one")
        self.path = Path(NAME)
        self._max_duration = self._threads = None
        self._use(PicturesInMemory(pictures, fps))


def held_in_memory(video: Video, rate: float, start: float, end: float | None) -> Video | None:
    """The stretch of a video, read once at `rate` and kept small, to be read again and again; None where it takes
    more than HELD_BYTES. Times and `info.path` stay; its whole picture is what was looked at of the video."""
    size = min(video.info.width, HELD_SIDE), min(video.info.height, HELD_SIDE)
    room, pictures = HELD_BYTES, list[Image]()
    for frame in video.frames(size=size, start=start, end=end, rate=rate):
        if not pictures or frame.image is not pictures[-1]:
            room -= frame.image.nbytes
        if room < 0:
            return None
        pictures.append(frame.image)
    if len(pictures) < 2:
        return None
    held = VideoInMemory(pictures[:2], fps=rate)
    held._use(PicturesInMemory(pictures, rate, begin=start))
    held.path = video.path
    held.info = replace(held.info, path=video.info.path, duration=video.info.duration, fps=video.info.fps)
    return held


def _picture(index: int, frame: Any) -> Image:
    array = np.asarray(frame)
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
        raise VideoError(
            f"frame {index} is {array.dtype} of shape {array.shape}; it takes uint8 of (height, width, 3), RGB, or "
            "(height, width)"
        )
    return np.ascontiguousarray(array if array.ndim == 3 else np.repeat(array[..., None], 3, axis=2))


def _held(picture: Image) -> Image:
    """A copy, no larger than is looked at: the caller may use its array for the next frame."""
    height, width = picture.shape[:2]
    if max(height, width) <= HELD_SIDE:
        return picture.copy()
    scale = HELD_SIDE / max(height, width)
    small = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
        width=max(2, round(width * scale)), height=max(2, round(height * scale)), interpolation="AREA"
    )
    return np.asarray(small.to_ndarray(format="rgb24"), np.uint8)
