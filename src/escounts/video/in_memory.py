"""Videos whose pictures lie in memory: a program's own arrays, and a file's pictures that are read more than once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from escounts.errors import VideoError
from escounts.system.arguments import positive
from escounts.system.arrays import Image
from escounts.video.decoding import Probe, RawFrame, ReadyPicture
from escounts.video.files import Video, has_alpha, sampled

HELD_SIDE = 256
"""Pixels of a side at most: a quarter of the picture is then still as large as models look at."""
HELD_BYTES = 256 * 2**20
"""Of a file's pictures that are held; 45 seconds where both sides are the longest."""
NAME = "frames"
"""What results call a video that has no file."""


class PicturesInMemory:
    """A source of frames, like a file. pictures: as FFmpeg has them, or ready. rate: pictures a second; begin:
    seconds of the first one; rotation: degrees to the left that turn them upright."""

    def __init__(self, pictures: Sequence[Any], rate: float, *, begin: float = 0.0, rotation: int = 0) -> None:
        self.pictures, self.rate, self.begin, self.rotation = pictures, rate, begin, rotation

    def probe(self) -> Probe:
        first, seconds = self.pictures[0], len(self.pictures) / self.rate
        ready = isinstance(first, ReadyPicture)
        height, width = first.image.shape[:2] if ready else (first.height, first.width)
        return Probe(width, height, self.rotation, self.rate, seconds, "memory", complete=False)

    def frames(self, start: float = 0.0) -> Iterator[RawFrame]:
        first = max(0, int((start - self.begin) * self.rate))
        for index in range(first, len(self.pictures)):
            yield RawFrame(self.begin + index / self.rate, 1.0 / self.rate, self.pictures[index])


class VideoInMemory(Video):
    """A video of arrays: (height, width, 3) RGB or (height, width) grey, uint8.

    Args:
        frames: the arrays, in a list, one array or anything that gives one after another; of larger ones than
            HELD_SIDE a smaller copy is kept.
        fps: frames a second.

    >>> escounts.count(VideoInMemory(array_TxHxWx3, fps=30))
    """

    def __init__(self, frames: Iterable[Any], *, fps: float) -> None:
        fps = positive("fps", fps, "frames a second above 0")
        pictures = [_held(_picture(index, frame)) for index, frame in enumerate(frames)]
        if len(pictures) < 2:
            raise VideoError(f"{len(pictures)} frames; nothing can repeat in fewer than two")
        if len({(picture.width, picture.height) for picture in pictures}) > 1:
            raise VideoError("the frames are of several sizes; all of a video have one")
        self._hold(PicturesInMemory(pictures, fps))

    @classmethod
    def of(cls, source: PicturesInMemory) -> VideoInMemory:
        """A video of pictures as FFmpeg has them."""
        video = cls.__new__(cls)
        video._hold(source)
        return video

    def _hold(self, source: PicturesInMemory) -> None:
        self.path = Path(NAME)
        self._max_duration = self._threads = self._state = None
        self._use(source)


def held_in_memory(video: Video, rate: float, start: float, end: float | None) -> Video | None:
    """The stretch of a video, read once at `rate` and kept small, to be read again and again; None where it takes
    more than HELD_BYTES. Times and `info.path` stay; its whole picture is what was looked at of the video."""
    info = video.info
    wide, high = min(info.width, HELD_SIDE), min(info.height, HELD_SIDE)
    across, down = (high, wide) if info.rotation in (90, 270) else (wide, high)
    crop, reformatter = video.crop(), VideoReformatter()

    def shrink(picture: Any) -> Any:
        """In the pixel format that takes least room."""
        if isinstance(picture, ReadyPicture):
            return picture
        picture = picture if crop is None else crop(picture)
        kind = "rgba" if has_alpha(picture.format) else "yuv420p"
        return reformatter.reformat(picture, across, down, format=kind, interpolation=Interpolation.AREA)

    room, pictures = HELD_BYTES, list[Any]()
    for frame in sampled(video.raw_frames(start, end), shrink, start, end, rate):
        if not pictures or frame.image is not pictures[-1]:
            room -= wide * high * 3 // 2
        if room < 0 or isinstance(frame.image, ReadyPicture):
            return None
        pictures.append(frame.image)
    if not pictures:
        return None
    held = VideoInMemory.of(PicturesInMemory(pictures, rate, begin=start, rotation=info.rotation))
    held.path = video.path
    held.info = replace(held.info, path=info.path, duration=info.duration, fps=info.fps)
    return held


def _picture(index: int, frame: Any) -> Image:
    array = np.asarray(frame)
    if (
        array.dtype != np.uint8
        or not array.size
        or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3))
    ):
        raise VideoError(
            f"frame {index} is {array.dtype} of shape {array.shape}; it takes uint8 of (height, width, 3), RGB, or "
            "(height, width)"
        )
    return np.ascontiguousarray(array if array.ndim == 3 else np.repeat(array[..., None], 3, axis=2))


def _held(picture: Image) -> Any:
    """A copy, no larger than is looked at: the caller may use its array for the next frame."""
    height, width = picture.shape[:2]
    scale = min(1.0, HELD_SIDE / max(height, width))
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
    if scale == 1.0:
        return frame
    return frame.reformat(max(2, round(width * scale)), max(2, round(height * scale)), interpolation="AREA")
