"""What the page shows of a video: a copy that browsers play, and small pictures, one for the library and a
strip of them for the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from escounts.errors import OutputError, VideoError
from escounts.output.mp4 import even_size, write_movie, writes_h264
from escounts.output.png import jpeg
from escounts.system.arrays import Image
from escounts.system.atomic_files import write_bytes
from escounts.video.files import Video

LONGEST_SIDE = 640
HIGHEST_RATE = 30.0
MOST_FRAMES = 54_000
"""Half an hour at the highest rate. Longer videos get fewer frames per second: what a file of a few kilobytes may
claim to last must not keep a worker for as long."""


def preview_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of the copy: at most LONGEST_SIDE, both even as the codec wants them."""
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    return even_size(width * scale, height * scale)


def preview_rate(fps: float, duration: float) -> Fraction:
    """Frames per second of the copy: the video's own within HIGHEST_RATE and MOST_FRAMES in all."""
    return Fraction(min(fps, HIGHEST_RATE, MOST_FRAMES / max(duration, 1.0))).limit_denominator(1001)


def write_preview(video: Video, target: Path) -> None:
    """Write the video as H.264 in mp4 at a constant rate, so that seconds stay seconds. Whole or not at all.

    Raises OutputError where FFmpeg has no H.264: a copy that browsers do not play either would help nobody.
    """
    if not writes_h264():
        raise OutputError(
            "the server's FFmpeg has no H.264 encoder (libx264), and browsers play nothing else it writes"
        )
    info = video.info
    rate = preview_rate(info.fps, info.duration)
    size = preview_size(info.width, info.height)
    images = (frame.image for frame in video.frames(size=size, rate=float(rate)))
    # a key frame a second: seeking lands within it
    options = {"crf": "26", "preset": "ultrafast", "g": str(max(round(float(rate)), 1))}
    try:
        write_movie(target, images, size=size, rate=rate, options=options)
    except OutputError as error:
        raise OutputError("no preview could be written; the disk may be full") from error


STRIP_PICTURES = 60
STRIP_HEIGHT = 60
THUMBNAIL_HEIGHT = 96
WIDEST = 2.4
"""Width over height of a picture, at most; wider videos are squeezed to that."""
SEEK_SECONDS = 120.0
"""Longer videos are looked into here and there instead of being read from end to end."""
QUALITY = 5
"""Of the JPEG encoder: 2 is best, 31 worst."""


def write_thumbnail(video: Video, target: Path) -> None:
    """One JPEG, THUMBNAIL_HEIGHT high: the picture in the middle of the video."""
    write_bytes(target, _jpeg(_pictures(video, 1, THUMBNAIL_HEIGHT)[0]))


def write_filmstrip(video: Video, target: Path) -> None:
    """One JPEG of STRIP_PICTURES pictures side by side, each from the middle of its part of the video."""
    write_bytes(target, _jpeg(np.concatenate(_pictures(video, STRIP_PICTURES, STRIP_HEIGHT), axis=1)))


def _pictures(video: Video, number: int, height: int) -> list[Image]:
    """`number` pictures in order, all of one size; where the video breaks off, its last one again."""
    info = video.info
    size = even_size(min(info.width / info.height, WIDEST) * height, height)
    duration = max(info.duration, 1 / info.fps)
    pictures: list[Image] = []
    try:
        for image in _sampled(video, number, size, duration):
            pictures.append(image)
            if len(pictures) == number:
                break
    except VideoError:
        if not pictures:
            raise
    if not pictures:
        raise VideoError(f"{video.path}: no picture could be read")
    return pictures + [pictures[-1]] * (number - len(pictures))


def _sampled(video: Video, number: int, size: tuple[int, int], duration: float) -> Iterator[Image]:
    if number > 1 and duration <= SEEK_SECONDS:
        yield from (frame.image for frame in video.frames(size=size, rate=number / duration))
        return
    for index in range(number):
        frame = next(video.frames(size=size, start=(index + 0.5) * duration / number), None)
        if frame is None:
            return
        yield frame.image


def _jpeg(image: Image) -> bytes:
    """height x width x 3, uint8, RGB, both even → a JPEG file."""
    try:
        return jpeg(image, {"qmin": str(QUALITY), "qmax": str(QUALITY)})
    except av.error.FFmpegError as error:
        raise OutputError(f"the picture could not be written as JPEG: {error}") from error
