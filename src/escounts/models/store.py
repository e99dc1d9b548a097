"""The user's store of weights: where it is and what is in it.

One safetensors file per name: encoders under their own names, decoders under the names of the models they make. Reads
headers only, so listing loads no tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from escounts.errors import ModelError
from escounts.nn.encoders.registry import encoder_of_channels

Kind = Literal["encoder", "decoder", "network"]

NO_HOME = Path(os.devnull) / "no home directory: set ESCOUNTS_CACHE"
LONGEST_HEADER = 100 * 2**20
"""Bytes; what safetensors itself allows."""
DAMAGE = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError),
    *(AssertionError, struct.error),
)
"""What reading a malformed header, or building what it describes, may raise. RuntimeError: torch, and recursion."""
STALE_SECONDS = 24 * 3600.0
"""A partial file this old in the store belongs to a process that was killed."""


@dataclass(frozen=True)
class StoredWeights:
    """One file of the store.

    kind: an encoder; a decoder, which needs its encoder beside it; a network, which holds both.
    encoder: the encoder it is or needs. source: the public file it was made from.
    """

    name: str
    path: Path
    kind: Kind
    encoder: str
    size_bytes: int
    sha256: str
    licence: str
    source: str


def store_folder() -> Path:
    """$ESCOUNTS_CACHE/weights, or the platform's cache folder for this user."""
    if cache := os.environ.get("ESCOUNTS_CACHE"):
        return Path(cache) / "weights"
    if sys.platform == "darwin":
        base = _home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache")
    return base / "escounts" / "weights"


def _home() -> Path:
    """The user's home; without one (a bare container user) a place where nothing is and nothing can be written."""
    try:
        return Path.home()
    except RuntimeError:
        return NO_HOME


def stored_path(name: str) -> Path:
    """Where the weights of that name are or will be; the name is checked to be a plain file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ModelError(f"{name!r} cannot name weights; letters, digits, '.', '_' and '-' can, e.g. squats-v1")
    return store_folder() / f"{name}.safetensors"


def stored() -> list[StoredWeights]:
    """Everything in the store, by name; files that are not ours or are damaged are left out."""
    found = []
    try:
        paths = sorted(store_folder().glob("*.safetensors"))
    except OSError:
        return []  # a store that this user may not look into holds nothing for them
    for path in paths:
        try:
            found.append(describe(path))
        except ModelError:
            continue
    return found


def find(name: str) -> StoredWeights | None:
    """The weights of that name, or None when they are not in the store."""
    path = stored_path(name)
    # os.path: a store that this user may not look into holds nothing for them.
    return describe(path) if os.path.isfile(path) else None


def describe(path: Path) -> StoredWeights:
    """What a checkpoint says of itself; raises ModelError when it is damaged or not one of ours."""
    entries = header_metadata(path)
    try:
        config = json.loads(entries["config"])
        return StoredWeights(
            name=path.stem,
            path=path,
            kind=kind_of(config),
            encoder=encoder_of(config),
            size_bytes=path.stat().st_size,
            sha256=entries["sha256"],
            licence=entries.get("licence", "not stated"),
            source=entries.get("source", "not stated"),
        )
    except DAMAGE as error:
        raise ModelError(f"{path} is not an escounts checkpoint, or is damaged") from error


def kind_of(config: Mapping[str, Any]) -> Kind:
    """What a checkpoint's config describes."""
    if "decoder" not in config:
        return "encoder"
    return "network" if "encoder_options" in config else "decoder"


def encoder_of(config: Mapping[str, Any]) -> str:
    """The encoder a checkpoint is or needs; a decoder that does not name it is told by the channels it takes."""
    name = config.get("encoder") or encoder_of_channels(config["decoder"]["in_channels"])
    if name is None:
        raise ValueError("a decoder without its encoder's name")
    return str(name)


def header_metadata(path: Path) -> dict[str, str]:
    """The metadata in a safetensors header; checks that the file is as long as its header says."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, LONGEST_HEADER):
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        metadata = dict(header.pop("__metadata__", None) or {})
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except DAMAGE as error:
        raise ModelError(f"{path} is not a whole safetensors file: {type(error).__name__}: {error}") from error
    if 8 + length + end != size:
        raise ModelError(f"{path} is truncated: {size} bytes of {8 + length + end}")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ModelError(f"{path} is damaged: its metadata are not all text")
    return metadata


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
