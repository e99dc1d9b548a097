"""The paper's way from a video to a density: windows cut in raw frames, K time shifts.

A window (64 raw frames) gives T' cells of tokens; the windows one after another are one sequence, and so are
those that start 1/K, 2/K … of a window later (section 3.3). Each window is encoded once and kept; an exemplar
is a window of its own. An encoder that samples at a rate (`fps`) is read at it; an exemplar is cells of the sequence.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from escounts.counting import Progress
from escounts.counting.maps import Stitcher, filled, shift_starts, stretches, windows
from escounts.counting.views import TokenFile
from escounts.decision.decide import Decision, decide_by_map
from escounts.decision.repetitions import DensityKind, DensityMap
from escounts.errors import ExemplarError, VideoError
from escounts.nn.decoder import ExemplarKeysValues, Projected, check_tokens
from escounts.nn.device import precision, to_device
from escounts.nn.encoders.interface import Encoder
from escounts.nn.network import Network, exemplar_cells
from escounts.system.arrays import Array, Array32, BoolArray, Image
from escounts.video.files import Video

BLOCK = 64
"""Images that are copied at once."""


def uploaded(images: Iterable[Image], device: torch.device) -> Iterator[Tensor]:
    """The same images, (H, W, 3) uint8 each, on a device; a GPU reads pinned memory by itself."""
    if device.type != "cuda":
        yield from map(torch.from_numpy, images)
        return
    source = iter(images)
    while some := list(islice(source, BLOCK)):
        pinned = torch.empty((len(some), *some[0].shape), dtype=torch.uint8, pin_memory=True)
        np.stack(some, out=pinned.numpy())
        yield from to_device(pinned, device)


def download(projected: Tensor) -> Callable[[], Tensor]:
    """Have tokens copied to the host's memory in half precision, after what the GPU has in hand; what is returned
    waits for them, and raises where one is not finite."""
    tokens, finite = projected.to(torch.float16), torch.isfinite(projected).all()
    copied = None
    if projected.device.type == "cuda":
        tokens, finite = (
            torch.empty(one.shape, dtype=one.dtype, pin_memory=True).copy_(one, non_blocking=True)
            for one in (tokens, finite)
        )
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()

    def result() -> Tensor:
        if copied is not None:
            copied.synchronize()
        if not bool(finite):
            check_tokens(tokens)
        return tokens

    return result


GPU_BATCH = 64
IN_FLIGHT = 2
"""Batches that a GPU has in hand before the host waits for the oldest."""


@dataclass(frozen=True)
class PaperWindowConfig:
    """shifts: K, a divisor of the window's cells. padding: the frames past a video's end in its last window,
    the last frame again or the mean colour. stretch, overlap: cells that are decoded at once in a long video,
    and cells that two neighbours share. batch: windows encoded at once; None: 64 on a GPU, 1 on a CPU, where
    one window already keeps every core busy."""

    shifts: int = 4
    padding: Literal["last", "mean"] = "last"
    stretch: int = 384
    overlap: int = 96
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.stretch:
            raise ValueError(f"got stretch {self.stretch}, overlap {self.overlap}; need 0 ≤ overlap < stretch")


PAPER_WINDOWS = PaperWindowConfig()
RELEASED_WINDOWS = PaperWindowConfig(shifts=2, padding="mean")


@dataclass(frozen=True)
class PaperWindowExemplar:
    """An exemplar: its projected tokens (T, H, W, C), how many seconds it lasts, the file it was cut from."""

    tokens_THWC: Tensor
    seconds: float
    path: Path


class PaperWindowModel:
    """The neural CountingModel in `frames` mode: an encoder of the paper and a decoder trained on it."""

    unsure_below = 0.5

    def __init__(
        self,
        name: str,
        network: Network,
        *,
        device: torch.device | str = "cpu",
        config: PaperWindowConfig = PAPER_WINDOWS,
    ) -> None:
        self.name, self.config = name, config
        self.device = torch.device(device)
        self.network = network.to(self.device).eval()
        self.spec = network.encoder.spec
        on_gpu = self.device.type == "cuda"
        self.batch, self._in_flight = config.batch or (GPU_BATCH if on_gpu else 1), IN_FLIGHT if on_gpu else 0
        self._narrow = narrow_copy(network.encoder, self.device)
        if self.spec.cells % config.shifts:
            raise ValueError(f"{config.shifts} time shifts do not divide the {self.spec.cells} cells of a window")

    @torch.inference_mode()
    def encode(
        self,
        video: Video,
        *,
        start: float = 0.0,
        end: float | None = None,
        progress: Progress | None = None,
    ) -> PaperWindowEncoding:
        """Read the video once and encode the windows of all time shifts; a few windows of pixels are held."""
        encoding = PaperWindowEncoding(self, video, start)
        whole = (end if end is not None else video.info.duration) - start
        size = self.spec.read_size(video.info.width, video.info.height)

        def images() -> Iterator[Image]:
            pace = {"rate": self.spec.fps} if self.spec.fps else {"every": self.spec.every}
            for frame in video.frames(size=size, start=start, end=end, **pace):
                encoding.times.append(frame.time)
                if progress is not None and len(encoding.times) % 64 == 1:
                    progress(frame.time - start, max(whole, frame.time - start))
                yield self.spec.cut(frame.image)

        starts = shift_starts(self.spec.window_frames, self.config.shifts, multiple=self.spec.frames_per_cell)
        source = windows(uploaded(images(), self.device), size=self.spec.window_frames, starts=starts)
        flying: deque[Callable[[], None]] = deque()
        while (batch := list(islice(source, self.batch))) or flying:
            if batch:
                flying.append(self._launched(batch, encoding))
            if not batch or len(flying) > self._in_flight:
                flying.popleft()()
        if not encoding.times:
            raise VideoError(f"{video.info.path}: no frame between {start:.2f} s and {start + whole:.2f} s")
        encoding.finish()
        return encoding

    def _launched(self, pending: Sequence[tuple[int, list[Tensor]]], into: PaperWindowEncoding) -> Callable[[], None]:
        """Have windows encoded, each a shift and its frames (S, S, 3); what is returned waits for them and keeps
        those of their cells that are the video's."""
        # An encoder that samples at a rate takes windows of any length.
        length = max(len(each) for _, each in pending) if self.spec.fps else self.spec.window_frames
        frames = torch.stack([torch.stack([*each, *[each[-1]] * (length - len(each))]) for _, each in pending])
        tokens_BTHWC = self._encoded(frames, [len(each) for _, each in pending])
        projected_BTHWC = self.network.decoder.project_pooled(tokens_BTHWC)
        cut = [(shift, -(-len(each) // self.spec.frames_per_cell)) for shift, each in pending]
        tokens = download(projected_BTHWC)
        return lambda: into.append(cut, tokens())

    def tokens(self, frames_BTHWC: Tensor, real: Sequence[int] | None = None) -> Tensor:
        """Encoder tokens of uint8 frames (B, T, S, S, 3); frames past `real` get the padding's colour."""
        out = self._encoded(frames_BTHWC.to(self.device), real)
        check_tokens(out)
        return out

    def _encoded(self, frames_BTHWC: Tensor, real: Sequence[int] | None) -> Tensor:
        """The same of frames that are on the device; waits for nothing there."""
        encoder = self._narrow or self.network.encoder
        x = encoder.normalise(frames_BTHWC.permute(0, 1, 4, 2, 3))
        if real is not None and self.config.padding == "mean":
            for row, count in enumerate(real):
                x[row, count:] = 0.0
        with nullcontext() if self._narrow is not None else precision(self.device):
            out: Tensor = encoder(x)
        return out.float()


def narrow_copy(encoder: Encoder, device: torch.device) -> Encoder | None:
    """The encoder with weights in bf16 where counting computes in it anyway, and autocast would cast them for every
    batch; None elsewhere."""
    if device.type != "cuda" or not torch.cuda.is_bf16_supported():
        return None
    return copy.deepcopy(encoder).to(torch.bfloat16)


class PaperWindowEncoding:
    """One video's projected tokens: a sequence for every time shift.

    times: seconds of every sampled frame. step: seconds of a time cell, from the mean pace of the frames.
    """

    def __init__(self, model: PaperWindowModel, video: Video, start: float) -> None:
        config = model.network.decoder.config
        self.model, self.video, self.start = model, video, start
        self.path = video.info.path.resolve()
        self.end, self.step = start, 0.0
        self.times: list[float] = []
        self.sequences = [TokenFile((*config.grid, config.channels)) for _ in range(model.config.shifts)]

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens it holds in memory."""
        return sum(sequence.nbytes for sequence in self.sequences)

    def append(self, cut: Sequence[tuple[int, int]], tokens_BTHWC: Tensor) -> None:
        """Windows one after another: of each the shift, how many of its cells are the video's, and its cells."""
        for (shift, cells), tokens_THWC in zip(cut, tokens_BTHWC, strict=True):
            self.sequences[shift].append(tokens_THWC[:cells])

    def finish(self) -> None:
        """All frames are in: from now on their pace is known, and where the encoded stretch ends."""
        spec, sampled = self.model.spec, len(self.times)
        pace = 1 / spec.fps if spec.fps else spec.every / self.video.info.fps
        if sampled > 1 and not spec.fps:
            pace = (self.times[-1] - self.times[0]) / (sampled - 1)
        self.step = pace * spec.window_frames / spec.cells
        self.end = self.times[-1] + pace

    @torch.inference_mode()
    def encode_exemplar(self, start: float, end: float, *, progress: Progress | None = None) -> PaperWindowExemplar:
        """The exemplar between two times: frames spread evenly over it as one window, or cells that are there.

        It is read in one go: progress is told nothing.
        """
        spec = self.model.spec
        if end <= start:
            raise ExemplarError(f"exemplar {start:g}-{end:g} s is empty; its end must come after its start")
        if spec.fps is not None:
            whole = self.sequences[0]
            begin, stop = (start - self.start) / self.step, (end - self.start) / self.step
            cells = torch.from_numpy(exemplar_cells(begin, stop, whole.cells, spec.exemplar_frames))
            first = int(cells[0])
            read_THWC = whole.read(first, int(cells[-1]) + 1, self.model.device)
            return PaperWindowExemplar(read_THWC[(cells - first).to(read_THWC.device)], end - start, self.path)
        size = spec.read_size(self.video.info.width, self.video.info.height)
        frames = self.video.frames(size=size, start=start, end=end, rate=spec.exemplar_frames / (end - start))
        images = [spec.cut(frame.image) for frame in frames][: spec.exemplar_frames]
        if not images:
            raise ExemplarError(f"{self.video.info.path} has no frame between {start:g} and {end:g} s")
        tokens_1THWC = self.model.tokens(torch.from_numpy(filled(images, spec.exemplar_frames))[None])
        projected_THWC = self.model.network.decoder.project_exemplars(tokens_1THWC[None])[0, 0]
        return PaperWindowExemplar(projected_THWC, end - start, self.path)

    @torch.inference_mode()
    def estimate(
        self,
        exemplars: Sequence[PaperWindowExemplar] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
        progress: Progress | None = None,
    ) -> Decision:
        """The density between two times: every shift's map, averaged by how many cover a cell.

        confidence: 1 / (1 + spread), spread being the standard deviation of the shifts' counts: their agreement, not
        a probability. progress is told nothing: all that is needed is encoded.
        """
        cells = self.sequences[0].cells
        first = 0 if start is None else min(cells - 1, max(0, int((start - self.start) / self.step + 0.5)))
        last = cells if end is None else min(cells, max(first + 1, round((end - self.start) / self.step)))
        keys_values = self._keys_values(exemplars)
        maps = [self._decode(k, keys_values, first, last, assume_repeats) for k in range(len(self.sequences))]
        average = Stitcher(last - first)
        for values, covered in maps:
            average.add(values, 0, weights=covered)
        density = average.result().astype(np.float32)
        counts = [float(np.where(covered, values, density).sum()) for values, covered in maps if covered.any()]
        spread = float(np.std(counts))
        details = {"calibrated": 0.0, "shifts": float(len(counts)), "shift_spread": spread}
        confidence = 1 / (1 + spread) if len(counts) > 1 else 0.5
        kind: DensityKind = "rate" if self.model.network.decoder.config.head.kind == "rate" else "peaks"
        density_map = DensityMap(density, self.start + first * self.step, self.step, kind)
        return decide_by_map(density_map, confidence, details)

    def _decode(
        self, shift: int, keys_values: ExemplarKeysValues, first: int, last: int, assume_repeats: bool
    ) -> tuple[Array32, BoolArray]:
        """One shift's map on cells first..last of the video, and which of them it covers."""
        config, sequence = self.model.config, self.sequences[shift]
        offset = shift_starts(self.model.spec.cells, config.shifts)[shift]
        stitched = Stitcher(last - first)
        for begin, stop in stretches(sequence.cells, config.stretch, config.stretch - config.overlap):
            if begin + offset >= last or stop + offset <= first:
                continue
            tokens_1THWC = sequence.read(begin, stop, self.model.device)[None]
            decoder = self.model.network.decoder
            with precision(self.model.device):
                similarity_1TC = None if decoder.similarity is None else decoder.similarity(tokens_1THWC)
                output = decoder.decode(Projected(tokens_1THWC, similarity_1TC), keys_values)
            rate_BT = output.rate_BT if assume_repeats else None
            values_BT = output.density_BT if rate_BT is None else rate_BT
            stitched.add(values_BT[0].float().cpu().numpy(), begin + offset - first, weights=ramp(stop - begin))
        return stitched.result().astype(np.float32), stitched.coverage > 0

    def _keys_values(self, exemplars: Sequence[PaperWindowExemplar]) -> ExemplarKeysValues:
        decoder = self.model.network.decoder
        if not exemplars:
            return decoder.encode_exemplars()
        tokens = torch.stack([exemplar.tokens_THWC for exemplar in exemplars])[None].to(self.model.device)
        # another video has its own tempo: the length of its repetitions says nothing here
        lengths = [exemplar.seconds / self.step if exemplar.path == self.path else 0.0 for exemplar in exemplars]
        return decoder.encode_exemplars(tokens, cells_BS=torch.tensor([lengths], device=self.model.device))


def ramp(cells: int) -> Array:
    """Weights of a stretch's cells: less towards its ends, where it has seen less."""
    return np.minimum(np.arange(1, cells + 1), np.arange(cells, 0, -1)).clip(max=32).astype(np.float64)
