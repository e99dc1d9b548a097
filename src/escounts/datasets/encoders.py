"""Encoders with their weights, by name, as encoding needs them; and where a dataset's tokens lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from escounts.errors import DataError, ModelError
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import ENCODERS, build_encoder
from escounts.zoo.catalogue import LITE_WEIGHTS
from escounts.zoo.checkpoint import load_encoder, load_network, tensors_sha256
from escounts.zoo.store import find

WITHOUT_WEIGHTS = ("patches",)


def open_encoder(name: str, *, every: int | None = None, device: torch.device | str = "cpu") -> tuple[Encoder, str]:
    """The encoder of that name, frozen, with its weights, and its identity: a hash of them.

    every: raw frames between sampled ones, when not the encoder's own (Table "sampling").
    """
    if name not in ENCODERS:
        raise ModelError(f"unknown encoder {name!r}; known: {', '.join(ENCODERS)}")
    encoder = _with_weights(name).to(device).eval().requires_grad_(False)
    if every is not None and encoder.spec.fps is None:
        encoder.spec = replace(encoder.spec, every=every)
    return encoder, encoder_identity(encoder)


def network_encoder(path: Path, *, device: torch.device | str = "cpu") -> tuple[Encoder, str]:
    """The encoder inside a network's checkpoint, frozen, and its identity."""
    encoder = load_network(path, device)[0].encoder
    return encoder.requires_grad_(False), encoder_identity(encoder)


def encoder_identity(encoder: Encoder) -> str:
    """A hash of the encoder's weights: equal weights make equal tokens."""
    return tensors_sha256(encoder.state_dict())[:16]


def quick_encoder() -> str:
    """The encoder of quick tables: the default model's where it is shipped, else the one without weights."""
    return "lite" if LITE_WEIGHTS.exists() else "patches"


def store_path(tokens: Path, dataset: str, encoder: str, every: int | None = None) -> Path:
    """The folder of one dataset's tokens of one encoder."""
    return tokens / (f"{dataset}-{encoder}" + (f"-every{every}" if every else ""))


def find_store(tokens: Path, dataset: str, encoder: str | None = None) -> Path:
    """The one store of a dataset under a folder (or the folder itself when it is a store)."""
    if (tokens / "layout.json").exists():
        return tokens
    if encoder is not None:
        found = [store_path(tokens, dataset, encoder)]
    else:
        prefixes = [store_path(tokens, dataset, name) for name in ENCODERS]
        found = [path for path in prefixes if (path / "layout.json").exists()]
    if len(found) > 1:
        names = ", ".join(path.name.removeprefix(f"{dataset}-") for path in found)
        raise DataError(f"{tokens} holds {dataset} of several encoders ({names}); choose one with --encoder")
    if not found or not (found[0] / "layout.json").exists():
        command = f"escounts encode {dataset} --root FOLDER"
        raise DataError(f"folder {tokens} holds no tokens of {dataset}; make them with: {command}")
    return found[0]


def _with_weights(name: str) -> Encoder:
    if name in WITHOUT_WEIGHTS:
        return build_encoder(name)
    stored = find(name)
    if stored is not None:
        return load_encoder(stored.path)
    if name == "lite" and LITE_WEIGHTS.exists():
        return load_network(LITE_WEIGHTS)[0].encoder
    raise ModelError(f"no weights of encoder {name!r} here; add them with: escounts weights add FILE --as {name}")
