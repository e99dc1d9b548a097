"""Weights on disk: read without running code, load strictly, save atomically.

Our own files are safetensors with three entries in their metadata: `format`, `config` (JSON) and `sha256` (of all
tensors). Public files are read as they come: safetensors, what torch.save wrote, or pickled numpy arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from escounts.errors import ModelError
from escounts.models.store import DAMAGE, encoder_of, kind_of
from escounts.nn.decoder import Decoder, DecoderConfig
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import build_encoder
from escounts.nn.network import Network, NetworkConfig
from escounts.system.atomic_files import atomic_file
from escounts.system.config_codec import from_plain, to_plain

Module = TypeVar("Module", bound=nn.Module)
FORMAT = "escounts-1"
OWN_METADATA = ("format", "config", "sha256")
LARGEST_SETTING = 65_536
"""No number of a config (channels, tokens) is larger."""
SETTINGS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("cross_blocks", "window_blocks", "depth", "depths", "blocks", "residual"), (0, 128)),
    **dict.fromkeys(("heads", "cell_heads", "pooled_heads", "groups", "mlp_ratio"), (1, 1024)),
    **dict.fromkeys(("window", "grid", "patch"), (1, 64)),
    **dict.fromkeys(("size", "frames", "window_frames", "dilations", "lags"), (1, 1024)),
    **dict.fromkeys(("scale", "min_period", "max_period"), (1e-3, 1e5)),
}
"""Least and most of the settings whose cost the weights do not show: what is built of them may be large, slow, or
divide by nothing."""
LONGEST_SETTING = 64
"""Numbers that a setting such as the widths of stages has, at most."""
MOST_CELLS = 4096
"""Cells of one attention window, or of a grid."""
STATE_KEYS = ("model_state", "model_state_dict", "state_dict", "model", "module")
"""Where public training code keeps the state dict inside a checkpoint."""


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """The state dict in a safetensors file, a torch file or a pickle of numpy arrays; a `module.` prefix on every key
    is taken off.

    Torch files are read with weights_only=True, pickles with an unpickler that knows numpy's arrays alone: a file
    that holds anything that could run is refused.
    """
    path = Path(path)
    opening = _opening_bytes(path)
    if path.suffix == ".safetensors":
        tensors, _ = _read_safetensors(path)
    elif is_pickle(opening):
        tensors = read_numpy_pickle(path)
    else:
        tensors = _read_torch(path, opening)
    if all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    return tensors


def strict_load(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    known_unneeded: Sequence[str] = (),
    source: str = "the weights",
) -> None:
    """Load every tensor into the module, or raise a ModelError that names what does not fit."""
    module.load_state_dict(
        checked_tensors(module, tensors, known_unneeded=known_unneeded, source=source), strict=False
    )


def checked_tensors(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    known_unneeded: Sequence[str] = (),
    source: str = "the weights",
) -> dict[str, Tensor]:
    """The tensors the module takes; a missing, unexpected or mis-shaped one is a ModelError naming it.

    known_unneeded: glob patterns of names that may be in the file and are not used (a classifier).
    `num_batches_tracked` counters may be absent: files of old torch versions have none. The module may be on
    the meta device.
    """
    expected = module.state_dict()
    given = {
        name: tensor
        for name, tensor in tensors.items()
        if name in expected or not any(fnmatchcase(name, pattern) for pattern in known_unneeded)
    }
    missing = [name for name in expected if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in expected]
    misshaped = [
        f"{name} is {_shape(given[name])}, expected {_shape(expected[name])}"
        for name in expected
        if name in given and given[name].shape != expected[name].shape
    ]
    problems = [
        f"{kind}: {_some(names)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("wrong shape", misshaped))
        if names
    ]
    if problems:
        raise ModelError(f"{source} do not fit {type(module).__name__}; {'; '.join(problems)}")
    return given


def write_checkpoint(
    path: Path | str,
    tensors: Mapping[str, Tensor],
    *,
    config: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
) -> str:
    """Write tensors, config and metadata to one safetensors file, all or nothing; the sha256 of the tensors.

    dtype: floating-point tensors are stored in it (torch.float16 halves the file); None keeps theirs.
    """
    path = Path(path)
    stored = {name: _storable(name, tensor, dtype) for name, tensor in tensors.items()}
    digest = tensors_sha256(stored)
    entries = {**(metadata or {}), "format": FORMAT, "config": json.dumps(config), "sha256": digest}
    with atomic_file(path) as partial:
        save_file(stored, partial, metadata=entries)
    return digest


def read_checkpoint(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, str]]:
    """Tensors, config and further metadata of a file that write_checkpoint wrote; its sha256 is checked."""
    path = Path(path)
    _opening_bytes(path)
    tensors, entries = _read_safetensors(path)
    if entries.get("format") != FORMAT:
        raise ModelError(
            f"{path} is not an escounts checkpoint (format {entries.get('format')!r}, expected {FORMAT!r}); "
            "convert public weights with `escounts weights add`"
        )
    if entries.get("sha256") != tensors_sha256(tensors):
        raise ModelError(f"{path} is damaged: its tensors do not have the sha256 it was saved with")
    check_finite(path, tensors)
    metadata = {name: value for name, value in entries.items() if name not in OWN_METADATA}
    with config_errors(path):
        config = json.loads(entries["config"])
        check_config(config)
    return tensors, config, metadata


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that hold NaN or infinity: one of them is enough to count nothing, or anything."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor.float()).all():
            raise ModelError(f"{path} is damaged: {name} holds values that are not finite (NaN or infinity)")


@contextmanager
def config_errors(path: Path | str) -> Iterator[None]:
    """Around what makes something of a file's config: whatever a malformed one raises is a ModelError of one line."""
    try:
        yield
    except DAMAGE as error:
        reason = _one_line(f"{type(error).__name__}: {error}")
        raise ModelError(f"{path} is damaged: its config describes nothing that can be built ({reason})") from error


