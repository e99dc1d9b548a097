"""From a checkpoint to the counting model in it, and from a folder written by `escounts export`, which ONNX
Runtime runs in the place of the network it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from escounts.counting import CountingModel
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.paper_windows import PAPER_WINDOWS, RELEASED_WINDOWS, PaperWindowModel
from escounts.decision.rules import Calibration
from escounts.errors import ModelError
from escounts.models import store
from escounts.models.catalogue import DESCRIPTION, how_to_get_encoder
from escounts.models.checkpoint import check_config, config_errors, load_decoder, load_encoder, load_network
from escounts.models.store import StoredWeights
from escounts.nn.decoder import Decoder, DecoderConfig, ExemplarKeysValues, Projected
from escounts.nn.device import choose_device, one_core
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.lite import LiteConfig, LiteEncoder
from escounts.nn.encoders.registry import brings_weights, build_encoder
from escounts.nn.heads import HeadOutput, RateHeadConfig, read_periods
from escounts.nn.network import EXEMPLAR_CELLS, Network, NetworkConfig
from escounts.system.config_codec import tuples

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
FORMAT = "escounts-onnx-1"


def build_onnx_model(folder: Path) -> MultiRateModel:
    """The counting model in a folder, on the CPU; raises ModelError where files are missing, damaged or changed."""
    try:
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if described["format"] != FORMAT:
            raise ModelError(f"{folder}: format {described['format']!r}; this version reads {FORMAT}")
        check_config(described["network"])
        config = NetworkConfig.from_plain(described["network"])
        calibration = Calibration.from_json(json.dumps(described["calibration"]))
        contents = {name: (folder / name).read_bytes() for name in (ENCODER, DECODER)}
        for name, content in contents.items():
            if hashlib.sha256(content).hexdigest() != described["sha256"][name]:
                raise ModelError(f"{folder / name}: not the file that was exported (sha256); export it again")
        encoder = OnnxEncoder(LiteConfig(**tuples(config.encoder_options)), _graph(contents[ENCODER]))
        decoder = OnnxDecoder(config.decoder, _graph(contents[DECODER]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder} is not a whole exported model ({error}); export it again") from error
    network = Network(config, encoder=encoder, decoder=decoder)
    # The graphs are in float32, whatever units the processor has.
    return MultiRateModel(described["name"], network, device="cpu", precision="float32", calibration=calibration)


RunGraph = Callable[[dict[str, np.ndarray[Any, Any]]], Sequence[np.ndarray[Any, Any]]]
"""Runs a graph, by ONNX Runtime or otherwise: from its inputs by name to all outputs."""


def _graph(content: bytes) -> RunGraph:
    import onnxruntime  # noqa: PLC0415 - the extra [onnx]; the other half of this module needs none

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # windows go side by side, each on a core of its own
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


class OnnxEncoder(LiteEncoder):
    """The encoder's graph takes a window's images at once: until then they are kept as they are.

    What it calls tokens has, behind the H·W tokens of a cell, one more: the cell's similarity feature.
    """

    def __init__(self, config: LiteConfig, run: RunGraph) -> None:
        Encoder.__init__(self, LiteEncoder(config).spec)  # no weights of its own
        self.config = replace(config, look=0)
        self._run = run

    def image_features(self, images_THWC: Tensor, count: int) -> Tensor:
        """Each image and the one after it, (count, 2, S, S, 3), uint8."""
        following = images_THWC[1 : count + 1]
        if len(following) < count:
            following = torch.cat([following, images_THWC[-1:]])
        return torch.stack([images_THWC[:count], following], 1)

    def look_features(self, features_TCHW: Tensor) -> Tensor:
        """None: the graph gives no features of single frames."""
        return torch.zeros(len(features_TCHW), 0)

    def window_tokens(self, features_BTCHW: Tensor) -> Tensor:
        """Projected tokens and similarity of windows of such pairs, (B, T, H·W + 1, C)."""
        images = torch.cat([features_BTCHW[:, :, 0], features_BTCHW[:, -1:, 1]], 1)
        tokens, similarity = self._run({"images": images.numpy()})
        cells = tokens.reshape(*tokens.shape[:2], -1, tokens.shape[-1])
        return torch.from_numpy(np.concatenate([cells, similarity[:, :, None]], 2))


@dataclass(frozen=True)
class OnnxExemplars(ExemplarKeysValues):
    """Exemplars as the decoder's graph takes them: it makes keys and values itself."""

    inputs: tuple[np.ndarray[Any, Any], ...] = ()

    def expand(self, batch: int) -> OnnxExemplars:
        """They serve any number of windows."""
        return self


