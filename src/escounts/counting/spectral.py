"""`spectral`: counting without weights. Self-similarity of simple motion features, autocorrelation, spectrum.

Every frame becomes a 16 x 16 grey thumbnail. In windows of 20 s the thumbnails and their differences are
compared with themselves at every lag; peaks of that profile are candidate periods, and one smooth path of
periods through the windows is kept. The density is 1 / period where the motion really comes back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from escounts.counting import Progress
from escounts.counting.maps import Stitcher, stretches, triangle
from escounts.counting.periodicity import (
    Period,
    Signal,
    best_path,
    candidates,
    lag_profile,
    local_lengths,
    moving_mean,
    nearby_max,
    recurrence,
    settled,
    template_match,
)
from escounts.decision.decide import Decision, decide_by_map
from escounts.decision.repetitions import DensityMap
from escounts.errors import ExemplarError, VideoError
from escounts.system.arrays import Array, Image

if TYPE_CHECKING:
    # The reader needs PyAV; a machine that only compares methods on generated frames need not have it.
    from escounts.video.files import Video

SIDE = 16
RATE = 30.0
"""Most thumbnails a second; slower videos are read at their own rate."""
WINDOW = 20.0
HOP = 5.0
"""Seconds a window lasts, and from one window to the next."""
LONGEST = 0.6
"""Longest period, as a share of the window."""
TREND = 2.0
"""Seconds over which slow change (light, camera) is taken out."""
DIFFERENCE_SHARE = 0.7
"""Weight of the difference features against the thumbnails in the profile."""
OCTAVE_SHARE = 0.75
REPEATS_ABOVE = 0.38
"""Evidence (rise of the peak x fourth root of the cycles seen) under which a window does not repeat."""
ALIKE_ABOVE, ALIKE_ABOVE_EXEMPLAR = 0.05, -0.15
"""Similarity with one period earlier or later under which a frame is outside the repetitions; with an
exemplar the period is known, and less has to come back."""
MOTION_ABOVE = 0.20
"""Motion, as a share of the repetitions' median, under which a frame is a pause."""
RECOGNISED_ABOVE = 0.5
MATCH_SHARE = 0.1
MATCH_REACH = 4
"""An exemplar is recognised when it correlates this much somewhere. Frames are counted where, within so many
exemplar lengths, it correlates at least this share of its best."""


SpectralExemplar = tuple[float, Signal]
"""An exemplar: seconds one repetition takes, and its thumbnails (frames x features, trend removed)."""


class Spectral:
    """The classical counting model; meets `CountingModel`."""

    name = "spectral"
    unsure_below = 0.3

    def encode(
        self,
        video: Video,
        *,
        start: float = 0.0,
        end: float | None = None,
        progress: Progress | None = None,
    ) -> SpectralEncoding:
        """Thumbnails of the video between start and end: 256 bytes a frame, whatever its size."""
        rate = min(RATE, max(video.info.fps, 5.0))
        until = video.info.duration if end is None else min(end, video.info.duration)
        # A byte array grows in place; two hours are 55 MB.
        thumbnails = bytearray()
        shown, thumbnail = None, b""
        for index, frame in enumerate(video.frames(size=(SIDE, SIDE), start=start, end=end, rate=rate)):
            if frame.image is not shown:  # a picture that stays comes again as the same array
                shown, thumbnail = frame.image, frame.image.mean(axis=2).astype(np.uint8).tobytes()
            thumbnails += thumbnail
            if progress is not None and index % 64 == 0:
                progress(frame.time - start, max(until - start, frame.time - start))
        grey = np.frombuffer(thumbnails, np.uint8).reshape(-1, SIDE * SIDE)
        if len(grey) < 2:
            raise VideoError(f"{video.path}: no two frames between {start:.2f} s and {until:.2f} s")
        return SpectralEncoding(grey, start, rate)