def check_config(config: Any, name: str = "the config") -> None:
    """Before anything is built: a config is a mapping, and no number in it asks for more than a computer has."""
    if not isinstance(config, dict):
        raise ValueError(f"{name}: a mapping is needed, not {type(config).__name__}")
    for key, value in config.items():
        least, most = SETTINGS.get(key, (-LARGEST_SETTING, LARGEST_SETTING))
        parts, numbers = [value], []
        for part in parts:
            if isinstance(part, list):
                parts.extend(part)
            elif isinstance(part, dict):
                check_config(part, key)
            elif isinstance(part, int | float) and not isinstance(part, bool):
                numbers.append(part)
                if not least <= part <= most:  # NaN is not, either
                    raise ValueError(f"{key} {part!r:.40} is out of range; {least:g} to {most:g} is allowed")
        if len(parts) > LONGEST_SETTING or (key in ("window", "grid") and math.prod(numbers) > MOST_CELLS):
            raise ValueError(f"{key} {str(value)[:40]} asks for too much")


def save_network(
    path: Path | str,
    network: Network,
    *,
    metadata: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
) -> str:
    """Save a whole network (encoder and decoder); the sha256 of its tensors."""
    return write_checkpoint(
        path, network.state_dict(), config=to_plain(network.config), metadata=metadata, dtype=dtype
    )


def load_network(path: Path | str, device: torch.device | str = "cpu") -> tuple[Network, dict[str, str]]:
    """The network saved at path, in evaluation mode on device in float32, and its metadata."""
    tensors, config, metadata = read_checkpoint(path)
    return _loaded(path, lambda: Network(NetworkConfig.from_plain(config)), tensors, device), metadata


def save_decoder(
    path: Path | str,
    decoder: Decoder,
    *,
    encoder: str,
    metadata: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
) -> str:
    """Save a decoder that was trained on the tokens of a frozen encoder; the encoder's weights stay apart."""
    config = {"encoder": encoder, "decoder": to_plain(decoder.config)}
    return write_checkpoint(path, decoder.state_dict(), config=config, metadata=metadata, dtype=dtype)


def load_decoder(path: Path | str, device: torch.device | str = "cpu") -> tuple[Decoder, str, dict[str, str]]:
    """The decoder at path, the name of the encoder it was trained on, and its metadata."""
    tensors, config, metadata = read_checkpoint(path)
    if kind_of(config) != "decoder":
        raise ModelError(f"{path} does not hold a decoder alone")
    decoder = _loaded(path, lambda: Decoder(from_plain(DecoderConfig, config["decoder"])), tensors, device)
    return decoder, encoder_of(config), metadata


def load_encoder(path: Path | str, device: torch.device | str = "cpu") -> Encoder:
    """The encoder converted to path by `escounts weights add`, frozen, in evaluation mode, in float32."""
    tensors, config, _ = read_checkpoint(path)
    if kind_of(config) != "encoder":
        raise ModelError(f"{path} does not hold an encoder alone")
    encoder = _loaded(path, lambda: build_encoder(config["encoder"], **config.get("options", {})), tensors, device)
    return encoder.requires_grad_(False)


