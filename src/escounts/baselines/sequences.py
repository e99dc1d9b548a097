"""What the rivals' heads share: how they are called, frames picked by place, and one vector of features per frame."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from escounts.nn.heads import HeadOutput
from escounts.results import DensityKind


class RivalHead(nn.Module, ABC):
    """Called as the decoder is; exemplars and the start in time mean nothing to these methods."""

    map_kind: DensityKind

    def forward(
        self,
        tokens_BTHWC: Tensor,
        exemplars_BSTHWC: Tensor | None = None,
        *,
        shots_B: Tensor | None = None,
        cells_BS: Tensor | None = None,
        valid_BT: Tensor | None = None,
        lengths: tuple[int, ...] | None = None,
        time_offset: float | Tensor = 0.0,
    ) -> HeadOutput:
        """Encoder tokens → map."""
        batch, cells = tokens_BTHWC.shape[:2]
        real = torch.full((batch,), cells) if valid_BT is None else valid_BT.sum(1)
        return self.read_tokens(tokens_BTHWC, real.to(tokens_BTHWC.device))

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
