"""Write the default model as two ONNX files and a description, for ONNX Runtime here or in a browser."""

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
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from escounts.atomic_files import write_bytes, write_text
from escounts.config_codec import to_plain
from escounts.errors import ModelError
from escounts.inference.multi_rate import MultiRateModel
from escounts.nn.network import EXEMPLAR_CELLS
from escounts.zoo.building import DECODER, ENCODER, FORMAT
from escounts.zoo.catalogue import DESCRIPTION
from escounts.zoo.onnx_graphs import DecoderGraph, EncoderGraph

OPSET = 18
"""Of what ONNX Runtime Web runs; it has no grouped convolutions in 3D, and the graphs have none in 3D at all."""
TOLERANCE = 1e-3
"""By how much logits may differ between PyTorch and ONNX Runtime."""


def export_onnx(model: MultiRateModel, folder: Path) -> None:
    """Both halves of a `lite` network and its description, each file whole or not at all; checked before they are
    written: axes that must stay free are free, and other lengths than the exported one give equal numbers."""
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
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = graph(*inputs.values())
    found = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    apart = max(float(np.abs(a.numpy() - b).max()) for a, b in zip(expected, found, strict=True))
    if not apart < TOLERANCE:
        raise ModelError(f"the exported graph differs from the network by {apart:g}; it cannot be used")
