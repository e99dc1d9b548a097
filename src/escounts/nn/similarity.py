"""Self-similarity features: how much every time cell looks like the cells before and after it.

Zero-shot, a repetition has no defined phase, but it returns: the distance of a cell to its neighbours falls
at every multiple of the period. The features read exactly that and are added to the decoder's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class SimilarityConfig:
    """lags: cells looked back and forth. cell_*: heads that compare place by place (the grid's cells are
    concatenated); pooled_*: heads that compare the mean over space, blind to where it happens."""

    lags: int = 64
    cell_heads: int = 4
    cell_channels: int = 16
    pooled_heads: int = 4
    pooled_channels: int = 32
    widths: tuple[int, int, int] = (32, 48, 64)


class SelfSimilarity(nn.Module):
    """tokens_BTHWC → features_BTC. Distances in float32: small differences of large sums."""

    def __init__(self, config: SimilarityConfig, channels: int) -> None:
        super().__init__()
        self.config = config
        heads = config.cell_heads + config.pooled_heads
        self.cell = nn.Linear(channels, config.cell_heads * config.cell_channels)
        self.pooled = nn.Linear(channels, config.pooled_heads * config.pooled_channels)
        self.sharpness = nn.Parameter(torch.zeros(heads))
        first, second, third = config.widths
        self.reader = nn.Sequential(
            *_conv(2 * heads + 1, first),
            *_conv(first, second, lag_stride=2),
            *_conv(second, second, time_dilation=2),
            *_conv(second, third, lag_stride=2),
            *_conv(third, third, time_dilation=4),
        )
        self.out = nn.Linear(third * (config.lags // 4), channels)

    def forward(self, tokens_BTHWC: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        if valid_BT is not None:
            return self._one_by_one(tokens_BTHWC, valid_BT)
        with torch.autocast(tokens_BTHWC.device.type, enabled=False):
            bands = self.bands(tokens_BTHWC.float())
        read_BCTL = self.reader(bands)
        features_BTC: Tensor = self.out(read_BCTL.permute(0, 2, 1, 3).flatten(2))
        return features_BTC

    def _one_by_one(self, tokens_BTHWC: Tensor, valid_BT: Tensor) -> Tensor:
        """Videos of different length: the normalisation runs over time, so padding would leak into it."""
        lengths = valid_BT.sum(1).tolist()
        features_BTC = tokens_BTHWC.new_zeros(*tokens_BTHWC.shape[:2], self.out.out_features)
        for row, length in enumerate(lengths):
            features_BTC[row, :length] = self(tokens_BTHWC[row : row + 1, :length])[0].to(features_BTC.dtype)
        return features_BTC

    def bands(self, tokens_BTHWC: Tensor) -> Tensor:
        """Similarity to the cells `lag` before and after, and which exist: (B, 2·heads+1, T, lags)."""
        distance_BHTT = self.distances(tokens_BTHWC)
        batch, heads, cells, _ = distance_BHTT.shape
        time = torch.arange(cells, device=distance_BHTT.device)[:, None]
        lag = torch.arange(self.config.lags, device=distance_BHTT.device)[None]
        before, after = time - lag, time + lag
        exists = [(before >= 0)[None], (after < cells)[None]]
        index = [before.clamp_min(0), after.clamp_max(cells - 1)]
        gathered = [distance_BHTT.gather(3, i.expand(batch, heads, -1, -1)) for i in index]
        known = exists[0][:, None].float()
        # Distances have no natural unit: divide by their own mean over the band.
        mean = (gathered[0] * known).sum((2, 3)) / known.sum((2, 3)).clamp_min(1.0)
        scale = 2.0 * F.softplus(self.sharpness + 0.54)[None] / mean.clamp_min(1e-6)
        similar = [torch.exp(-g * scale[..., None, None]) * e[:, None] for g, e in zip(gathered, exists, strict=True)]
        return torch.cat([*similar, known.expand(batch, 1, cells, self.config.lags)], 1)

    def distances(self, tokens_BTHWC: Tensor) -> Tensor:
        """Squared distances between all pairs of time cells, one map per head: (B, heads, T, T)."""
        c = self.config
        batch, cells = tokens_BTHWC.shape[:2]
        tokens_BTNC = tokens_BTHWC.flatten(2, 3)
        by_cell = self.cell(tokens_BTNC).view(batch, cells, -1, c.cell_heads, c.cell_channels)
        by_cell = by_cell.permute(0, 3, 1, 2, 4).flatten(3)
        pooled = self.pooled(tokens_BTNC.mean(2)).view(batch, cells, c.pooled_heads, c.pooled_channels)
        return torch.cat([_squared_distances(by_cell), _squared_distances(pooled.transpose(1, 2))], 1)


def _squared_distances(x_BHTD: Tensor) -> Tensor:
    norm_BHT = (x_BHTD * x_BHTD).sum(-1)
    product_BHTT = x_BHTD @ x_BHTD.transpose(-1, -2)
    return (norm_BHT[..., :, None] + norm_BHT[..., None, :] - 2 * product_BHTT).clamp_min(0)


def _conv(inputs: int, outputs: int, *, lag_stride: int = 1, time_dilation: int = 1) -> list[nn.Module]:
    """A 3×3 convolution over (time, lag) that keeps the time axis, normalised."""
    conv = nn.Conv2d(
        inputs, outputs, 3, stride=(1, lag_stride), padding=(time_dilation, 1), dilation=(time_dilation, 1)
    )
    return [conv, nn.GroupNorm(4, outputs), nn.GELU()]
