"""`swin3d-t`: Video Swin Transformer (tiny) of Liu et al.; attention inside windows of 8×7×7 patches.

16×224×224 → 8×7×7 tokens of 768. Modules are named as in torchvision's state dict; the authors' own file
(`swin_tiny_patch244_window877`) is converted to the same names.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.device import as_layers_take_it
from escounts.nn.encoders.interface import IMAGENET_MEAN, IMAGENET_STD, Encoder, EncoderSpec
from escounts.nn.encoders.public import SWIN3D_T, SWIN3D_T_AUTHORS, PublicWeights, Tensors
from escounts.nn.encoders.vit import PatchEmbedding, linear_from_convolution

Size = tuple[int, int, int]
MASKED = -100.0
"""Added to the attention of two patches that the shift put side by side; the value of the public models."""


class Swin3D(Encoder):
    """Four stages of windowed attention, halving height and width between them; time stays."""

    def __init__(
        self,
        *,
        width: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        heads: tuple[int, ...] = (3, 6, 12, 24),
        window: Size = (8, 7, 7),
        frames: int = 16,
        size: int = 224,
    ) -> None:
        side = -(-size // (4 * 2 ** (len(depths) - 1)))
        super().__init__(
            EncoderSpec(
                name="swin3d-t",
                channels=width * 2 ** (len(depths) - 1),
                window_frames=frames,
                every=4,
                size=size,
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
                cells=frames // 2,
                grid=(side, side),
                exemplar_frames=frames,
            )
        )
        self.patch_embed = PatchEmbedding((2, 4, 4), width, norm=True)
        stages: list[nn.Module] = []
        for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
            channels = width * 2**stage
            blocks = [WindowBlock(channels, count, window, shifted=index % 2 == 1) for index in range(depth)]
            stages.append(nn.Sequential(*blocks))
            if stage < len(depths) - 1:
                stages.append(PatchMerging(channels))
        self.features = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(self.spec.channels)

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        out: Tensor = self.norm(self.features(self.patch_embed(frames_BTCHW)))
        return out


class WindowBlock(nn.Module):
    """x + windowed attention(norm(x)), then x + mlp(norm(x)); every second block shifts by half."""

    def __init__(self, channels: int, heads: int, window: Size, *, shifted: bool) -> None:
        super().__init__()
        shift = (window[0] // 2, window[1] // 2, window[2] // 2) if shifted else (0, 0, 0)
        self.norm1 = nn.LayerNorm(channels)
        self.attn = WindowAttention(channels, heads, window, shift)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.ModuleDict({"0": nn.Linear(channels, 4 * channels), "3": nn.Linear(4 * channels, channels)})

    def forward(self, tokens_BTHWC: Tensor) -> Tensor:
        tokens_BTHWC = tokens_BTHWC + self.attn(self.norm1(tokens_BTHWC))
        out: Tensor = tokens_BTHWC + self.mlp["3"](F.gelu(self.mlp["0"](self.norm2(tokens_BTHWC))))
        return out


class WindowAttention(nn.Module):
    """Self-attention within windows of patches, with a learnt bias per relative position and head."""

    def __init__(self, channels: int, heads: int, window: Size, shift: Size) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        offsets = (2 * window[0] - 1) * (2 * window[1] - 1) * (2 * window[2] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.empty(offsets, heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.relative_position_index: Tensor
        self.register_buffer("relative_position_index", relative_position_index(window), persistent=False)

    def forward(self, tokens_BTHWC: Tensor) -> Tensor:
        batch, *extent = tokens_BTHWC.shape[:4]
        window = tuple(min(w, n) for w, n in zip(self.window, extent, strict=True))
        # a window as large as the map has nothing to shift
        shift = tuple(s if w < n else 0 for s, w, n in zip(self.shift, window, extent, strict=True))
        padding = [-n % w for n, w in zip(extent, window, strict=True)]
        padded = tuple(n + p for n, p in zip(extent, padding, strict=True))
        # moved about as the layers take it: in half as many bytes where that is bf16
        x = F.pad(as_layers_take_it(tokens_BTHWC), (0, 0, 0, padding[2], 0, padding[1], 0, padding[0]))
        mask_WNN = None
        if any(shift):
            x = x.roll([-s for s in shift], dims=(1, 2, 3))
            mask_WNN = shift_mask(padded, window, shift, x.device)
        x = self._attend(_to_windows(x, window), batch, mask_WNN)
        x = _from_windows(x, batch, padded, window)
        if any(shift):
            x = x.roll(shift, dims=(1, 2, 3))
        return x[:, : extent[0], : extent[1], : extent[2]]

    def _attend(self, x_MNC: Tensor, batch: int, mask_WNN: Tensor | None) -> Tensor:
        """Attention within each of M = batch · W windows of N patches."""
        count, length, channels = x_MNC.shape
        query, key, value = self.qkv(x_MNC).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        # a clipped window is indexed by the corner of the full table, as the public weights were trained
        index = self.relative_position_index[:length, :length]
        # contiguous: CUDA's fused kernels take no bias of another stride; all scores are then written out in float32
        bias = self.relative_position_bias_table[index].permute(2, 0, 1).to(query.dtype).contiguous()
        if mask_WNN is not None:
            # windows beside heads, so that one mask serves the whole batch
            bias = (mask_WNN.to(bias.dtype)[:, None] + bias).flatten(0, 1)
            shape = (batch, -1, length, channels // self.heads)
            query, key, value = query.reshape(shape), key.reshape(shape), value.reshape(shape)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias[None])
        mixed = mixed.reshape(count, self.heads, length, -1).transpose(1, 2).reshape(count, length, channels)
        out: Tensor = self.proj(mixed)
        return out


class PatchMerging(nn.Module):
    """Each 2×2 of patches → one with twice the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)
        self.norm = nn.LayerNorm(4 * channels)

    def forward(self, tokens_BTHWC: Tensor) -> Tensor:
        height, width = tokens_BTHWC.shape[2:4]
        x = F.pad(tokens_BTHWC, (0, 0, 0, width % 2, 0, height % 2))
        # top left, bottom left, top right, bottom right
        quarters = [x[:, :, row::2, column::2] for column, row in product((0, 1), (0, 1))]
        out: Tensor = self.reduction(self.norm(torch.cat(quarters, dim=-1)))
        return out


