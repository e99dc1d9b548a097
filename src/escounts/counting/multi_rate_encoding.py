"""One video, encoded by the default model: cut exemplars from it, ask it for densities."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from escounts.counting import Progress
from escounts.counting.changes import MotionMeter, by_scenes, cuts_within, encode_scenes
from escounts.counting.look import Looks, Mark, Motions, read_looks, small_picture
from escounts.counting.maps import Stitcher, triangle
from escounts.counting.repetition_scores import scored
from escounts.counting.views import (
    BASE_RATE,
    MultiRateExemplar,
    View,
    ViewEncoder,
    Window,
    WindowStore,
    best_view,
    best_window,
    on_base_frames,
)
from escounts.decision.decide import Asked, Decision, decide
from escounts.decision.doubts import Footage, runs
from escounts.decision.evidence import Evidence
from escounts.decision.rules import RULES
from escounts.errors import ExemplarError
from escounts.nn.decoder import ExemplarKeysValues
from escounts.nn.device import InferencePool
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.heads import ONE_PERIOD, HeadOutput, RateHeadConfig, read_periods
from escounts.nn.network import exemplar_cells
from escounts.results import EXEMPLAR_CUT, DensityMap, Repetition
from escounts.system.arrays import Array32, BoolArray, Image, IntArray

if TYPE_CHECKING:
    from escounts.counting.multi_rate import MultiRateModel

GPU_BATCH = 16
"""Windows that a GPU decodes at once; of a CPU's cores, each takes one."""


