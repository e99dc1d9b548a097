"""TransRAC's head on stored tokens: multi-scale windows → correlation matrices → transformer → density map.

Written anew from Hu et al., "TransRAC: Encoding Multi-scale Temporal Correlation with Transformers for Repetitive
Action Counting" (CVPR 2022), section 4; the encoder below it is the one that made the tokens. Legend: B videos,
T cells, W sampled frames, C channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.baselines.sequences import RivalHead, clamped, over_time, spatial_maximum
from escounts.nn.heads import HeadOutput
from escounts.nn.positions import small_parameter


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
