"""Where and when a token is: time sinusoids, spatial positions, exemplar length; and pooling to a grid."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LENGTH_FREQUENCIES = 8
"""Sines and cosines of log length a LengthEmbedding reads; frequency k is 0.5 * 2**(0.6 k)."""


@lru_cache(maxsize=32)
def time_frequencies(channels: int, device: torch.device) -> Tensor:
    """Angle per time cell of every sine and cosine pair, (channels / 2,): 1 down to 1/10000.

    Cached and not a buffer: a model moved to bfloat16 must keep its angles, which grow with time, in float32.
    """
    with torch.inference_mode(False):
        pairs = torch.arange(0, channels, 2, dtype=torch.float64)
        return torch.exp(-math.log(10000.0) * pairs / channels).float().to(device)


def time_position(cells: Tensor, channels: int) -> Tensor:
    """Sinusoidal position of time cells, (...,) -> (..., channels): sine in even channels, cosine in odd ones."""
    angles = cells[..., None].float() * time_frequencies(channels, cells.device)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def small_parameter(*shape: int) -> nn.Parameter:
    """A parameter of that shape, normally distributed with a standard deviation of 0.02."""
    values = torch.empty(*shape)
    # On the meta device there is nothing to fill, and drawing would import torch's compiler: a second of start-up.
    return nn.Parameter(values if values.is_meta else values.normal_() * 0.02)


class SpatialPosition(nn.Module):
    """Adds a position to every place of the grid: a learnt table, a frozen one, or none.

    The frozen table starts as sinusoids of row (first half of the channels) and column (second half); a
    checkpoint may bring its own.
    """

    table_HWC: Tensor | None

    def __init__(self, kind: Literal["none", "learnt", "frozen"], grid: tuple[int, int], channels: int) -> None:
        super().__init__()
        if kind == "learnt":
            self.table_HWC = small_parameter(*grid, channels)
        elif kind == "frozen":
            rows = time_position(torch.arange(grid[0]), channels // 2)[:, None].expand(-1, grid[1], -1)
            columns = time_position(torch.arange(grid[1]), channels // 2)[None].expand(grid[0], -1, -1)
            self.register_buffer("table_HWC", torch.cat([rows, columns], dim=-1))
        else:
            self.table_HWC = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W, C) -> the same shape."""
        return x if self.table_HWC is None else x + self.table_HWC


class LengthEmbedding(nn.Module):
    """How long a marked repetition lasts: sines and cosines of its log length through two linear layers.

    A length of 0 means unknown (an exemplar of another video, at its own tempo) and adds nothing.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.widen = nn.Linear(2 * LENGTH_FREQUENCIES, channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, cells_BS: Tensor) -> Tensor:
        """Length in time cells (B, S) -> (B, S, C)."""
        steps = torch.arange(LENGTH_FREQUENCIES, dtype=torch.float32, device=cells_BS.device)
        angles = cells_BS.float().clamp(min=1e-3).log()[..., None] * (0.5 * 2.0 ** (0.6 * steps))
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1).to(self.widen.weight.dtype)
        known = (cells_BS > 0)[..., None]
        return self.out(F.gelu(self.widen(waves))) * known  # type: ignore[no-any-return]


def pool_grid(tokens_BTHWC: Tensor, grid: tuple[int, int]) -> Tensor:
    """Average-pools every time cell to the grid; bins overlap when the sizes do not divide."""
    batch, time, height, width, channels = tokens_BTHWC.shape
    if (height, width) == grid:
        return tokens_BTHWC
    if height < grid[0] or width < grid[1]:
        raise ValueError(
            f"got tokens on a {height}×{width} grid for a decoder of {grid[0]}×{grid[1]}; pooling cannot "
            "enlarge: choose a decoder grid no larger than the encoder's"
        )
    if height % grid[0] == 0 and width % grid[1] == 0:
        blocks = tokens_BTHWC.reshape(batch, time, grid[0], height // grid[0], grid[1], -1, channels)
        return blocks.mean(5).mean(3)  # one after the other: on a CPU both at once take fifteen times as long
    flat = tokens_BTHWC.flatten(0, 1).permute(0, 3, 1, 2)
    pooled = F.adaptive_avg_pool2d(flat, grid).permute(0, 2, 3, 1)
    return pooled.reshape(batch, time, *grid, channels)
