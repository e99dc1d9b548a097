"""The paper's configurations as models with names: a public encoder and a decoder trained on its tokens.

Both halves come from the user's store; what is missing is said with the file to fetch and the command to run.
Decoders and networks the user added under other names are models too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from escounts.counting_model import CountingModel
from escounts.errors import ModelError
from escounts.nn.encoders.public_sources import RELEASED_DECODER, Source, source_of
from escounts.zoo import store as weights
from escounts.zoo.catalogue import ModelEntry
from escounts.zoo.store import StoredWeights

if TYPE_CHECKING:
    import torch

    from escounts.nn.network import Network

RELEASED_NAME = "escounts-repcount"
CONFIGURATIONS = {
    RELEASED_NAME: ("mae-vit-b", "Table 1a with the authors' decoder, in the released code's configuration."),
    "escounts-mae-vit-b": ("mae-vit-b", "Tables 1a-c, ViT-B pre-trained by masking (MAE)."),
    "escounts-videomae-b": ("videomae-b", "The same architecture as ViT-B in its other public form."),
    "escounts-swin3d-t": ("swin3d-t", "Table 1a, Video Swin-T."),
    "escounts-r2plus1d-18": ("r2plus1d-18", "Table 1b, R(2+1)D-18."),
    "escounts-resnext3d-101": ("resnext3d-101", "Table 1c, 3-D ResNeXt-101."),
}


def entries() -> dict[str, ModelEntry]:
    """The paper's configurations, then what the user added under names of their own."""
    found = {name: _configuration(name, *about) for name, about in CONFIGURATIONS.items()}
    for kept in weights.stored():
        if kept.kind != "encoder" and kept.name not in found:
            found[kept.name] = entry_of(kept)
    return found


def entry_of(kept: StoredWeights) -> ModelEntry:
    """The model that a decoder or network checkpoint is, wherever it lies."""
    if kept.kind == "encoder":
        raise ModelError(f"{kept.path} is an encoder; a model also needs a decoder trained on its tokens")
    return ModelEntry(
        name=kept.name,
        summary=f"Your own {kept.kind} on {kept.encoder}.",
        source=str(kept.path),
        size_bytes=kept.size_bytes,
        trained_on=kept.source,
        licence=kept.licence,
        state=lambda: _state(kept.encoder if kept.kind == "decoder" else None, kept.path),
        build=lambda device: build(kept, device),
    )


def build(kept: StoredWeights, device: str) -> CountingModel:
    """The counting model in a decoder or network checkpoint, on a device ("auto", "cpu", "cuda")."""
    from escounts.inference.paper_windows import PAPER_WINDOWS, RELEASED_WINDOWS, PaperWindowModel
    from escounts.nn.device import choose_device

    place = choose_device(device)
    network, metadata = _network(kept, place)
    if network.encoder.spec.fps is not None:
        from escounts.confidence import Calibration
        from escounts.inference.multi_rate import MultiRateModel

        calibration = Calibration.from_json(metadata["calibration"]) if "calibration" in metadata else None
        return MultiRateModel(kept.name, network, device=place, calibration=calibration)
    released = network.config.decoder.window_padding == "released"
    config = RELEASED_WINDOWS if released else PAPER_WINDOWS
    return PaperWindowModel(kept.name, network, device=place, config=config)


def _network(kept: StoredWeights, device: torch.device) -> tuple[Network, dict[str, str]]:
    """Both halves of a checkpoint's model, and the checkpoint's metadata."""
    from escounts.nn.network import Network, NetworkConfig
    from escounts.zoo.checkpoint import load_decoder, load_encoder, load_network

    if kept.kind == "network":
        return load_network(kept.path, device)
    decoder, name, metadata = load_decoder(kept.path, device)
    beside = weights.find(name)
    if beside is None:
        raise ModelError(f"{kept.path} needs the encoder {name}: {_fetch_encoder(name)}")
    encoder = load_encoder(beside.path, device)
    return Network(NetworkConfig(name, {}, decoder.config), encoder=encoder, decoder=decoder), metadata


def _configuration(name: str, encoder: str, summary: str) -> ModelEntry:
    source = source_of(encoder)
    assert source is not None  # every configuration of the paper has a public encoder
    halves = [half for half in (weights.find(encoder), weights.find(name)) if half is not None]
    released = name == RELEASED_NAME
    return ModelEntry(
        name=name,
        summary=summary,
        source=f"{source.file} and {RELEASED_DECODER.file if released else 'a decoder you train'}",
        size_bytes=sum(half.size_bytes for half in halves),
        trained_on="RepCount-A" if released else "what its decoder was trained on",
        licence=source.licence,
        state=lambda: _state(encoder, weights.stored_path(name)),
        build=lambda device: build(weights.describe(weights.stored_path(name)), device),
    )


def _state(encoder: str | None, decoder: Path) -> str:
    """ "ready", or what is missing of a model; encoder None: the checkpoint at `decoder` holds both halves."""
    missing = []
    if encoder is not None and not weights.stored_path(encoder).is_file():
        missing.append(f"encoder {encoder}: {_fetch_encoder(encoder)}")
    if not decoder.is_file():
        if decoder.stem == RELEASED_NAME:
            missing.append(f"decoder: {_fetch(RELEASED_DECODER)}")
        else:
            missing.append(
                "decoder: train one with `escounts train`, then "
                f"`escounts weights add CHECKPOINT --as {decoder.stem}`"
            )
    return f"missing: {'; '.join(missing)}" if missing else "ready"


def _fetch_encoder(name: str) -> str:
    source = source_of(name)
    return "it has no public weights" if source is None else _fetch(source)


def _fetch(source: Source) -> str:
    if source.file == "model.safetensors":
        return f"`escounts weights add` with {source.origin}"
    return f"get {source.file} ({source.origin}), then `escounts weights add {source.file}`"
