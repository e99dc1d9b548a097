"""Which device to run on, from a person's word for it."""

from __future__ import annotations

import torch

from escounts.errors import ModelError


def choose_device(name: str = "auto") -> torch.device:
    """"auto" takes a GPU where there is one; "cpu", "cuda" and "cuda:1" are taken at their word."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = name.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ModelError(f"device is {name!r}; it takes auto, cpu, cuda or cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device is {name!r}, but no CUDA device is here; use --device cpu or auto")
    return torch.device(name)
