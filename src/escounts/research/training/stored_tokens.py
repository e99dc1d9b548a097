"""Training on stored tokens with a frozen encoder: the paper's recipe, as a task of the trainer.

A batch is a pure function of (seed, step). Videos of about one length share a batch, shorter ones are padded and
masked; every random choice belongs to a place in the global batch, so that it does not matter how many processes
share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from escounts.counting.maps import KAPPA, density_map, period_map, rate_map
from escounts.errors import DataError
from escounts.nn.device import as_layers_take_it, to_device
from escounts.nn.heads import HeadOutput
from escounts.research.datasets.annotations import Span, VideoAnnotation
from escounts.research.datasets.tokens import TokenStore
from escounts.research.metrics import mae, obo
from escounts.research.training.batches import (
    ExemplarSampler,
    ExemplarSampling,
    LengthBatches,
    Rng,
    TokenCache,
    share,
)
from escounts.research.training.objective import Target
from escounts.research.training.predictions import head_of, predict
from escounts.system.arrays import Array32

StepDraw = tuple[int, int, float]
"""What all videos of a step share: exemplars each, start in cells, share of the sequence that is kept."""
AHEAD = 2
"""Batches made ahead of the one that is trained on."""


@dataclass(frozen=True)
class StoredTokensConfig:
    """batch_size: videos of a global step. target: the map to learn, "peaks" (eq. 1) with its sigma in cells or
    "variable" (kappa × length), or "rate". shifts: how many of the stored offsets training draws its start from
    (time-shift augmentation; 1: none). crop: shortest share of a sequence that is trained on (1: always all).
    by_window: sequences are encoder windows on their own (the default model), not whole videos.
    validation_shifts: K when validating."""

    batch_size: int = 8
    seed: int = 0
    exemplars: ExemplarSampling = field(default_factory=ExemplarSampling)
    target: Literal["peaks", "rate"] = "peaks"
    sigma: float | Literal["variable"] = 0.5
    kappa: float = KAPPA
    shifts: int = 4
    crop: float = 1.0
    by_window: bool = False
    validation_shifts: int = 1


@dataclass(frozen=True)
class Sample:
    """One video of a batch: tokens (T, H, W, C), map (T,), length in cells of the repetition at each cell (T,),
    count, exemplars' tokens with their length in cells (0 when another video's: its tempo says nothing here)."""

    tokens_THWC: Tensor
    density_T: Array32
    period_T: Array32
    count: float
    exemplars: list[tuple[Tensor, float]]


@dataclass(frozen=True)
class TokenBatch:
    """Padded and stacked samples. lengths: cells of each; valid_BT: None when all are equally long; exemplars: None
    when nobody has any; shots_B: None when everybody has as many as there are slots."""

    tokens_BTHWC: Tensor
    lengths: tuple[int, ...]
    valid_BT: Tensor | None
    exemplars_BSTHWC: Tensor | None
    shots_B: Tensor | None
    cells_BS: Tensor | None
    target: Target

    def to(self, device: torch.device) -> TokenBatch:
        """The batch on a device; its target shares the mask."""
        valid_BT = None if self.valid_BT is None else to_device(self.valid_BT, device)

        def moved(part: TokenBatch | Target) -> dict[str, Any]:
            tensors = {name: value for name, value in vars(part).items() if isinstance(value, Tensor)}
            return {name: to_device(value, device) for name, value in tensors.items() if name != "valid_BT"}

        target = replace(self.target, **moved(self.target), valid_BT=valid_BT)
        return replace(self, **moved(self), valid_BT=valid_BT, target=target)


class StoredTokensTask:
    """A dataset's stored tokens, as the trainer's task."""

    def __init__(
        self,
        store: TokenStore,
        train: Sequence[VideoAnnotation],
        valid: Sequence[VideoAnnotation],
        config: StoredTokensConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        cache: TokenCache | None = None,
    ) -> None:
        self.store = store
        self.config = config or StoredTokensConfig()
        self.device = torch.device(device)
        self.train = _stored(train, store, "train on")
        self.valid = _stored(valid, store, "validate on") if valid else []
        offered = {video.name: store.entries[video.name].exemplars for video in self.train}
        self.sampler = ExemplarSampler(self.train, offered, self.config.exemplars)
        lengths = [store.entries[video.name].cells for video in self.train]
        self.batches = LengthBatches(lengths, self.config.batch_size, seed=self.config.seed)
        self.offsets = store.layout.offsets[: self.config.shifts]
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.cache = cache or TokenCache(store, self.device)
        self._known_maps: dict[tuple[str, int, int], tuple[Array32, Array32]] = {}
        self._reader = ThreadPoolExecutor(1)
        self._ahead: dict[tuple[int, int, int], Future[TokenBatch]] = {}

    def batch(self, step: int, rank: int, world: int) -> TokenBatch:
        """This process's part of a global step, on the device; the next ones are made meanwhile."""
        wanted = [(step + k, rank, world) for k in range(AHEAD + 1)]
        # A step that was not foreseen (the first, or a resumed one) leaves nothing of the old plan.
        self._ahead = {key: self._ahead.get(key) or self._reader.submit(self._make, *key) for key in wanted}
        return self._ahead.pop(wanted[0]).result()

    def _make(self, step: int, rank: int, world: int) -> TokenBatch:
        return self.read(step, rank, world).to(self.device)

    def read(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        """This process's part of a global step; tokens are where the cache keeps them."""
        draw = self.draw(step)
        samples = []
        for place, index in share(self.batches.batch(step), rank, world):
            rng = np.random.default_rng((self.config.seed, step, 3, place))
            samples.append(self.sample(self.train[index], draw, rng))
        return collate(samples)

    def draw(self, step: int) -> StepDraw:
        """What all videos of a step share, so that they keep about one length and one number of shots."""
        rng = np.random.default_rng((self.config.seed, step, 2))
        shots, offset = int(rng.choice(self.config.exemplars.shots)), int(rng.choice(self.offsets))
        return shots, offset, float(rng.uniform(self.config.crop, 1.0))

    def sample(self, video: VideoAnnotation, draw: StepDraw, rng: Rng) -> Sample:
        """One video as the step's draw says, with its own exemplars and cut."""
        shots, offset, kept = draw
        entry = self.store.entries[video.name]
        first = offset if offset < entry.cells else 0
        tokens_THWC, cut = self._cut(self.cache.sequence(video.name, first), kept, rng)
        first += cut or 0
        density_T, period_T = self._maps(video, len(tokens_THWC), first, keep=cut is None)
        count = float(density_T.sum())
        if cut is None:
            # The truth is the annotated count, less what lies before this start.
            before = sum((start + end) / 2 < first * entry.step for start, end in video.spans)
            count = float(video.count - before)
        exemplars = []
        for source, index in self.sampler.choose(video, shots, rng):
            shot_THWC, (start, end) = self.cache.exemplar(source, index)
            exemplars.append((shot_THWC, (end - start) / entry.step if source == video.name else 0.0))
        return Sample(tokens_THWC, density_T, period_T, count, exemplars)

    def _maps(self, video: VideoAnnotation, cells: int, first: int, *, keep: bool) -> tuple[Array32, Array32]:
        """Target map and length of the repetition at each cell, from cell `first` on; kept when they recur."""
        known = self._known_maps.get((video.name, first, cells))
        if known is not None:
            return known
        step = self.store.entries[video.name].step
        start = first * step
        density_T = self.target(video.spans, cells=cells, step=step, start=start)
        period_T = period_map(video.spans, cells=cells, step=step, start=start).astype(np.float32)
        if keep:
            self._known_maps[video.name, first, cells] = density_T, period_T
        return density_T, period_T

    def _cut(self, tokens_THWC: Tensor, kept: float, rng: Rng) -> tuple[Tensor, int | None]:
        """A part of a sequence and the cell it starts at; None when it is the whole sequence."""
        cells = len(tokens_THWC)
        if self.config.by_window:
            window = self.store.layout.window_cells
            begin = window * int(rng.integers(-(-cells // window)))
            return tokens_THWC[begin : begin + window], begin
        length = max(round(cells * kept), 1)
        if length == cells:
            return tokens_THWC, None
        begin = int(rng.integers(cells - length + 1))
        return tokens_THWC[begin : begin + length], begin

    def target(self, spans: Sequence[Span], *, cells: int, step: float, start: float) -> Array32:
        """The map to learn for `cells` cells from `start` seconds on."""
        if self.config.target == "rate":
            lasting = [span for span in spans if span[1] > span[0]]
            return rate_map(lasting, cells=cells, step=step, start=start).astype(np.float32)
        config = self.config
        made = density_map(spans, cells=cells, step=step, start=start, sigma=config.sigma, kappa=config.kappa)
        return made.astype(np.float32)

    def forward(self, network: nn.Module, batch: TokenBatch) -> tuple[HeadOutput, Target]:
        """Decode a batch. The start on the time sinusoid is drawn when sequences are windows of a video."""
        decoder = head_of(network)
        dtype = next(decoder.parameters()).dtype
        exemplars = batch.exemplars_BSTHWC
        drawn = self.config.by_window and network.training
        output = decoder(
            as_layers_take_it(batch.tokens_BTHWC, dtype),
            None if exemplars is None else as_layers_take_it(exemplars, dtype),
            shots_B=batch.shots_B,
            cells_BS=batch.cells_BS,
            valid_BT=batch.valid_BT,
            lengths=None if batch.valid_BT is None else batch.lengths,
            time_offset=float(torch.randint(0, 200, (1,))) if drawn else 0.0,
        )
        return output, batch.target

    def validate(self, network: nn.Module) -> dict[str, float]:
        """MAE (rounded) and OBO of the validation videos, zero-shot."""
        if not self.valid:
            return {}
        shifts, by_window = self.config.validation_shifts, self.config.by_window
        rows = predict(network, self.store, self.valid, shifts=shifts, by_window=by_window, device=self.device)
        truth = np.array([row.count for row in rows])
        counted = np.array([row.predicted for row in rows])
        return {"mae": mae(truth, counted), "obo": obo(truth, counted)}


def collate(samples: Sequence[Sample]) -> TokenBatch:
    """Samples stacked, padded to the longest where they differ; the decoder packs them."""
    lengths = tuple(len(sample.tokens_THWC) for sample in samples)
    equal = min(lengths) == max(lengths)
    longest = max(lengths)
    density_BT = np.zeros((len(samples), longest), np.float32)
    period_BT = np.zeros((len(samples), longest), np.float32)
    for row, sample in enumerate(samples):
        density_BT[row, : lengths[row]] = sample.density_T
        period_BT[row, : lengths[row]] = sample.period_T
    valid_BT = None if equal else torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    target = Target(
        density_BT=torch.from_numpy(density_BT),
        count_B=torch.tensor([sample.count for sample in samples]),
        valid_BT=valid_BT,
        period_BT=torch.from_numpy(period_BT),
    )
    tokens = [sample.tokens_THWC for sample in samples]
    tokens_BTHWC = torch.stack(tokens) if equal else pad_sequence(tokens, batch_first=True)  # equal: a single launch
    return TokenBatch(tokens_BTHWC, lengths, valid_BT, *stack_exemplars([s.exemplars for s in samples]), target)


def stack_exemplars(
    exemplars: Sequence[Sequence[tuple[Tensor, float]]],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """exemplars_BSTHWC, shots_B, cells_BS of each sample's exemplars; slots nobody fills repeat zeros."""
    slots = max(len(shots) for shots in exemplars)
    if slots == 0:
        return None, None, None
    example = next(shots[0][0] for shots in exemplars if shots)
    empty = (torch.zeros_like(example), 1.0)
    filled = [[*shots, *[empty] * (slots - len(shots))] for shots in exemplars]
    stacked = torch.stack([shot for shots in filled for shot, _ in shots])
    tokens_BSTHWC = stacked.view(len(filled), slots, *example.shape)
    cells_BS = torch.tensor([[length for _, length in shots] for shots in filled])
    equal = all(len(shots) == slots for shots in exemplars)
    shots_B = None if equal else torch.tensor([len(shots) for shots in exemplars])
    return tokens_BSTHWC, shots_B, cells_BS


def _stored(videos: Sequence[VideoAnnotation], store: TokenStore, what: str) -> list[VideoAnnotation]:
    found = [video for video in videos if video.name in store and store.entries[video.name].cells > 0]
    if not found:
        raise DataError(f"{store.path} holds none of the {len(videos)} videos to {what}; encode them first")
    damaged = store.incomplete([video.name for video in found])
    if damaged:
        raise DataError(
            f"{store.path}: the tokens of {', '.join(damaged[:3])} ({len(damaged)} in all) are damaged or missing; "
            "delete their files and encode again"
        )
    return found
