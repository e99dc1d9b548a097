"""What MAE ViT and VideoMAE share: space-time patches through pre-norm blocks with joint attention.

They differ in how patches get their positions (`embed`), in a class token, and in the names of their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.encoders.interface import IMAGENET_MEAN, IMAGENET_STD, Encoder, EncoderSpec

MOST_TOKENS = 65_536
"""Of one window: each has a position in a table that is built beside the weights."""


@dataclass(frozen=True)
class VitConfig:
    """width: channels of a token; heads divide it. patch: frames × pixels × pixels of one token.

    key_bias: the projection to keys has a bias (MAE: yes, VideoMAE: no). norm_eps: of every LayerNorm.
    """

    width: int = 768
    depth: int = 12
    heads: int = 12
    frames: int = 16
    size: int = 224
    patch: tuple[int, int, int] = (2, 16, 16)
    key_bias: bool = True
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        places = self.cells * self.grid[0] * self.grid[1]
        if not 0 < places <= MOST_TOKENS:
            raise ValueError(f"{places} tokens in a window; 1 to {MOST_TOKENS} are taken")

    @property
    def cells(self) -> int:
        """Time cells of one window's tokens."""
        return self.frames // self.patch[0]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of one cell's tokens."""
        return self.size // self.patch[1], self.size // self.patch[2]


class Attention(nn.Module):
    """Joint self-attention over all tokens, one matrix product for queries, keys and values."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.qkv = nn.Linear(width, 3 * width, bias=config.key_bias)
        self.proj = nn.Linear(width, width)
        if not config.key_bias:
            self.q_bias = nn.Parameter(torch.zeros(width))
            self.v_bias = nn.Parameter(torch.zeros(width))

    def forward(self, tokens_BNC: Tensor) -> Tensor:
        batch, length, width = tokens_BNC.shape
        bias = self.qkv.bias
        if bias is None:
            bias = torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        qkv = F.linear(tokens_BNC, self.qkv.weight, bias)
        query, key, value = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Mlp(nn.Module):
    """Linear ×4, exact GELU, Linear back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(tokens)))
        return out


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = Mlp(config.width)

    def forward(self, tokens_BNC: Tensor) -> Tensor:
        tokens_BNC = tokens_BNC + self.attn(self.norm1(tokens_BNC))
        out: Tensor = tokens_BNC + self.mlp(self.norm2(tokens_BNC))
        return out


class Vit(Encoder):
    """Patches through blocks and, unless it is left out, a norm; positions are the subclass's."""

    def __init__(self, config: VitConfig, *, name: str, final_norm: bool = True) -> None:
        super().__init__(
            EncoderSpec(
                name=name,
                channels=config.width,
                window_frames=config.frames,
                every=4,
                size=config.size,
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
                cells=config.cells,
                grid=config.grid,
                exemplar_frames=config.frames,
            )
        )
        self.config = config
        self.patch_embed = PatchEmbedding(config.patch, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps) if final_norm else nn.Identity()

    def embed(self, frames_BTCHW: Tensor) -> Tensor:
        """The blocks' input (B, N, C): patches with their positions in the order t, h, w; other tokens before."""
        raise TypeError(f"{type(self).__name__} does not define embed")

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        tokens_BNC = self.embed(frames_BTCHW)
        for block in self.blocks:
            tokens_BNC = block(tokens_BNC)
        rows, columns = self.config.grid
        out: Tensor = self.norm(tokens_BNC[:, -self.config.cells * rows * columns :])
        return out.view(len(out), self.config.cells, rows, columns, -1)


class PatchEmbedding(nn.Module):
    """One Linear over every patch of time × height × width, and a LayerNorm where asked for.

    The same numbers as a convolution whose stride is its kernel, as one matrix product.
    """

    def __init__(self, patch: tuple[int, int, int], width: int, *, norm: bool = False) -> None:
        super().__init__()
        self.patch = patch
        self.proj = nn.Linear(3 * patch[0] * patch[1] * patch[2], width)
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        """(B, T, 3, H, W) → (B, T / p, H / q, W / r, width), for patches of p×q×r."""
        batch, frames, colours, height, width = frames_BTCHW.shape
        p, q, r = self.patch
        if frames % p or height % q or width % r:
            raise ValueError(f"{frames} frames of {height}×{width} pixels do not divide into patches of {p}×{q}×{r}")
        blocks = frames_BTCHW.reshape(batch, frames // p, p, colours, height // q, q, width // r, r)
        # the order of a Conv3d kernel inside a patch: colour, time, height, width
        patches_BTHWC = blocks.permute(0, 1, 4, 6, 3, 2, 5, 7).flatten(4)
        out: Tensor = self.norm(self.proj(patches_BTHWC))
        return out


def linear_from_convolution(kernel: Tensor) -> Tensor:
    """The Linear weight (out, in·p·q·r) of a patch convolution's kernel (out, in, p, q, r)."""
    return kernel.flatten(1)
