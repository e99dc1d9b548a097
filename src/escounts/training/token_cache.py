"""Stored tokens near the device: read once, kept while they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from escounts.datasets.tokens import TokenStore
from escounts.nn.device import to_device

HOST_LIMIT = 2 << 30
"""Bytes kept when training on a CPU."""
DEVICE_SHARE = 0.4
"""Share of a GPU's free memory that tokens may take."""


class TokenCache:
    """Sequences and exemplars of a store, on a device; beyond the limit they are read anew each time."""

    def __init__(self, store: TokenStore, device: torch.device, limit: int | None = None) -> None:
        self.store = store
        self.device = device
        self.limit = _limit(device) if limit is None else limit
        self.bytes = 0
        self._kept: dict[tuple[str, str, int], Tensor] = {}
        self._spans: dict[tuple[str, int], tuple[float, float]] = {}

    def sequence(self, name: str, offset: int) -> Tensor:
        """Tokens (T, H, W, C) of a video from an offset on, float16."""
        return self._get(("sequence", name, offset), lambda: self.store.load(name, offset).sequences[offset])

    def exemplar(self, name: str, index: int) -> tuple[Tensor, tuple[float, float]]:
        """Tokens (T, H, W, C) of one exemplar, and its span in seconds."""

        def read() -> Tensor:
            tokens, self._spans[name, index] = self.store.exemplar(name, index)
            return tokens

        tokens = self._get(("exemplar", name, index), read)
        return tokens, self._spans[name, index]

    def preload(self, names: Iterable[str]) -> None:
        """Read videos whole, each file once, before training asks for them piece by piece."""
        for name in names:
            video = self.store.load(name)
            for offset, sequence in video.sequences.items():
                self._keep(("sequence", name, offset), sequence)
            for index, span in enumerate(video.exemplar_spans.tolist()):
                self._spans[name, index] = (span[0], span[1])
                self._keep(("exemplar", name, index), video.exemplars[index])

    def _get(self, key: tuple[str, str, int], read: Callable[[], Tensor]) -> Tensor:
        kept = self._kept.get(key)
        return self._keep(key, read()) if kept is None else kept

    def _keep(self, key: tuple[str, str, int], read: Tensor) -> Tensor:
        tokens = to_device(read, self.device)
        size = tokens.numel() * tokens.element_size()
        if self.bytes + size <= self.limit:
            self._kept[key] = tokens
            self.bytes += size
        return tokens


def _limit(device: torch.device) -> int:
    if device.type != "cuda":
        return HOST_LIMIT
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * DEVICE_SHARE)
