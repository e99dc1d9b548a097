"""A copy of a video that browsers play, for those whose container or codec they do not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from escounts.errors import OutputError
from escounts.movie_files import write_movie, writes_h264
from escounts.video import Video

LONGEST_SIDE = 640
HIGHEST_RATE = 30.0
MOST_FRAMES = 54_000
"""Half an hour at the highest rate. Longer videos get fewer frames per second: what a file of a few kilobytes may
claim to last must not keep a worker for as long."""


def preview_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of the copy: at most LONGEST_SIDE, both even as the codec wants them."""
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    return even_size(width * scale, height * scale)


def even_size(width: float, height: float) -> tuple[int, int]:
    """The nearest width and height that are even and not 0, as codecs with halved colours want them."""
    return max(2, round(width / 2) * 2), max(2, round(height / 2) * 2)


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
