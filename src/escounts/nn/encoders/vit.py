"""`mae-vit-b` and `videomae-s`, `-b`, `-l`: masked autoencoders, encoder only, 16×224×224 → 8×14×14 tokens.

Space-time patches through pre-norm blocks with joint attention. The two differ in how patches get their positions:

- `mae-vit-b`, the spatiotemporal MAE of Feichtenhofer et al., as ESCounts uses it: learnt, separable positions (space
  + time), and a class token that takes part and is dropped. Its norm_eps is 1e-5, the value ESCounts encoded with;
  PySlowFast pre-trained with 1e-6.
- `videomae-*`, VideoMAE of Tong et al., in the form the Hugging Face checkpoints have: fixed sinusoidal positions,
  keys without a bias. Pre-trained checkpoints end in a norm, fine-tuned ones do not (theirs is the classifier's).
"""

from __future__ import annotations

import re
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.encoders.interface import Encoder, EncoderSpec, Read, Tensors, without

MOST_TOKENS = 65_536
"""Of one window: each has a position in a table that is built beside the weights."""


class Vit(Encoder):
    """Patches with their positions through blocks and, unless it is left out, a norm.

    Args:
        width: channels of a token; heads divide it.
        patch: frames × pixels × pixels of one token.
        positions: "learnt" over space and over time, with a class token, or one table of "sinusoid"s.
        key_bias: whether the projection to keys has a bias.
        norm_eps: of every LayerNorm.
    """

    def __init__(
        self,
        *,
        width: int = 768,
        depth: int = 12,
        heads: int = 12,
        frames: int = 16,
        size: int = 224,
        patch: tuple[int, int, int] = (2, 16, 16),
        positions: Literal["learnt", "sinusoid"] = "learnt",
        key_bias: bool = True,
        norm_eps: float = 1e-5,
        final_norm: bool = True,
    ) -> None:
        cells, rows, columns = frames // patch[0], size // patch[1], size // patch[2]
        if not 0 < cells * rows * columns <= MOST_TOKENS:
            raise ValueError(f"{cells * rows * columns} tokens in a window; 1 to {MOST_TOKENS} are taken")
        super().__init__(
            EncoderSpec("vit", width, frames, size=size, cells=cells, grid=(rows, columns), exemplar_frames=frames)
        )
        self.patch_embed = PatchEmbedding(patch, width)
        self.blocks = nn.ModuleList(Block(width, heads, key_bias, norm_eps) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=norm_eps) if final_norm else nn.Identity()
        self.positions = positions
        self.positions_NC: Tensor
        if positions == "sinusoid":
            self.register_buffer("positions_NC", sinusoid_table(cells * rows * columns, width), persistent=False)
            return
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed_class = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed_spatial = nn.Parameter(torch.zeros(1, rows * columns, width))
        self.pos_embed_temporal = nn.Parameter(torch.zeros(1, cells, width))
        for parameter in (self.cls_token, self.pos_embed_spatial, self.pos_embed_temporal):
            nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        patches_BTHWC = self.patch_embed(frames_BTCHW)
        tokens_BNC = self._placed(patches_BTHWC)
        for block in self.blocks:
            tokens_BNC = block(tokens_BNC)
        out: Tensor = self.norm(tokens_BNC[:, -patches_BTHWC[0, ..., 0].numel() :])
        return out.view(patches_BTHWC.shape)

    def _placed(self, patches_BTHWC: Tensor) -> Tensor:
        """The blocks' input (B, N, C): patches with their positions in the order t, h, w; a class token before."""
        if self.positions == "sinusoid":
            return patches_BTHWC.flatten(1, 3) + self.positions_NC
        positions_TNC = self.pos_embed_temporal.transpose(0, 1) + self.pos_embed_spatial
        tokens_BNC = (patches_BTHWC.flatten(2, 3) + positions_TNC).flatten(1, 2)
        first_B1C = (self.cls_token + self.pos_embed_class).expand(len(tokens_BNC), -1, -1)
        return torch.cat((first_B1C, tokens_BNC), dim=1)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, key_bias: bool, norm_eps: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=norm_eps)
        self.attn = Attention(width, heads, key_bias)
        self.norm2 = nn.LayerNorm(width, eps=norm_eps)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, tokens_BNC: Tensor) -> Tensor:
        tokens_BNC = tokens_BNC + self.attn(self.norm1(tokens_BNC))
        out: Tensor = tokens_BNC + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(tokens_BNC))))
        return out


