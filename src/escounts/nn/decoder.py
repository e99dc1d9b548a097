"""The decoder of section 3.2: video tokens and exemplars in, density map out.

    tokens ─project─▶ + positions ─▶ L cross blocks (eqs. 2–4) ─▶ L' window blocks (eq. 5) ─▶ head ─▶ density
                                        ▲
                              encode_exemplars: keys and values of exemplars or z_0

`PAPER` and `RELEASED` are the two configurations the paper gives rise to; the default model is a third, small one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from escounts.errors import ExemplarError, ModelError
from escounts.nn.attention import (
    CrossBlock,
    FeedForward,
    KeyValue,
    LengthEmbedding,
    SelfAttention,
    SpatialPosition,
    pool_grid,
    small_parameter,
    time_position,
)
from escounts.nn.device import in_float32_on_cpu
from escounts.nn.heads import DensityHeadConfig, HeadConfig, HeadOutput, build_head
from escounts.nn.packing import Packing, real_cells
from escounts.nn.similarity import SelfSimilarity, SimilarityConfig
from escounts.nn.window_attention import WindowAttention


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


__all__ = ["PAPER", "RELEASED", "Decoder", "DecoderConfig", "ExemplarKeysValues", "Projected", "check_tokens"]

EXEMPLAR_PHASE = 64.0
"""An exemplar's cells are spread over this many steps of the time sinusoid, however long it lasts."""


class Projected(NamedTuple):
    """A video in the decoder's channels, pooled to its grid, without positions: may be cached and cut."""

    tokens_BTHWC: Tensor
    similarity_BTC: Tensor | None


@dataclass(frozen=True)
class ExemplarKeysValues:
    """Keys and values of exemplars or z_0 for every cross block: made once, used for every call.

    blocks[l][s]: shot s in block l, of batch B or of batch 1, which serves any batch.
    weights_BS: share of each shot; None means equal shares.
    """

    blocks: tuple[tuple[KeyValue, ...], ...]
    weights_BS: Tensor | None = None

    def expand(self, batch: int) -> ExemplarKeysValues:
        """Those of one sample for `batch` samples, without copying."""
        weights = self.weights_BS
        if weights is not None and weights.shape[0] != batch:
            weights = weights.expand(batch, -1)
        return ExemplarKeysValues(tuple(tuple(kv.expand(batch) for kv in shots) for shots in self.blocks), weights)


