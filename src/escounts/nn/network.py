"""A network: one encoder and one decoder that fit each other, with the configs that build them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

from escounts.config_codec import from_plain
from escounts.errors import ModelError
from escounts.nn.decoder import Decoder, DecoderConfig
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import build_encoder
from escounts.nn.heads import HeadOutput


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

    def forward(
        self,
        frames_BTCHW: Tensor,
        exemplars_BSTCHW: Tensor | None = None,
        *,
        shots_B: Tensor | None = None,
        cells_BS: Tensor | None = None,
        valid_BT: Tensor | None = None,
        time_offset: float | Tensor = 0.0,
    ) -> HeadOutput:
        """Normalised frames of one window each, and S exemplars each, → density map; see Decoder.forward."""
        tokens_BTHWC = self.encoder(frames_BTCHW)
        exemplars_BSTHWC = None
        if exemplars_BSTCHW is not None:
            shape = exemplars_BSTCHW.shape[:2]
            exemplars_BSTHWC = self.encoder(exemplars_BSTCHW.flatten(0, 1)).unflatten(0, shape)
        output: HeadOutput = self.decoder(
            tokens_BTHWC,
            exemplars_BSTHWC,
            shots_B=shots_B,
            cells_BS=cells_BS,
            valid_BT=valid_BT,
            time_offset=time_offset,
        )
        return output
