"""The default model `lite`: a small configuration of the one decoder, with an encoder that is trained too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from escounts.arrays import IntArray
from escounts.nn.decoder import DecoderConfig
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import NetworkConfig
from escounts.nn.similarity import SimilarityConfig

LITE_DECODER = DecoderConfig(
    in_channels=192,
    channels=256,
    heads=4,
    cross_blocks=2,
    window_blocks=2,
    window=(16, 2, 2),
    window_shift="alternate",
    mlp_ratio=2,
    grid=(2, 2),
    pool_exemplars=True,
    latent_tokens=64,
    spatial_position="learnt",
    exemplar_position=True,
    exemplar_length=True,
    exemplar_norm=True,
    input_norm=True,
    middle_norm=False,
    final_norm=True,
    cross_qkv_bias=True,
    head=RateHeadConfig(video_width=64),
    similarity=SimilarityConfig(),
)

NARROW_DECODER = replace(
    LITE_DECODER,
    channels=64,
    heads=2,
    cross_blocks=1,
    window_blocks=1,
    window=(16, 1, 1),
    grid=(1, 1),
    latent_tokens=16,
    head=RateHeadConfig(min_period=2.2, max_period=84.0, bins=24),
    similarity=SimilarityConfig(
        lags=48, cell_heads=2, cell_channels=8, pooled_heads=2, pooled_channels=16, widths=(8, 12, 16)
    ),
)
"""The same form, narrow: what a few stored tokens can train from nothing, in minutes on a CPU."""

LITE = NetworkConfig(encoder="lite", encoder_options={"amount": True}, decoder=LITE_DECODER)

LITE_TINY = NetworkConfig(
    encoder="lite",
    encoder_options={"widths": (8, 16, 24, 32), "channels": 64, "dilations": (1,), "size": 64, "amount": True},
    decoder=replace(
        LITE_DECODER,
        in_channels=64,
        channels=64,
        cross_blocks=1,
        window_blocks=1,
        similarity=SimilarityConfig(lags=32, widths=(8, 16, 16)),
    ),
)
"""For smoke runs and tests: the same shape, a hundredth of the work."""

EXEMPLAR_CELLS = 16
"""Time cells of an exemplar, spread evenly over its repetition."""


def exemplar_cells(start: float, end: float, length: int, cells: int = EXEMPLAR_CELLS) -> IntArray:
    """The time cells that stand for an exemplar between two (fractional) cells of a sequence of `length`."""
    centres = start + (np.arange(cells) + 0.5) / cells * (end - start)
    return np.clip(np.floor(centres), 0, length - 1).astype(np.int64)