class WindowBlock(nn.Module):
    """Windowed (or full) self-attention and MLP (eq. 5); the released code left the residuals out."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        self.residual = config.window_residual
        self.attention: WindowAttention | SelfAttention
        if config.window == "full":
            self.attention = SelfAttention(config.channels, config.heads, bias=config.window_qkv_bias)
        else:
            self.attention = WindowAttention(
                config.channels,
                config.heads,
                config.window,
                shifted=index % 2 == 1 if config.window_shift == "alternate" else index > 0,
                bias=config.window_qkv_bias,
                padding=config.window_padding,
                bias_rule=config.window_bias_index,
            )
        self.mlp = FeedForward(config.channels, config.mlp_ratio)

    def forward(self, x_BTHWC: Tensor, packing: Packing | None) -> Tensor:
        """Maps of tokens -> maps of tokens."""
        if isinstance(self.attention, SelfAttention):
            seen = self.attention(x_BTHWC.flatten(1, 3), packing).view(x_BTHWC.shape)
        else:
            seen = self.attention(x_BTHWC, None if packing is None else packing.cells)
        x_BTHWC = x_BTHWC + seen if self.residual else seen
        changed: Tensor = self.mlp(x_BTHWC)
        return x_BTHWC + changed if self.residual else changed


class Decoder(nn.Module):
    """Counts: `project` a video once, `encode_exemplars` exemplars once, `decode` as often as you like."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.channels
        self.embed = nn.Linear(config.in_channels, width)
        self.embed_norm = nn.LayerNorm(width) if config.input_norm else None
        self.similarity = SelfSimilarity(config.similarity, width) if config.similarity else None
        self.space = SpatialPosition(config.spatial_position, config.grid, width)
        self.length = LengthEmbedding(width) if config.exemplar_length else None
        self.exemplar_norm = nn.LayerNorm(width) if config.exemplar_norm else None
        self.latent = None if config.self_attention_only else small_parameter(config.latent_tokens, width)
        self.cross = nn.ModuleList(
            CrossBlock(width, config.heads, mlp_ratio=config.mlp_ratio, bias=config.cross_qkv_bias)
            for _ in range(config.cross_blocks)
        )
        self.middle_norm = nn.LayerNorm(width) if config.middle_norm else None
        self.windows = nn.ModuleList(WindowBlock(config, i) for i in range(config.window_blocks))
        self.final_norm = nn.LayerNorm(width) if config.final_norm else None
        self.head = build_head(config.head, width)

    def project(self, tokens_BTHWC: Tensor, valid_BT: Tensor | None = None) -> Projected:
        """Encoder tokens -> decoder channels on the decoder's grid, with self-similarity features if any."""
        self._check_shape(tokens_BTHWC, "BTHWC")
        x = tokens_BTHWC
        if self.embed_norm is None and self.similarity is None:
            # Averaging commutes with a linear layer; pooled first, the layer sees fewer tokens.
            return Projected(self.embed(pool_grid(x, self.config.grid)), None)
        x = self._embed(x)
        similarity_BTC = None if self.similarity is None else self.similarity(x, valid_BT)
        return Projected(pool_grid(x, self.config.grid), similarity_BTC)

    def project_pooled(self, tokens_BTHWC: Tensor) -> Tensor:
        """Encoder tokens of any grid -> decoder channels on the decoder's grid; averaged first, as in a store."""
        self._check_shape(tokens_BTHWC, "BTHWC")
        return self._embed(pool_grid(tokens_BTHWC, self.config.grid))

    def project_exemplars(self, tokens_BSTHWC: Tensor) -> Tensor:
        """Encoder tokens of exemplars -> decoder channels, BSTHWC; pooled if the config says so."""
        self._check_shape(tokens_BSTHWC, "BSTHWC")
        x = self._embed(tokens_BSTHWC)
        if not self.config.pool_exemplars:
            return x
        return pool_grid(x.flatten(0, 1), self.config.grid).reshape(*x.shape[:3], *self.config.grid, -1)

    def encode_exemplars(
        self,
        exemplars_BSTHWC: Tensor | None = None,
        *,
        shots_B: Tensor | None = None,
        cells_BS: Tensor | None = None,
        batch: int = 1,
    ) -> ExemplarKeysValues:
        """Keys and values of PROJECTED exemplars, or of z_0 when there are none (then for `batch` samples).

        shots_B: how many of the S slots are real per sample; 0 means z_0; None means all S.
        cells_BS: time cells each marked repetition lasts, needed when the config has exemplar_length.
        """
        if self.latent is None:
            return ExemplarKeysValues(tuple(() for _ in self.cross))
        if exemplars_BSTHWC is None:
            return ExemplarKeysValues(tuple((kv,) for kv in self._latent_keys_values())).expand(batch)
        tokens_BSMC = self._exemplar_tokens(exemplars_BSTHWC, cells_BS)
        slots = tokens_BSMC.shape[1]
        blocks = []
        for block in self.cross:
            assert isinstance(block, CrossBlock)
            kv = block.cross_attention.keys_values(tokens_BSMC.flatten(0, 1))
            key, value = (x.view(*tokens_BSMC.shape[:2], *x.shape[1:]) for x in kv)
            blocks.append(tuple(KeyValue(key[:, s], value[:, s]) for s in range(slots)))
        if shots_B is None:
            return ExemplarKeysValues(tuple(blocks))
        # z_0 takes a slot of its own: shares, not branches, decide who looks at what.
        real_BS = torch.arange(slots, device=shots_B.device) < shots_B[:, None]
        shares_BS = real_BS / shots_B.clamp(min=1)[:, None]
        weights_BS = torch.cat([shares_BS, (shots_B == 0)[:, None].to(shares_BS.dtype)], dim=1)
        latent = self._latent_keys_values()
        return ExemplarKeysValues(tuple((*shots, kv) for shots, kv in zip(blocks, latent, strict=True)), weights_BS)

    def decode(
        self,
        projected: Projected,
        exemplars: ExemplarKeysValues,
        *,
        valid_BT: Tensor | None = None,
        lengths: tuple[int, ...] | None = None,
        time_offset: float | Tensor = 0.0,
    ) -> HeadOutput:
        """Projected video and what its exemplars say -> density map.

        valid_BT: True where a sample's cell is real: its first ones, at least one; None when all are.
        lengths: how many cells of each sample valid_BT calls real, where the caller knows: the device need not be
        asked.
        time_offset: position of cell 0 on the time sinusoid, a number or one per sample (B,).
        """
        if lengths is not None and valid_BT is None:
            raise ValueError("lengths say how many cells valid_BT calls real: give both, or lengths not at all")
        x, packing = self._attended(projected, exemplars, valid_BT, lengths, time_offset)
        output: HeadOutput = in_float32_on_cpu(self.head, x)
        if packing is not None:
            for name, value in list(vars(output).items()):
                setattr(output, name, None if value is None else packing.unpack(value))
        return output

    def features(self, projected: Projected, exemplars: ExemplarKeysValues) -> Tensor:
        """What the head sees of a video of which every cell is real, (B, T, H, W, C)."""
        return self._attended(projected, exemplars, None, None, 0.0)[0]

    def _attended(
        self,
        projected: Projected,
        exemplars: ExemplarKeysValues,
        valid_BT: Tensor | None,
        lengths: tuple[int, ...] | None,
        time_offset: float | Tensor,
    ) -> tuple[Tensor, Packing | None]:
        """The tokens after all blocks, packed where samples differ in length."""
        x, packing = self._positioned(projected, time_offset), None
        weights_BNS = None if exemplars.weights_BS is None else exemplars.weights_BS[:, None]
        if valid_BT is not None:
            time, height, width = x.shape[1:4]
            packing = Packing.of(lengths or real_cells(valid_BT), time, height * width, x.device)
            x = packing.pack(x)
            if weights_BNS is not None:
                weights_BTS = weights_BNS.expand(len(valid_BT), time, -1)
                weights_BNS = packing.pack(weights_BTS).repeat_interleave(height * width, dim=1)
        x_BNC = x.flatten(1, 3)
        for block, shots in zip(self.cross, exemplars.blocks, strict=True):
            x_BNC = block(x_BNC, shots, weights_BNS, packing)
        if self.middle_norm is not None:
            x_BNC = self.middle_norm(x_BNC)
        x = x_BNC.view(x.shape)
        for block in self.windows:
            x = block(x, packing)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x, packing

    def forward(
        self,
        tokens_BTHWC: Tensor,
        exemplars_BSTHWC: Tensor | None = None,
        *,
        shots_B: Tensor | None = None,
        cells_BS: Tensor | None = None,
        valid_BT: Tensor | None = None,
        lengths: tuple[int, ...] | None = None,
        time_offset: float | Tensor = 0.0,
    ) -> HeadOutput:
        """Encoder tokens of a video and of its exemplars -> density map."""
        projected = self.project(tokens_BTHWC, valid_BT)
        projected_BSTHWC = None if exemplars_BSTHWC is None else self.project_exemplars(exemplars_BSTHWC)
        exemplars = self.encode_exemplars(
            projected_BSTHWC, shots_B=shots_B, cells_BS=cells_BS, batch=tokens_BTHWC.shape[0]
        )
        return self.decode(projected, exemplars, valid_BT=valid_BT, lengths=lengths, time_offset=time_offset)

    def _embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embed(tokens)
        return x if self.embed_norm is None else self.embed_norm(x)

    def _positioned(self, projected: Projected, time_offset: float | Tensor) -> Tensor:
        """Tokens + time sinusoid + place + similarity, (B, T, H, W, C)."""
        x = projected.tokens_BTHWC
        cells_T = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        if isinstance(time_offset, Tensor):
            cells_T = cells_T + time_offset.float().reshape(-1, 1)
        else:
            cells_T = cells_T + time_offset
        time = time_position(cells_T, self.config.channels)[..., None, None, :]
        placed: Tensor = self.space(x + time.to(self.embed.weight.dtype))
        if projected.similarity_BTC is not None:
            placed = placed + projected.similarity_BTC[:, :, None, None, :]
        return placed

    def _exemplar_tokens(self, x_BSTHWC: Tensor, cells_BS: Tensor | None) -> Tensor:
        """Projected exemplars as the cross blocks see them, (B, S, M, C)."""
        if x_BSTHWC.numel() == 0:
            raise ExemplarError(
                f"an exemplar has no tokens (shape {tuple(x_BSTHWC.shape)}); mark at least one frame, "
                "or give no exemplar to count without one"
            )
        x = x_BSTHWC
        if self.config.exemplar_position:
            steps = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)
            phase = time_position(steps * (EXEMPLAR_PHASE / x.shape[2]), self.config.channels)
            x = self.space(x + phase[:, None, None, :].to(self.embed.weight.dtype))
        if self.length is not None:
            if cells_BS is None:
                raise ExemplarError("this decoder needs the length of every exemplar: give cells_BS (time cells)")
            x = x + self.length(cells_BS)[:, :, None, None, None, :]
        x_BSMC = x.flatten(2, 4)
        return x_BSMC if self.exemplar_norm is None else self.exemplar_norm(x_BSMC)

    def _latent_keys_values(self) -> list[KeyValue]:
        """Keys and values of z_0 per cross block, batch 1."""
        assert self.latent is not None
        latent_1MC = self.latent[None]
        return [b.cross_attention.keys_values(latent_1MC) for b in self.cross if isinstance(b, CrossBlock)]

    def _check_shape(self, tokens: Tensor, shape: str) -> None:
        if tokens.ndim != len(shape) or tokens.shape[-1] != self.config.in_channels:
            raise ValueError(
                f"got tokens of shape {tuple(tokens.shape)}; expected {'×'.join(shape)} with "
                f"{self.config.in_channels} channels last"
            )
        if tokens.numel() == 0:
            raise ValueError(f"got no tokens (shape {tuple(tokens.shape)}); the video or exemplar is empty")


def check_tokens(tokens: Tensor, name: str = "tokens") -> None:
    """Raises ModelError on NaN or infinity. Waits for the device: for inference, not for training."""
    if not bool(torch.isfinite(tokens).all()):
        bad = int((~torch.isfinite(tokens)).sum())
        raise ModelError(
            f"{name} hold {bad} values that are not finite out of {tokens.numel()}; the encoder's input or "
            "weights are damaged"
        )
