"""Frames of a video at given times, and JPEG bytes of an image: what plots and reports show."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from escounts.arrays import Image
from escounts.results import CountResult
from escounts.video import Video


def telling_times(result: CountResult, most: int = 8) -> list[float]:
    """The middle of up to `most` repetitions, evenly chosen; evenly spread times where there are no repetitions."""
    middles = [(repetition.start + repetition.end) / 2 for repetition in result.repetitions]
    if not middles:
        first, last = result.range
        middles = [float(time) for time in np.linspace(first, last, most + 2)[1:-1]]
    if len(middles) <= most:
        return middles
    return [middles[index] for index in np.linspace(0, len(middles) - 1, most).round().astype(int)]


def frames_at(path: Path, times: Sequence[float], *, height: int) -> list[Image]:
    """The frame on screen at each time (seconds), `height` pixels high, RGB; past the end, the last one."""
    video = Video(path)
    width = max(2, round(video.info.width * height / video.info.height))
    found: list[Image] = []
    for time in times:
        start = min(max(time, 0.0), max(video.info.duration - 2.0 / video.info.fps, 0.0))
        frame = next(iter(video.frames(size=(width, height), start=start, rate=2 * video.info.fps)), None)
        if frame is not None:
            found.append(frame.image)
        elif found:
            found.append(found[-1])
    return found


def jpeg(image: Image) -> bytes:
    """A height x width x 3 uint8 RGB image as JPEG."""
    height, width = image.shape[:2]
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    encoder.options = {"qscale": "4"}
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24").reformat(format="yuvj420p")
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)
