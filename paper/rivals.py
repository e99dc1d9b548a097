"""Rivals' heads on stored tokens, RepNet's and TransRAC's, with what they minimise, as runs of the package's trainer.
The encoder below them is the one that made the tokens.

RepNet: self-similarity → transformer → period length and periodicity. Written anew from Dwibedi et al., "Counting Out
Time: Class Agnostic Video Repetition Counting in the Wild" (CVPR 2020), sections 3.1 to 3.4.
TransRAC: multi-scale windows → correlation matrices → transformer → density map. Written anew from Hu et al.,
"TransRAC: Encoding Multi-scale Temporal Correlation with Transformers for Repetitive Action Counting" (CVPR 2022),
section 4.
Legend: B videos, T cells, N windows, W cells of a window (TransRAC: sampled frames), C channels, P period lengths.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.attention import small_parameter
from escounts.nn.decoder import DecoderConfig
from escounts.nn.heads import HeadOutput
from escounts.research.datasets.tokens import TokenLayout
from escounts.research.evaluation.by_name import ModelPlace, open_model
from escounts.research.evaluation.models import EvaluatedModel
from escounts.research.training.batches import ExemplarSampling
from escounts.research.training.objective import DensityObjectiveConfig, Target
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.recipes import Recipe
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import OBJECTIVES, OTHER_HEADS, TokenRun
from escounts.results import DensityKind


class RivalHead(nn.Module, ABC):
    """Called as the decoder is; exemplars and the start in time mean nothing to these methods."""

    map_kind: DensityKind

    def forward(
        self, tokens_BTHWC: Tensor, *exemplars: Tensor | None, valid_BT: Tensor | None = None, **others: Any
    ) -> HeadOutput:
        """Encoder tokens → map."""
        batch, cells = tokens_BTHWC.shape[:2]
        # Made on the device: moved there, it would wait for all that the device has in hand.
        real_B = torch.full((batch,), cells, device=tokens_BTHWC.device) if valid_BT is None else valid_BT.sum(1)
        return self.read_tokens(tokens_BTHWC, real_B)

    @abstractmethod
    def read_tokens(self, tokens_BTHWC: Tensor, real_B: Tensor) -> HeadOutput:
        """real_B: cells of each video that are not padding."""


def over_time(in_channels: int, width: int) -> nn.Conv3d:
    """A 3-D convolution that reaches three cells to either side: each frame in its context."""
    return nn.Conv3d(in_channels, width, 3, padding=(3, 1, 1), dilation=(3, 1, 1))


def spatial_maximum(context: nn.Module, tokens_BTHWC: Tensor) -> Tensor:
    """(B, T, C): a 3-D convolution over the tokens, ReLU, and the maximum over space."""
    x_BCTHW = context(tokens_BTHWC.permute(0, 4, 1, 2, 3)).relu()
    out: Tensor = x_BCTHW.amax((3, 4)).transpose(1, 2)
    return out


def clamped(frames_BTC: Tensor, places: Tensor, real_B: Tensor) -> Tensor:
    """(B, P, C): the frames at some places, (P,) for every video or (B, P); past a video's end its last frame."""
    at_BP = places.expand(len(frames_BTC), -1) if places.ndim == 1 else places
    at_BP = torch.minimum(at_BP, real_B[:, None] - 1)
    return frames_BTC.gather(1, at_BP[..., None].expand(-1, -1, frames_BTC.shape[2]))


@dataclass(frozen=True)
class RepNetConfig:
    """window: cells looked at together (the paper's 64 frames). periods: period lengths 1 … periods are told apart,
    half a window. temperature: of the softmax over a row of the self-similarity matrix, in mean squared distances.
    strides: speeds tried at inference, one of them drawn at each training step."""

    kind: Literal["repnet"] = "repnet"
    in_channels: int = 192
    channels: int = 512
    heads: int = 4
    filters: int = 32
    window: int = 64
    periods: int = 32
    temperature: float = 0.25
    strides: tuple[int, ...] = (1, 2, 3, 4)

    def build(self) -> RepNet:
        return RepNet(self)


@dataclass
class RepNetOutput(HeadOutput):
    """stride: cells a period class stands for, a class k being a period of (k + 1) · stride cells."""

    stride: int = 1


