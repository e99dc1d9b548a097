"""The default model as two graphs that need no PyTorch: written for export, equal in numbers to `nn`.

Windows in `nn` are planned in NumPy for a known length, and exemplars looped over; a graph for any length and any
number of exemplars needs both as operations on tensors. Parameters are those of the network, nothing is copied.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.errors import ModelError
from escounts.nn.attention import CrossBlock, SelfAttention, merge_heads, split_heads
from escounts.nn.decoder import Projected, WindowBlock
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.network import Network
from escounts.nn.window_attention import FORBIDDEN, WindowAttention, relative_index


class EncoderGraph(nn.Module):
    """Images of windows (B, T + 1, S, S, 3), uint8, to projected tokens (B, T, H, W, C) and similarity (B, T, C).

    The last image only says how the one before it changes; at a video's end it is that one again.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        if not isinstance(network.encoder, LiteEncoder):
            raise ModelError(f"encoder {network.config.encoder!r} cannot be exported; only `lite` networks can")
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        encoder = self.network.encoder
        assert isinstance(encoder, LiteEncoder)
        mean, std = encoder.spec.mean[0], encoder.spec.std[0]
        frames = (images.float() / 255 - mean) / std
        frames_BTCHW = frames.permute(0, 1, 4, 2, 3)
        features = encoder.frame_features(frames_BTCHW[:, :-1], frames_BTCHW[:, -1])
        projected = self.network.decoder.project(encoder.window_tokens(features))
        assert projected.similarity_BTC is not None
        return projected.tokens_BTHWC, projected.similarity_BTC


