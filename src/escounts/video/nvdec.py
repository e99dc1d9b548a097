"""Videos whose pictures an NVIDIA GPU decodes (NVDEC, by NVIDIA's PyNvVideoCodec) and shrinks; images come back.

PyAV reads the file, so that frames have the processor's times; packets go to the engine, which leaves pictures in the
GPU's memory, where they are averaged. One context and one decoder stay from video to video. What the engine does not
take, and the rest of a video that it gives up, the processor decodes.

The images are swscale's: it averages brightness and colour over areas, colour at half the image's width where that is
even, and makes RGB of the averages by shortcuts with roundings of their own. The averages here are the same. What
becomes of them is asked of swscale: a test picture of the same kind goes through it, and the matrix that fits what
came out is taken. So there is no table of colour matrices, and the FFmpeg that is here decides. What is left is 0.5
to 0.9 levels of 255.
"""

from __future__ import annotations

import copy
import ctypes
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any

import av
import numpy as np
import torch

from escounts.errors import VideoError
from escounts.system.arrays import Array32, Image
from escounts.system.extras import install_command
from escounts.video.decoding import FileSource, RawFrame, ReadyPicture, stream_packets
from escounts.video.files import FrameConverter, Video

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
BATCH = 16
"""Pictures that are averaged and come back together."""
KEPT = 2
"""Engines without work that a process keeps: videos of a folder are often of one or two kinds."""
BLOCK = 16
"""Pixels across a patch of the test picture; averages of much smaller ones would all be grey."""

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
        with borrowed((*self._coded, PictureKind(*self._shown), self.size)) as engine:
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
    nothing else, and has not used its GPU yet: while it waits for it, its core is left to others (CUDA would have it
    ask without a pause)."""
    with suppress(Exception):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxSetFlags_v2(0, BLOCKING_SYNC)
        CudaDecoder("h264")


@dataclass(frozen=True)
class PictureKind:
    """What the scaler has to know of decoded pictures: size in pixels, FFmpeg's name and numbers of their format."""

    width: int
    height: int
    format: str
    colorspace: int
    color_range: int
    colour_at_left: bool
    """Whether colour is the left one's of each two columns, as in H.264 and HEVC, or that of the middle of both.
    PyAV does not tell what a stream says of it; swscale minds that."""