class MultiRateEncoding:
    """One video's projected windows at every view that has been encoded.

    read: gives the base rate's images from the first on, as often as it is called, and reports to the progress it
    is given. video: equal for two stretches of one video; None: no other encoding is of the same. ranged:
    a person chose where it begins or ends.
    """

    def __init__(
        self,
        model: MultiRateModel,
        read: Callable[[Progress | None], Iterable[Image]],
        *,
        start: float,
        video: object = None,
        ranged: bool = False,
    ) -> None:
        decoder = model.network.decoder.config
        self.model, self.start, self._read = model, start, read
        self.video = object() if video is None else video
        self._ranged = ranged
        encoder = model.network.encoder
        assert isinstance(encoder, LiteEncoder)
        self.store = WindowStore(decoder.grid, decoder.channels, encoder.config.look)
        self.windows: dict[View, list[Window]] = {}
        self.meter = MotionMeter()
        self._pictures = bytearray()  # a small one for each cell of the slowest view
        self.frames = 0
        self._scenes: list[int] = []  # frames that scenes begin with: looked for once
        self.end = start
        self._asked: list[View] = []
        self._zero_shot: dict[View, Evidence] = {}
        self._encoding = threading.Lock()

    @torch.inference_mode()
    def encode(self, views: Sequence[View], progress: Progress | None = None) -> None:
        """Read the video and encode the views that are not there yet; a count without exemplars asks these."""
        self._need(views, progress)
        self._asked = list(dict.fromkeys([*self._asked, *views]))

    @property
    def nbytes(self) -> int:
        """Bytes it holds in memory; it grows when an exemplar asks for a view that is not encoded yet."""
        kept = list(self._zero_shot.values())  # a copy: another thread may be counting
        zero_shot = sum(
            values.nbytes for view in kept for values in vars(view).values() if isinstance(values, np.ndarray)
        )
        return self.store.nbytes + zero_shot + len(self._pictures)

    def _need(self, views: Sequence[View], progress: Progress | None) -> None:
        """Encode views that are not there yet.

        Others may count what is there meanwhile: nothing of theirs changes before all is encoded.
        """
        if all(view in self.windows for view in views):
            return
        with self._encoding:
            missing = [view for view in views if view not in self.windows]
            if missing:
                self._encode(missing, progress)

    def _encode(self, views: Sequence[View], progress: Progress | None) -> None:
        model = self.model
        kept = self.store.cells
        meter = self.meter if self.frames else MotionMeter()  # once, however often it is read
        pictures = self._pictures if self.frames else bytearray()

        def watched() -> Iterator[Image]:
            for frame, image in enumerate(self._read(progress)):
                if not self.frames:
                    meter.push(image)
                    if frame % model.views[0].divisor == 0:
                        pictures.extend(small_picture(image))
                yield image

        try:
            with InferencePool(model.device, model.precision) as cores:
                windows, scenes, frames = encode_scenes(
                    by_scenes(watched(), known=self._scenes),
                    views,
                    lambda view: ViewEncoder(model.network, view, self.store, cores),
                )
        except BaseException:
            self.store.forget_after(kept)  # cancelled, or the video broke: nobody will ask for these windows
            raise
        self.frames, self.end, self.meter = frames, self.start + frames / BASE_RATE, meter
        self._scenes, self._pictures = scenes, pictures
        self.windows = self.windows | windows

    @torch.inference_mode()
    def encode_exemplar(self, start: float, end: float, *, progress: Progress | None = None) -> MultiRateExemplar:
        """The exemplar between two times, cut from the window that shows it best."""
        if not self.start - 1e-6 <= start < end <= self.end + 1.0:
            raise ExemplarError(f"exemplar {start:g}-{end:g} s is outside the encoded {self.start:g}-{self.end:g} s")
        self._need([best_view(self._all_views(), end - start)], progress)
        tokens = {}
        for view, windows in self.windows.items():
            first, last = self.cell(view, start), self.cell(view, end)
            if not windows or last - first > max(window.cells for window in windows):
                continue
            window = best_window(windows, first, last)
            if window.offset is None:
                raise ExemplarError(f"exemplar {start:g}-{end:g} s: the picture stands still; mark a repetition")
            cells = torch.from_numpy(self.cells_of(view, window, start, end))
            tokens[view] = self.store.read([window], self.model.device).tokens_BTHWC[0, cells]
        if not tokens:
            raise ExemplarError(f"exemplar {start:g}-{end:g} s is too long; mark one repetition only")
        frames = self._frames(start, end)
        cuts = tuple(self.start + frame / BASE_RATE for frame in cuts_within(self._scenes, *frames))
        moves, looks = bool(self.meter.moving(*frames).any()), self._looks()
        look = None if looks is None else looks.of(start, end)
        return MultiRateExemplar(tokens, end - start, self.video, moves, cuts, start, look)

    @torch.inference_mode()
    def estimate(
        self,
        exemplars: Sequence[MultiRateExemplar] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
        progress: Progress | None = None,
    ) -> Decision:
        """The density between two times, on the base rate's grid."""
        first, last = self._frames(start, end)
        begin = self.start + first / BASE_RATE
        evidence = self.evidence(exemplars, first=first, last=last, assume_repeats=assume_repeats, progress=progress)
        without = self.evidence(first=first, last=last) if exemplars else []
        own = [one for one in exemplars if self.same_video(one)]
        motions = self._motions(exemplars) if exemplars else None
        first_view = DensityMap(evidence[0].density, begin, 1 / BASE_RATE, "rate")
        shown, unclear = np.ones(last - first, dtype=bool), False
        if motions is not None:
            shown, unclear = motions.marked(first_view.times, first_view.values)
        unlike = len(exemplars) > len(own) == 0 and (motions is None or not shown.any())
        if unlike:  # across videos one action looks as different as two do: all that repeats is counted
            motions, shown, unclear = None, np.ones_like(shown), False
        asked = Asked(
            exemplars=len(exemplars),
            marked=tuple(one.seconds * BASE_RATE for one in own),
            without=[view.only(shown) for view in without],
            assume_repeats=assume_repeats,
            unlike=unlike,
            unclear=unclear,
            ranged=self._ranged or first > 0 or last < self.frames,
        )
        scenes = tuple(frame - first for frame in self._scenes if first < frame < last)
        decision = decide(
            [view.only(shown) for view in evidence],
            self.model.calibration,
            asked=asked,
            footage=Footage(self.meter.moving(first, last) & shown, self.meter.pictures, scenes),
            start=begin,
        )
        cuts = dict((EXEMPLAR_CUT, round(cut, 2)) for one in exemplars for cut in one.cuts)
        decision = replace(decision, details={**decision.details, **cuts})
        view = self._select_views(exemplars)[decision.view]
        judge = partial(scored, self, view, evidence[decision.view], first, exemplars, motions)
        if exemplars:
            left_out = () if shown.all() else self._left_out(without, ~shown, begin, judge)
            return replace(decision, scored=judge, left_out=left_out)
        told = self._motions(seconds=decision.density.period)
        return replace(decision, scored=judge, stretches=() if told is None else told.stretches)

    def _left_out(
        self,
        without: Sequence[Evidence],
        frames: BoolArray,
        begin: float,
        judge: Callable[[Sequence[Repetition]], tuple[Repetition, ...]],
    ) -> tuple[Repetition, ...]:
        """Repetitions at frames that show other motions, as they are counted without an exemplar, with scores."""
        views = [view.only(frames) for view in without]
        other = decide(views, self.model.calibration, start=begin)
        return judge([_longest_part(one, frames, begin) for one in other.density.repetitions(other.count)])

    def _looks(self) -> Looks | None:
        """What the video looks like, by the slowest view; None where the model keeps no looks."""
        view, encoder = self.model.views[0], self.model.network.encoder
        assert isinstance(encoder, LiteEncoder)
        if not encoder.config.look or not self.windows.get(view):
            return None
        values = read_looks(self.store, self.windows[view], view.cells(self.frames))
        if values is None:
            return None
        pictures = np.frombuffer(bytes(self._pictures), np.uint8).reshape(len(values), -1)
        return Looks(values, pictures, [begin // view.divisor for begin in self._scenes], self.start, view.rate)

    def _motions(self, marked: Sequence[MultiRateExemplar] = (), seconds: float = 0.0) -> Motions | None:
        """Which parts of the video show which motion; seconds: of a repetition, where none is marked."""
        looks = self._looks()
        middles = [one.start + one.seconds / 2 if self.same_video(one) else None for one in marked]
        marks = [Mark(one.look, at) for one, at in zip(marked, middles, strict=True) if one.look is not None]
        if looks is None or len(marks) < len(marked):
            return None
        views, every = self.evidence(), self.model.views[0].divisor
        gate = np.mean([view.gate for view in views], 0)[::every]
        density = np.stack([view.density for view in views])[:, ::every]
        return looks.motions(gate, density, max([seconds, *(one.seconds for one in marked)]), marks)

    def cells_of(self, view: View, window: Window, start: float, end: float) -> IntArray:
        """The cells of a window that stand for a repetition between two times."""
        first, last = self.cell(view, start) - window.start, self.cell(view, end) - window.start
        return exemplar_cells(first, last, window.cells)

    @torch.inference_mode()
    def evidence(
        self,
        exemplars: Sequence[MultiRateExemplar] = (),
        *,
        first: int = 0,
        last: int | None = None,
        assume_repeats: bool = False,
        progress: Progress | None = None,
    ) -> list[Evidence]:
        """What every view that is asked says of base frames first..last."""
        last = self.frames if last is None else last
        views = self._select_views(exemplars)
        self._need(views, progress)
        if exemplars or assume_repeats:
            predictions = [self._decode(v, exemplars, first, last, assume_repeats=assume_repeats) for v in views]
            without = [] if assume_repeats else self.evidence(first=first, last=last)
        else:
            for view in views:
                if view not in self._zero_shot:
                    self._zero_shot[view] = self._decode(view, (), 0, self.frames, assume_repeats=False)
            predictions = without = [self._zero_shot[view].part(first, last) for view in views]
        borders = [frame - first for frame in sorted({0, *self._scenes, self.frames})]
        return [view.with_open_edges(without, borders) for view in predictions]

    def _frames(self, start: float | None, end: float | None) -> tuple[int, int]:
        """Base frames between two times in seconds."""
        first = max(0, round(((start if start is not None else self.start) - self.start) * BASE_RATE))
        last = min(self.frames, round(((end if end is not None else self.end) - self.start) * BASE_RATE))
        return first, last

    def _select_views(self, exemplars: Sequence[MultiRateExemplar]) -> list[View]:
        """Views to ask: those encoded for it, or the one that suits the exemplars."""
        if not exemplars:
            return [view for view in self._asked if self.windows[view]]
        fitting = [view for view in self._all_views() if all(view in exemplar.tokens for exemplar in exemplars)]
        if not fitting:
            raise ExemplarError("the exemplars were encoded at other rates; encode both with the same setting")
        seconds = math.exp(sum(math.log(exemplar.seconds) for exemplar in exemplars) / len(exemplars))
        return [best_view(fitting, seconds)]

    def _all_views(self) -> list[View]:
        """Views that are encoded, and those that may be."""
        return list(dict.fromkeys([*self.windows, *self.model.views, *self.fast_views]))

    @property
    def fast_views(self) -> list[View]:
        """The model's fast views, but no faster than new pictures come: between them a view sees nothing change."""
        if all(view in self.windows for view in self.model.fast_views):
            return list(self.model.fast_views)
        least = self.meter.divisor()
        return list(dict.fromkeys(view if view.divisor >= least else View(least) for view in self.model.fast_views))

    def _decode(
        self, view: View, exemplars: Sequence[MultiRateExemplar], first: int, last: int, *, assume_repeats: bool
    ) -> Evidence:
        """Decode the view's windows that touch base frames first..last and stitch them."""
        cells = view.cells(self.frames)
        stitchers = [Stitcher(cells) for _ in range(3 + self.model.video_outputs)]
        begin, stop = (first - view.phase) / view.divisor, (last - view.phase) / view.divisor
        touched = [w for w in self.windows[view] if w.start < stop and w.start + w.cells > begin]
        for window in touched:
            if window.offset is None:
                for stitcher in stitchers:
                    stitcher.add(np.zeros(window.cells), window.start, triangle(window.cells))
        windows = [w for w in touched if w.offset is not None]
        batch = 1 if self.model.device.type == "cpu" else GPU_BATCH
        alike = [list(group) for _, group in groupby(windows, key=lambda window: window.cells)]
        groups = [group[index : index + batch] for group in alike for index in range(0, len(group), batch)]
        with InferencePool(self.model.device, self.model.precision) as cores:
            keys_values = cores.submit(self._keys_values, view, exemplars).result()
            lasts = self._marked_cells(view, exemplars)
            maps = [cores.submit(self._maps, group, keys_values, lasts, assume_repeats) for group in groups]
            for group, future in zip(groups, maps, strict=True):
                for row, window in enumerate(group):
                    for stitcher, stack in zip(stitchers, future.result(), strict=True):
                        stitcher.add(stack[row], window.start, triangle(window.cells))
        density, *others = (stitcher.result() for stitcher in stitchers)
        on_base = [on_base_frames(values, view, first, last) for values in (density / view.divisor, *others)]
        if not assume_repeats and all(exemplar.moves for exemplar in exemplars):
            moving = self.meter.moving(first, last)
            on_base[:2] = [values * moving for values in on_base[:2]]  # no repetitions where nothing moves
        return Evidence(view.rate, *on_base)

    def _maps(
        self, windows: Sequence[Window], keys_values: ExemplarKeysValues, lasts: float | None, assume_repeats: bool
    ) -> Array32:
        """Density, gate, sharpness and what is said of the video, of windows of equal length: (3 or 5, B, T);
        lasts: cells of a marked repetition."""
        decoder, calibration = self.model.network.decoder, self.model.calibration
        output = self.head_output(windows, keys_values)
        assert output.gate_logits_BT is not None and output.period_logits_BTP is not None
        assert isinstance(decoder.config.head, RateHeadConfig)
        rate, sharpness = read_periods(
            decoder.config.head, output.period_logits_BTP, about=lasts, spread=RULES.tempo_spread, near=ONE_PERIOD
        )
        gates = (calibration.gate_sharpness * (output.gate_logits_BT + calibration.gate_bias)).sigmoid()
        video = () if output.video_logits_BTK is None else output.video_logits_BTK.unbind(-1)
        stacked = torch.stack([rate if assume_repeats else rate * gates, gates, sharpness, *video])
        maps: Array32 = stacked.float().cpu().numpy()
        return maps

    def head_output(self, windows: Sequence[Window], keys_values: ExemplarKeysValues) -> HeadOutput:
        """What the decoder makes of windows of equal length."""
        projected = self.store.read(windows, self.model.device)
        return self.model.network.decoder.decode(projected, keys_values.expand(len(windows)))

    def _keys_values(self, view: View, exemplars: Sequence[MultiRateExemplar]) -> ExemplarKeysValues:
        decoder = self.model.network.decoder
        if not exemplars:
            return decoder.encode_exemplars()
        tokens = torch.stack([exemplar.tokens[view] for exemplar in exemplars])[None].to(self.model.device)
        lengths = [exemplar.seconds * view.rate if self.same_video(exemplar) else 0.0 for exemplar in exemplars]
        return decoder.encode_exemplars(tokens, cells_BS=torch.tensor([lengths], device=self.model.device))

    def same_video(self, exemplar: MultiRateExemplar) -> bool:
        """Whether an exemplar is of the video that this encodes."""
        return exemplar.video == self.video

    def _marked_cells(self, view: View, exemplars: Sequence[MultiRateExemplar]) -> float | None:
        """Cells that this video's marked repetitions last, their geometric mean; None when none is marked in it."""
        own = [math.log(exemplar.seconds * view.rate) for exemplar in exemplars if self.same_video(exemplar)]
        return math.exp(sum(own) / len(own)) if own else None

    def cell(self, view: View, time: float) -> float:
        """Where a time lies among a view's cells."""
        return ((time - self.start) * BASE_RATE - view.phase) / view.divisor


def _longest_part(one: Repetition, frames: BoolArray, begin: float) -> Repetition:
    """Of a repetition that begins before a set of the marked motion and ends after it, what lies on one side: the
    longest part in `frames` (base frames from `begin` on)."""
    first, last = (max(0, round((time - begin) * BASE_RATE)) for time in (one.start, one.end))
    parts = runs(frames[first:last])
    if len(parts) < 2:
        return one
    start, end = (begin + (first + at) / BASE_RATE for at in max(parts, key=lambda part: part[1] - part[0]))
    return replace(one, start=start, end=end)