class DecoderGraph(nn.Module):
    """Projected windows and S exemplars to logits of gate (B, T), periods (B, T, P) and, if any, the video (B, T, K).

    exemplars: (S, 16, H, W, C), cut from projected tokens. cells: (S,), time cells each lasts, 0 where it is another
    video's. use: (1,), 1.0 to count like the exemplars, 0.0 without (z_0): then one of zeros stands for none.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        decoder = network.decoder
        if decoder.latent is None or decoder.middle_norm is not None or decoder.similarity is None:
            raise ModelError("this decoder cannot be exported; only those of the form of `lite` can")
        self.decoder = decoder
        self.windows = nn.ModuleList(
            _window_block(block, decoder.config.grid) for block in decoder.windows if isinstance(block, WindowBlock)
        )

    def forward(
        self, tokens: Tensor, similarity: Tensor, exemplars: Tensor, cells: Tensor, use: Tensor
    ) -> tuple[Tensor, ...]:
        decoder = self.decoder
        assert decoder.latent is not None
        x = decoder._positioned(Projected(tokens, similarity), 0.0)
        marked_SMC = decoder._exemplar_tokens(exemplars[None], cells[None])[0]
        x_BNC = x.flatten(1, 3)
        for block in decoder.cross:
            assert isinstance(block, CrossBlock)
            x_BNC = _cross(block, x_BNC, marked_SMC, decoder.latent[None], use)
        x = x_BNC.reshape(x.shape)
        for window in self.windows:
            x = window(x)
        output = decoder.head(x if decoder.final_norm is None else decoder.final_norm(x))
        found = (output.gate_logits_BT, output.period_logits_BTP)
        return found if output.video_logits_BTK is None else (*found, output.video_logits_BTK)


def _cross(block: CrossBlock, x_BNC: Tensor, marked_SMC: Tensor, latent_1MC: Tensor, use: Tensor) -> Tensor:
    """A cross block (eqs. 2 to 4) for any number of exemplars: all at once, then their mean."""
    x_BNC = x_BNC + _attend_to_all(block.self_attention, x_BNC)
    cross = block.cross_attention
    q_BhNd = split_heads(cross.query(cross.norm(x_BNC)), cross.heads)

    def seen(tokens_SMC: Tensor) -> Tensor:
        key, value = cross.keys_values(tokens_SMC)
        logits = q_BhNd[:, None] @ key.transpose(-1, -2)[None] * key.shape[-1] ** -0.5
        mean_BhNd: Tensor = (logits.softmax(-1) @ value[None]).mean(1)
        return mean_BhNd

    mixed = use * seen(marked_SMC) + (1 - use) * seen(latent_1MC)
    x_BNC = x_BNC + cross.out(merge_heads(mixed))
    changed: Tensor = x_BNC + block.mlp(x_BNC)
    return changed


def _attend_to_all(attention: SelfAttention, x_BNC: Tensor) -> Tensor:
    q, k, v = (split_heads(p, attention.heads) for p in attention.qkv(attention.norm(x_BNC)).chunk(3, dim=-1))
    # Written out: a fused operator may fix the length when it is exported.
    seen = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v
    found: Tensor = attention.out(merge_heads(seen))
    return found


def _window_block(block: WindowBlock, grid: tuple[int, int]) -> TimeWindows:
    attention = block.attention
    if not isinstance(attention, WindowAttention) or attention.padding != "masked" or not block.residual:
        raise ModelError("this decoder's windows cannot be exported; only those of the form of `lite` can")
    if attention.window[1] < grid[0] or attention.window[2] < grid[1]:
        raise ModelError(f"windows of {attention.window} cut the {grid} grid; only windows over time can be exported")
    return TimeWindows(block, attention, grid)


class TimeWindows(nn.Module):
    """A window block (eq. 5) whose windows are as wide as the grid: time alone is padded, shifted and cut."""

    def __init__(self, block: WindowBlock, attention: WindowAttention, grid: tuple[int, int]) -> None:
        super().__init__()
        self.block, self.attention = block, attention
        self.length = attention.window[0]
        self.shift = self.length // 2 if attention.shifted else 0
        index = relative_index(attention.window, (self.length, *grid), attention.bias_rule)
        self.register_buffer("index", torch.from_numpy(index), persistent=False)

    def forward(self, x_BTHWC: Tensor) -> Tensor:
        x_BTHWC = x_BTHWC + self._seen(x_BTHWC)
        changed: Tensor = x_BTHWC + self.block.mlp(x_BTHWC)
        return changed

    def _seen(self, x_BTHWC: Tensor) -> Tensor:
        batch, time, height, width, channels = x_BTHWC.shape
        attention, length = self.attention, self.length
        place = height * width
        windows = (time + length - 1) // length
        more = windows * length - time
        normed = attention.norm(x_BTHWC).reshape(batch, time, place * channels)
        padded = _rolled(F.pad(normed, (0, 0, 0, more)), self.shift)
        qkv = attention.qkv(padded.reshape(batch, windows, length * place, channels))
        q, k, v = (
            part.reshape(batch, windows, length * place, attention.heads, -1).transpose(2, 3)
            for part in qkv.chunk(3, dim=-1)
        )
        cells = length * place
        bias_hnn = attention.bias_table[self.get_buffer("index").flatten()].reshape(cells, cells, -1).permute(2, 0, 1)
        logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        logits = logits + bias_hnn + self._forbidden(time, windows, place)
        seen = (logits.softmax(-1) @ v).transpose(2, 3).reshape(batch, windows * length, place * channels)
        seen = _rolled(seen, windows * length - self.shift)[:, :time]
        found: Tensor = attention.out(seen.reshape(batch, time, height, width, channels))
        return found

    def _forbidden(self, time: int, windows: int, place: int) -> Tensor:
        """(windows, 1, n, n): FORBIDDEN where a cell may not look, at padding and at what was rolled in."""
        padded = windows * self.length
        # Made by padding: exporters take no arithmetic between tensors and lengths that are not known.
        real = _rolled(F.pad(torch.ones(1, time), (0, padded - time)), self.shift).reshape(windows, self.length) > 0
        rolled = F.pad(torch.zeros(padded - self.shift), (0, self.shift), value=1.0).reshape(windows, self.length)
        allowed = (rolled[:, :, None] == rolled[:, None, :]) & real[:, None, :]
        by_cell = allowed.repeat_interleave(place, 1).repeat_interleave(place, 2)
        return torch.where(by_cell, 0.0, FORBIDDEN)[:, None]


def _rolled(x: Tensor, by: int) -> Tensor:
    """The first `by` cells (axis 1) moved to the end; written out, since exporters fix the length of a roll."""
    return torch.cat([x[:, by:], x[:, :by]], 1) if by else x
