"""Videos whose pictures an NVIDIA GPU decodes (NVDEC, by NVIDIA's PyNvVideoCodec) and shrinks; images come back.

PyAV reads the file, so that frames have the processor's times; packets go to the engine, which leaves pictures in the
GPU's memory, where they are averaged. One context and one decoder stay from video to video. What the engine does not
take, and the rest of a video that it gives up, the processor decodes.
"""

from __future__ import annotations

import copy
import ctypes
import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import av

from escounts.errors import VideoError
from escounts.system.arrays import Image
from escounts.system.extras import install_command
from escounts.video.decoding import FileSource, RawFrame, ReadyPicture, stream_packets
from escounts.video.files import Video

if TYPE_CHECKING:
    import torch

    from escounts.video.scaling import PictureKind

CODECS = {"h264": "H264", "hevc": "HEVC", "vp9": "VP9", "av1": "AV1"}
"""FFmpeg's name of a codec → PyNvVideoCodec's."""
IN_ANNEX_B = ("h264", "hevc")
"""Codecs whose packets begin differently in MP4 and Matroska than the engine wants them."""
LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
"""Of NVIDIA's driver; containers often have the first alone. PyNvVideoCodec asks for the last even to decode."""
FORMATS = ("yuv420p", "yuvj420p")
"""FFmpeg's names of what NV12 holds: eight bits, colour at half the width and half the height."""
BATCH = 16
"""Pictures that are averaged and come back together."""
KEPT = 2
"""Engines without work that a process keeps: videos of a folder are often of one or two kinds."""
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
        from escounts.video.scaling import PictureKind  # noqa: PLC0415 - torch: the processor needs none of it

        with _borrowed((*self._coded, PictureKind(*self._shown), self.size)) as engine:
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


Key = tuple[str, int, int, "PictureKind", tuple[int, int]]
"""Codec, coded width and height, kind of the pictures, size of the images."""


class Engine:
    """A decoder and a scaler for videos of one kind, one video after another."""

    def __init__(self, key: Key) -> None:
        import torch  # noqa: PLC0415 - readers without an engine need none of it

        from escounts.video.scaling import AreaScaler  # noqa: PLC0415 - torch

        self.key = key
        self._codec, _, _, kind, size = key
        self._decoder = CudaDecoder(self._codec)
        with self._decoder.working():
            self._scaled = AreaScaler(kind, size, self._decoder.device)
            shape = (BATCH, kind.height * 3 // 2, kind.width)
            self._waiting = torch.empty(shape, dtype=torch.uint8, device=self._decoder.device)

    def pictures(self, stream: Any, packets: Iterable[Any]) -> Iterator[ReadyPicture]:
        """A video's pictures as images in the order of their times, from its packets."""
        left = chain(_parts(self._codec, stream, packets), [None])
        base = stream.time_base  # a Fraction made anew at every look
        stamps: list[int] = []  # of pictures that wait
        # None: left out by an edit list; software decoders drop such ones themselves.
        lengths: dict[int, int | None] = {}
        while some := list(islice(left, BATCH)):
            for packet in some:
                if packet is not None:
                    if packet.pts is None:
                        raise VideoError("a packet has no time")
                    lengths[packet.pts] = None if packet.is_discard else packet.duration or 0
            for pts, image in self._images(some, stamps, lengths):
                yield ReadyPicture(pts, base, lengths.get(pts) or 0, image)

    def _images(
        self, packets: list[Any], stamps: list[int], lengths: dict[int, int | None]
    ) -> list[tuple[int, Image]]:
        """(pts, image) of the pictures that are averaged after these packets, all of them after None."""
        done: list[tuple[int, Image]] = []
        with self._decoder.working():
            for packet in packets:
                for pts, picture in self._decoder.decode(packet):
                    if picture.shape != self._waiting.shape[1:]:
                        raise VideoError("pictures of another size than the file's")
                    if lengths.get(pts, 0) is not None:
                        self._waiting[len(stamps)] = picture
                        stamps.append(pts)
                    if len(stamps) == BATCH:
                        done += self._averaged(stamps)
            return done + self._averaged(stamps) if packets[-1] is None else done

    def _averaged(self, stamps: list[int]) -> list[tuple[int, Image]]:
        images = self._scaled(self._waiting[: len(stamps)]).cpu().numpy()
        done = list(zip(stamps, images, strict=True))
        stamps.clear()
        return done


def _parts(codec: str, stream: Any, packets: Iterable[Any]) -> Iterator[Any]:
    """A stream's packets as the engine takes them."""
    changed = av.BitStreamFilterContext(f"{codec}_mp4toannexb", stream) if codec in IN_ANNEX_B else None
    for packet in packets:
        if packet.size:
            yield from changed.filter(packet) if changed else (packet,)


_idle: list[Engine] = []


@contextmanager
def _borrowed(key: Key) -> Iterator[Engine]:
    """An engine for such videos. One that failed, or whose video was left midway, is not used again."""
    try:
        engine = next((engine for engine in _idle if engine.key == key), None)
        if engine is None:
            engine = Engine(key)
        else:
            _idle.remove(engine)
        yield engine
    except VideoError:
        raise
    except Exception as error:  # of the driver, of torch, of the library: the processor is asked then
        raise VideoError(f"{type(error).__name__}: {error}".split("\n")[0]) from error
    _idle.append(engine)
    del _idle[:-KEPT]


class CudaDecoder:
    """The one part that touches the GPU: packets in, pictures in its memory out. Raises whatever goes wrong there."""

    device = "cuda"

    def __init__(self, codec: str) -> None:
        import PyNvVideoCodec  # noqa: PLC0415 - the extra [nvdec]
        import torch  # noqa: PLC0415 - readers without an engine need none of it

        self._library: Any = PyNvVideoCodec
        self._torch: Any = torch
        self._stream = self._torch.cuda.Stream()  # of torch's own context, which the decoder shares
        self._decoder = PyNvVideoCodec.CreateDecoder(
            gpuid=torch.cuda.current_device(),
            codec=getattr(PyNvVideoCodec.cudaVideoCodec, CODECS[codec]),
            cudastream=self._stream.cuda_stream,
            usedevicememory=True,
        )

    def working(self) -> AbstractContextManager[Any]:
        """What is computed inside is in order with what the decoder does, which writes over a picture only later."""
        inside: AbstractContextManager[Any] = self._torch.cuda.stream(self._stream)
        return inside

    def decode(self, packet: Any | None) -> Iterator[tuple[int, torch.Tensor]]:
        """(pts, NV12) of the pictures that are ready after this packet, valid until the next; None: of the rest."""
        asked = self._library.PacketData()
        if packet is not None:
            asked.bsl_data, asked.bsl, asked.pts = packet.buffer_ptr, packet.buffer_size, packet.pts
        for picture in self._decoder.Decode(asked):
            yield picture.getPTS(), self._torch.from_dlpack(picture)


def warm_up() -> None:
    """Make a process ready for its first video; what goes wrong, that video meets again. The process is a reader and
    nothing else: while it waits for the GPU, its core is left to others (CUDA would have it ask without a pause)."""
    with suppress(Exception):
        wait_without_asking()
        CudaDecoder("h264")


def wait_without_asking() -> None:
    """For all that this process will do on its GPU, which it has not used yet."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxSetFlags_v2(0, BLOCKING_SYNC)
