"""What turns the decoder's tokens into a density map: the paper's linear head and the rate head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from escounts.decision.rules import RULES


@dataclass(frozen=True)
class DensityHeadConfig:
    """One number per token, averaged over space. scale: the layer's output is `scale` times the density."""

    kind: Literal["density"] = "density"
    scale: float = 1.0


@dataclass(frozen=True)
class RateHeadConfig:
    """A gate (inside a repetition?) and log-spaced period classes; periods in time cells.

    video_width: hidden channels of the outputs about the video as a whole (does the motion alternate, does anything
    repeat); 0 leaves them out.
    """

    kind: Literal["rate"] = "rate"
    min_period: float = 2.2
    max_period: float = 84.0
    bins: int = 40
    video_width: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.min_period < self.max_period or self.bins < 2:
            raise ValueError(
                f"rate head got periods {self.min_period} to {self.max_period} in {self.bins} bins; "
                "it takes 0 < min_period < max_period and at least 2 bins"
            )


HeadConfig: TypeAlias = DensityHeadConfig | RateHeadConfig


@dataclass
class HeadOutput:
    """A density map and, from the rate head, what it was made of. All float32; padded cells hold 0 density.

    density_BT: repetitions per cell. gate_logits_BT: is the cell inside a repetition. period_logits_BTP:
    over log-spaced periods. rate_BT: E[1/period], repetitions per cell if the gate is open.
    video_logits_BTK: each cell's opinion of the whole video, in the order of VIDEO_OUTPUTS; see pool_video_logits.
    """

    density_BT: Tensor
    gate_logits_BT: Tensor | None = None
    period_logits_BTP: Tensor | None = None
    rate_BT: Tensor | None = None
    video_logits_BTK: Tensor | None = None


VIDEO_OUTPUTS = ("alternates", "repeats")
"""What is said of the whole video: the motion has two opposite sides; there is a repetition at all."""


class DensityHead(nn.Module):
    """Linear to one channel, mean over space. Nothing keeps the density from going below zero."""

    def __init__(self, config: DensityHeadConfig, channels: int) -> None:
        super().__init__()
        self.scale = config.scale
        self.linear = nn.Linear(channels, 1)

    def forward(self, x_BTHWC: Tensor) -> HeadOutput:
        """Tokens -> density."""
        map_BT = self.linear(x_BTHWC).float().mean((2, 3)).squeeze(-1)
        return HeadOutput(density_BT=map_BT / self.scale)


class RateHead(nn.Module):
    """density = sigmoid(gate) * E[1 / period].

    Without an exemplar the phase of a repetition is undefined, so a bump "at its middle" cannot be learnt;
    a period can. The density still sums to the count.
    """

    def __init__(self, config: RateHeadConfig, channels: int) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(channels, 1 + config.bins)
        self.video: nn.Sequential | None = None
        if config.video_width:
            self.video = nn.Sequential(
                nn.Linear(channels, config.video_width),
                nn.GELU(),
                nn.Linear(config.video_width, len(VIDEO_OUTPUTS)),
            )

    def forward(self, x_BTHWC: Tensor) -> HeadOutput:
        """Tokens -> density, rate and confidence, computed in float32."""
        logits_BTP = self.linear(x_BTHWC).float().mean((2, 3))
        gate_logits_BT, period_logits_BTP = logits_BTP[..., 0], logits_BTP[..., 1:]
        gate_BT = gate_logits_BT.sigmoid()
        rate_BT, _ = read_periods(self.config, period_logits_BTP)
        return HeadOutput(
            density_BT=gate_BT * rate_BT,
            gate_logits_BT=gate_logits_BT,
            period_logits_BTP=period_logits_BTP,
            rate_BT=rate_BT,
            video_logits_BTK=None if self.video is None else self.video(x_BTHWC.mean((2, 3))).float(),
        )


def pool_video_logits(video_logits_BTK: Tensor, gate_logits_BT: Tensor, valid_BT: Tensor | None = None) -> Tensor:
    """What the cells say together, (B, K): their mean, where a repetition is seen far more than elsewhere."""
    weight_BT = gate_logits_BT.detach().float().sigmoid() + RULES.video_floor
    if valid_BT is not None:
        weight_BT = weight_BT * valid_BT
    weighted_BK = (video_logits_BTK * weight_BT[..., None]).sum(1)
    return weighted_BK / weight_BT.sum(1, keepdim=True).clamp_min(1e-6)


ONE_PERIOD = 0.35
"""Periods that are one and the same, in log. A cell that wavers between a cycle and a side means one of them."""


def read_periods(
    config: RateHeadConfig,
    logits_BTP: Tensor,
    *,
    about: float | None = None,
    spread: float = 1.0,
    near: float | None = None,
) -> tuple[Tensor, Tensor]:
    """E[1 / period] in repetitions per cell, and the largest period probability.

    about: cells that a repetition is known to last, give or take a factor of exp(spread), before the video is seen.
    near: only classes within a factor of exp(near) of the likeliest speak; what lies between two is neither of them.
    """
    bins_P = period_bins(config, logits_BTP.device)
    if about is not None:
        logits_BTP = logits_BTP - ((bins_P / about).log() / spread).square() / 2
    share_BTP = logits_BTP.softmax(-1)
    sharpness_BT, likeliest_BT = share_BTP.max(-1)
    if near is not None:
        log_P = bins_P.log()
        share_BTP = share_BTP * ((log_P - log_P[likeliest_BT][..., None]).abs() <= near)
        share_BTP = share_BTP / share_BTP.sum(-1, keepdim=True)
    return (share_BTP / bins_P).sum(-1), sharpness_BT


@lru_cache(maxsize=32)
def period_bins(config: RateHeadConfig, device: torch.device) -> Tensor:
    """The period of every class in time cells, log-spaced, (bins,), float32 whatever the model's type."""
    low, high = math.log(config.min_period), math.log(config.max_period)
    with torch.inference_mode(False):
        return torch.linspace(low, high, config.bins, dtype=torch.float64).exp().float().to(device)


def build_head(config: HeadConfig, channels: int) -> DensityHead | RateHead:
    """The head a config asks for."""
    if isinstance(config, RateHeadConfig):
        return RateHead(config, channels)
    return DensityHead(config, channels)