class Attention(nn.Module):
    """Joint self-attention over all tokens, one matrix product for queries, keys and values."""

    def __init__(self, width: int, heads: int, key_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=key_bias)
        self.proj = nn.Linear(width, width)
        if not key_bias:
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


def sinusoid_table(places: int, width: int) -> Tensor:
    """Position p, channel c: sin or cos (even or odd c) of p / 10000^(2⌊c/2⌋ / width); (places, width)."""
    channel = torch.arange(width, dtype=torch.float64)
    rate = torch.pow(10000.0, -2 * torch.div(channel, 2, rounding_mode="floor") / width)
    angle = torch.arange(places, dtype=torch.float64)[:, None] * rate
    angle[:, 0::2] = angle[:, 0::2].sin()
    angle[:, 1::2] = angle[:, 1::2].cos()
    return angle.float()


def from_pyslowfast(tensors: Tensors, **options: Any) -> Read | None:
    """PySlowFast names, ours but for q, k and v and the patch kernel."""
    if "pos_embed_spatial" not in tensors or "blocks.0.norm1.weight" not in tensors:
        return None
    unneeded = ("mask_token", "decoder_embed.*", "decoder_pos_embed*", "pred_head.*")
    return as_matrices(without(tensors, *unneeded), ("q", "k", "v")), {}


UNNEEDED = (
    *("classifier.*", "fc_norm.*", "decoder.*", "encoder_to_decoder.*", "mask_token"),
    *("position_embeddings", "embeddings.position_embeddings"),
)
LAYER, BLOCK = r"encoder\.layer\.(\d+)", r"blocks.\1"
VIDEOMAE_NAMES = {
    r"embeddings\.patch_embeddings\.projection\.(\w+)": r"patch_embed.proj.\1",
    r"layernorm\.(\w+)": r"norm.\1",
    rf"{LAYER}\.attention\.output\.dense\.(\w+)": rf"{BLOCK}.attn.proj.\2",
    rf"{LAYER}\.intermediate\.dense\.(\w+)": rf"{BLOCK}.mlp.fc1.\2",
    rf"{LAYER}\.output\.dense\.(\w+)": rf"{BLOCK}.mlp.fc2.\2",
    rf"{LAYER}\.layernorm_before\.(\w+)": rf"{BLOCK}.norm1.\2",
    rf"{LAYER}\.layernorm_after\.(\w+)": rf"{BLOCK}.norm2.\2",
    # two generations of names of the biases
    rf"{LAYER}\.attention\.attention\.(?:query\.bias|q_bias)": rf"{BLOCK}.attn.q_bias",
    rf"{LAYER}\.attention\.attention\.(?:value\.bias|v_bias)": rf"{BLOCK}.attn.v_bias",
    rf"{LAYER}\.attention\.attention\.(query|key|value)\.weight": rf"{BLOCK}.attn.\2.weight",
}


def from_hugging_face(tensors: Tensors, *, width: int, **options: Any) -> Read | None:
    """`VideoMAEModel` names (with or without the `videomae.` prefix of its heads) → ours; None for another width."""
    public = {name.removeprefix("videomae."): tensor for name, tensor in tensors.items()}
    kernel = public.get("embeddings.patch_embeddings.projection.weight")
    if kernel is None or len(kernel) != width:
        return None
    ours = {_our_name(name): tensor for name, tensor in without(public, *UNNEEDED).items()}
    ours = as_matrices(ours, ("query", "key", "value"))
    return ours, {"final_norm": "norm.weight" in ours}


def _our_name(name: str) -> str:
    """A name that no rule fits is kept, and strict loading reports it."""
    found = ((re.fullmatch(pattern, name), ours) for pattern, ours in VIDEOMAE_NAMES.items())
    return next((match.expand(ours) for match, ours in found if match), name)


def as_matrices(tensors: Tensors, parts: tuple[str, str, str]) -> dict[str, Tensor]:
    """The patch kernel as a matrix; queries, keys and values, so called, as one. Half a projection keeps its name,
    and strict loading names it."""
    ours = dict(tensors)
    for name in tensors:
        stem, found, kind = name.rpartition(f".attn.{parts[0]}.")
        three = [f"{stem}.attn.{part}.{kind}" for part in parts]
        if found and all(part in ours for part in three):
            ours[f"{stem}.attn.qkv.{kind}"] = torch.cat([ours.pop(part) for part in three])
    kernel = "patch_embed.proj.weight"
    return ours | ({kernel: linear_from_convolution(ours[kernel])} if kernel in ours else {})
