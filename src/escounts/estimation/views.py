"""Views of one video: the same frames at several rates and phases, each encoded window by window.

Every view takes each `divisor`-th frame of the base rate, so one pass over the video serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from escounts.estimation.token_file import TokenFile
from escounts.models.decoder import Projected, check_tokens
from escounts.models.encoders.lite import LiteEncoder
from escounts.models.network import Network

BASE_RATE = 30.0
"""Frames a second that are read; every view's rate divides it."""

CHUNK = 32
"""Frames that go through the frame stage at once."""

MEMORY_LIMIT = 128 * 2**20
"""Bytes of tokens kept in memory before a video's tokens go to a temporary file."""

Image = npt.NDArray[np.uint8]


class View(NamedTuple):
    """Base frames phase, phase + divisor, phase + 2·divisor …: a rate, and a time shift of it."""

    divisor: int
    phase: int = 0

    @property
    def rate(self) -> float:
        """Frames a second."""
        return BASE_RATE / self.divisor

    def cells(self, frames: int) -> int:
        """How many of `frames` base frames this view takes."""
        return max(0, -(-(frames - self.phase) // self.divisor))


@dataclass(frozen=True)
class Window:
    """Where one encoded window lies: cells of its view, and its first cell in the store."""

    start: int
    cells: int
    offset: int


class WindowStore:
    """Projected windows of one video, in half precision; hours of them lie in a temporary file."""

    def __init__(self, grid: tuple[int, int], channels: int) -> None:
        self.grid = grid
        # A cell is its tokens and, as one more row, its similarity feature.
        self._file = TokenFile((grid[0] * grid[1] + 1, channels), memory_limit=MEMORY_LIMIT)

    def append(self, projected: Projected) -> int:
        """Keep one window (batch 1); the cell of the file it begins at."""
        assert projected.similarity_BTC is not None
        offset = self._file.cells
        cells = torch.cat([projected.tokens_BTHWC.flatten(2, 3), projected.similarity_BTC[:, :, None]], 2)
        self._file.append(cells[0])
        return offset

    @property
    def cells(self) -> int:
        """Cells of all windows."""
        return self._file.cells

    def forget_after(self, cells: int) -> None:
        """Drop what was kept after the first `cells` cells."""
        self._file.truncate(cells)

    def read(self, windows: Sequence[Window], device: torch.device) -> Projected:
        """Windows of equal length as one batch, in single precision."""
        both = torch.stack([self._file.read(w.offset, w.offset + w.cells, device) for w in windows])
        tokens_BTNC = both[:, :, :-1]
        return Projected(tokens_BTNC.reshape(*both.shape[:2], *self.grid, both.shape[3]), both[:, :, -1])


class ViewEncoder:
    """Takes base frames one by one and leaves projected windows in a store.

    Windows are `length` cells long with half of that between starts; the last one ends with the video.
    """

    def __init__(self, network: Network, view: View, store: WindowStore, device: torch.device) -> None:
        assert isinstance(network.encoder, LiteEncoder)
        self.encoder, self.decoder = network.encoder, network.decoder
        self.view, self.store, self.device = view, store, device
        self.length = network.encoder.spec.window_frames
        self.windows: list[Window] = []
        self.cells = 0
        self._seen = 0
        self._pending: list[Image] = []
        self._features: list[Tensor] = []
        self._first = 0  # cell of the first feature that is still held

    def push(self, image: Image) -> None:
        """The next base frame, (S, S, 3) RGB."""
        if self._seen >= self.view.phase and (self._seen - self.view.phase) % self.view.divisor == 0:
            self._pending.append(image)
            if len(self._pending) > CHUNK:
                self._encode(CHUNK)
        self._seen += 1

    def finish(self) -> None:
        """The video is over: encode what is left and the last window."""
        if self._pending:
            self._encode(len(self._pending))
        if self.cells == 0:
            return
        if not self.windows or self.windows[-1].start + self.windows[-1].cells < self.cells:
            self._keep(max(0, self.cells - self.length))
        self._features = []

    def _encode(self, count: int) -> None:
        images = torch.from_numpy(np.stack(self._pending[: count + 1]))
        self._features.append(self.encoder.image_features(images, count))
        self._pending = self._pending[count:]
        self.cells += count
        start = self.windows[-1].start + self.length // 2 if self.windows else 0
        while start + self.length <= self.cells:
            self._keep(start)
            start += self.length // 2

    def _keep(self, start: int) -> None:
        """Project and store the window that begins at a cell; features before it are no longer needed."""
        features = torch.cat(self._features)
        self._features = [features]
        end = min(start + self.length, self.cells)
        window = features[start - self._first : end - self._first][None]
        tokens_BTHWC = self.encoder.window_tokens(window)
        check_tokens(tokens_BTHWC)
        projected = self.decoder.project(tokens_BTHWC)
        self.windows.append(Window(start, end - start, self.store.append(projected)))
        # The next window begins half a length on, and the last one may reach back by a whole length.
        keep_from = max(self._first, min(start + self.length // 2, self.cells - self.length))
        self._features = [features[keep_from - self._first :]]
        self._first = keep_from
