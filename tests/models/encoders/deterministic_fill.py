"""The fill rules of the golden fixtures: every tensor from its name and shape, so no download is needed."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def fixture(name: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Key list and cases of a golden fixture, and its arrays."""
    about = json.loads((GOLDEN / "encoders.json").read_text())[name]
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return about, dict(arrays)


def sequence(name: str, count: int, rule: str) -> np.ndarray:
    """`count` float64 values in [-1, 1] that only depend on the name and the rule."""
    seed = zlib.crc32(name.encode())
    if rule == "sin":
        return np.sin(0.37 * np.arange(count) + 0.01 * (seed % 1000))
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) / 2.0**52 - 1.0


def filled(name: str, shape: list[int], rule: str) -> torch.Tensor:
    """The tensor a fixture's checkpoint holds under this name."""
    last = name.rpartition(".")[2]
    if last == "num_batches_tracked":
        return torch.zeros(shape, dtype=torch.int64)
    x = sequence(name, math.prod(shape), rule)
    small = rule == "sin"
    if last == "running_mean":
        x = 0.02 * x
    elif last == "running_var":
        x = 1 + 0.1 * np.abs(x)
    elif len(shape) >= 2 and any(part in name for part in ("token", "pos_embed", "position_bias_table")):
        x = (0.02 if small else 1.5) * x
    elif len(shape) >= 2:
        x = x * (0.02 if small else math.sqrt(3 / math.prod(shape[1:])))
    elif last == "bias":
        x = (0.02 if small else 0.1) * x
    else:
        x = 1 + (0.02 if small else 0.2) * x
    return torch.from_numpy(x.astype(np.float32)).reshape(shape)


def checkpoint(keys: dict[str, list[int]], rule: str = "mix") -> dict[str, torch.Tensor]:
    """All tensors of a key list."""
    return {
        name: torch.zeros(shape, dtype=torch.int64)
        if name.endswith("relative_position_index")
        else filled(name, shape, rule)
        for name, shape in keys.items()
    }


def clip(case: dict) -> torch.Tensor:
    """A case's input as our encoders take it: (1, T, 3, H, W)."""
    values = sequence("input", math.prod(case["shape"]), case["rule"]) * case["scale"]
    frames_BCTHW = torch.from_numpy(values.astype(np.float32)).reshape(case["shape"])
    assert np.allclose(frames_BCTHW.reshape(-1)[:3], case["first3"], atol=1e-7)
    return frames_BCTHW.transpose(1, 2)