def relative_position_index(window: Size) -> Tensor:
    """Row of the bias table for every pair of patches in a window, (N, N) int64."""
    axes = torch.meshgrid(*(torch.arange(side) for side in window), indexing="ij")
    place_3N = torch.stack(axes).flatten(1)
    offset_3NN = place_3N[:, :, None] - place_3N[:, None, :]
    row = torch.zeros_like(offset_3NN[0])
    for axis, side in enumerate(window):
        row = row * (2 * side - 1) + offset_3NN[axis] + side - 1
    return row


@lru_cache(maxsize=32)
def shift_mask(
    padded: tuple[int, ...], window: tuple[int, ...], shift: tuple[int, ...], device: torch.device
) -> Tensor:
    """0 where two patches of a shifted window were neighbours before, MASKED where not; (windows, N, N)."""
    region = torch.zeros(1, *padded, 1, device=device)
    cuts = [
        (slice(0, -w), slice(-w, -s), slice(-s, None)) if s else (slice(None),)
        for w, s in zip(window, shift, strict=True)
    ]
    for number, (t, h, w) in enumerate(product(cuts[0], cuts[1], cuts[2])):
        region[0, t, h, w] = number
    region_MN = _to_windows(region, window).squeeze(-1)
    apart = region_MN[:, None, :] != region_MN[:, :, None]
    return apart.float() * MASKED


def _to_windows(x_BTHWC: Tensor, window: tuple[int, ...]) -> Tensor:
    """(B, T, H, W, C) → (B · windows, patches of a window, C)."""
    batch, frames, height, width, channels = x_BTHWC.shape
    t, h, w = window
    x = x_BTHWC.view(batch, frames // t, t, height // h, h, width // w, w, channels)
    return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, t * h * w, channels)


def _from_windows(x_MNC: Tensor, batch: int, padded: tuple[int, ...], window: tuple[int, ...]) -> Tensor:
    (frames, height, width), (t, h, w) = padded, window
    x = x_MNC.view(batch, frames // t, height // h, width // w, t, h, w, -1)
    return x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(batch, frames, height, width, -1)


def swin3d_t(**options: Any) -> Swin3D:
    """Video Swin-T. Options: keywords of Swin3D."""
    return Swin3D(**options)


def from_torchvision(tensors: Tensors) -> dict[str, Tensor]:
    """Our names already; only the patch kernel becomes a matrix."""
    kernel = "patch_embed.proj.weight"
    return {name: linear_from_convolution(x) if name == kernel else x for name, x in tensors.items()}


def from_authors(tensors: Tensors) -> dict[str, Tensor]:
    """Video-Swin names (`backbone.layers.S.blocks.B…`, `layers.S.downsample…`) → ours."""
    ours: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        inner = name.removeprefix("backbone.")
        if inner.startswith("layers."):
            stage, kind, rest = inner.removeprefix("layers.").split(".", 2)
            if kind == "blocks":
                rest = rest.replace(".mlp.fc1.", ".mlp.0.").replace(".mlp.fc2.", ".mlp.3.")
                inner = f"features.{2 * int(stage)}.{rest}"
            elif kind == "downsample":
                inner = f"features.{2 * int(stage) + 1}.{rest}"
        ours[inner] = tensor
    return from_torchvision(ours)


_UNNEEDED = ("head.*", "cls_head.*", "*.relative_position_index")

PUBLIC = (
    PublicWeights(
        source=SWIN3D_T,
        recognises=lambda tensors: "features.0.0.attn.relative_position_bias_table" in tensors,
        convert=from_torchvision,
        known_unneeded=_UNNEEDED,
    ),
    PublicWeights(
        source=SWIN3D_T_AUTHORS,
        recognises=lambda tensors: any(
            prefix + "layers.0.blocks.0.attn.relative_position_bias_table" in tensors for prefix in ("", "backbone.")
        ),
        convert=from_authors,
        known_unneeded=_UNNEEDED,
    ),
)
ENCODERS = {"swin3d-t": swin3d_t}