class OnnxDecoder(Decoder):
    """The decoder's graph, asked as `Decoder` is."""

    def __init__(self, config: DecoderConfig, run: RunGraph) -> None:
        nn.Module.__init__(self)  # no weights of its own
        self.config = config
        self._run = run

    def project(self, tokens_BTHWC: Tensor, valid_BT: Tensor | None = None) -> Projected:
        """The encoder's graph has projected them: its cells are taken apart."""
        cells = tokens_BTHWC
        tokens = cells[:, :, :-1].reshape(*cells.shape[:2], *self.config.grid, cells.shape[-1])
        return Projected(tokens, cells[:, :, -1])

    def encode_exemplars(
        self, exemplars_BSTHWC: Tensor | None = None, *, cells_BS: Tensor | None = None, **unused: Any
    ) -> OnnxExemplars:
        """The inputs for one video's exemplars; for z_0, one of zeros that is not looked at."""
        if exemplars_BSTHWC is None:
            nobody = np.zeros((1, EXEMPLAR_CELLS, *self.config.grid, self.config.channels), np.float32)
            return OnnxExemplars((), None, (nobody, np.zeros(1, np.float32), np.zeros(1, np.float32)))
        assert cells_BS is not None and len(exemplars_BSTHWC) == 1
        marked = exemplars_BSTHWC[0].float().numpy(), cells_BS[0].float().numpy()
        return OnnxExemplars((), None, (*marked, np.ones(1, np.float32)))

    def decode(self, projected: Projected, exemplars: ExemplarKeysValues, **unused: Any) -> HeadOutput:
        """Logits of every cell, and the density they make."""
        assert isinstance(exemplars, OnnxExemplars) and projected.similarity_BTC is not None
        assert isinstance(self.config.head, RateHeadConfig)
        inputs = (projected.tokens_BTHWC.numpy(), projected.similarity_BTC.numpy(), *exemplars.inputs)
        names = ("tokens", "similarity", "exemplars", "cells", "use")
        gate, periods, *video = map(torch.from_numpy, self._run(dict(zip(names, inputs, strict=True))))
        rate, _ = read_periods(self.config.head, periods)
        return HeadOutput(gate.sigmoid() * rate, gate, periods, rate, video[0] if video else None)


def build_model(checkpoint: Path, device: str) -> CountingModel:
    """The counting model in a decoder or network checkpoint on a device ("auto", "cpu", "cuda")."""
    if checkpoint.is_dir():
        return _exported(checkpoint, device)
    weights = store.describe(checkpoint)
    place = choose_device(device)
    with one_core():
        network, metadata = _network(weights, place)
    if isinstance(network.encoder, LiteEncoder):
        with config_errors(weights.path):
            calibration = Calibration.from_json(metadata["calibration"]) if "calibration" in metadata else None
        return MultiRateModel(weights.name, network, device=place, calibration=calibration)
    released = network.config.decoder.window_padding == "released"
    config = RELEASED_WINDOWS if released else PAPER_WINDOWS
    return PaperWindowModel(weights.name, network, device=place, config=config)


def _exported(folder: Path, device: str) -> CountingModel:
    if device not in ("auto", "cpu"):
        raise ModelError(f"{folder}: an exported model runs on the CPU here; use --device cpu or auto, not {device}")
    try:
        return build_onnx_model(folder)
    except ImportError as error:
        raise ModelError(f"{folder} needs ONNX Runtime ({error}); pip install 'escounts[onnx]'") from error


def _network(weights: StoredWeights, device: torch.device) -> tuple[Network, dict[str, str]]:
    """Both halves of a checkpoint's model, and the checkpoint's metadata."""
    if weights.kind == "network":
        return load_network(weights.path, device)
    decoder, name, metadata = load_decoder(weights.path, device)
    if brings_weights(name):
        encoder = build_encoder(name).to(device).eval().requires_grad_(False)
    elif (beside := store.find(name)) is not None:
        encoder = load_encoder(beside.path, device)
    else:
        raise ModelError(f"{weights.path} needs the encoder {name}: {how_to_get_encoder(name)}")
    return Network(NetworkConfig(name, {}, decoder.config), encoder=encoder, decoder=decoder), metadata
