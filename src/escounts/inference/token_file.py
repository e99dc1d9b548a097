"""Tokens of one long sequence in half precision: in memory, past a limit in a temporary file."""

from __future__ import annotations

import tempfile
import threading
from typing import IO

import numpy as np
import torch
from torch import Tensor

MEMORY_LIMIT = 32 * 2**20
"""Bytes of one sequence kept in memory before it goes to a file, which vanishes with its owner."""


class TokenFile:
    """Time cells of equal shape (H, W, C), appended in order, read by range; from any thread."""

    def __init__(self, shape: tuple[int, ...], *, memory_limit: int = MEMORY_LIMIT) -> None:
        self.shape = shape
        self.cells = 0
        self._cell_bytes = 2 * int(np.prod(shape))
        self._memory_limit = memory_limit
        self._lock = threading.Lock()
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=memory_limit)  # noqa: SIM115

    @property
    def nbytes(self) -> int:
        """Bytes it holds in memory: none once the cells lie in a file."""
        size = self.cells * self._cell_bytes
        return size if size <= self._memory_limit else 0

    def append(self, tokens_THWC: Tensor) -> int:
        """Add cells at the end; the number of cells before them."""
        if tuple(tokens_THWC.shape[1:]) != self.shape:
            raise ValueError(f"got cells of shape {tuple(tokens_THWC.shape[1:])}, this file has {self.shape}")
        data = tokens_THWC.to("cpu", torch.float16).contiguous().numpy().tobytes()
        with self._lock:
            first = self.cells
            self._file.seek(first * self._cell_bytes)
            self._file.write(data)
            self.cells += len(tokens_THWC)
        return first

    def truncate(self, cells: int) -> None:
        """Keep the first `cells` cells only."""
        with self._lock:
            self.cells = min(self.cells, cells)
            self._file.seek(self.cells * self._cell_bytes)
            self._file.truncate()

    def read(self, first: int, last: int, device: torch.device) -> Tensor:
        """Cells first..last (exclusive) in single precision, (T, H, W, C)."""
        with self._lock:
            self._file.seek(first * self._cell_bytes)
            data = bytearray(self._file.read((last - first) * self._cell_bytes))
        return torch.frombuffer(data, dtype=torch.float16).view(-1, *self.shape).to(device).float()
