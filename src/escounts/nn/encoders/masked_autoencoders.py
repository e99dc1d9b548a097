"""`mae-vit-b` and `videomae-s`, `-b`, `-l`: masked autoencoders, encoder only, 16×224×224 → 8×14×14 tokens.

`mae-vit-b`: the spatiotemporal MAE of Feichtenhofer et al., as ESCounts uses it. Tokens of 768, learnt separable
positions (space + time), a class token that takes part and is dropped, a final norm.

`videomae-*`: VideoMAE of Tong et al., in the form the Hugging Face checkpoints have. Fixed sinusoidal positions, no
class token, keys without a bias; pre-trained checkpoints end in a norm, fine-tuned ones do not (their norm belongs to
the classifier).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from escounts.nn.encoders.public import MAE_VIT_B, VIDEOMAE_B, VIDEOMAE_L, VIDEOMAE_S, PublicWeights, Tensors
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


_MAE_VIT = (
    PublicWeights(
        source=MAE_VIT_B,
        recognises=lambda tensors: "pos_embed_spatial" in tensors and "blocks.0.norm1.weight" in tensors,
        convert=from_pyslowfast,
        known_unneeded=("mask_token", "decoder_embed.*", "decoder_pos_embed*", "pred_head.*"),
    ),
)


SIZES = {
    "videomae-s": {"width": 384, "depth": 12, "heads": 6},
    "videomae-b": {"width": 768, "depth": 12, "heads": 12},
    "videomae-l": {"width": 1024, "depth": 24, "heads": 16},
}


class VideoMae(Vit):
    """A ViT over space-time patches with sinusoidal positions."""

    def __init__(self, config: VitConfig, *, name: str = "videomae-b", final_norm: bool = True) -> None:
        super().__init__(config, name=name, final_norm=final_norm)
        places = config.cells * config.grid[0] * config.grid[1]
        self.positions_NC: Tensor
        self.register_buffer("positions_NC", sinusoid_table(places, config.width), persistent=False)

    def embed(self, frames_BTCHW: Tensor) -> Tensor:
        """(B, T'·H'·W', C): the patches."""
        tokens_BNC: Tensor = self.patch_embed(frames_BTCHW).flatten(1, 3) + self.positions_NC
        return tokens_BNC


def sinusoid_table(places: int, width: int) -> Tensor:
    """Position p, channel c: sin or cos (even or odd c) of p / 10000^(2⌊c/2⌋ / width); (places, width)."""
    channel = torch.arange(width, dtype=torch.float64)
    rate = torch.pow(10000.0, -2 * torch.div(channel, 2, rounding_mode="floor") / width)
    angle = torch.arange(places, dtype=torch.float64)[:, None] * rate
    angle[:, 0::2] = angle[:, 0::2].sin()
    angle[:, 1::2] = angle[:, 1::2].cos()
    return angle.float()


def videomae(name: str, **options: Any) -> VideoMae:
    """One of the public sizes. Options: fields of VitConfig; final_norm (False for fine-tuned weights)."""
    final_norm = bool(options.pop("final_norm", True))
    config = VitConfig(**{**SIZES[name], "key_bias": False, "norm_eps": 1e-12, **options})
    return VideoMae(config, name=name, final_norm=final_norm)


LAYER_NAMES = {
    "attention.output.dense": "attn.proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
}


def from_hugging_face(tensors: Tensors) -> dict[str, Tensor]:
    """`VideoMAEModel` names (with or without the `videomae.` prefix of its heads) → ours."""
    public = {name.removeprefix("videomae."): tensor for name, tensor in tensors.items()}
    ours: dict[str, Tensor] = {}
    for name, tensor in public.items():
        stem, _, kind = name.rpartition(".")
        if stem == "embeddings.patch_embeddings.projection":
            ours[f"patch_embed.proj.{kind}"] = linear_from_convolution(tensor) if kind == "weight" else tensor
        elif stem == "layernorm":
            ours[f"norm.{kind}"] = tensor
        elif name.startswith("encoder.layer."):
            _convert_layer(name, public, ours)
        else:
            ours[name] = tensor
    return ours


def _convert_layer(name: str, public: Tensors, ours: dict[str, Tensor]) -> None:
    number, _, inner = name.removeprefix("encoder.layer.").partition(".")
    stem, _, kind = inner.rpartition(".")
    attention = f"encoder.layer.{number}.attention.attention"
    if stem in LAYER_NAMES:
        ours[f"blocks.{number}.{LAYER_NAMES[stem]}.{kind}"] = public[name]
    elif inner in ("attention.attention.query.bias", "attention.attention.q_bias"):
        ours[f"blocks.{number}.attn.q_bias"] = public[name]
    elif inner in ("attention.attention.value.bias", "attention.attention.v_bias"):
        ours[f"blocks.{number}.attn.v_bias"] = public[name]
    elif kind == "weight" and stem.startswith("attention.attention."):
        parts = [public.get(f"{attention}.{part}.weight") for part in ("query", "key", "value")]
        present = [part for part in parts if part is not None]
        if len(present) == len(parts):
            ours[f"blocks.{number}.attn.qkv.weight"] = torch.cat(present)
        else:
            ours[name] = public[name]  # half a projection: strict loading names it
    else:
        ours[name] = public[name]


def _recognises(width: int) -> Callable[[Tensors], bool]:
    def recognises(tensors: Tensors) -> bool:
        key = "embeddings.patch_embeddings.projection.weight"
        kernel = tensors.get(key, tensors.get(f"videomae.{key}"))
        return kernel is not None and kernel.shape[0] == width

    return recognises


def _implied_options(tensors: Tensors) -> dict[str, Any]:
    return {"final_norm": "layernorm.weight" in tensors or "videomae.layernorm.weight" in tensors}


_VIDEOMAE = tuple(
    PublicWeights(
        source=source,
        recognises=_recognises(SIZES[source.encoder]["width"]),
        convert=from_hugging_face,
        options=_implied_options,
        known_unneeded=(
            "classifier.*",
            "fc_norm.*",
            "decoder.*",
            "encoder_to_decoder.*",
            "mask_token",
            "position_embeddings",
            "embeddings.position_embeddings",
        ),
    )
    for source in (VIDEOMAE_S, VIDEOMAE_B, VIDEOMAE_L)
)

PUBLIC = (*_MAE_VIT, *_VIDEOMAE)
ENCODERS = {"mae-vit-b": mae_vit_b, **{name: partial(videomae, name) for name in SIZES}}
