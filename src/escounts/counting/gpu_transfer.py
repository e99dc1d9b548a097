"""Images to a GPU and tokens back while it computes: neither the host nor the GPU waits for the other's copies.

A GPU that runs ViT-B wants four thousand frames a second. Each frame goes there once, as bytes, however many windows
show it; results come back a batch late, when they are done anyway. On a CPU nothing is moved and nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from escounts.nn.decoder import check_tokens
from escounts.nn.device import to_device
from escounts.system.arrays import Image

BLOCK = 64
"""Images that are copied at once."""


def uploaded(images: Iterable[Image], device: torch.device, *, block: int = BLOCK) -> Iterator[Tensor]:
    """The same images, (H, W, 3) uint8 each, on a device."""
    if device.type != "cuda":
        yield from map(torch.from_numpy, images)
        return
    source = iter(images)
    while some := list(islice(source, block)):
        yield from to_device(pinned(some), device)


def pinned(images: list[Image]) -> Tensor:
    """Images as one tensor in memory that a GPU reads by itself; torch keeps such memory for the next time."""
    held = torch.empty((len(images), *images[0].shape), dtype=torch.uint8, pin_memory=True)
    np.stack(images, out=held.numpy())
    return held


@dataclass(frozen=True)
class Download:
    """Tokens on their way from a GPU; `result()` waits for them, and raises where one is not finite."""

    tokens: Tensor
    finite: Tensor
    copied: torch.cuda.Event | None

    def result(self) -> Tensor:
        """The tokens in the host's memory, in half precision."""
        if self.copied is not None:
            self.copied.synchronize()
        if not bool(self.finite):
            check_tokens(self.tokens)
        return self.tokens


def download(projected: Tensor) -> Download:
    """Have tokens copied to the host's memory in half precision, after what the GPU has in hand."""
    finite = torch.isfinite(projected).all()
    half = projected.to(torch.float16)
    if projected.device.type != "cuda":
        return Download(half, finite, None)
    held = torch.empty(half.shape, dtype=half.dtype, pin_memory=True)
    held.copy_(half, non_blocking=True)
    said = torch.empty((), dtype=torch.bool, pin_memory=True)
    said.copy_(finite, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return Download(held, said, copied)
