"""Attention over all tokens: where and when a token is, self-attention, cross-attention to exemplars, and the
feed-forward layer.

Positions are time sinusoids, a table over space, and an exemplar's length. Every product goes through a fused kernel,
so no tokens-by-tokens matrix is ever in memory. Videos of different length come packed (`Packing`), one after another
in a batch of one: padding costs nothing. Shapes: B batch, N video tokens, M exemplar tokens, C channels, h heads, d
channels of one head.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from escounts.nn.device import attention
from escounts.nn.packing import Packing

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


ROWS_AT_ONCE = 8192
"""Rows the feed-forward layer widens at a time when no gradient is needed: bounds its memory."""


def split_heads(x_BNC: Tensor, heads: int) -> Tensor:
    """(B, N, C) -> (B, heads, N, C / heads), a view."""
    return x_BNC.view(*x_BNC.shape[:2], heads, -1).transpose(1, 2)


def merge_heads(x_BhNd: Tensor) -> Tensor:
    """(B, heads, N, d) -> (B, N, heads * d)."""
    return x_BhNd.transpose(1, 2).flatten(2)


def attend(
    q_BhNd: Tensor, k_BhMd: Tensor, v_BhMd: Tensor, packing: Packing | None, *, keys_packed: bool = True
) -> Tensor:
    """Attention of every token to the keys of its sample, (B, h, N, d).

    In a packed batch (B = 1) keys are packed alike, or they are a batch of their own with M for every sample.
    """
    if packing is None:
        return attention(q_BhNd, k_BhMd, v_BhMd)
    samples, _, each, _ = k_BhMd.shape
    q_Nhd, k_Mhd, v_Mhd = (x.transpose(1, 2).flatten(0, 1) for x in (q_BhNd, k_BhMd, v_BhMd))
    if packing.kernel is not None and _narrow(q_BhNd):
        starts, most = packing.starts, packing.most
        if not keys_packed:
            starts = torch.arange(0, (samples + 1) * each, each, device=starts.device, dtype=torch.int32)
            most = each
        seen_Nhd = packing.kernel(q_Nhd, k_Mhd, v_Mhd, packing.starts, starts, packing.most, most)
    else:
        keys = packing.tokens if keys_packed else (each,) * samples
        seen_Nhd = _attend_one_by_one(q_Nhd, k_Mhd, v_Mhd, packing.tokens, keys)
    return seen_Nhd.transpose(0, 1)[None]


def _narrow(q: Tensor) -> bool:
    """Does the packed kernel take such a q?"""
    return q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256


def _attend_one_by_one(
    q_Nhd: Tensor, k_Mhd: Tensor, v_Mhd: Tensor, queries: tuple[int, ...], keys: tuple[int, ...]
) -> Tensor:
    """A call per sample; queries, keys: how many each sample has."""
    samples = (torch.split(x, list(lengths)) for x, lengths in ((q_Nhd, queries), (k_Mhd, keys), (v_Mhd, keys)))
    seen = []
    for sample in zip(*samples, strict=True):
        q_1hnd, k_1hmd, v_1hmd = (x.transpose(0, 1)[None] for x in sample)
        seen.append(attention(q_1hnd, k_1hmd, v_1hmd)[0].transpose(0, 1))
    return torch.cat(seen)


class SelfAttention(nn.Module):
    """Every token attends to every valid token of its sample (eq. 2); returns the increment, no residual."""

    def __init__(self, channels: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels, bias=bias)
        self.out = nn.Linear(channels, channels)

    def forward(self, x_BNC: Tensor, packing: Packing | None = None) -> Tensor:
        """x: tokens; packing: whose they are in a packed batch."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.norm(x_BNC)).chunk(3, dim=-1))
        return self.out(merge_heads(attend(q, k, v, packing)))  # type: ignore[no-any-return]


class KeyValue(NamedTuple):
    """Keys and values of one exemplar (or of z_0) for one block; batch 1 stands for any batch."""

    key_BhMd: Tensor
    value_BhMd: Tensor

    def expand(self, batch: int) -> KeyValue:
        """The same keys and values for `batch` samples, without copying."""
        if self.key_BhMd.shape[0] == batch:
            return self
        return KeyValue(*(x.expand(batch, -1, -1, -1) for x in self))


