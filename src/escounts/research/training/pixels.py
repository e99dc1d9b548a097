"""Training from pixels on generated repetitions: encoder and decoder learn together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from escounts.counting.maps import period_map, rate_map
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.heads import VIDEO_OUTPUTS, HeadOutput, pool_video_logits
from escounts.nn.network import EXEMPLAR_CELLS, Network, exemplar_cells
from escounts.research.metrics import auc, mae, obo
from escounts.research.training.objective import Target
from escounts.research.training.render_ahead import RenderProcesses
from escounts.synthetic import GeneratedBatch, Generator, Plan
from escounts.system.arrays import Array

Spans = Sequence[tuple[float, float]]
Rng = np.random.Generator


@dataclass(frozen=True)
class PixelConfig:
    """lengths: frames per video, drawn per batch. shots: shares of 0, 1, 2 … exemplars. other: share of exemplars
    taken from the sibling video where there is one. side: share of alternating videos with an exemplar in which
    the exemplar is one side, so that each side counts. border_jitter, border_jitter_cells: error of an exemplar's
    borders, as a part of its length and in cells: nobody marks a border to the frame. twice: share of the videos
    without an exemplar whose first half is shown a second time in place of the second: a set of repetitions that
    comes again is not one repetition."""

    lengths: tuple[int, ...] = (48, 64, 96, 128)
    shots: tuple[float, ...] = (0.5, 0.3, 0.2)
    other: float = 0.35
    side: float = 0.5
    border_jitter: float = 0.06
    border_jitter_cells: float = 0.8
    twice: float = 0.06
    validation_batches: int = 6
    validation_length: int = 128


@dataclass(frozen=True)
class Exemplars:
    """Which exemplars each video gets: source_BS (row of the batch), cell_BSE (time cells to take), cells_BS
    (length of the repetition in cells, 0 when it is another video's and says nothing here), shots_B."""

    source_BS: Tensor
    cell_BSE: Tensor
    cells_BS: Tensor
    shots_B: Tensor


@dataclass(frozen=True)
class PixelBatch:
    """frames_BTCHW: 0..255 on the training device. begin_1: the time cell that all begin at, as a window may lie
    anywhere in its video."""

    frames_BTCHW: Tensor
    exemplars: Exemplars
    target: Target
    begin_1: Tensor

    def tensors(self) -> list[Tensor]:
        """All that the batch holds, frames first."""
        truth = (value for value in vars(self.target).values() if value is not None)
        return [self.frames_BTCHW, *vars(self.exemplars).values(), *truth, self.begin_1]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> PixelBatch:
        """The inverse of `tensors`."""
        density_BT, count_B, period_BT, video_BK, begin_1 = tensors[5:]
        target = Target(density_BT, count_B, period_BT=period_BT, video_BK=video_BK)
        return cls(tensors[0], Exemplars(*tensors[1:5]), target, begin_1)


class PixelTask:
    """Generated repetitions, as the trainer's task."""

    steps_per_epoch = 500

    def __init__(
        self,
        generator: Generator,
        validation: Generator,
        *,
        batch_size: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
        config: PixelConfig | None = None,
        size: int = 128,
        renderers: int = 0,
    ) -> None:
        """size: pixels a side the network's encoder takes. renderers: processes that draw batches ahead, on the same
        device; make the task before the GPU is used."""
        self.size = size
        self.generator = generator
        self.validation = validation
        self.batch_size = batch_size
        self.seed = seed
        self.device = torch.device(device)
        self.config = config or PixelConfig()
        self._renderers: RenderProcesses | None = None
        if renderers:
            largest = batch_size * max(self.config.lengths) * 3 * size * size
            self._renderers = RenderProcesses(self._build, device=self.device, processes=renderers, largest=largest)

    def batch(self, step: int, rank: int, world: int) -> PixelBatch:
        if self._renderers is None:
            return self._on_device(self._build(step, rank, world))
        return PixelBatch.of(self._renderers.batch(step, rank, world))

    def _build(self, step: int, rank: int, world: int) -> list[Tensor]:
        """A batch's frames on the device, and what else it holds on the CPU."""
        plans = self.generator.plans(*self._request(step, rank, world))
        rng = np.random.default_rng((self.seed, step, rank))
        return self._make(self.generator, plans, rng, shots=None)

    def _on_device(self, tensors: Sequence[Tensor]) -> PixelBatch:
        return PixelBatch.of([tensor.to(self.device) for tensor in tensors])

    def _request(self, step: int, rank: int, world: int) -> tuple[int, int, int]:
        """(batch's index, videos, frames each) of one process's share of a step.

        Shorter videos come in larger batches: the frames of a step stay the same, and so does the work.
        """
        length = int(np.random.default_rng((self.seed, step)).choice(self.config.lengths))
        videos = self.batch_size * max(self.config.lengths) // length
        return step * world + rank, videos // world, length

    def forward(self, network: nn.Module, batch: PixelBatch) -> tuple[HeadOutput, Target]:
        assert isinstance(network, Network)
        encoder, decoder = network.encoder, network.decoder
        assert isinstance(encoder, LiteEncoder)
        projected = decoder.project(encoder(encoder.normalise(batch.frames_BTCHW)))
        chosen = batch.exemplars
        exemplars_BSTHWC = projected.tokens_BTHWC[chosen.source_BS[..., None], chosen.cell_BSE]
        exemplars = decoder.encode_exemplars(exemplars_BSTHWC, shots_B=chosen.shots_B, cells_BS=chosen.cells_BS)
        return decoder.decode(projected, exemplars, time_offset=batch.begin_1), batch.target

    def validate(self, network: nn.Module) -> dict[str, float]:
        """MAE (rounded, videos that repeat) and OBO (all), zero-shot and with one exemplar; share of negatives
        called zero. "mae" is the mean of both MAEs."""
        figures: dict[str, float] = {}
        # A compiled frame stage would be compiled anew for a pass without gradients.
        with torch.compiler.set_stance("force_eager"):
            for shots in (0, 1):
                figures |= self._validate(network, shots)
        figures["mae"] = (figures["mae_0"] + figures["mae_1"]) / 2
        return figures

    def _validate(self, network: nn.Module, shots: int) -> dict[str, float]:
        truth, counted = [], []
        said, true = [], []
        for k in range(self.config.validation_batches):
            plans = self.validation.plans(k, self.batch_size, self.config.validation_length)
            rng = np.random.default_rng((self.seed, k, 7))
            batch = self._on_device(self._make(self.validation, plans, rng, shots=shots))
            output, target = self.forward(network, batch)
            counted += output.density_BT.sum(1).tolist()
            truth += target.count_B.tolist()
            if output.video_logits_BTK is not None and output.gate_logits_BT is not None:
                assert target.video_BK is not None
                said.append(pool_video_logits(output.video_logits_BTK, output.gate_logits_BT).cpu().numpy())
                true.append(target.video_BK.cpu().numpy())
        figures = {
            f"mae_{shots}": mae(np.round(truth), np.array(counted)),
            f"obo_{shots}": obo(np.round(truth), np.array(counted)),
        }
        nothing = np.array(truth) < 0.5
        if nothing.any():
            figures[f"zero_{shots}"] = float((np.round(counted)[nothing] == 0).mean())
        if said and not shots:
            said_VK, true_VK = np.concatenate(said), np.concatenate(true)
            for column, name in enumerate(VIDEO_OUTPUTS):
                known = np.isfinite(true_VK[:, column])
                figures[f"auc_{name}"] = auc(said_VK[known, column], true_VK[known, column] > 0.5)
        return figures

    def _make(self, generator: Generator, plans: list[Plan], rng: Rng, *, shots: int | None) -> list[Tensor]:
        with torch.autocast(self.device.type, enabled=False):
            generated = generator.render(plans, device=self.device, size=self.size)
        length = generated.frames_BTCHW.shape[1]
        exemplars, units = choose_exemplars(generated, length, self.config, rng, shots=shots)
        maps = [np.stack([_map_of(kind, spans, length) for spans in units]) for kind in (rate_map, period_map)]
        density_BT, period_BT = (torch.from_numpy(m.astype(np.float32)) for m in maps)
        if shots is None:
            show_twice(generated.frames_BTCHW, exemplars, (density_BT, period_BT), self.config.twice, rng)
        video_BK = torch.tensor(video_truths(generated, length))
        target = Target(density_BT=density_BT, count_B=density_BT.sum(1), period_BT=period_BT, video_BK=video_BK)
        begin_1 = torch.tensor([float(rng.integers(LATEST)) if shots is None else 0.0])
        return PixelBatch(generated.frames_BTCHW, exemplars, target, begin_1).tensors()


LATEST = 200
"""Time cell that a training video begins at, at most."""
TWICE_LEAST = 2.0
"""Repetitions that the half of a video must hold to be shown twice: a single one, shown twice, would be two."""


def show_twice(frames_BTCHW: Tensor, exemplars: Exemplars, maps_BT: Sequence[Tensor], share: float, rng: Rng) -> None:
    """Put the first half of some videos, and of what is true of it, in the place of the second half.

    maps_BT: density and period. Videos with an exemplar, or of which another has one, stay as they are.
    """
    half = frames_BTCHW.shape[1] // 2
    taken = exemplars.shots_B > 0
    for row in torch.nonzero(taken).flatten().tolist():
        taken[exemplars.source_BS[row, : int(exemplars.shots_B[row])]] = True
    drawn = torch.from_numpy(rng.random(len(taken)) < share)
    enough = maps_BT[0][:, :half].sum(1) >= TWICE_LEAST
    rows = torch.nonzero(drawn & enough & ~taken).flatten()
    for values in (frames_BTCHW, *maps_BT):
        again = rows.to(values.device)
        values[again, half : 2 * half] = values[again, :half]


def video_truths(generated: GeneratedBatch, length: int) -> list[list[float]]:
    """VIDEO_OUTPUTS of every video, whatever its exemplar: NaN where too little of a repetition is in sight."""
    truths = []
    for spans, known in zip(generated.spans, generated.alternates, strict=True):
        seen = sum(max(0.0, min(end, length) - max(start, 0.0)) / (end - start) for start, end in spans)
        alternates = float(known) if known is not None and seen >= 1.5 else float("nan")
        truths.append([alternates, 1.0 if seen >= 1 else 0.0 if seen < 0.05 else float("nan")])
    return truths


def choose_exemplars(
    generated: GeneratedBatch, length: int, config: PixelConfig, rng: Rng, *, shots: int | None = None
) -> tuple[Exemplars, list[Spans]]:
    """Exemplars for every video, and the spans that are to be counted given them.

    The exemplar sets the unit: one side of an alternating motion asks for sides. It sets the motion, too, where a
    video shows several. Zero-shot, a repetition is a full cycle, and every motion counts.
    """
    videos = len(generated.spans)
    slots = max(len(config.shots) - 1, shots or 0, 1)
    source = np.tile(np.arange(videos)[:, None], (1, slots))
    cell = np.zeros((videos, slots, EXEMPLAR_CELLS), np.int64)
    cells = np.zeros((videos, slots), np.float32)
    number = np.full(videos, shots) if shots is not None else rng.choice(len(config.shots), videos, p=config.shots)
    units: list[Spans] = []
    sibling = generated.sibling_B.tolist()
    for row in range(videos):
        sides = bool(generated.side_spans[row]) and number[row] > 0 and rng.random() < config.side
        all_spans = list(generated.side_spans if sides else generated.spans)
        parts = generated.parts[row] if generated.parts else ()
        if number[row] > 0 and len(set(parts)) > 1 and not sides:
            here = [part for part, span in zip(parts, all_spans[row], strict=True) if _whole([span], length)]
            marked = here[int(rng.integers(len(here)))] if here else -1
            if here:
                own = zip(parts, all_spans[row], strict=True)
                all_spans[row] = [span for part, span in own if part == marked]
        for slot in range(number[row]):
            other = sibling[row] >= 0 and rng.random() < config.other
            if other and not _whole(all_spans[sibling[row]], length):
                other = False
            video = sibling[row] if other else row
            whole = _whole(all_spans[video], length)
            if not whole:
                number[row] = 0
                break
            start, end = whole[rng.integers(len(whole))]
            border_jitter = np.hypot((end - start) * config.border_jitter, config.border_jitter_cells) * rng.normal(
                size=2
            )
            start, end = start + border_jitter[0], max(end + border_jitter[1], start + border_jitter[0] + 1.0)
            source[row, slot], cell[row, slot] = video, exemplar_cells(start, end, length)
            cells[row, slot] = 0.0 if other else end - start
        units.append(all_spans[row] if number[row] else generated.spans[row])
    tensors = [torch.from_numpy(a) for a in (source, cell, cells, number.astype(np.int64))]
    return Exemplars(*tensors), units


def _map_of(kind: Callable[..., Array], spans: Spans, length: int) -> Array:
    """A map of one value per frame; spans may reach over the borders of the video, also before its start."""
    before = max([0.0, *(-start for start, _ in spans)])
    moved = [(start + before, end + before) for start, end in spans]
    return kind(moved, cells=length, step=1.0, start=before)


def _whole(spans: Spans, length: int) -> list[tuple[float, float]]:
    """Spans that lie within the video."""
    return [(start, end) for start, end in spans if start >= -0.5 and end <= length + 0.5]
