"""Pictures to a video file: H.264 (or else MPEG-4) in an mp4 that starts before it is wholly loaded."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from escounts.atomic_files import atomic_file


def writes_h264() -> bool:
    """Whether this FFmpeg encodes H.264, which browsers play; they do not play the MPEG-4 written without it."""
    import av

    return "libx264" in av.codecs_available


def write_movie(
    path: Path,
    images: Iterable[npt.NDArray[np.uint8]],
    *,
    size: tuple[int, int],
    rate: Fraction,
    options: dict[str, str],
) -> None:
    """Write RGB images (height, width, 3) as a video, whole or not at all.

    size: (width, height), both even. rate: images a second. options: of the encoder libx264 (crf, preset …);
    where FFmpeg was built without it (see writes_h264), MPEG-4 is written at its own settings: players show it,
    browsers do not.
    """
    import av
    import av.error

    codec = "libx264" if writes_h264() else "mpeg4"
    with atomic_file(path) as partial:
        try:
            with av.open(str(partial), "w", format="mp4", options={"movflags": "+faststart"}) as container:
                stream: Any = container.add_stream(codec, rate=rate, options=options if codec == "libx264" else {})
                stream.width, stream.height = size
                stream.pix_fmt = "yuv420p"
                for image in images:
                    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
                    container.mux(stream.encode(frame))
                container.mux(stream.encode(None))
        except av.error.FFmpegError as error:
            raise OSError(error.errno, error.strerror) from error
