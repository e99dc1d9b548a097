"""Attention over all tokens: self-attention, cross-attention to exemplars, and the feed-forward layer.

Every product goes through `scaled_dot_product_attention`, so no tokens-by-tokens matrix is ever in memory.
Shapes: B batch, N video tokens, M exemplar tokens, C channels, h heads, d channels of one head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS_AT_ONCE = 8192
"""Rows the feed-forward layer widens at a time when no gradient is needed: bounds its memory."""


def split_heads(x_BNC: Tensor, heads: int) -> Tensor:
    """(B, N, C) -> (B, heads, N, C / heads), a view."""
    return x_BNC.view(*x_BNC.shape[:2], heads, -1).transpose(1, 2)


def merge_heads(x_BhNd: Tensor) -> Tensor:
    """(B, heads, N, d) -> (B, N, heads * d)."""
    return x_BhNd.transpose(1, 2).flatten(2)


class Padding(NamedTuple):
    """Which tokens of a batch are real.

    valid_B11N: True where a token may be attended to. lengths: real tokens of every sample when they come first;
    each sample is then a call of its own: the fastest kernels take no mask, and padding costs nothing.
    """

    valid_B11N: Tensor
    lengths: tuple[int, ...] | None


def attend(q_BhNd: Tensor, k_BhNd: Tensor, v_BhNd: Tensor, padding: Padding | None) -> Tensor:
    """Attention of every token to the real tokens of its sample, (B, h, N, d)."""
    if padding is None:
        return F.scaled_dot_product_attention(q_BhNd, k_BhNd, v_BhNd)
    if padding.lengths is None:
        return F.scaled_dot_product_attention(q_BhNd, k_BhNd, v_BhNd, attn_mask=padding.valid_B11N)
    batch, heads, most, _ = q_BhNd.shape
    # Rows of the whole batch, cut into every sample's real tokens and its padding: one copy forwards (cat) and one
    # backwards (of the cut), however many samples.
    sizes = [size for n in padding.lengths for size in (n, most - n)]
    pieces = [torch.split(x.transpose(1, 2).flatten(0, 1), sizes)[::2] for x in (q_BhNd, k_BhNd, v_BhNd)]
    nothing = q_BhNd.new_zeros(most, heads * v_BhNd.shape[-1])
    rows = []
    for q_nhd, k_nhd, v_nhd in zip(*pieces, strict=True):
        sample = (x.transpose(0, 1)[None] for x in (q_nhd, k_nhd, v_nhd))
        seen_nC = merge_heads(F.scaled_dot_product_attention(*sample))[0]
        rows += [seen_nC, nothing[: most - len(seen_nC)]]
    return split_heads(torch.cat(rows).view(batch, most, -1), heads)


class SelfAttention(nn.Module):
    """Every token attends to every valid token of its sample (eq. 2); returns the increment, no residual."""

    def __init__(self, channels: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels, bias=bias)
        self.out = nn.Linear(channels, channels)

    def forward(self, x_BNC: Tensor, padding: Padding | None = None) -> Tensor:
        """x: tokens; padding: which of them are real, None when all are."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.norm(x_BNC)).chunk(3, dim=-1))
        return self.out(merge_heads(attend(q, k, v, padding)))  # type: ignore[no-any-return]


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

    def forward(self, x_BNC: Tensor, shots: tuple[KeyValue, ...], weights_BS: Tensor | None = None) -> Tensor:
        """The increment. weights: share of each shot, rows summing to one; None means equal shares."""
        q_BhNd = split_heads(self.query(self.norm(x_BNC)), self.heads)
        mixed_BhNd: Tensor | None = None
        for slot, shot in enumerate(shots):
            key, value = shot.expand(q_BhNd.shape[0])
            seen_BhNd = F.scaled_dot_product_attention(q_BhNd, key, value)
            if weights_BS is not None:
                seen_BhNd = seen_BhNd * weights_BS[:, slot, None, None, None].to(seen_BhNd.dtype)
            mixed_BhNd = seen_BhNd if mixed_BhNd is None else mixed_BhNd + seen_BhNd
        if mixed_BhNd is None:
            raise ValueError("cross-attention got no shots; give exemplars or use the zero-shot memory")
        if weights_BS is None and len(shots) > 1:
            mixed_BhNd = mixed_BhNd / len(shots)
        return self.out(merge_heads(mixed_BhNd))  # type: ignore[no-any-return]

    def attend_to_self(self, x_BNC: Tensor, padding: Padding | None = None) -> Tensor:
        """The same weights with the video as its own exemplar: the decoder of Table 3a."""
        normed_BNC = self.norm(x_BNC)
        q = split_heads(self.query(normed_BNC), self.heads)
        key, value = self.keys_values(normed_BNC)
        return self.out(merge_heads(attend(q, key, value, padding)))  # type: ignore[no-any-return]


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
        weights_BS: Tensor | None,
        padding: Padding | None,
    ) -> Tensor:
        """Without shots the video is its own exemplar (Table 3a)."""
        x_BNC = x_BNC + self.self_attention(x_BNC, padding)  # eq. 2
        if shots:
            x_BNC = x_BNC + self.cross_attention(x_BNC, shots, weights_BS)  # eq. 3
        else:
            x_BNC = x_BNC + self.cross_attention.attend_to_self(x_BNC, padding)
        x_BNC = x_BNC + self.mlp(x_BNC)  # eq. 4
        return x_BNC
