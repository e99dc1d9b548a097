"""The default model's way from a video to a density: fixed rates in time, several views, exemplars cut from
tokens.

A video is read once at the base rate and encoded at several views. Zero-shot, the view that is surest of its
periods speaks; an exemplar says itself which rate suits it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from escounts.confidence import Calibration, Evidence, choose_views
from escounts.errors import ExemplarError, VideoError
from escounts.estimation.views import BASE_RATE, Image, View, ViewEncoder, Window, WindowStore
from escounts.models.decoder import Memory
from escounts.models.interface import Progress
from escounts.models.lite import exemplar_cells
from escounts.models.network import Network
from escounts.results import DensityMap, Estimate
from escounts.video import Video
from escounts.windows import Stitcher, triangle

DEFAULT_VIEWS = (View(6), View(3), View(1))
THOROUGH_VIEWS = (View(6), View(6, 3), View(4), View(3), View(3, 1), View(2), View(1))
SHORTEST = 8
"""Cells a view needs before it says anything."""
DECODE_BATCH = 4
EXEMPLAR_TARGET = 14.0
"""Cells an exemplar should last at the rate that is chosen for it."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class SecondsShot:
    """An exemplar: its tokens at every view where it fits, (16, H, W, C), and how long it lasts in seconds.

    source: the encoding it was cut from; its length counts only there, another video has its own tempo.
    """

    tokens: dict[View, Tensor]
    seconds: float
    source: SecondsEncoding


class SecondsModel:
    """The neural CountingModel in `seconds` mode."""

    def __init__(
        self,
        name: str,
        network: Network,
        *,
        device: torch.device | str = "cpu",
        calibration: Calibration | None = None,
        views: Sequence[View] = DEFAULT_VIEWS,
        thorough_views: Sequence[View] = THOROUGH_VIEWS,
    ) -> None:
        self.name = name
        self.device = torch.device(device)
        self.network = network.to(self.device).eval()
        self.network.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.calibration = calibration or Calibration()
        self.unsure_below = self.calibration.unsure_below
        self.views, self.thorough_views = tuple(views), tuple(thorough_views)

    def encode(
        self,
        video: Video,
        *,
        start: float = 0.0,
        end: float | None = None,
        thorough: bool = False,
        progress: Progress | None = None,
    ) -> SecondsEncoding:
        """Read the video once at the base rate and encode every view of it."""
        size = self.network.encoder.spec.size
        whole = (end if end is not None else video.info.duration) - start
        frames = video.frames(size=(size, size), start=start, end=end, rate=BASE_RATE)

        def images() -> Iterable[Image]:
            for index, frame in enumerate(frames):
                if progress is not None and index % 30 == 0:
                    progress(index / BASE_RATE, max(whole, index / BASE_RATE))
                yield frame.image

        encoding = self.encode_images(images(), start=start, thorough=thorough)
        if encoding.frames == 0:
            raise VideoError(f"{video.info.path}: no frame between {start:.2f} s and {start + whole:.2f} s")
        return encoding

    @torch.inference_mode()
    def encode_images(
        self, images: Iterable[Image], *, start: float = 0.0, thorough: bool = False
    ) -> SecondsEncoding:
        """Encode (S, S, 3) RGB images that come at the base rate, the first at `start` seconds."""
        decoder = self.network.decoder.config
        store = WindowStore(decoder.grid, decoder.channels)
        views = self.thorough_views if thorough else self.views
        encoders = [ViewEncoder(self.network, view, store, self.device) for view in views]
        frames = 0
        with self.precision():
            for image in images:
                frames += 1
                for encoder in encoders:
                    encoder.push(image)
            for encoder in encoders:
                encoder.finish()
        windows = {e.view: e.windows for e in encoders}
        return SecondsEncoding(self, store, windows, start=start, frames=frames)

    def precision(self) -> torch.autocast:
        """bf16 where the device is fast at it."""
        fast = self.device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=fast)