class CrossAttention(nn.Module):
    """Video tokens attend to each exemplar by itself with shared weights; the results are averaged (eq. 3).

    Exemplar tokens are not normalised here. The output projection is linear and the weights sum to one, so
    averaging comes first and the projection runs once.
    """

    def __init__(self, channels: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(channels)
        self.query = nn.Linear(channels, channels, bias=bias)
        self.key_value = nn.Linear(channels, 2 * channels, bias=bias)
        self.out = nn.Linear(channels, channels)

    def keys_values(self, tokens_BMC: Tensor) -> KeyValue:
        """What the block needs to know of one exemplar; compute once, use for every call."""
        key, value = self.key_value(tokens_BMC).chunk(2, dim=-1)
        return KeyValue(split_heads(key, self.heads), split_heads(value, self.heads))

    def forward(
        self,
        x_BNC: Tensor,
        shots: tuple[KeyValue, ...],
        weights_BNS: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """The increment. weights: share of each shot, rows summing to one, of every token or (N = 1) of every sample;
        None means equal shares."""
        q_BhNd = split_heads(self.query(self.norm(x_BNC)), self.heads)
        samples = len(x_BNC) if packing is None else len(packing.cells)
        mixed_BhNd: Tensor | None = None
        for slot, shot in enumerate(shots):
            key, value = shot.expand(samples)
            seen_BhNd = attend(q_BhNd, key, value, packing, keys_packed=False)
            if weights_BNS is not None:
                seen_BhNd = seen_BhNd * weights_BNS[:, None, :, slot, None].to(seen_BhNd.dtype)
            mixed_BhNd = seen_BhNd if mixed_BhNd is None else mixed_BhNd + seen_BhNd
        if mixed_BhNd is None:
            raise ValueError("cross-attention got no exemplars; give some, or the keys and values of z_0")
        if weights_BNS is None and len(shots) > 1:
            mixed_BhNd = mixed_BhNd / len(shots)
        return self.out(merge_heads(mixed_BhNd))  # type: ignore[no-any-return]

    def attend_to_self(self, x_BNC: Tensor, packing: Packing | None = None) -> Tensor:
        """The same weights with the video as its own exemplar: the decoder of Table 3a."""
        normed_BNC = self.norm(x_BNC)
        q = split_heads(self.query(normed_BNC), self.heads)
        key, value = self.keys_values(normed_BNC)
        return self.out(merge_heads(attend(q, key, value, packing)))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """LayerNorm, Linear, GELU, Linear (the MLP of eqs. 4 and 5); returns the increment, no residual."""

    def __init__(self, channels: int, ratio: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, ratio * channels)
        self.narrow = nn.Linear(ratio * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        if torch.is_grad_enabled():
            return self._rows(x)
        rows = x.flatten(0, -2)
        return torch.cat([self._rows(part) for part in torch.split(rows, ROWS_AT_ONCE)]).view(x.shape)

    def _rows(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.widen(self.norm(x))))  # type: ignore[no-any-return]


class CrossBlock(nn.Module):
    """Self-attention, cross-attention to the exemplars, MLP, each with a residual (eqs. 2 to 4)."""

    def __init__(self, channels: int, heads: int, *, mlp_ratio: int, bias: bool) -> None:
        super().__init__()
        self.self_attention = SelfAttention(channels, heads, bias=bias)
        self.cross_attention = CrossAttention(channels, heads, bias=bias)
        self.mlp = FeedForward(channels, mlp_ratio)

    def forward(
        self,
        x_BNC: Tensor,
        shots: tuple[KeyValue, ...],
        weights_BNS: Tensor | None,
        packing: Packing | None,
    ) -> Tensor:
        """Without shots the video is its own exemplar (Table 3a)."""
        x_BNC = x_BNC + self.self_attention(x_BNC, packing)  # eq. 2
        if shots:
            x_BNC = x_BNC + self.cross_attention(x_BNC, shots, weights_BNS, packing)  # eq. 3
        else:
            x_BNC = x_BNC + self.cross_attention.attend_to_self(x_BNC, packing)
        x_BNC = x_BNC + self.mlp(x_BNC)  # eq. 4
        return x_BNC
