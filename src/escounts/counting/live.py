"""A video that is still going on, encoded by the default model as its frames come.

At any moment the encoding is the one that `MultiRateModel.encode` would make of what has been seen so far: windows on
the fixed grid, which are decoded once, and one that ends now, which is made anew at every update. So a file that was
watched to its end is estimated like one that was counted, unless it has cuts: these are not looked for here.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from escounts.counting.changes import SLOWEST
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.views import BASE_RATE, Features, MultiRateExemplar, View, ViewEncoder, Window, WindowStore
from escounts.decision.decide import Decision, assuming
from escounts.decision.evidence import wants_faster
from escounts.decision.rules import RULES
from escounts.nn.decoder import ExemplarKeysValues, Projected
from escounts.nn.device import InferencePool
from escounts.system.arrays import Array32, Image


class LiveEncoding(MultiRateEncoding):
    """Takes base frames one by one; `update()` estimates what has been seen and is still remembered.

    >>> with LiveEncoding(model) as encoding:
    ...     for image in images:  # (S, S, 3) RGB at the base rate
    ...         encoding.push(image)
    ...     estimate = encoding.update()
    """

    store: LiveStore

    def __init__(self, model: MultiRateModel, *, start: float = 0.0, video: object = None) -> None:
        """start: the time of the first frame, in seconds. video: equal for two stretches of one source."""
        super().__init__(model, lambda _: (), start=start, video=video)
        self.store = LiveStore(self.store.grid)
        self._cores = InferencePool(model.device, model.precision)
        self._views = [self._encoder(view) for view in model.views]
        self._first: list[Image] | None = []  # what came before the fast views were chosen
        self._fast: list[View] = []
        self._exemplars: dict[tuple[View, tuple[int, ...]], ExemplarKeysValues] = {}
        self._decoded: dict[tuple[int | None, int, bool], Array32] = {}

    def __enter__(self) -> LiveEncoding:
        self._cores.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cores.__exit__(kind, error, trace)

    def push(self, image: Image) -> None:
        """The next base frame, (S, S, 3) RGB. One that is equal to the last costs next to nothing."""
        self.frames += 1
        self.meter.push(image)
        if self._first is not None:
            self._first.append(image)
        for view in self._views:
            view.push(image)

    @property
    def fast_views(self) -> list[View]:
        """Those that the first frames called for: others cannot be had later."""
        return self._fast

    def _begin_fast_views(self) -> None:
        """Choose the fast views and let them see what has come: slower than the model's only where pictures came that
        slowly, not where none came yet."""
        slow = 1 < self.meter.divisor() < SLOWEST
        self._fast = super().fast_views if slow else list(self.model.fast_views)
        images, self._first = self._first or [], None
        late = [self._encoder(view) for view in self._fast if view not in self.model.views]
        for view in late:
            for image in images:
                view.push(image)
        self._views += late

    def _encoder(self, view: View) -> LiveViewEncoder:
        return LiveViewEncoder(self.model.network, view, self.store, self._cores)

    @torch.inference_mode()
    def update(self, exemplars: Sequence[MultiRateExemplar] = (), *, assume_repeats: bool = False) -> Decision:
        """Encode what has come since the last time and estimate all that is remembered, on the base rate's grid."""
        self.end = self.start + self.frames / BASE_RATE
        seen = self.frames >= RULES.stream_seen * BASE_RATE
        if self._first is not None and (seen or self.meter.divisor() < SLOWEST):
            self._begin_fast_views()
        for view in self._views:
            view.advance()
        self._renew_windows()
        self._asked = list(self.model.views)
        if self._fast and wants_faster(self.evidence()):
            self._asked = list(dict.fromkeys([*self._asked, *self._fast]))
        ask = partial(self.estimate, exemplars)
        return assuming(ask) if assume_repeats else ask()

    def forget(self, seconds: float) -> None:
        """Drop the oldest seconds: the encoding begins later."""
        frames = round(seconds * BASE_RATE)
        divisors = [view.view.divisor for view in self._views]
        if any(frames % divisor for divisor in divisors):
            raise ValueError(f"{seconds} s are {frames} frames; {divisors} must divide them")
        self.start += frames / BASE_RATE
        self.frames -= frames
        self.meter.forget(frames)
        for view in self._views:
            view.forget(frames // view.view.divisor)
        self._renew_windows()

    def forget_exemplars(self) -> None:
        """Other exemplars from now on: nothing that was decoded with the old ones is used again."""
        self._exemplars.clear()
        self._decoded.clear()

    def _renew_windows(self) -> None:
        self.windows = {view.view: view.windows for view in self._views}
        self._zero_shot.clear()
        self._decoded = {key: maps for key, maps in self._decoded.items() if key[0] in self.store.kept}

    def _keys_values(self, view: View, exemplars: Sequence[MultiRateExemplar]) -> ExemplarKeysValues:
        """Made once: what was decoded with them stands as long as they do."""
        key = (view, tuple(id(exemplar) for exemplar in exemplars))
        if key not in self._exemplars:
            self._exemplars[key] = super()._keys_values(view, exemplars)
        return self._exemplars[key]

    def _maps(
        self, windows: Sequence[Window], keys_values: ExemplarKeysValues, lasts: float | None, assume_repeats: bool
    ) -> Array32:
        keys = [(window.offset, id(keys_values), assume_repeats) for window in windows]
        new = [window for window, key in zip(windows, keys, strict=True) if key not in self._decoded]
        if new:
            maps = super()._maps(new, keys_values, lasts, assume_repeats)
            for row, window in enumerate(new):
                self._decoded[window.offset, id(keys_values), assume_repeats] = maps[:, row]
        return np.stack([self._decoded[key] for key in keys], 1)


class LiveStore(WindowStore):
    """Projected windows by number, in half precision, until they are dropped."""

    def __init__(self, grid: tuple[int, int]) -> None:
        self.grid = grid
        self.kept: dict[int | None, Projected] = {}
        self._window_looks: dict[int | None, Tensor] = {}
        self._next = 0

    def append(self, projected: Projected, looks_TD: Tensor) -> int:
        """Keep one window (batch 1); its number."""
        assert projected.similarity_BTC is not None
        number, self._next = self._next, self._next + 1
        self._window_looks[number] = looks_TD.half().cpu()
        self.kept[number] = Projected(projected.tokens_BTHWC.half(), projected.similarity_BTC.half())
        return number

    def drop(self, window: Window) -> None:
        """Forget a window; one that stands still was never kept."""
        self.kept.pop(window.offset, None)
        self._window_looks.pop(window.offset, None)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        tokens = sum(part.nbytes for projected in self.kept.values() for part in projected if part is not None)
        return tokens + sum(looks.nbytes for looks in self._window_looks.values())

    def read_looks(self, window: Window) -> Array32:
        """What each cell of a window looks like, (T, D)."""
        looks: Array32 = self._window_looks[window.offset].float().numpy()
        return looks

    def read(self, windows: Sequence[Window], device: torch.device) -> Projected:
        """Windows of equal length as one batch, in single precision."""
        found = [self.kept[window.offset] for window in windows]
        # In single precision first: on a CPU autocast to bf16 knows no half precision.
        similarity = [each.similarity_BTC.to(device).float() for each in found if each.similarity_BTC is not None]
        tokens = [each.tokens_BTHWC.to(device).float() for each in found]
        return Projected(torch.cat(tokens), torch.cat(similarity))


class LiveViewEncoder(ViewEncoder):
    """One view of a video that goes on: the grid's windows, and one that ends with the newest frame.

    Cells are counted from the first frame ever; `windows` counts them from where memory begins.
    """

    store: LiveStore
    gpu_windows = 1  # each is asked as soon as it is whole
    _newest: Future[Window] | None = None
    _begin = 0  # first cell that is remembered

    def advance(self) -> None:
        """Encode all frames that have come; make the grid's whole windows and the one that ends now."""
        if len(self._pending) > 1:
            self._encode(len(self._pending) - 1)  # the last one's change is known when the next one comes
        self._keep_whole(self.cells)
        if self._newest is not None:
            self.store.drop(self._newest.result())
        self._newest = self._ending_now()

    def forget(self, cells: int) -> None:
        """Remember so many cells less."""
        self._begin += cells
        gone = [w for w in self._windows if w.result().start + w.result().cells <= self._begin]
        for window in gone:
            self.store.drop(window.result())
        self._windows = self._windows[len(gone) :]

    @property
    def windows(self) -> list[Window]:
        """All windows, counted from the first cell that is remembered."""
        made = [*self._windows, *([self._newest] if self._newest is not None else [])]
        found = [window.result() for window in made]
        return [Window(window.start - self._begin, window.cells, window.offset) for window in found]

    def _ending_now(self) -> Future[Window] | None:
        """The window that `finish` would add if the video ended here; nothing else changes."""
        before = self.cells, self._covered, list(self._features)
        if self._pending:
            last = self._image_features(self._pending[-1:])
            self._features.append(Features(self.cells, self.cells + 1, last))
            self.cells += 1
        newest = None
        if self._covered < self.cells:
            self._keep(max(0, self.cells - self.length))
            newest = self._windows.pop()
        self.cells, self._covered, self._features = before
        return newest

    def _image_features(self, images: list[Image], count: int = 1) -> Future[Tensor]:
        """Runs in which nothing changes are encoded once: a stream that lost frames costs what it has left."""
        if len(images) != count + 1:
            return super()._image_features(images, count)
        kept, order = _without_repeats(images)
        if len(order) == len(kept) - 1:
            return super()._image_features(images, count)
        return self.cores.submit(
            lambda: self.encoder.image_features(torch.from_numpy(np.stack(kept)), len(kept) - 1)[torch.tensor(order)]
        )


def _without_repeats(images: Sequence[Image]) -> tuple[list[Image], list[int]]:
    """Images of which all but the last are to be encoded, without runs in which nothing changes; and which of the
    remaining ones stands for each."""
    kept, order, still = [], [], False
    for image, following in pairwise(images):
        if not (still and image is following):
            kept.append(image)
        order.append(len(kept) - 1)
        still = image is following
    return [*kept, images[-1]], order
