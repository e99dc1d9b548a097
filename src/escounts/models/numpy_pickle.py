"""Nested dicts of numpy arrays that were pickled, read without running what a pickle may ask for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from escounts.errors import ModelError

_TORCH_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The number that a pickle of torch.save before 1.6 begins with."""
_KINDS = "fiub"
_ALLOWED = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "_reconstruct" for core in ("core", "_core")},
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
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
        kind = _ALLOWED.get((module, name))
        if kind is None:
            raise ModelError(
                f"the weights file is refused: besides arrays it holds {module}.{name}, "
                "and reading Python objects can run code"
            )
        if kind == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        return getattr(np, kind)


def _tensors(path: Path, content: object, keys: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _tensors(path, value, (*keys, str(key)))
    elif isinstance(content, np.ndarray) and content.dtype.kind in _KINDS:
        yield "/".join(keys), torch.from_numpy(np.array(content))
    else:
        raise ModelError(f"{path} has no weights: {'/'.join(keys) or 'it'} is {type(content).__name__}, not an array")
