"""A copy of a video that browsers play, for those whose container or codec they do not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from escounts.errors import OutputError
from escounts.video import Video
from escounts.whole_files import whole_file

LONGEST_SIDE = 640
HIGHEST_RATE = 30.0


def preview_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of the copy: at most LONGEST_SIDE, both even as the codec wants them."""
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    return max(2, round(width * scale / 2) * 2), max(2, round(height * scale / 2) * 2)


def write_preview(source: Path, target: Path) -> None:
    """Write the video as H.264 in mp4 at a constant rate, so that seconds stay seconds. Whole or not at all."""
    video = Video(source)
    info = video.info
    rate = Fraction(min(info.fps, HIGHEST_RATE)).limit_denominator(1001)
    size = preview_size(info.width, info.height)
    try:
        _encode(video, target, rate, size)
    except OutputError as error:
        raise OutputError("no preview could be written; the disk may be full") from error


def _encode(video: Video, target: Path, rate: Fraction, size: tuple[int, int]) -> None:
    import av

    with (
        whole_file(target) as partial,
        av.open(str(partial), "w", format="mp4", options={"movflags": "faststart"}) as container,
    ):
        stream = container.add_stream("libx264", rate=rate, options={"crf": "26", "preset": "ultrafast"})
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = max(round(float(rate)), 1)  # seeking lands within a second
        for number, frame in enumerate(video.frames(size=size, rate=float(rate))):
            picture = av.VideoFrame.from_ndarray(frame.image, format="rgb24")
            picture.pts = number
            picture.time_base = 1 / rate
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
