"""Videos whose pictures an NVIDIA GPU decodes (NVDEC, by NVIDIA's PyNvVideoCodec) and shrinks; images come back.

PyAV reads the file, so that frames have the processor's times; packets go to the engine, which leaves pictures in the
GPU's memory, where they are averaged. One context and one decoder stay from video to video. What the engine does not
take, and the rest of a video that it gives up, the processor decodes.
"""

from __future__ import annotations

import copy
import ctypes
import logging
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from escounts.errors import VideoError
from escounts.system.extras import install_command
from escounts.video.decoding import FileSource, RawFrame, ReadyPicture, stream_packets
from escounts.video.files import Video

CODECS = {"h264": "H264", "hevc": "HEVC", "vp9": "VP9", "av1": "AV1"}
"""FFmpeg's name of a codec → PyNvVideoCodec's."""
IN_ANNEX_B = ("h264", "hevc")
"""Codecs whose packets begin differently in MP4 and Matroska than the engine wants them."""
LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
"""Of NVIDIA's driver; containers often have the first alone. PyNvVideoCodec asks for the last even to decode."""
FORMATS = ("yuv420p", "yuvj420p")
"""FFmpeg's names of what NV12 holds: eight bits, colour at half the width and half the height."""
BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC of CUDA's driver."""

log = logging.getLogger(__name__)


def missing() -> str:
    """Why this machine cannot decode with NVDEC; empty where it can, as far as its libraries say."""
    if find_spec("PyNvVideoCodec") is None:
        return f"PyNvVideoCodec is not installed: {install_command('nvdec')}"
    for library in LIBRARIES:
        try:
            ctypes.CDLL(library)
        except OSError:
            return (
                f"{library} of NVIDIA's driver is not here; a container needs the capability `video` "
                "(NVIDIA_DRIVER_CAPABILITIES=compute,utility,video)"
            )
    return ""


class NvdecVideo(Video):
    """A Video that the GPU reads, where it can; its pixels differ a little.

    >>> for frame in NvdecVideo("squats.mp4").frames(size=(128, 128), rate=30):
    ...     print(frame.time, frame.image.shape)
    """

    def _file(self, threads: int | None) -> FileSource:
        return NvdecSource(self.path, threads=threads)

    def _raw(self, start: float, coded: tuple[int, int]) -> Iterator[RawFrame]:
        source = copy.copy(self._source)
        if isinstance(source, NvdecSource):
            if self.info.region is not None:  # the engine shrinks whole pictures
                return source.by_processor().frames(start)
            source.size = coded
        return source.frames(start)


class NvdecSource(FileSource):
    """A file that the GPU decodes; where it cannot, one line of the log says so and the processor does it."""

    size = (0, 0)
    """(width, height) of the images that are wanted, before they are turned upright."""

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
        for frame in self.by_processor()._decode(seek_to):
            if frame.time > last:
                yield frame

    def by_processor(self) -> FileSource:
        source = FileSource(self.path, threads=self.threads)
        vars(source).update(vars(self))
        return source

    def _first_two(self, container: Any, stream: Any) -> tuple[Any, Any]:
        first, second = super()._first_two(container, stream)
        codec = stream.codec_context
        self._interlaced = first.interlaced_frame
        self._coded = (codec.codec.canonical_name, codec.coded_width, codec.coded_height)
        colours = (int(first.colorspace), int(first.color_range), self._coded[0] in IN_ANNEX_B)
        self._shown = (first.width, first.height, first.format.name, *colours)
        return first, second

    def _pictures(self, container: Any, stream: Any) -> Iterator[ReadyPicture]:
        if reason := self._refused() or missing():
            raise VideoError(reason)
        from escounts.video import nvdec_engine  # noqa: PLC0415 - torch: the processor needs none of it

        with nvdec_engine.borrowed((*self._coded, nvdec_engine.PictureKind(*self._shown), self.size)) as engine:
            yield from engine.pictures(stream, stream_packets(container, stream))

    def _refused(self) -> str:
        """Why the engine is not asked at all, or nothing."""
        codec, (width, height, pixels, *_) = self._coded[0], self._shown
        if codec not in CODECS:  # its own name: `codec.name` is its decoder's, libdav1d of AV1
            return f"no decoder for {codec}; it has {', '.join(CODECS)}"
        if pixels not in FORMATS or width % 2 or height % 2:
            return f"pictures of {width}x{height} in {pixels}; it has even sizes, eight bits"
        if self._interlaced:
            return "its pictures are interlaced"
        return "" if self._timed else "the file has no times"


def warm_up() -> None:
    """Make a process ready for its first video; what goes wrong, that video meets again. The process is a reader and
    nothing else: while it waits for the GPU, its core is left to others (CUDA would have it ask without a pause)."""
    with suppress(Exception):
        from escounts.video.nvdec_engine import CudaDecoder  # noqa: PLC0415 - torch, as above

        wait_without_asking()
        CudaDecoder("h264")


def wait_without_asking() -> None:
    """For all that this process will do on its GPU, which it has not used yet."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxSetFlags_v2(0, BLOCKING_SYNC)
