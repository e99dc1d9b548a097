"""Which device to run on, from a person's word for it, and in which precision."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from escounts.errors import ModelError

Precision = Literal["auto", "float32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """ "auto" takes a GPU where there is one; "cpu", "cuda" and "cuda:1" are taken at their word."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = name.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ModelError(f"device is {name!r}; it takes auto, cpu, cuda or cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device is {name!r}, but no CUDA device is here; use --device cpu or auto")
    return torch.device(name)


def chosen_devices(names: str | None) -> tuple[str, ...]:
    """The devices in "cuda:0,cuda:1", each checked; none for None."""
    return tuple(str(choose_device(name.strip())) for name in names.split(",")) if names else ()


def precision(device: torch.device, wanted: Precision = "auto") -> torch.autocast:
    """The context networks run in; "auto" is bf16 where the device is fast at it, else float32."""
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    low = wanted == "bf16" or (wanted == "auto" and fast)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def bf16_speedup(device: torch.device, side: int = 512) -> float:
    """How many times faster a matrix product is in bf16 than in float32 here, measured by turns; below 1 on a
    processor without units for it, which computes it by way of float32."""
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    pairs = {dtype: torch.randn(2, side, side, device=device).to(dtype) for dtype in best}
    for _ in range(4):  # the first of them warms up
        for dtype, (a, b) in pairs.items():
            began = time.perf_counter()
            (a @ b)[0, 0].item()  # waits for a GPU
            best[dtype] = min(best[dtype], time.perf_counter() - began)
    return best[torch.float32] / best[torch.bfloat16]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. To a GPU it goes on a stream of its own: neither the host nor the copy waits for what
    the GPU has in hand. (Pinning memory for it costs more: half a millisecond for every new size.)"""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    used_on, copies = torch.cuda.current_stream(index), _copy_stream(index)
    with torch.cuda.stream(copies):
        moved = tensor.to(device, non_blocking=True)
    used_on.wait_stream(copies)
    moved.record_stream(used_on)  # its memory belongs to the other stream, and is not to be given away too soon
    return moved


@lru_cache(maxsize=16)
def _copy_stream(index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]


def autocast_type(kind: str) -> torch.dtype | None:
    """What autocast casts to on such a device ("cpu", "cuda"); None where it is off."""
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def as_layers_take_it(x: Tensor, otherwise: torch.dtype | None = None) -> Tensor:
    """x in autocast's type, where that is on: a linear layer would cast it anyway, after larger moves and copies.

    otherwise: its type where autocast is off; None leaves it as it is.
    """
    return x.to(autocast_type(x.device.type) or otherwise or x.dtype)
