"""Attention over all tokens: self-attention, cross-attention to exemplars, and the feed-forward layer.

Every product goes through a fused kernel, so no tokens-by-tokens matrix is ever in memory. Videos of different
length come packed (`Packing`), one after another in a batch of one: padding costs nothing.
Shapes: B batch, N video tokens, M exemplar tokens, C channels, h heads, d channels of one head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from escounts.nn.packing import Packing

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
        return F.scaled_dot_product_attention(q_BhNd, k_BhMd, v_BhMd)
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
        seen.append(F.scaled_dot_product_attention(q_1hnd, k_1hmd, v_1hmd)[0].transpose(0, 1))
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
