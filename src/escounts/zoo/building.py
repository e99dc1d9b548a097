"""From a checkpoint to the counting model in it."""

from __future__ import annotations

from pathlib import Path

import torch

from escounts.baselines.spectral import Spectral
from escounts.confidence import Calibration
from escounts.counting_model import CountingModel
from escounts.errors import ModelError
from escounts.inference.multi_rate import MultiRateModel
from escounts.inference.paper_windows import PAPER_WINDOWS, RELEASED_WINDOWS, PaperWindowModel
from escounts.inference.pool import one_core
from escounts.nn.device import choose_device
from escounts.nn.network import Network, NetworkConfig
from escounts.zoo import store
from escounts.zoo.catalogue import how_to_get_encoder
from escounts.zoo.checkpoint import building, load_decoder, load_encoder, load_network
from escounts.zoo.onnx_model import build_onnx_model
from escounts.zoo.store import StoredWeights


def build_model(checkpoint: Path | None, device: str) -> CountingModel:
    """The counting model in a decoder or network checkpoint on a device ("auto", "cpu", "cuda"); None: `spectral`."""
    if checkpoint is None:
        return Spectral()
    if checkpoint.is_dir():
        return _exported(checkpoint, device)
    weights = store.describe(checkpoint)
    place = choose_device(device)
    with one_core():
        network, metadata = _network(weights, place)
    if network.encoder.spec.fps is not None:
        with building(weights.path):
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
    beside = store.find(name)
    if beside is None:
        raise ModelError(f"{weights.path} needs the encoder {name}: {how_to_get_encoder(name)}")
    encoder = load_encoder(beside.path, device)
    return Network(NetworkConfig(name, {}, decoder.config), encoder=encoder, decoder=decoder), metadata