def _loaded(
    path: Path | str, build: Callable[[], Module], tensors: Mapping[str, Tensor], device: torch.device | str
) -> Module:
    """The module with a file's weights, in evaluation mode on the device.

    Built without memory first: a config that asks for more than the file holds is refused before that costs.
    """
    with config_errors(path):
        with torch.device("meta"):
            on_paper = build()
        checked_tensors(on_paper, tensors, source=f"the weights in {path}")
        module = build()
    strict_load(module, tensors, source=f"the weights in {path}")
    return module.to(device).eval()


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """One sha256 over the names, types, shapes and bytes of all tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _storable(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A contiguous copy on the CPU that shares memory with nothing, in dtype where it is floating point."""
    stored = tensor.detach().cpu()
    if dtype is not None and stored.is_floating_point():
        stored = stored.to(dtype)
        if not torch.isfinite(stored).all():
            raise ModelError(f"{name} is not finite in {dtype}; store it in float32")
    return stored.clone(memory_format=torch.contiguous_format)


def _opening_bytes(path: Path) -> bytes:
    """The first bytes of a file; the usual things that are not weights at all are refused by name."""
    if not path.is_file():
        raise ModelError(f"no weights file at {path}")
    with open(path, "rb") as file:
        opening = file.read(64)
    if not opening:
        raise ModelError(f"{path} is empty: the download did not finish; fetch it again")
    if opening.lstrip()[:1] == b"<":
        raise ModelError(f"{path} is a web page, not weights: the download was answered with HTML")
    if opening.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer, not weights: fetch the file itself")
    return opening


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in list(file.keys())}, dict(file.metadata() or {})
    except (SafetensorError, *DAMAGE) as error:
        raise ModelError(f"{path} is not a whole safetensors file ({error}); fetch it again") from error


def _read_torch(path: Path, opening: bytes) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if named := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise ModelError(
                f"{path} is refused: besides tensors it holds {named[1]}, and reading Python objects can run code"
            ) from error
        raise ModelError(f"{path} is not a file that torch.save wrote, or is damaged") from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, OSError, TypeError) as error:
        state = "truncated or damaged" if opening.startswith(b"PK") else "not weights, or damaged"
        raise ModelError(f"{path} is {state} ({_one_line(str(error))}); fetch it again") from error
    return _state_dict(path, content)


def _state_dict(path: Path, content: object) -> dict[str, Tensor]:
    """The mapping of names to tensors inside what a torch file held."""
    if isinstance(content, Mapping):
        inner = next((content[key] for key in STATE_KEYS if isinstance(content.get(key), Mapping)), content)
        others = [str(name) for name, value in inner.items() if not isinstance(value, Tensor)]
        if inner and not others:
            return {str(name): tensor for name, tensor in inner.items()}
        if inner:
            raise ModelError(f"{path} has no state dict: {_some(others)} are not tensors")
    raise ModelError(f"{path} has no state dict, it holds {type(content).__name__}")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a scalar"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:120]


_TORCH_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The number that a pickle of torch.save before 1.6 begins with."""
_ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


def is_pickle(opening: bytes) -> bool:
    """Does a file begin as a plain pickle does, and not as one of torch's?"""
    return opening[:1] == b"\x80" and not opening[2:].startswith(_TORCH_MAGIC)


def read_numpy_pickle(path: Path) -> dict[str, Tensor]:
    """The arrays of nested dicts by their keys joined with "/"; anything besides arrays and dicts is a ModelError."""
    try:
        with open(path, "rb") as file:
            content = _NumpyUnpickler(file).load()
    except ModelError:
        raise
    except Exception as error:  # a malformed pickle may raise anything; nothing of it was called but numpy's own
        raise ModelError(f"{path} is not weights, or damaged ({type(error).__name__}); fetch it again") from error
    tensors = dict(_tensors(path, content, ()))
    if not tensors:
        raise ModelError(f"{path} holds no arrays; weights are dicts of numpy arrays, or tensors")
    return tensors


class _NumpyUnpickler(pickle.Unpickler):
    """Makes numpy arrays and what Python's literals are made of; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ModelError(
                f"the weights file is refused: besides arrays it holds {module}.{name}, "
                "and reading Python objects can run code"
            )
        return _ALLOWED[module, name]


def _tensors(path: Path, content: object, keys: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _tensors(path, value, (*keys, str(key)))
    elif isinstance(content, np.ndarray) and content.dtype.kind in "fiub":
        yield "/".join(keys), torch.from_numpy(np.array(content))
    else:
        raise ModelError(f"{path} has no weights: {'/'.join(keys) or 'it'} is {type(content).__name__}, not an array")
