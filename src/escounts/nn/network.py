"""A network: one encoder and one decoder that fit each other, with the configs that build them again.

The default model `lite` is one: a small configuration of the one decoder, with an encoder that is trained too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from escounts.errors import ModelError
from escounts.nn.decoder import Decoder, DecoderConfig
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import build_encoder
from escounts.nn.heads import HeadOutput, RateHeadConfig
from escounts.nn.similarity import SimilarityConfig
from escounts.system.arrays import IntArray
from escounts.system.config_codec import from_plain


@dataclass(frozen=True)
class NetworkConfig:
    """encoder: its name in the registry. encoder_options: what its builder takes. decoder: its config."""

    encoder: str
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> NetworkConfig:
        """From a checkpoint's config (see config_codec); what is not a network's is a ModelError."""
        try:
            if missing := [part.name for part in fields(cls) if part.name not in values]:
                raise ValueError(f"it has no {', '.join(missing)}")
            return from_plain(cls, values)
        except (TypeError, ValueError) as error:
            raise ModelError(f"this is not the config of a network: {error}") from error


class Network(nn.Module):
    """Encoder and decoder. Training calls it whole; counting calls its two halves apart."""

    def __init__(
        self, config: NetworkConfig, *, encoder: Encoder | None = None, decoder: Decoder | None = None
    ) -> None:
        """Fresh halves from the config, or the ones given, which must be what the config says."""
        super().__init__()
        self.config = config
        self.encoder = encoder or build_encoder(config.encoder, **config.encoder_options)
        if self.encoder.spec.channels != config.decoder.in_channels:
            raise ModelError(
                f"encoder {config.encoder!r} gives {self.encoder.spec.channels} channels, "
                f"the decoder takes {config.decoder.in_channels}"
            )
        self.decoder = decoder or Decoder(config.decoder)

    def forward(self, frames_BTCHW: Tensor, exemplars_BSTCHW: Tensor | None = None, **options: Any) -> HeadOutput:
        """Normalised frames of one window each, and S exemplars each, → density map. Options: of Decoder.forward."""
        tokens_BTHWC = self.encoder(frames_BTCHW)
        exemplars_BSTHWC = None
        if exemplars_BSTCHW is not None:
            shape = exemplars_BSTCHW.shape[:2]
            exemplars_BSTHWC = self.encoder(exemplars_BSTCHW.flatten(0, 1)).unflatten(0, shape)
        output: HeadOutput = self.decoder(tokens_BTHWC, exemplars_BSTHWC, **options)
        return output


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
