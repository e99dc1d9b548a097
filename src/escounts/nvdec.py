"""Frames decoded by the video engines of an NVIDIA GPU (NVDEC), through FFmpeg's cuvid decoders, which PyAV brings.

The engine halves a picture on its way (0.7 levels of 255 off in the end, on an H200); more than that it would do by
leaving pixels out (5.5 levels at a tenth), so that the rest is the processor's, as ever. What the engine does not
take, the processor decodes. On the one GPU that it was tried on it was slower than the processor: docs/speed.md.
"""

from __future__ import annotations

import copy
import ctypes
import logging
from collections.abc import Iterator
from typing import Any

import av
import av.error

from escounts.decoding import FileSource, RawFrame, pictures
from escounts.errors import VideoError

DECODERS = {"h264": "h264_cuvid", "hevc": "hevc_cuvid", "vp9": "vp9_cuvid", "av1": "av1_cuvid"}
"""Codec → FFmpeg's name of the decoder that uses the engine."""
LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1")
"""Of NVIDIA's driver; containers often have the first alone."""

log = logging.getLogger(__name__)


def missing() -> str:
    """Why this machine cannot decode with NVDEC; empty where it can, as far as its libraries say."""
    for library in LIBRARIES:
        try:
            ctypes.CDLL(library)
        except OSError:
            return (
                f"{library} of NVIDIA's driver is not here; a container needs the capability `video` "
                "(NVIDIA_DRIVER_CAPABILITIES=compute,utility,video)"
            )
    if not set(DECODERS.values()) <= av.codecs_available:
        return f"FFmpeg in PyAV {av.__version__} was built without it; install PyAV's own wheel"
    return ""


class NvdecSource(FileSource):
    """A file that the GPU decodes; where it cannot, one line of the log says so and the processor does it."""

    _target: tuple[int, int] | None = None

    def shrinking_to(self, size: tuple[int, int]) -> NvdecSource:
        """The same file for who wants pictures of (width, height) as coded: they may come nearer to that size."""
        source = copy.copy(self)
        source._target = size
        return source

    def _decode(self, seek_to: float | None) -> Iterator[RawFrame]:
        last, reason = -1.0, "it gave no picture"
        try:
            for frame in super()._decode(seek_to):
                last = frame.time
                yield frame
            if last >= 0:
                return
        except VideoError as error:
            reason = str(error).removeprefix(f"{self.path}: ")
        log.warning("%s: NVDEC does not take it (%s): decoded by the processor", self.path, reason)
        for frame in self._by_processor()._decode(seek_to):
            if frame.time > last:
                yield frame

    def _by_processor(self) -> FileSource:
        source = FileSource(self.path, threads=self.threads)
        vars(source).update(vars(self))
        return source

    def _pictures(self, container: Any, stream: Any) -> Iterator[Any]:
        codec = stream.codec_context
        name = codec.codec.canonical_name  # `codec.name` is its decoder's: libdav1d of AV1
        if name not in DECODERS:
            raise VideoError(f"no decoder for {name}; it has {', '.join(DECODERS)}")
        if not self._timed:
            raise VideoError("the file has no times")
        decoder = engine(DECODERS[name], resize_option(codec.width, codec.height, self._target))
        decoder.extradata = codec.extradata
        dropped: set[int] = set()  # what an edit list leaves out, software decoders drop themselves
        for picture in pictures(container, stream, lambda packet: _decoded(decoder, packet, dropped)):
            if picture.pts not in dropped:
                yield picture


def resize_option(width: int, height: int, target: tuple[int, int] | None) -> dict[str, str]:
    """Options of a cuvid decoder for pictures that will be scaled to (width, height): halves, where that stays above
    it and every pixel of the half is the mean of four."""
    if target is None or width % 4 or height % 4 or width < 2 * target[0] or height < 2 * target[1]:
        return {}
    return {"resize": f"{width // 2}x{height // 2}"}


def engine(name: str, options: dict[str, str]) -> Any:
    """A decoder by its name, on the GPU; pictures come back to the processor's memory. A VideoError where none is.

    Each has a context of its own on the GPU, which takes 0.2 s to make. One context for all of a process's decoders
    was tried on an H200 (`hwaccel`, PyAV 18.1): they refused every picture.
    """
    if reason := missing():
        raise VideoError(f"{name} cannot be opened: {reason}")
    try:
        decoder = av.CodecContext.create(name, "r")
    except (av.error.FFmpegError, ValueError) as error:
        raise VideoError(f"{name} cannot be opened: {error}") from error
    decoder.options = options
    return decoder


def _decoded(decoder: Any, packet: Any, dropped: set[int]) -> Any:
    if packet.is_discard and packet.pts is not None:
        dropped.add(packet.pts)
    return decoder.decode(packet)
