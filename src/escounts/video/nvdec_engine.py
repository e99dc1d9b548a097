"""The half of `nvdec` on the GPU: packets → pictures by NVIDIA's engine → small RGB images, like swscale's.

swscale averages brightness and colour over areas, colour at half the image's width where that is even, and makes RGB
of the averages by shortcuts with roundings of their own. The averages here are the same. What becomes of them is
asked of swscale: a test picture of the same kind goes through it, and the matrix that fits what came out is taken. So
there is no table of colour matrices, and the FFmpeg that is here decides. What is left is 0.5 to 0.9 levels of 255.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import av
import numpy as np
import torch

from escounts.errors import VideoError
from escounts.system.arrays import Array32, Image
from escounts.video.decoding import ReadyPicture
from escounts.video.files import FrameConverter
from escounts.video.nvdec import CODECS, IN_ANNEX_B

BATCH = 16
"""Pictures that are averaged and come back together."""
KEPT = 2
"""Engines without work that a process keeps: videos of a folder are often of one or two kinds."""
BLOCK = 16
"""Pixels across a patch of the test picture; averages of much smaller ones would all be grey."""


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


class AreaScaler:
    """Pictures in NV12 (batch x height·3/2 x width, bytes) → RGB images (batch x height x width x 3, bytes).

    size: (width, height) of the images. All on one device.
    """

    def __init__(self, kind: PictureKind, size: tuple[int, int], device: str) -> None:
        width, height = size
        half = chroma_width(width)

        def there(array: Array32) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        self._rows = kind.height
        self._luma = there(weights(kind.height, height)), there(weights(kind.width, width).T)
        shift = 0.25 if kind.colour_at_left else 0.0
        self._chroma = there(weights(kind.height // 2, height)), there(weights(kind.width // 2, half, shift).T)
        self._repeats = width // half
        self._matrix = there(colour_matrix(kind, size))

    def __call__(self, pictures_BHW: torch.Tensor) -> torch.Tensor:
        luma_BHW = _averaged(pictures_BHW[:, : self._rows], *self._luma)
        batch, _, columns = pictures_BHW.shape
        pairs_BCHW = pictures_BHW[:, self._rows :].view(batch, self._rows // 2, columns // 2, 2).movedim(3, 1)
        chroma_BCHW = _averaged(pairs_BCHW, *self._chroma).repeat_interleave(self._repeats, dim=3)
        parts_BHWC = torch.cat([luma_BHW.unsqueeze(1), chroma_BCHW], dim=1).movedim(1, 3)
        return (parts_BHWC @ self._matrix[:3] + self._matrix[3]).round_().clamp_(0, 255).byte()


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
