"""Views of one video: the same frames at several rates and phases, each encoded window by window.

Every view takes each `divisor`-th frame of the base rate, so one pass over the video serves all of them.
"""

from __future__ import annotations

import math
import tempfile
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from escounts.decision.rules import BASE_RATE as BASE_RATE
from escounts.decision.rules import RULES
from escounts.nn.decoder import Projected, check_tokens
from escounts.nn.device import InferencePool
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.network import Network
from escounts.system.arrays import Array, Array32, Image

CHUNK, GPU_CHUNK = 8, 256
"""Frames that go through the frame stage at once, on one core and on a GPU."""
GPU_WINDOWS = 8
"""Windows that go through the window stage at once on a GPU; on a core, each alone."""

SLOW_WINDOW = 2
"""Times the frames of training's windows that a slow view's hold: repetitions of several seconds are seen more than
once in 25 s."""

MEMORY_LIMIT = 128 * 2**20
"""Bytes of tokens kept in memory before a video's tokens go to a temporary file."""


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
    offset: int | None
    """None where the picture stands still throughout: there are no repetitions, and nothing is stored."""


@dataclass(frozen=True)
class MultiRateExemplar:
    """An exemplar: its tokens at every view where it fits, (16, H, W, C), and how long it lasts in seconds.

    video: what it was cut from; its length counts only there, another video has its own tempo. moves: by more than
    compression does. cuts: seconds at which the film is cut inside it: its tokens are of one side alone. start: the
    second at which it begins. look: what it looks like; None where the model keeps no looks.
    """

    tokens: dict[View, Tensor]
    seconds: float
    video: object
    moves: bool = True
    cuts: tuple[float, ...] = ()
    start: float = 0.0
    look: Array32 | None = None


def best_view(views: Sequence[View], seconds: float) -> View:
    """The view at which so many seconds are nearest to RULES.exemplar_cells cells."""
    return min(views, key=lambda view: abs(math.log(seconds * view.rate / RULES.exemplar_cells)))


def best_window(windows: Sequence[Window], first: float, last: float) -> Window:
    """Which of a view's windows shows cells first..last best: most of them, and nearest to their middle. After a cut
    the nearest one may be of the scene before and show none of them."""
    middle = (first + last) / 2

    def fit(window: Window) -> tuple[float, float]:
        shown = min(last, window.start + window.cells) - max(first, window.start)
        return shown, -abs(window.start + window.cells / 2 - middle)

    place = bisect_left(windows, middle, key=lambda window: window.start + window.cells / 2)
    return max(windows[max(0, place - 1) : place + 1], key=fit)


class WindowStore:
    """Projected windows of one video, in half precision; hours of them lie in a temporary file."""

    def __init__(self, grid: tuple[int, int], channels: int, look_width: int) -> None:
        self.grid = grid
        # A cell is its tokens and, as one more row, its similarity feature.
        self._file = TokenFile((grid[0] * grid[1] + 1, channels), memory_limit=MEMORY_LIMIT)
        self._looks = TokenFile((look_width,))
        self._lock = threading.Lock()

    def append(self, projected: Projected, looks_TD: Tensor) -> int:
        """Keep windows one after another; the cell of the file that the first begins at. From any thread."""
        assert projected.similarity_BTC is not None
        cells = torch.cat([projected.tokens_BTHWC.flatten(2, 3), projected.similarity_BTC[:, :, None]], 2)
        with self._lock:  # a cell has one place in both files
            self._looks.append(looks_TD)
            return self._file.append(cells.flatten(0, 1))

    @property
    def cells(self) -> int:
        """Cells of all windows."""
        return self._file.cells

    @property
    def nbytes(self) -> int:
        """Bytes held in memory: none once the windows lie in a file."""
        return self._file.nbytes + self._looks.nbytes

    def forget_after(self, cells: int) -> None:
        """Drop what was kept after the first `cells` cells."""
        self._file.truncate(cells)
        self._looks.truncate(cells)

    def read_looks(self, window: Window) -> Array32:
        """What each cell of a window looks like, (T, D)."""
        assert window.offset is not None, "a still window has no looks"
        if self._looks.shape == (0,):  # of a model without a look
            return np.zeros((window.cells, 0), np.float32)
        looks: Array32 = self._looks.read(window.offset, window.offset + window.cells, torch.device("cpu")).numpy()
        return looks

    def read(self, windows: Sequence[Window], device: torch.device) -> Projected:
        """Windows of equal length as one batch, in single precision."""
        offsets = [w.offset for w in windows if w.offset is not None]
        assert len(offsets) == len(windows), "a still window has no tokens"
        both = torch.stack([self._file.read(o, o + w.cells, device) for o, w in zip(offsets, windows, strict=True)])
        tokens_BTNC = both[:, :, :-1]
        return Projected(tokens_BTNC.reshape(*both.shape[:2], *self.grid, both.shape[3]), both[:, :, -1])


