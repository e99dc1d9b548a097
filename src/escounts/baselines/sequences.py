"""What the rivals' heads share: frames of a video picked by place, and features averaged to one vector per frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
