"""`mae-vit-b`: the spatiotemporal MAE of Feichtenhofer et al., encoder only, as ESCounts uses it.

16×224×224 → 8×14×14 tokens of 768. Learnt separable positions (space + time), a class token that takes part
and is dropped, a final norm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from escounts.nn.encoders.public import MAE_VIT_B, PublicWeights, Tensors
from escounts.nn.encoders.vit import Vit, VitConfig, linear_from_convolution


class MaeVit(Vit):
    """A ViT over space-time patches with a class token and separable learnt positions."""

    def __init__(self, config: VitConfig, *, name: str = "mae-vit-b") -> None:
        super().__init__(config, name=name)
        rows, columns = config.grid
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.pos_embed_class = nn.Parameter(torch.zeros(1, 1, config.width))
        self.pos_embed_spatial = nn.Parameter(torch.zeros(1, rows * columns, config.width))
        self.pos_embed_temporal = nn.Parameter(torch.zeros(1, config.cells, config.width))
        for parameter in (self.cls_token, self.pos_embed_spatial, self.pos_embed_temporal):
            nn.init.trunc_normal_(parameter, std=0.02)

    def embed(self, frames_BTCHW: Tensor) -> Tensor:
        """(B, 1 + T'·H'·W', C): the class token, then the patches."""
        patches_BTNC = self.patch_embed(frames_BTCHW).flatten(2, 3)
        positions_TNC = self.pos_embed_temporal.transpose(0, 1) + self.pos_embed_spatial
        tokens_BNC = (patches_BTNC + positions_TNC).flatten(1, 2)
        first_B1C = (self.cls_token + self.pos_embed_class).expand(len(tokens_BNC), -1, -1)
        return torch.cat((first_B1C, tokens_BNC), dim=1)


def mae_vit_b(**options: Any) -> MaeVit:
    """ViT-B, 16 frames every 4 at 224². Options: fields of VitConfig.

    norm_eps is 1e-5, the value ESCounts encoded with; PySlowFast pre-trained with 1e-6.
    """
    return MaeVit(VitConfig(**options))


def from_pyslowfast(tensors: Tensors) -> dict[str, Tensor]:
    """PySlowFast names → ours: q, k and v are joined in that order, the patch kernel becomes a matrix."""
    ours: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        head, _, kind = name.rpartition(".")
        if name == "patch_embed.proj.weight":
            ours[name] = linear_from_convolution(tensor)
        elif name.startswith("blocks.") and head.endswith((".attn.q", ".attn.k", ".attn.v")):
            stem = head[:-2]
            parts = [tensors.get(f"{stem}.{letter}.{kind}") for letter in "qkv"]
            present = [part for part in parts if part is not None]
            if len(present) == len(parts):
                ours[f"{stem}.qkv.{kind}"] = torch.cat(present)
            else:
                ours[name] = tensor  # half a projection: strict loading names it
        else:
            ours[name] = tensor
    return ours


PUBLIC = (
    PublicWeights(
        source=MAE_VIT_B,
        recognises=lambda tensors: "pos_embed_spatial" in tensors and "blocks.0.norm1.weight" in tensors,
        convert=from_pyslowfast,
        known_unneeded=("mask_token", "decoder_embed.*", "decoder_pos_embed*", "pred_head.*"),
    ),
)
