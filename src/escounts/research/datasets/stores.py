"""What belongs to a token store besides its tokens: the encoder that makes them, with its weights, by name; where a
dataset's tokens lie; and the dataset's labels beside them, so that training and evaluation need nothing but the
store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from escounts.errors import DataError, ModelError
from escounts.models.catalogue import LITE_WEIGHTS
from escounts.models.checkpoint import load_encoder, load_network, tensors_sha256
from escounts.models.store import find
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import ENCODERS, brings_weights, build_encoder, check_known
from escounts.research.datasets.annotations import Dataset, Problem, VideoAnnotation
from escounts.research.datasets.registry import DATASETS
from escounts.system.atomic_files import write_bytes

OWN_EVERY = 4
"""Raw frames between sampled ones in the paper."""


def open_encoder(name: str, *, every: int | None = None, device: torch.device | str = "cpu") -> tuple[Encoder, str]:
    """The encoder of that name, frozen, with its weights, and its identity: a hash of them.

    every: raw frames between sampled ones, when not the encoder's own (Table "sampling"); an encoder that samples
    at a rate is slowed down as much, 4 being its own.
    """
    check_known(name)
    encoder = _with_weights(name).to(device).eval().requires_grad_(False)
    if every is not None:
        fps = None if encoder.spec.fps is None else encoder.spec.fps * OWN_EVERY / every
        encoder.spec = replace(encoder.spec, every=encoder.spec.every if fps else every, fps=fps)
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
    """The folder of one dataset's tokens of one encoder; divisions of the same videos share it."""
    entry = DATASETS.get(dataset)
    shared = entry.tokens if entry is not None and entry.tokens else dataset
    slower = f"-every{every}" if every and every != OWN_EVERY else ""
    return tokens / f"{shared}-{re.sub(r'[^A-Za-z0-9._-]+', '-', encoder)}{slower}"


def find_store(tokens: Path, dataset: str, encoder: str | None = None, every: int | None = None) -> Path:
    """The one store of a dataset under a folder (or the folder itself when it is a store)."""
    if (tokens / "layout.json").exists():
        return tokens
    names = [encoder] if encoder is not None else [*ENCODERS, *_others(tokens)]
    paths = [store_path(tokens, dataset, name, every) for name in dict.fromkeys(names)]
    found = [path for path in paths if (path / "layout.json").exists()]
    if len(found) > 1:
        several = ", ".join(path.name.removeprefix(f"{dataset}-") for path in found)
        raise DataError(f"{tokens} holds {dataset} of several encoders ({several}); choose one with --encoder")
    if not found:
        of = f" of encoder {encoder}" if encoder else ""
        raise DataError(
            f"folder {tokens} holds no tokens of {dataset}{of}; make them with: "
            f"{encode_command(dataset, encoder, every)}"
        )
    return found[0]


def _others(tokens: Path) -> list[str]:
    """Encoders that are no part of this package and have tokens in a folder."""
    layouts = [json.loads(path.read_text()).get("encoder", "") for path in sorted(tokens.glob("*/layout.json"))]
    return [name for name in layouts if name not in ENCODERS]


def encode_command(dataset: str, encoder: str | None, every: int | None = None) -> str:
    """The command that makes a dataset's tokens."""
    options = f" --encoder {encoder}" if encoder else ""
    options += f" --every {every}" if every and every != OWN_EVERY else ""
    return f"escounts encode {dataset} --root FOLDER{options}"


def _with_weights(name: str) -> Encoder:
    if brings_weights(name):
        return build_encoder(name)
    with torch.device("meta"):  # its parameters without their memory
        learnt = any(parameter.requires_grad for parameter in build_encoder(name).parameters())
    if not learnt:
        return build_encoder(name)
    stored = find(name)
    if stored is not None:
        return load_encoder(stored.path)
    if name == "lite" and LITE_WEIGHTS.exists():
        return load_network(LITE_WEIGHTS)[0].encoder
    raise ModelError(f"no weights of encoder {name!r} here; add them with: escounts weights add FILE --as {name}")


def label_path(folder: Path, name: str) -> Path:
    """Where a store keeps the labels of the dataset of that name."""
    return folder / f"labels-{name}.json"


def save_labels(folder: Path, dataset: Dataset) -> None:
    """Write a dataset's labels into a store."""
    write_bytes(label_path(folder, dataset.name), (json.dumps(asdict(dataset), sort_keys=True) + "\n").encode())


def load_labels(folder: Path, name: str | None = None) -> Dataset:
    """The labels that save_labels wrote. name: of the dataset, needed where several share the store."""
    written = sorted(folder.glob(label_path(folder, "*").name))
    if name is None and len(written) > 1:
        names = ", ".join(other.stem.removeprefix("labels-") for other in written)
        raise DataError(f"{folder} holds labels of several datasets ({names}); say which with --data")
    path = label_path(folder, name or "*") if name or not written else written[0]
    if not path.exists():
        missing = f"labels of {name}" if name else "labels"
        command = encode_command(name or "DATASET", None)
        raise DataError(f"{folder} has no {missing}, what is there is kept; make them with: {command}")
    try:
        values = json.loads(path.read_text())
        values["videos"] = tuple(_labelled_video(video) for video in values["videos"])
        values["problems"] = tuple(Problem(**problem) for problem in values["problems"])
        values["video_folders"] = tuple(values["video_folders"])
        return Dataset(**values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _labelled_video(values: Mapping[str, Any]) -> VideoAnnotation:
    spans, marked = (
        tuple((float(start), float(end)) for start, end in values.get(name, ())) for name in ("spans", "marked")
    )
    return VideoAnnotation(**{**values, "spans": spans, "marked": marked, "problems": tuple(values["problems"])})
