"""The encoders' golden fixtures: key lists, inputs, and the numbers the public models gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filling import filled, input_tensor

GOLDEN = Path(__file__).resolve().parent / "golden"


def fixture(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Key list and cases of a golden fixture, and its arrays."""
    about = json.loads((GOLDEN / "encoders.json").read_text())[name]
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return about, dict(arrays)


def checkpoint(keys: dict[str, list[int]], rule: str = "mix") -> dict[str, torch.Tensor]:
    """All tensors of a key list; counters and index tables are whole numbers."""
    return {
        name: torch.zeros(shape, dtype=torch.int64)
        if name.endswith(("num_batches_tracked", "relative_position_index"))
        else filled(name, tuple(shape), rule)
        for name, shape in keys.items()
    }


def clip(case: dict[str, Any]) -> torch.Tensor:
    """A case's input as our encoders take it: (1, T, 3, H, W)."""
    frames_BCTHW = input_tensor("input", tuple(case["shape"]), case["rule"], case["scale"])
    np.testing.assert_allclose(frames_BCTHW.reshape(-1)[:3], case["first3"], atol=1e-7)
    return frames_BCTHW.transpose(1, 2)
