"""Pictures to a video file: H.264 (or else MPEG-4) in an mp4 that starts before it is wholly loaded."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from escounts.arrays import Image
from escounts.atomic_files import atomic_file

TRIED_PACKETS = 8
"""Packets of sound that are written for trial, to find out whether an mp4 takes them."""


class Sound(NamedTuple):
    """The sound of a video file between two times, in seconds from its first frame."""

    video: Path
    start: float
    end: float


def writes_h264() -> bool:
    """Whether this FFmpeg encodes H.264, which browsers play; they do not play the MPEG-4 written without it."""
    import av  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    return "libx264" in av.codecs_available


def write_movie(
    path: Path,
    images: Iterable[Image],
    *,
    size: tuple[int, int],
    rate: Fraction,
    options: dict[str, str],
    sound: Sound | None = None,
) -> None:
    """Write RGB images (height, width, 3) as a video, whole or not at all.

    size: (width, height), both even. rate: images per second. options: of the encoder libx264 (crf, preset …);
    where FFmpeg was built without it (see writes_h264), MPEG-4 is written at its own settings: players show it,
    browsers do not. sound: copied beside the pictures, packet by packet, where an mp4 takes its codec.
    """
    import av  # noqa: PLC0415 - PyAV: a machine that only trains need not have it
    import av.error  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    codec = "libx264" if writes_h264() else "mpeg4"
    with atomic_file(path) as partial, ExitStack() as opened:
        try:
            source = _source_of(sound, opened)
            with av.open(str(partial), "w", format="mp4", options={"movflags": "+faststart"}) as container:
                stream: Any = container.add_stream(codec, rate=rate, options=options if codec == "libx264" else {})
                stream.width, stream.height = size
                stream.pix_fmt = "yuv420p"
                packets = _copied(source, sound, container) if source is not None and sound is not None else None
                waiting = next(packets, None) if packets is not None else None
                for index, image in enumerate(images):
                    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
                    container.mux(stream.encode(frame))
                    while packets is not None and waiting is not None and _seconds(waiting) <= index / rate:
                        container.mux(waiting)
                        waiting = next(packets, None)
                container.mux(stream.encode(None))
                if packets is not None and waiting is not None:
                    container.mux([waiting, *packets])
        except av.error.FFmpegError as error:
            raise OSError(error.errno, error.strerror) from error


def _source_of(sound: Sound | None, opened: ExitStack) -> Any | None:
    """The opened file whose sound can be copied into an mp4; None without sound, or where an mp4 does not take it."""
    import av  # noqa: PLC0415 - PyAV: a machine that only trains need not have it
    import av.error  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    from escounts.decoding import OPEN_OPTIONS  # noqa: PLC0415 - PyAV, too

    if sound is None:
        return None
    try:
        for trial in (True, False):  # the first packets say whether it works, into a file that nobody keeps
            source = opened.enter_context(av.open(f"file:{sound.video}", options=OPEN_OPTIONS))
            if not source.streams.audio:
                return None
            if trial:
                with av.open(io.BytesIO(), "w", format="mp4") as target:
                    target.mux(list(islice(_copied(source, sound, target), TRIED_PACKETS)))
    except (av.error.FFmpegError, ValueError):
        return None  # the picture can be shown all the same
    return source


def _copied(source: Any, sound: Sound, target: Any) -> Iterator[Any]:
    """Packets of the first audio stream inside the stretch, with times from its start, for a stream of `target`."""
    audio = source.streams.audio[0]
    copy = target.add_stream_from_template(audio)
    pictures = source.streams.video[0] if source.streams.video else audio
    origin = float((pictures.start_time or 0) * pictures.time_base)
    return _packets(source, audio, copy, origin + sound.start, origin + sound.end)


def _packets(source: Any, audio: Any, copy: Any, first: float, last: float) -> Iterator[Any]:
    import av.error  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    from escounts.decoding import stream_packets  # noqa: PLC0415 - PyAV, too

    shift = round(first / audio.time_base)
    written = None
    try:
        if first > 1.0:
            source.seek(shift, stream=audio)
        for packet in stream_packets(source, audio):
            stamped = packet.size > 0 and packet.pts is not None and packet.dts is not None
            if not stamped or _seconds(packet) < first or (written is not None and packet.dts <= written):
                continue
            if _seconds(packet) >= last:
                return
            written = packet.dts
            packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
            packet.stream = copy
            yield packet
    except av.error.FFmpegError:
        return  # damaged from here on: the sound ends, the picture goes on


def _seconds(packet: Any) -> float:
    return float(packet.pts * packet.time_base)