class SecondsEncoding:
    """One video's projected windows at every view."""

    def __init__(
        self,
        model: SecondsModel,
        store: WindowStore,
        windows: dict[View, list[Window]],
        *,
        start: float,
        frames: int,
    ) -> None:
        self.model, self.store, self.windows = model, store, windows
        self.start, self.frames = start, frames
        self.end = start + frames / BASE_RATE

    @torch.inference_mode()
    def shot(self, start: float, end: float) -> SecondsShot:
        """The exemplar between two times, cut from the window that shows it best."""
        if not self.start - 1e-6 <= start < end <= self.end + 1.0:
            raise ExemplarError(
                f"exemplar {start:g}-{end:g} s lies outside the encoded {self.start:g}-{self.end:g} s"
            )
        tokens = {}
        for view, windows in self.windows.items():
            first, last = self._cell(view, start), self._cell(view, end)
            if not windows or last - first > windows[0].cells:
                continue
            window = min(windows, key=lambda w: abs(w.start + w.cells / 2 - (first + last) / 2))
            projected = self.store.read([window], self.model.device)
            cells = exemplar_cells(first - window.start, last - window.start, window.cells)
            tokens[view] = projected.tokens_BTHWC[0, torch.from_numpy(cells)]
        if not tokens:
            raise ExemplarError(f"exemplar {start:g}-{end:g} s is too long; mark one repetition only")
        return SecondsShot(tokens, end - start, self)

    @torch.inference_mode()
    def estimate(
        self,
        shots: Sequence[SecondsShot] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
    ) -> Estimate:
        """The density between two times, on the base rate's grid."""
        first, last = self._frames(start, end)
        evidence = self.evidence(shots, first=first, last=last, assume_repeats=assume_repeats)
        density, chosen = choose_views(evidence, BASE_RATE, self.model.calibration, shots=len(shots))
        confidence, details = self.model.calibration.confidence(evidence, density, chosen, shots=len(shots))
        map_ = DensityMap(density, self.start + first / BASE_RATE, 1 / BASE_RATE, "rate")
        return Estimate(map_, confidence, details)

    @torch.inference_mode()
    def evidence(
        self,
        shots: Sequence[SecondsShot] = (),
        *,
        first: int = 0,
        last: int | None = None,
        assume_repeats: bool = False,
    ) -> list[Evidence]:
        """What every view that is asked says of base frames first..last."""
        last = self.frames if last is None else last
        with self.model.precision():
            return [
                self._decode(view, shots, first, last, assume_repeats=assume_repeats) for view in self._suited(shots)
            ]

    def _frames(self, start: float | None, end: float | None) -> tuple[int, int]:
        """Base frames between two times in seconds."""
        first = max(0, round(((start if start is not None else self.start) - self.start) * BASE_RATE))
        last = min(self.frames, round(((end if end is not None else self.end) - self.start) * BASE_RATE))
        return first, last

    def _suited(self, shots: Sequence[SecondsShot]) -> list[View]:
        """Views to ask: all without exemplars, else the one at which they last about EXEMPLAR_TARGET cells."""
        views = [view for view, windows in self.windows.items() if windows]
        if not shots:
            return [v for v in views if self.windows[v][0].cells >= SHORTEST] or views[-1:]
        seconds = math.exp(sum(math.log(shot.seconds) for shot in shots) / len(shots))
        fitting = [v for v in views if all(v in shot.tokens for shot in shots)]
        if not fitting:
            raise ExemplarError("the exemplars were encoded at other rates; encode both with the same setting")
        return [min(fitting, key=lambda v: abs(math.log(seconds * v.rate / EXEMPLAR_TARGET)))]

    def _decode(
        self, view: View, shots: Sequence[SecondsShot], first: int, last: int, *, assume_repeats: bool
    ) -> Evidence:
        """Decode the view's windows that touch base frames first..last and stitch them."""
        cells = view.cells(self.frames)
        density, gate, sharp = Stitcher(cells), Stitcher(cells), Stitcher(cells)
        begin, stop = (first - view.phase) / view.divisor, (last - view.phase) / view.divisor
        windows = [w for w in self.windows[view] if w.start < stop and w.start + w.cells > begin]
        decoder, memory = self.model.network.decoder, self._memory(view, shots)
        for index in range(0, len(windows), DECODE_BATCH):
            group = windows[index : index + DECODE_BATCH]
            output = decoder.decode(self.store.read(group, self.model.device), memory.expand(len(group)))
            assert output.rate_BT is not None and output.gate_logits_BT is not None  # it is a rate head
            assert output.confidence_BT is not None
            sharpness = output.confidence_BT / output.gate_logits_BT.sigmoid().clamp_min(1e-6)
            gates = (output.gate_logits_BT + self.model.calibration.gate_bias).sigmoid()
            values = output.rate_BT if assume_repeats else output.rate_BT * gates
            maps = torch.stack([values, gates, sharpness]).float().cpu().numpy()
            for row, window in enumerate(group):
                for stitcher, stack in zip((density, gate, sharp), maps, strict=True):
                    stitcher.add(stack[row], window.start, triangle(window.cells))
        return Evidence(
            rate=view.rate,
            density=_on_base(density.result() / view.divisor, view, first, last),
            gate=_on_base(gate.result(), view, first, last),
            sharpness=_on_base(sharp.result(), view, first, last),
        )

    def _memory(self, view: View, shots: Sequence[SecondsShot]) -> Memory:
        decoder = self.model.network.decoder
        if not shots:
            return decoder.remember()
        exemplars = torch.stack([shot.tokens[view] for shot in shots])[None].to(self.model.device)
        lengths = [shot.seconds * view.rate if shot.source is self else 0.0 for shot in shots]
        return decoder.remember(exemplars, cells_BS=torch.tensor([lengths], device=self.model.device))

    def _cell(self, view: View, time: float) -> float:
        return ((time - self.start) * BASE_RATE - view.phase) / view.divisor


def _on_base(values: npt.NDArray[np.float64], view: View, first: int, last: int) -> Array:
    """A view's cells on base frames first..last: every frame has the value of the cell it lies in."""
    frames = np.arange(first, last)
    cell = np.clip((frames - view.phase) // view.divisor, 0, len(values) - 1)
    return values[cell].astype(np.float32)
