"""RepNet's head on stored tokens: self-similarity → transformer → period length and periodicity.

Written anew from Dwibedi et al., "Counting Out Time: Class Agnostic Video Repetition Counting in the Wild" (CVPR
2020), sections 3.1 to 3.4; the frame encoder below it is the one that made the tokens. Legend: B videos, T cells,
N windows of W cells, C channels, P period lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from escounts.baselines.sequences import RivalHead, clamped, over_time, spatial_maximum
from escounts.nn.heads import HeadOutput
from escounts.nn.positions import small_parameter


@dataclass(frozen=True)
class RepNetConfig:
    """window: cells looked at together (the paper's 64 frames). periods: period lengths 1 … periods are told apart,
    half a window. temperature: of the softmax over a row of the self-similarity matrix. strides: speeds tried at
    inference, one of them drawn at each training step."""

    kind: Literal["repnet"] = "repnet"
    in_channels: int = 192
    channels: int = 512
    heads: int = 4
    filters: int = 32
    window: int = 64
    periods: int = 32
    temperature: float = 13.544
    strides: tuple[int, ...] = (1, 2, 3, 4)


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
        with torch.autocast(windows_NWC.device.type, enabled=False):
            x = windows_NWC.float()
            similarity_NWW = (-torch.cdist(x, x).square() / self.config.temperature).softmax(-1)
            # A row sums to 1; times its length it is of order 1, or the positions drown it for the first epochs.
            similarity_NWW = similarity_NWW * self.config.window
        features_NFWW = self.matrix(similarity_NWW[:, None]).relu()
        x_NWC = self.embed(features_NFWW.permute(0, 2, 3, 1).flatten(2)) + self.position
        return self.period(x_NWC).float(), self.periodicity(x_NWC).float()


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
