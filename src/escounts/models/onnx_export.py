"""Write the default model as two ONNX files and a description, for ONNX Runtime here or in a browser.

The two graphs are written for export, equal in numbers to `nn`. Windows in `nn` are planned in NumPy for a known
length, and exemplars looped over; a graph for any length and any number of exemplars needs both as operations on
tensors. Parameters are those of the network, nothing is copied.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.counting import CountingModel
from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import ModelError
from escounts.models.catalogue import DESCRIPTION
from escounts.models.from_checkpoint import DECODER, ENCODER, FORMAT
from escounts.nn.attention import CrossBlock, SelfAttention, merge_heads, split_heads
from escounts.nn.decoder import Projected, WindowBlock
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.network import EXEMPLAR_CELLS, Network
from escounts.nn.window_attention import FORBIDDEN, WindowAttention, relative_index
from escounts.system.atomic_files import keep_existing, write_bytes, write_text
from escounts.system.config_codec import to_plain

OPSET = 18
"""Of what ONNX Runtime Web runs; it has no grouped convolutions in 3D, and the graphs have none in 3D at all."""
TOLERANCE = 1e-3
"""By how much logits may differ between PyTorch and ONNX Runtime."""


def export_onnx(model: CountingModel, folder: Path, *, force: bool = False) -> None:
    """Both halves of a `lite` network and its description, each file whole or not at all; checked before they are
    written: axes that must stay free are free, and other lengths than the exported one give equal numbers.

    force: write over files of these names that are no exported model, too.
    """
    if not isinstance(model, MultiRateModel):
        raise ModelError(f"model {model.name!r} cannot be exported; `lite` and networks of its form can")
    if not (force or _is_exported(folder)):
        keep_existing(
            (folder / name for name in (ENCODER, DECODER, DESCRIPTION)), "choose another folder, or --force"
        )
    network = copy.deepcopy(model.network).to("cpu").eval()
    network.encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    encoder, decoder = EncoderGraph(network).eval(), DecoderGraph(network).eval()
    windows, images, cells, exemplars = (torch.export.Dim(n) for n in ("windows", "images", "cells", "exemplars"))
    encoder_bytes = _exported(
        encoder,
        _encoder_inputs(network.encoder.spec.size, windows=2, cells=37),
        {"images": {0: windows, 1: images}},
        ["tokens", "similarity"],
    )
    decoder_bytes = _exported(
        decoder,
        _decoder_inputs(decoder, windows=2, cells=37, exemplars=3),
        {
            "tokens": {0: windows, 1: cells},
            "similarity": {0: windows, 1: cells},
            "exemplars": {0: exemplars},
            "cells": {0: exemplars},
            "use": None,
        },
        ["gate_logits", "period_logits", *(["video_logits"] if model.video_outputs else [])],
    )
    for length in (9, 48):
        _check(encoder, encoder_bytes, _encoder_inputs(network.encoder.spec.size, windows=1, cells=length))
        for marked in (1, 2):
            inputs = _decoder_inputs(decoder, windows=1, cells=length, exemplars=marked)
            _check(decoder, decoder_bytes, inputs)
            _check(decoder, decoder_bytes, {**inputs, "use": torch.zeros(1)})
    files = {ENCODER: encoder_bytes, DECODER: decoder_bytes}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(folder / name, content)
    described = {
        "format": FORMAT,
        "name": model.name,
        "network": to_plain(model.network.config),
        "calibration": json.loads(model.calibration.to_json()),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    write_text(folder / DESCRIPTION, json.dumps(described, indent=1) + "\n")


def _is_exported(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _encoder_inputs(size: int, *, windows: int, cells: int) -> dict[str, Tensor]:
    random = np.random.default_rng(cells)
    images = random.integers(0, 256, (windows, cells + 1, size, size, 3), dtype=np.uint8)
    return {"images": torch.from_numpy(images)}


def _decoder_inputs(decoder: DecoderGraph, *, windows: int, cells: int, exemplars: int) -> dict[str, Tensor]:
    random = np.random.default_rng(cells + exemplars)
    config = decoder.decoder.config
    shapes = {
        "tokens": (windows, cells, *config.grid, config.channels),
        "similarity": (windows, cells, config.channels),
        "exemplars": (exemplars, EXEMPLAR_CELLS, *config.grid, config.channels),
    }
    inputs = {n: torch.from_numpy(random.standard_normal(s).astype(np.float32)) for n, s in shapes.items()}
    lengths = torch.tensor([0.0, 7.0, 21.5])[:exemplars]
    return {**inputs, "cells": lengths, "use": torch.ones(1)}


def _exported(graph: nn.Module, inputs: dict[str, Tensor], free: dict[str, Any], outputs: Sequence[str]) -> bytes:
    """The graph as ONNX, its free axes named and nothing fixed to the length of these inputs."""
    import onnx  # noqa: PLC0415 - the extra [onnx]; the graphs themselves do without it

    with torch.no_grad():
        graph(*inputs.values())  # fills the caches of `nn` with true tensors; an exporter's are symbols
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # axes that share a name, and PyTorch's own deprecations
        program = torch.onnx.export(
            graph,
            tuple(inputs.values()),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=free,
        )
    assert program is not None
    proto = program.model_proto
    fixed = [
        f"{value.name}[{axis}]"
        for value in proto.graph.input
        for axis in (free.get(value.name) or {})
        if not value.type.tensor_type.shape.dim[axis].dim_param
    ]
    if fixed:  # attention has been seen to do this (pytorch 152018)
        raise ModelError(f"the exporter fixed the axes {', '.join(fixed)}; with this PyTorch it cannot be exported")
    onnx.checker.check_model(proto)
    return proto.SerializeToString()  # type: ignore[no-any-return]


def _check(graph: nn.Module, content: bytes, inputs: dict[str, Tensor]) -> None:
    """Raises ModelError unless ONNX Runtime gives PyTorch's numbers."""
    import onnxruntime  # noqa: PLC0415 - the extra [onnx]

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = graph(*inputs.values())
    found = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    apart = max(float(np.abs(a.numpy() - b).max()) for a, b in zip(expected, found, strict=True))
    if not apart < TOLERANCE:
        raise ModelError(f"the exported graph differs from the network by {apart:g}; it cannot be used")


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