def on_base_frames(values: Array, view: View, first: int, last: int) -> Array32:
    """A view's cells on base frames first..last: every frame has the value of the cell it lies in."""
    frames = np.arange(first, last)
    cell = np.clip((frames - view.phase) // view.divisor, 0, len(values) - 1)
    return values[cell].astype(np.float32)


class ViewEncoder:
    """Takes base frames one by one and leaves projected windows in a store; the work itself is done by `cores`.

    Windows are `length` cells long (a slow view's longer than training's) with half of that between starts; the last
    one ends with the video. A picture that stands still costs next to nothing, however long a file's clock says that
    it is shown.
    """

    gpu_windows = GPU_WINDOWS

    def __init__(self, network: Network, view: View, store: WindowStore, cores: InferencePool) -> None:
        assert isinstance(network.encoder, LiteEncoder)
        self.encoder, self.decoder = network.encoder, network.decoder
        self.view, self.store, self.cores = view, store, cores
        slow = view.rate <= RULES.whole_video_rate
        self.length = network.encoder.spec.window_frames * (SLOW_WINDOW if slow else 1)
        self.cells = 0
        on_cpu = cores.device.type == "cpu"
        self._chunk, self._at_once = CHUNK if on_cpu else GPU_CHUNK, 1 if on_cpu else self.gpu_windows
        self._seen = 0
        self._pending: list[Image] = []
        self._changes: list[int] = []  # cells that differ from the one before
        self._latest: Image | None = None
        self._still: tuple[Image, Future[Tensor]] | None = None
        self._features: list[Features] = []
        self._waiting: list[tuple[Cut, Future[Window]]] = []
        self._windows: list[Future[Window]] = []
        self._next = 0  # cell that the next window begins at
        self._covered = 0  # cells that have a window

    def push(self, image: Image) -> None:
        """The next base frame, (S, S, 3) RGB."""
        if self._seen >= self.view.phase and (self._seen - self.view.phase) % self.view.divisor == 0:
            if self._latest is None or not (image is self._latest or np.array_equal(image, self._latest)):
                self._changes.append(self.cells + len(self._pending))
                self._latest = image
            self._pending.append(self._latest)
            if len(self._pending) > self._chunk:
                self._encode(self._chunk)
        self._seen += 1

    def finish(self) -> None:
        """The video is over: encode what is left and the last window."""
        if self._pending:
            self._encode(len(self._pending))
        self._keep_whole(self.cells)
        if self._covered < self.cells:
            self._keep(max(0, self.cells - self.length))
        self._project()
        self._features = []

    @property
    def windows(self) -> list[Window]:
        """All windows; waits for them, and raises what went wrong with one."""
        return [window.result() for window in self._windows]

    def _encode(self, count: int) -> None:
        images = self._pending[: count + 1]
        if all(image is images[0] for image in images):
            if self._still is None or self._still[0] is not images[0]:
                self._still = images[0], self._image_features(images[:1])
            features = self._still[1]
        else:
            features = self._image_features(images, count)
        self._features.append(Features(self.cells, self.cells + count, features))
        self._pending = self._pending[count:]
        # A window comes a chunk late: what it needs is encoded by then, and no core waits for another.
        self._keep_whole(self.cells)
        self.cells += count

    def _image_features(self, images: list[Image], count: int = 1) -> Future[Tensor]:
        return self.cores.submit(lambda: self.encoder.image_features(torch.from_numpy(np.stack(images)), count))

    def _keep_whole(self, cells: int) -> None:
        """Have all windows kept that are whole with so many cells."""
        while self._next + self.length <= cells:
            self._keep(self._next)
            self._next += self.length // 2
            # The last window may reach back by a whole length.
            needed = min(self._next, cells - self.length)
            self._features = [part for part in self._features if part.end > needed]
            del self._changes[: bisect_right(self._changes, needed)]

    def _keep(self, start: int) -> None:
        """Have the window that begins at a cell projected and stored."""
        end = min(start + self.length, self.cells)
        self._covered = end
        if bisect_right(self._changes, start) == bisect_left(self._changes, end):
            still: Future[Window] = Future()
            still.set_result(Window(start, end - start, None))
            self._windows.append(still)
            return
        parts = [part for part in self._features if part.start < end and part.end > start]
        cut = parts, start, end
        if self._at_once == 1:
            self._windows.append(self.cores.submit(lambda cuts: self._projected(cuts)[0], [cut]))
            return
        self._windows.append(Future())
        self._waiting.append((cut, self._windows[-1]))
        if len(self._waiting) == self._at_once:
            self._project()

    def _project(self) -> None:
        """Have the windows that wait for it projected and stored together."""
        if self._waiting:
            windows = self.cores.submit(self._projected, [cut for cut, _ in self._waiting]).result()
            for (_, future), window in zip(self._waiting, windows, strict=True):
                future.set_result(window)
        self._waiting = []

    def _projected(self, cuts: Sequence[Cut]) -> list[Window]:
        each = [
            torch.cat([part.result() for part in parts])[start - parts[0].start : end - parts[0].start]
            for parts, start, end in cuts
        ]
        features_TCHW = each[0] if len(each) == 1 else torch.cat(each)  # both leave channels where they lie in memory
        tokens_BTHWC = self.encoder.window_tokens(features_TCHW.view(len(each), -1, *features_TCHW.shape[1:]))
        check_tokens(tokens_BTHWC)
        first = self.store.append(self.decoder.project(tokens_BTHWC), self.encoder.look_features(features_TCHW))
        cells = tokens_BTHWC.shape[1]  # every window of a view has as many
        return [Window(start, cells, first + row * cells) for row, (_, start, _) in enumerate(cuts)]


class Features(NamedTuple):
    """Frame features of a view's cells start..end, which may still be computed."""

    start: int
    end: int
    future: Future[Tensor]
    """(end - start, C, H, W); or (1, C, H, W), which is every cell's."""

    def result(self) -> Tensor:
        """(end - start, C, H, W); waits for it."""
        features_TCHW = self.future.result()
        return features_TCHW.expand(self.end - self.start, *features_TCHW.shape[1:])


Cut = tuple[list[Features], int, int]
"""A window before it is encoded: the parts of its view's features that hold it, and its first and last cell."""


def appearance(tokens_THWC: Tensor) -> Array32:
    """What a repetition looks like: every other cell, averaged over space, (T / 2, C)."""
    looks: Array32 = tokens_THWC[::2].mean((1, 2)).float().cpu().numpy()
    return looks


TOKENS_IN_MEMORY = 32 * 2**20
"""Bytes of one sequence kept in memory before it goes to a file, which vanishes with its owner."""


class TokenFile:
    """Time cells of equal shape (H, W, C), appended in order, read by range; from any thread."""

    def __init__(self, shape: tuple[int, ...], *, memory_limit: int = TOKENS_IN_MEMORY) -> None:
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
