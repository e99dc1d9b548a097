"""A copy of a video that browsers play, for those whose container or codec they do not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from escounts.errors import OutputError
from escounts.movie_files import write_movie, writes_h264
from escounts.video import Video

LONGEST_SIDE = 640
HIGHEST_RATE = 30.0


def preview_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of the copy: at most LONGEST_SIDE, both even as the codec wants them."""
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    return even_size(width * scale, height * scale)


def even_size(width: float, height: float) -> tuple[int, int]:
    """The nearest width and height that are even and not 0, as codecs with halved colours want them."""
    return max(2, round(width / 2) * 2), max(2, round(height / 2) * 2)


def write_preview(source: Path, target: Path) -> None:
    """Write the video as H.264 in mp4 at a constant rate, so that seconds stay seconds. Whole or not at all.

    Raises OutputError where FFmpeg has no H.264: a copy that browsers do not play either would help nobody.
    """
    if not writes_h264():
        raise OutputError(
            "the server's FFmpeg has no H.264 encoder (libx264), and browsers play nothing else it writes"
        )
    video = Video(source)
    info = video.info
    rate = Fraction(min(info.fps, HIGHEST_RATE)).limit_denominator(1001)
    size = preview_size(info.width, info.height)
    images = (frame.image for frame in video.frames(size=size, rate=float(rate)))
    # a key frame a second: seeking lands within it
    options = {"crf": "26", "preset": "ultrafast", "g": str(max(round(float(rate)), 1))}
    try:
        write_movie(target, images, size=size, rate=rate, options=options)
    except OutputError as error:
        raise OutputError("no preview could be written; the disk may be full") from error