def area_scaler(kind: PictureKind, size: tuple[int, int], device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """From pictures in NV12 (batch x height·3/2 x width, bytes) to RGB images (batch x height x width x 3, bytes).

    size: (width, height) of the images. All on one device.
    """
    width, height = size
    half = chroma_width(width)

    def there(array: Array32) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    shift = 0.25 if kind.colour_at_left else 0.0
    luma = there(weights(kind.height, height)), there(weights(kind.width, width).T)
    chroma = there(weights(kind.height // 2, height)), there(weights(kind.width // 2, half, shift).T)
    matrix = there(colour_matrix(kind, size))

    def scaled(pictures_BHW: torch.Tensor) -> torch.Tensor:
        luma_BHW = _averaged(pictures_BHW[:, : kind.height], *luma)
        batch, _, columns = pictures_BHW.shape
        pairs_BCHW = pictures_BHW[:, kind.height :].view(batch, kind.height // 2, columns // 2, 2).movedim(3, 1)
        chroma_BCHW = _averaged(pairs_BCHW, *chroma).repeat_interleave(width // half, dim=3)
        parts_BHWC = torch.cat([luma_BHW.unsqueeze(1), chroma_BCHW], dim=1).movedim(1, 3)
        return (parts_BHWC @ matrix[:3] + matrix[3]).round_().clamp_(0, 255).byte()

    return scaled


def _averaged(planes: torch.Tensor, down: torch.Tensor, across: torch.Tensor) -> torch.Tensor:
    return down @ (planes.float() @ across)


def chroma_width(width: int) -> int:
    """Columns that swscale computes the colour of, for an RGB image of that width."""
    return width if width % 2 else width // 2


def weights(source: int, target: int, shift: float = 0.0) -> Array32:
    """Shares of `source` pixels in each of `target` means (target x source): of the area that they cover, and where
    there are more means than pixels, of the two pixels that are nearest. shift: of the means, in pixels."""
    pixels, step = np.arange(source), source / target
    if target <= source:
        edges = np.arange(target + 1)[:, None] * step + shift
        ends = np.append(pixels[1:], max(source, edges[-1, 0]))  # the last pixel stands for what lies behind it
        shares = np.minimum(edges[1:], ends) - np.maximum(edges[:-1], pixels)
    else:
        centres = np.clip((np.arange(target) + 0.5) * step - 0.5 + shift, 0, source - 1)
        shares = 1 - abs(centres[:, None] - pixels)
    shares = np.clip(shares, 0, None)
    return np.asarray(shares / shares.sum(1, keepdims=True), np.float32)


@lru_cache(maxsize=64)
def colour_matrix(kind: PictureKind, size: tuple[int, int]) -> Array32:
    """4 x 3: means of Y, U, V and a 1 → R, G, B as the processor's converter makes them of such a picture.

    Where colour is sampled makes no difference to it; PyAV's own pictures have it in the middle.
    """
    picture = av.VideoFrame(kind.width, kind.height, kind.format)
    picture.colorspace, picture.color_range = kind.colorspace, kind.color_range
    width, height = size
    means = [np.ones((height, width))]
    for plane, values in zip(picture.planes, _patches(kind), strict=True):
        padded = np.zeros((plane.height, plane.line_size), np.uint8)
        padded[:, : plane.width] = values
        plane.update(padded.tobytes())
        columns = width if len(means) == 1 else chroma_width(width)
        mean = weights(plane.height, height) @ values @ weights(plane.width, columns).T
        means.append(mean.repeat(width // columns, axis=1))
    parts = np.stack([*means[1:], means[0]], axis=-1)
    wanted = FrameConverter(size, 0, threads=1)(picture).astype(np.float64)
    inside = ((wanted > 3) & (wanted < 252)).all(axis=-1)  # what is clipped says nothing of the matrix
    return np.asarray(np.linalg.lstsq(parts[inside], wanted[inside], rcond=None)[0], np.float32)


def _patches(kind: PictureKind) -> Iterator[Any]:
    """Y, U and V of a test picture: patches of all brightnesses and not too strong colours, with grain."""
    rng = np.random.default_rng(0)
    for part, (low, high) in ((1, (40, 220)), (2, (100, 156)), (2, (100, 156))):
        rows, columns = kind.height // part, kind.width // part
        coarse = rng.integers(low, high, (-(-rows // BLOCK), -(-columns // BLOCK)))
        fine = np.kron(coarse, np.ones((BLOCK, BLOCK)))[:rows, :columns] + rng.normal(0, 8, (rows, columns))
        yield np.clip(fine, 16, 240).astype(np.uint8)


Key = tuple[str, int, int, PictureKind, tuple[int, int]]
"""Codec, coded width and height, kind of the pictures, size of the images."""


class Engine:
    """A decoder and a scaler for videos of one kind, one video after another."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self._codec, _, _, kind, size = key
        self._decoder = CudaDecoder(self._codec)
        with self._decoder.working():
            self._scaled = area_scaler(kind, size, self._decoder.device)
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
def borrowed(key: Key) -> Iterator[Engine]:
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

        self._library: Any = PyNvVideoCodec
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # of torch's own context, which the decoder shares
        self._decoder = PyNvVideoCodec.CreateDecoder(
            gpuid=torch.cuda.current_device(),
            codec=getattr(PyNvVideoCodec.cudaVideoCodec, CODECS[codec]),
            cudastream=self._stream.cuda_stream,
            usedevicememory=True,
        )

    def working(self) -> AbstractContextManager[Any]:
        """What is computed inside is in order with what the decoder does, which writes over a picture only later."""
        inside: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return inside

    def decode(self, packet: Any | None) -> Iterator[tuple[int, torch.Tensor]]:
        """(pts, NV12) of the pictures that are ready after this packet, valid until the next; None: of the rest."""
        asked = self._library.PacketData()
        if packet is not None:
            asked.bsl_data, asked.bsl, asked.pts = packet.buffer_ptr, packet.buffer_size, packet.pts
        for picture in self._decoder.Decode(asked):
            yield picture.getPTS(), torch.utils.dlpack.from_dlpack(picture)
