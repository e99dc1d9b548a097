"""`swin3d-t`: Video Swin Transformer (tiny) of Liu et al.; attention inside windows of 8×7×7 patches.

16×224×224 → 8×7×7 tokens of 768. Modules are named as in torchvision's state dict; the authors' own file
(`swin_tiny_patch244_window877`) is converted to the same names.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.encoders.interface import Encoder, EncoderSpec, Read, Tensors, without
from escounts.nn.encoders.vit import PatchEmbedding, linear_from_convolution
from escounts.nn.window_attention import Size, attend_in_windows, new_bias_table


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
    """x + windowed attention(norm(x)), then x + mlp(norm(x)); every second block shifts by half a window.

    A clipped window is indexed by the corner of the full bias table, as the public weights were trained.
    """

    def __init__(self, channels: int, heads: int, window: Size, *, shifted: bool) -> None:
        super().__init__()
        self.window, self.shifted = window, shifted
        self.norm1 = nn.LayerNorm(channels)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(channels, 3 * channels), "proj": nn.Linear(channels, channels)})
        self.attn.register_parameter("relative_position_bias_table", new_bias_table(window, heads))
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.ModuleDict({"0": nn.Linear(channels, 4 * channels), "3": nn.Linear(4 * channels, channels)})

    def forward(self, tokens_BTHWC: Tensor) -> Tensor:
        tokens_BTHWC = tokens_BTHWC + attend_in_windows(
            self.norm1(tokens_BTHWC),
            self.attn["qkv"],
            self.attn["proj"],
            self.attn.get_parameter("relative_position_bias_table"),
            self.window,
            shifted=self.shifted,
            padding="released",
            bias="released",
        )
        out: Tensor = tokens_BTHWC + self.mlp["3"](F.gelu(self.mlp["0"](self.norm2(tokens_BTHWC))))
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


def from_torchvision(tensors: Tensors, **options: Any) -> Read | None:
    """Our names already; only the patch kernel becomes a matrix."""
    if "features.0.0.attn.relative_position_bias_table" not in tensors:
        return None
    kernel = "patch_embed.proj.weight"
    kept = without(tensors, "head.*", "cls_head.*", "*.relative_position_index")
    return {name: linear_from_convolution(x) if name == kernel else x for name, x in kept.items()}, {}


def from_authors(tensors: Tensors, **options: Any) -> Read | None:
    """Video-Swin names (`backbone.layers.S.blocks.B…`, `layers.S.downsample…`) → ours."""
    table = "layers.0.blocks.0.attn.relative_position_bias_table"
    if table not in tensors and f"backbone.{table}" not in tensors:
        return None
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
