"""The decoder's settings: one frozen dataclass, and the two configurations the paper gives rise to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from escounts.nn.heads import DensityHeadConfig, HeadConfig
from escounts.nn.similarity import SimilarityConfig


@dataclass(frozen=True)
class DecoderConfig:
    """Every choice the paper ablates, and every difference between the paper and its released code.

    in_channels, channels, heads: encoder's and decoder's width. cross_blocks: L. window_blocks: L'.
    window: cells in time, height, width, or "full" for plain self-attention over all tokens without a bias.
    grid: height and width the video tokens are average-pooled to. latent_tokens: rows of z_0.
    self_attention_only: the video stands in for exemplars (Table 3a).
    window_shift: "after-first" shifts every window block but the first; "alternate" every second one.
    window_padding, window_bias_index: see `window_attention`. middle_norm: LayerNorm between cross and
    window blocks. The exemplar_* switches give exemplars phase and place, their length, and a LayerNorm.
    """

    in_channels: int = 768
    channels: int = 512
    heads: int = 8
    cross_blocks: int = 2
    window_blocks: int = 3
    window: tuple[int, int, int] | Literal["full"] = (4, 7, 7)
    mlp_ratio: int = 4
    grid: tuple[int, int] = (14, 14)
    pool_exemplars: bool = False
    latent_tokens: int = 1568
    self_attention_only: bool = False
    spatial_position: Literal["none", "learnt", "frozen"] = "frozen"
    exemplar_position: bool = False
    exemplar_length: bool = False
    exemplar_norm: bool = False
    input_norm: bool = False
    middle_norm: bool = True
    final_norm: bool = False
    cross_qkv_bias: bool = False
    window_qkv_bias: bool = True
    window_residual: bool = True
    window_shift: Literal["after-first", "alternate"] = "after-first"
    window_padding: Literal["masked", "released"] = "masked"
    window_bias_index: Literal["true", "released"] = "true"
    head: HeadConfig = field(default_factory=DensityHeadConfig)
    similarity: SimilarityConfig | None = None

    def __post_init__(self) -> None:
        if self.channels % self.heads or self.channels % 4:
            raise ValueError(f"channels {self.channels} must be a multiple of heads {self.heads} and of 4")
        if self.exemplar_position and not self.pool_exemplars:
            raise ValueError("exemplar_position needs pool_exemplars: places are those of the pooled grid")


PAPER = DecoderConfig()
"""Section 3.2 as written."""

RELEASED = replace(
    PAPER,
    grid=(6, 6),
    window_residual=False,
    window_shift="alternate",
    window_padding="released",
    window_bias_index="released",
    head=DensityHeadConfig(scale=100.0),
)
"""The released code's arithmetic, for published checkpoints."""