class SpectralEncoding:
    """One video as thumbnails (frames x 256, uint8) from second `start` on, `rate` a second."""

    def __init__(self, grey: Image, start: float, rate: float) -> None:
        self._grey, self._rate = grey, rate
        self.start = start
        self.end = start + len(grey) / rate

    @property
    def nbytes(self) -> int:
        """Bytes of the thumbnails."""
        return self._grey.nbytes

    def encode_exemplar(self, start: float, end: float, *, progress: Progress | None = None) -> SpectralExemplar:
        """The exemplar between two times of this video; at once, so that progress is told nothing."""
        first, last = self._frame(start), self._frame(end)
        if last - first < 2:
            raise ExemplarError(f"exemplar {start:.2f}-{end:.2f} s has fewer than two frames")
        margin = round(TREND * self._rate)
        low, high = max(0, first - margin), min(len(self._grey), last + margin)
        flat = _without_trend(self._grey[low:high].astype(np.float32), self._rate)
        return end - start, flat[first - low : last - low]

    def estimate(
        self,
        exemplars: Sequence[SpectralExemplar] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
        progress: Progress | None = None,
    ) -> Decision:
        """Density between start and end (seconds); exemplars set the period looked for, and the motion.

        progress is told nothing: the video is not read again.
        """
        first = 0 if start is None else self._frame(start)
        last = len(self._grey) if end is None else self._frame(end)
        if last - first < 2:
            raise VideoError(f"no two frames between {start} s and {end} s")
        grey = self._grey[first:last]
        bounds = stretches(len(grey), round(WINDOW * self._rate), round(HOP * self._rate))
        sure = assume_repeats or bool(exemplars)
        found = [self._candidates(grey[low:high], sure) for low, high in bounds]
        wanted = None
        if exemplars:
            wanted = self._rate * math.exp(sum(math.log(seconds) for seconds, _ in exemplars) / len(exemplars))
            found = [
                _with_wanted(window, wanted, high - low) for window, (low, high) in zip(found, bounds, strict=True)
            ]
        path = best_path(found, octave_share=OCTAVE_SHARE, stiffness=1.0, wanted=wanted)
        gates = [
            self._gate(grey[low:high], period, assume_repeats, ALIKE_ABOVE_EXEMPLAR if exemplars else ALIKE_ABOVE)
            for (low, high), period in zip(bounds, path, strict=True)
        ]
        if exemplars and not assume_repeats:
            gates = self._matching(grey, bounds, gates, exemplars)
        rates = [
            gate if period is None else gate / self._lengths(grey[low:high], period)
            for (low, high), period, gate in zip(bounds, path, gates, strict=True)
        ]
        stitcher = Stitcher(len(grey))
        for (low, high), rate in zip(bounds, rates, strict=True):
            stitcher.add(rate, low, triangle(high - low, edge=1.0))
        density = stitcher.result()
        evidence = [p.evidence(high - low) if p else 0.0 for p, (low, high) in zip(path, bounds, strict=True)]
        shares = np.array([gate.sum() for gate in gates]) + 1e-6
        strength = float(np.average(evidence, weights=shares))
        offset = self.start + first / self._rate
        agreement = _agreement(strength, float(density.sum()), exemplar=bool(exemplars))
        map_ = DensityMap(density.astype(np.float32), offset, 1.0 / self._rate, "rate")
        return decide_by_map(map_, agreement, {"evidence": strength, "windows": float(len(bounds))})

    def _frame(self, seconds: float) -> int:
        return min(max(round((seconds - self.start) * self._rate), 0), len(self._grey))

    def _candidates(self, grey: Image, assume_repeats: bool) -> list[Period]:
        if (grey == grey[0]).all():
            return []  # a still picture, at no cost: files of a few kilobytes may claim many hours of it
        lags = int(LONGEST * len(grey))
        thumbnails, differences = _features(grey, self._rate)
        if float(np.abs(differences).max(initial=0.0)) < 1e-6:
            return []  # a steady change of light
        found = candidates(_profile(thumbnails, differences, lags))
        if not assume_repeats and max((p.evidence(len(grey)) for p in found), default=0.0) < REPEATS_ABOVE:
            return []
        return found

    def _lengths(self, grey: Image, period: Period) -> Array:
        """The period at every frame of a window, in frames."""
        thumbnails, differences = _features(grey, self._rate)

        def profile_of(part: slice, lags: int) -> Array:
            return _profile(thumbnails[part], differences[part], lags)

        return local_lengths(profile_of, period.length, len(grey))

    def _gate(self, grey: Image, period: Period | None, assume_repeats: bool, alike_above: float) -> Array:
        """1 where the motion comes back one period before or after, 0 elsewhere. One value per frame."""
        if period is None or assume_repeats:
            return np.full(len(grey), 0.0 if period is None else 1.0)
        thumbnails, differences = _features(grey, self._rate)
        lag = max(1, round(period.length))
        alike = DIFFERENCE_SHARE * recurrence(differences, lag)
        alike += (1.0 - DIFFERENCE_SHARE) * recurrence(thumbnails, lag)
        comes_back = alike > alike_above
        if not comes_back.any():
            return comes_back.astype(np.float64)
        # From the pictures themselves: taking out trends smears motion into the stillness beside it.
        change = np.diff(grey.astype(np.float32), axis=0, prepend=grey[:1].astype(np.float32))
        motion = moving_mean((change**2).sum(axis=1), max(1, lag // 2))
        moves = motion > MOTION_ABOVE * np.median(motion[comes_back])
        return settled(comes_back & moves, shortest_gap=lag, shortest_run=round(1.5 * lag)).astype(np.float64)

    def _matching(
        self,
        grey: Image,
        bounds: Sequence[tuple[int, int]],
        gates: Sequence[Array],
        exemplars: Sequence[SpectralExemplar],
    ) -> list[Array]:
        """The gates, closed where nothing looks like an exemplar; unchanged where none can be recognised.

        Thumbnails of another person or camera do not correlate: such an exemplar gives its length only.
        """
        matches = []
        for low, high in bounds:
            signal = _without_trend(grey[low:high].astype(np.float32), self._rate)
            matches.append(np.max([self._match(signal, exemplar) for exemplar in exemplars], axis=0))
        best = max(float(match.max()) for match in matches)
        if best < RECOGNISED_ABOVE:
            return list(gates)
        return [gate * (match > MATCH_SHARE * best) for gate, match in zip(gates, matches, strict=True)]

    def _match(self, signal: Signal, exemplar: SpectralExemplar) -> Array:
        """Best correlation with the exemplar within MATCH_REACH exemplar lengths of each frame."""
        seconds, frames = exemplar
        length = max(2, round(seconds * self._rate))
        if length >= len(signal):
            return np.ones(len(signal))
        at = np.linspace(0, len(frames) - 1, length).round().astype(int)
        match = np.full(len(signal), -1.0)
        match[length // 2 : length // 2 + len(signal) - length + 1] = template_match(signal, frames[at])
        return nearby_max(match, MATCH_REACH * length)


def _with_wanted(window: list[Period], wanted: float, frames: int) -> list[Period]:
    """The candidates, and the exemplar's own length where none is near it: an exemplar is always followed."""
    if wanted >= frames or any(abs(math.log2(period.length / wanted)) < 0.4 for period in window):
        return window
    return sorted([*window, Period(wanted, 0.1)], key=lambda period: period.length)


def _features(grey: Image, rate: float) -> tuple[Signal, Signal]:
    """Thumbnails and their frame-to-frame differences, slow trends removed: frames x features each."""
    values = grey.astype(np.float32)
    differences = np.diff(values, axis=0, prepend=values[:1])
    return _without_trend(values, rate), _without_trend(differences, rate)


def _profile(thumbnails: Signal, differences: Signal, lags: int) -> Array:
    """The lag profiles of both kinds of feature, mixed."""
    of_differences = lag_profile(differences, lags)
    return DIFFERENCE_SHARE * of_differences + (1.0 - DIFFERENCE_SHARE) * lag_profile(thumbnails, lags)


def _without_trend(signal: Signal, rate: float) -> Signal:
    flat = signal - moving_mean(signal, round(TREND * rate))
    centred: Signal = flat - flat.mean(axis=0)
    return centred


def _agreement(evidence: float, count: float, *, exemplar: bool) -> float:
    """How well the motion agrees with itself one period later, 0..1; less for more repetitions, which are harder.

    The curve is a logistic fit to 208 videos of an early generator; it is not calibrated on today's, so it is not
    called a probability.
    """
    size = math.log1p(min(count, 50.0))  # the generated videos have no more: nothing is said beyond
    if round(count) == 0:
        logit = 0.12 - 0.85 * evidence
    elif exemplar:
        logit = 2.04 + 1.60 * evidence - 1.65 * size
    else:
        logit = 1.71 + 2.16 * evidence - 1.93 * size
    return 0.5 + 0.5 * math.tanh(logit / 2)  # the logistic function, which overflows nowhere
