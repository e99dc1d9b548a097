"""The parity fixtures' fill rules: a tensor's values follow from its name and shape alone."""

from __future__ import annotations

import math
import zlib

import numpy as np
import torch
from torch import Tensor


def sequence(name: str, count: int, rule: str) -> np.ndarray:
    """`count` float64 values in [-1, 1] for a name, by rule "sin" or "mix"."""
    seed = zlib.crc32(name.encode())
    if rule == "sin":
        return np.sin(0.37 * np.arange(count) + 0.01 * (seed % 1000))  # type: ignore[no-any-return]
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def scale(name: str, shape: tuple[int, ...], values: np.ndarray, rule: str) -> np.ndarray:
    """The fixtures' scale for a tensor of this name and shape."""
    last = name.rsplit(".", 1)[-1]
    if last == "running_mean":
        return 0.02 * values
    if last == "running_var":
        return 1 + 0.1 * np.abs(values)  # type: ignore[no-any-return]
    if len(shape) >= 2:
        if any(part in name for part in ("token", "pos_embed", "position_bias_table")):
            return values * (1.5 if rule == "mix" else 0.02)
        return values * (math.sqrt(3 / math.prod(shape[1:])) if rule == "mix" else 0.02)
    if last == "bias":
        return values * (0.1 if rule == "mix" else 0.02)
    return 1 + values * (0.2 if rule == "mix" else 0.02)


def filled(name: str, shape: tuple[int, ...], rule: str) -> Tensor:
    """The tensor a fixture means by this name and shape."""
    values = scale(name, shape, sequence(name, math.prod(shape), rule), rule)
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def input_tensor(name: str, shape: tuple[int, ...], rule: str, factor: float) -> Tensor:
    """An input: the plain sequence times a factor."""
    values = sequence(name, math.prod(shape), rule) * factor
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)