class RepNet(RivalHead):
    """Tokens in, period length and periodicity per cell out; density = periodicity / period."""

    map_kind = "rate"

    def __init__(self, config: RepNetConfig) -> None:
        super().__init__()
        self.config = config
        width = config.channels
        # Section 3.1: a 3-D convolution over time gives each frame its context, the maximum over space follows.
        self.context = over_time(config.in_channels, width)
        self.matrix = nn.Conv2d(1, config.filters, 3, padding=1)
        self.embed = nn.Linear(config.filters * config.window, width)
        self.position = small_parameter(config.window, width)
        self.period = _Branch(width, config.heads, config.periods)
        self.periodicity = _Branch(width, config.heads, 1)

    def read_tokens(self, tokens_BTHWC: Tensor, real_B: Tensor) -> RepNetOutput:
        """The rate map, at a drawn speed in training, at the most certain one otherwise."""
        frames_BTC = spatial_maximum(self.context, tokens_BTHWC)
        if self.training:
            stride = self.config.strides[int(torch.randint(len(self.config.strides), (1,)))]
            return self._at(stride, frames_BTC, real_B)
        tried = [self._at(stride, frames_BTC, real_B) for stride in self.config.strides]
        return _most_certain(tried, real_B)

    def _at(self, stride: int, frames_BTC: Tensor, real_B: Tensor) -> RepNetOutput:
        """What the head says when every stride-th cell is shown to it, spread over all cells."""
        batch, cells, width = frames_BTC.shape
        window = self.config.window
        shown = -(-cells // stride)
        places = torch.arange(-(-shown // window) * window, device=frames_BTC.device) * stride
        windows_NWC = clamped(frames_BTC, places, real_B).reshape(-1, window, width)
        period_NWP, periodicity_NW1 = self._read(windows_NWC)
        back_T = torch.arange(cells, device=frames_BTC.device) // stride
        period_BTP = period_NWP.reshape(batch, -1, self.config.periods)[:, back_T]
        gate_BT = periodicity_NW1.reshape(batch, -1)[:, back_T]
        length_BT = (period_BTP.argmax(-1) + 1) * stride
        # Section 3.4: every frame adds 1 / period, unless it is not periodic.
        rate_BT = length_BT.float().reciprocal()
        return RepNetOutput((gate_BT > 0) * rate_BT, gate_BT, period_BTP, rate_BT, stride=stride)

    def _read(self, windows_NWC: Tensor) -> tuple[Tensor, Tensor]:
        """Period logits (N, W, P) and periodicity logits (N, W, 1) of windows of frames."""
        similarity_NWW = self_similarity(windows_NWC, self.config.temperature)
        features_NFWW = self.matrix(similarity_NWW[:, None]).relu()
        x_NWC = self.embed(features_NFWW.permute(0, 2, 3, 1).flatten(2)) + self.position
        return self.period(x_NWC).float(), self.periodicity(x_NWC).float()


def self_similarity(windows_NWC: Tensor, temperature: float) -> Tensor:
    """(N, W, W): how alike every two frames of a window are, each row a softmax times its length, so of order 1: else
    the positions drown it for the first epochs.

    Squared distances are measured by their mean over the window. The paper's temperature, 13.544, fits the paper's
    features; on tokens whose distances are 200 a frame was like itself alone, and nothing was learnt.
    """
    with torch.autocast(windows_NWC.device.type, enabled=False):
        x = windows_NWC.float()
        distance_NWW = torch.cdist(x, x).square()
        typical_N11 = distance_NWW.mean((1, 2), keepdim=True).clamp(min=1e-6)
        return (-distance_NWW / (temperature * typical_N11)).softmax(-1) * x.shape[1]


class _Branch(nn.Module):
    """A transformer layer and two linear layers: one for the period's length, one for periodicity."""

    def __init__(self, width: int, heads: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, heads, width, dropout=0.0, batch_first=True)
        self.read = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x_NWC: Tensor) -> Tensor:
        out: Tensor = self.read(self.layer(x_NWC))
        return out


def _most_certain(tried: list[RepNetOutput], real_B: Tensor) -> RepNetOutput:
    """Each video at the speed whose periods are most certain (section 3.4), a speed for each video."""
    cells = tried[0].density_BT.shape[1]
    valid_BT = torch.arange(cells, device=real_B.device) < real_B[:, None]
    certain_SB = []
    for output in tried:
        assert output.period_logits_BTP is not None and output.gate_logits_BT is not None
        score_BT = output.period_logits_BTP.softmax(-1).amax(-1) * output.gate_logits_BT.sigmoid()
        certain_SB.append((score_BT * valid_BT).sum(1) / real_B)
    best_B = torch.stack(certain_SB).argmax(0)
    density_SBT = torch.stack([output.density_BT for output in tried])
    chosen_BT = density_SBT[best_B, torch.arange(len(best_B), device=best_B.device)]
    return RepNetOutput(chosen_BT * valid_BT, rate_BT=chosen_BT)


@dataclass(frozen=True)
class TransRACConfig:
    """frames: sampled evenly from the whole video, however long (the paper's 64). scales: frames of the windows at
    each of the scales. heads: correlation matrices of each scale, and heads of the transformer."""

    kind: Literal["transrac"] = "transrac"
    in_channels: int = 192
    channels: int = 512
    heads: int = 4
    filters: int = 32
    frames: int = 64
    scales: tuple[int, ...] = (1, 4, 8)
    dropout: float = 0.25

    def build(self) -> TransRAC:
        return TransRAC(self)


class TransRAC(RivalHead):
    """Tokens in, density map out."""

    map_kind = "peaks"

    def __init__(self, config: TransRACConfig) -> None:
        super().__init__()
        self.config = config
        width = config.channels
        self.context = nn.Sequential(over_time(config.in_channels, width), nn.BatchNorm3d(width))
        self.query_key = nn.Linear(width, 2 * width)
        self.matrices = nn.Sequential(
            nn.Conv2d(config.heads * len(config.scales), config.filters, 3, padding=1),
            nn.BatchNorm2d(config.filters),
            nn.ReLU(),
            nn.Dropout(config.dropout),
        )
        self.embed = nn.Sequential(nn.Linear(config.filters * config.frames, width), nn.LayerNorm(width))
        self.position = small_parameter(config.frames, width)
        self.layer = nn.TransformerEncoderLayer(width, config.heads, width, dropout=config.dropout, batch_first=True)
        self.read = nn.Sequential(
            nn.Linear(width, width), nn.LayerNorm(width), nn.Dropout(config.dropout), nn.ReLU(), nn.Linear(width, 1)
        )

    def read_tokens(self, tokens_BTHWC: Tensor, real_B: Tensor) -> HeadOutput:
        """The density map."""
        batch, cells = tokens_BTHWC.shape[:2]
        frames = self.config.frames
        step_B = real_B.float() / frames
        middle_W = torch.arange(frames, device=real_B.device) + 0.5
        places_BW = (middle_W[None] * step_B[:, None]).long()
        grid = tokens_BTHWC.shape[2:]
        sampled_BWHWC = clamped(tokens_BTHWC.flatten(2), places_BW, real_B).reshape(batch, frames, *grid)
        matrices_BHWW = torch.cat([self._correlation(sampled_BWHWC, scale) for scale in self.config.scales], 1)
        x_BWC = self.embed(self.matrices(matrices_BHWW).permute(0, 2, 3, 1).flatten(2)).relu()
        per_frame_BW = self.read(self.layer(x_BWC + self.position)).squeeze(-1).float()
        return HeadOutput(_over_cells(per_frame_BW, cells, step_B, real_B))

    def _correlation(self, tokens_BWHWC: Tensor, scale: int) -> Tensor:
        """(B, heads, W, W): how much the windows of one scale look like one another."""
        x = tokens_BWHWC
        if scale > 1:
            flat = x.flatten(2).transpose(1, 2)
            padded = F.pad(flat, ((scale - 1) // 2, scale // 2), mode="replicate")
            x = F.avg_pool1d(padded, scale, stride=1).transpose(1, 2).reshape(x.shape)
        frames_BWC = spatial_maximum(self.context, x)
        query, key = (
            part.unflatten(-1, (self.config.heads, -1)).transpose(1, 2)
            for part in self.query_key(frames_BWC).chunk(2, -1)
        )
        scores: Tensor = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return scores.softmax(-1)


def _over_cells(per_frame_BW: Tensor, cells: int, step_B: Tensor, real_B: Tensor) -> Tensor:
    """(B, T): a map of sampled frames spread over the cells of each video, its sum kept up to interpolation."""
    frames = per_frame_BW.shape[1]
    cell_T = torch.arange(cells, device=step_B.device)
    place_BT = ((cell_T + 0.5)[None] / step_B[:, None] - 0.5).clamp(0, frames - 1)
    low_BT = place_BT.floor().long()
    part_BT = place_BT - low_BT
    high_BT = (low_BT + 1).clamp_max(frames - 1)
    value_BT = per_frame_BW.gather(1, low_BT) * (1 - part_BT) + per_frame_BW.gather(1, high_BT) * part_BT
    return value_BT / step_B[:, None] * (cell_T < real_B[:, None])


@dataclass(frozen=True)
class PeriodObjectiveConfig:
    """RepNet's objective: cross-entropy of the period's length, binary cross-entropy of periodicity.

    periods: lengths 1 … periods, in cells shown to the head; a longer repetition is not periodic at that speed.
    """

    kind: Literal["period"] = "period"
    periods: int = 32

    def weights(self) -> Mapping[str, float]:
        return {"period": 1.0, "gate": 1.0}

    def terms(self, output: HeadOutput, target: Target) -> dict[str, Tensor]:
        """RepNet, section 3.3: the class of the period's length inside repetitions, and whether a cell is inside."""
        if not isinstance(output, RepNetOutput) or output.gate_logits_BT is None or output.period_logits_BTP is None:
            raise ValueError("the period objective needs RepNet's head")
        if target.period_BT is None:
            raise ValueError("the period objective needs the length of each cell's repetition")
        valid_BT = torch.ones_like(target.density_BT) if target.valid_BT is None else target.valid_BT.float()
        shown_BT = target.period_BT.float() / output.stride
        inside_BT = (shown_BT > 0) & (shown_BT.round() <= self.periods)
        known_BT = inside_BT * valid_BT
        class_BT = (shown_BT.round().long() - 1).clamp(0, self.periods - 1)
        logs_BTP = output.period_logits_BTP.float().log_softmax(-1)
        period_error_BT = -logs_BTP.gather(-1, class_BT[..., None]).squeeze(-1)
        gate_error_BT = F.binary_cross_entropy_with_logits(
            output.gate_logits_BT.float(), inside_BT.float(), reduction="none"
        )
        return {
            "period": (period_error_BT * known_BT).sum() / known_BT.sum().clamp(min=1),
            "gate": (gate_error_BT * valid_BT).sum() / valid_BT.sum(),
        }


OTHER_HEADS |= {"repnet": RepNetConfig, "transrac": TransRACConfig}
OBJECTIVES["period"] = PeriodObjectiveConfig

Method = Literal["repnet", "transrac"]
TRANSRAC_KAPPA = 1 / 6
"""TransRAC's peaks: three standard deviations on either side fill the repetition."""


@dataclass(frozen=True)
class RivalRecipe(Recipe):
    """A recipe whose head is a rival's; trainer, data and order are everybody's."""

    method: Method = "repnet"

    def run_of(
        self, decoder: DecoderConfig, train: TrainConfig, tokens: StoredTokensConfig, layout: TokenLayout
    ) -> TokenRun:
        """The rival's head with its own targets and objective, without exemplars."""
        tokens = replace(tokens, exemplars=ExemplarSampling(shots=(0,), other_video=0.0))
        if self.method == "repnet":
            config = RepNetConfig(in_channels=layout.channels)
            objective = PeriodObjectiveConfig(periods=config.periods)
            return TokenRun(config, train, replace(tokens, target="rate"), objective)
        tokens = replace(tokens, sigma="variable", kappa=TRANSRAC_KAPPA)
        return TokenRun(
            TransRACConfig(in_channels=layout.channels), train, tokens, DensityObjectiveConfig(count_weight=0.0)
        )


def open_with_rivals(name: str, place: ModelPlace, *, split: str) -> EvaluatedModel:
    """As open_model, where this module is imported: in a process of its own a rival's run can be read, too."""
    return open_model(name, place, split=split)
