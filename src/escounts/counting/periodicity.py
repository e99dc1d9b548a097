"""Period of a motion over time: lag profiles of a vector signal, their peaks, one smooth path through windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from escounts.counting.maps import triangle
from escounts.decision.spans import parabola_vertex
from escounts.system.arrays import Array, Array32, BoolArray

Signal = Array32
Curve = Array

MIN_LAG = 3
"""Shortest period in frames: below, a sampled motion has no shape."""
MIN_RISE = 0.10
"""A peak of the profile that rises less than this above the dip before it is noise."""
MOST_CANDIDATES = 64
"""Of one window, the strongest first."""


@dataclass(frozen=True)
class Period:
    """One candidate of one window: length in frames, and how far its peak rises above the dip before it."""

    length: float
    rise: float

    def evidence(self, frames: int) -> float:
        """How much this says in a window of that many frames: the same rise over more cycles says more."""
        return self.rise * float((frames / self.length) ** 0.25)


def moving_mean(signal: Signal, width: int) -> Signal:
    """Centred mean over `width` frames along axis 0; at the edges over what is there. Shape unchanged."""
    frames = len(signal)
    sums = np.zeros((frames + 1, *signal.shape[1:]), np.float64)
    np.cumsum(signal, axis=0, dtype=np.float64, out=sums[1:])
    low = np.maximum(np.arange(frames) - width // 2, 0)
    high = np.minimum(np.arange(frames) - width // 2 + max(width, 1), frames)
    spans = (high - low).reshape(-1, *[1] * (signal.ndim - 1))
    mean: Signal = ((sums[high] - sums[low]) / spans).astype(np.float32)
    return mean


def lag_profile(signal: Signal, lags: int) -> Curve:
    """Similarity (1 same, 0 unrelated, −1 opposite) of a frames x features signal with itself, lags 0..lags.

    The autocorrelation summed over features, through the power spectrum, divided by the energy of the parts
    that overlap, so that long lags are not punished for having less overlap.
    """
    frames = len(signal)
    size = 1 << max(1, math.ceil(math.log2(2 * frames)))
    spectrum = np.fft.rfft(signal, size, axis=0)
    power = (spectrum.real**2 + spectrum.imag**2).sum(axis=1)
    correlation = np.fft.irfft(power, size)[: lags + 1]
    energy = np.concatenate([[0.0], np.cumsum((signal.astype(np.float64) ** 2).sum(axis=1))])
    lag = np.arange(lags + 1)
    overlap = energy[frames - lag] + (energy[frames] - energy[lag])
    similarity: Curve = 2.0 * correlation / np.maximum(overlap, 1e-9)
    return similarity


def candidates(profile: Curve) -> list[Period]:
    """The strong peaks of a lag profile as periods, the shortest ones, each refined at its multiples."""
    lags = np.arange(1, len(profile) - 1)
    if len(lags) == 0:
        return []
    dips = np.minimum.accumulate(profile)
    rises = profile - dips
    peak = (profile[lags] >= profile[lags - 1]) & (profile[lags] >= profile[lags + 1])
    found = lags[peak & (lags >= MIN_LAG) & (rises[lags] > MIN_RISE)]
    strong = found[rises[found] >= 0.5 * rises[found].max(initial=0.0)]  # multiples are as strong, and many
    return [Period(_refined(profile, int(lag)), float(rises[lag])) for lag in strong[:MOST_CANDIDATES]]


def _refined(profile: Curve, lag: int) -> float:
    """A peak's period to a fraction of a frame: its k-th multiple is read k times as finely."""
    length = float(lag)
    for multiple in range(2, 9):
        centre, reach = round(multiple * length), max(1, int(0.25 * length))
        low, high = max(centre - reach, 1), centre + reach + 1
        if high >= len(profile):
            break
        best = low + int(np.argmax(profile[low:high]))
        if profile[best] < 0.5 * profile[lag]:
            break
        length = best / multiple
    return length


def local_lengths(profile_of: Callable[[slice, int], Curve], period: float, frames: int) -> Curve:
    """The period at every frame, in frames, where tempo drifts around `period`.

    profile_of: the lag profile of a part of the window. Parts of six periods are read one by one, and the
    nearest strong lag is taken within a factor of 1.3; the rates are averaged where parts overlap.
    """
    span, longest = int(6 * period), int(1.3 * period) + 2
    shortest = int(period / 1.3)
    if frames <= 1.1 * span or period < 10:
        return np.full(frames, period)
    rate, weight = np.zeros(frames), np.zeros(frames)
    weights = triangle(span, edge=1.0)
    for start in [*range(0, frames - span, max(1, int(period / 2))), frames - span]:
        profile = profile_of(slice(start, start + span), longest)
        lags = np.arange(shortest, longest - 1)
        score = profile[lags] - np.log2(lags / period) ** 2
        best = int(lags[score.argmax()])
        rate[start : start + span] += weights / (best + parabola_vertex(profile, best))
        weight[start : start + span] += weights
    lengths: Curve = weight / rate
    return lengths


def recurrence(signal: Signal, lag: int) -> Curve:
    """How alike each frame's surroundings (half a lag) are one lag earlier or later, whichever is more: −1..1."""
    frames = len(signal)
    best = np.full(frames, -1.0)
    if lag >= frames:
        return best
    energy = (signal**2).sum(axis=1)
    product = moving_mean((signal[:-lag] * signal[lag:]).sum(axis=1), max(1, lag // 2))
    overlap = moving_mean(energy[:-lag] + energy[lag:], max(1, lag // 2))
    alike = 2.0 * product / np.maximum(overlap, 1e-9)
    best[:-lag] = alike
    best[lag:] = np.maximum(best[lag:], alike)
    return best


def template_match(signal: Signal, template: Signal) -> Curve:
    """Correlation (−1..1) of a template with the signal at every place it fits: frames − length + 1 values."""
    length, frames = len(template), len(signal)
    size = 1 << math.ceil(math.log2(frames + length))
    product = np.fft.rfft(signal, size, axis=0) * np.fft.rfft(template, size, axis=0).conj()
    overlap = np.fft.irfft(product.sum(axis=1), size)[: frames - length + 1]
    energy = np.concatenate([[0.0], np.cumsum((signal.astype(np.float64) ** 2).sum(axis=1))])
    scale = np.sqrt((energy[length:] - energy[:-length]) * float((template.astype(np.float64) ** 2).sum()))
    correlation: Curve = overlap / np.maximum(scale, 1e-9)
    return correlation


def nearby_max(values: Curve, reach: int) -> Curve:
    """For each frame the largest value within `reach` frames on either side."""
    padded = np.pad(values, reach, constant_values=-1.0)
    largest: Curve = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).max(axis=1)
    return largest


def settled(flags: BoolArray, *, shortest_gap: int, shortest_run: int) -> BoolArray:
    """The flags with gaps shorter than shortest_gap filled, then runs shorter than shortest_run dropped."""
    result = flags.copy()
    for value, shortest in ((False, shortest_gap), (True, shortest_run)):
        edges = np.flatnonzero(np.diff(result.astype(np.int8))) + 1
        bounds = [0, *edges.tolist(), len(result)]
        for low, high in pairwise(bounds):
            inner = value or (low > 0 and high < len(result))
            if bool(result[low]) is value and high - low < shortest and inner:
                result[low:high] = not value
    return result


def best_path(
    windows: Sequence[Sequence[Period]],
    *,
    octave_share: float,
    stiffness: float,
    wanted: float | None = None,
) -> list[Period | None]:
    """One period for each window (None where it has no candidate), strong and smooth in log period.

    octave_share: every peak this strong relative to the window's strongest counts as equally strong, and the
    shortest of them wins: multiples of a period match as well as the period itself. stiffness: cost of a
    change of one octave between neighbours. wanted: period in frames an exemplar asks for.
    """
    path: list[Period | None] = [None] * len(windows)
    costs: list[Curve] = []
    came_from: list[npt.NDArray[np.intp]] = []
    used: list[int] = []
    for index, window in enumerate(windows):
        if not window:
            continue
        cost = _own_cost(window, octave_share, wanted)
        back = np.zeros(len(window), np.intp)
        if used:
            before = np.log2([p.length for p in windows[used[-1]]])
            now = np.log2([p.length for p in window])
            change = stiffness * np.minimum(np.abs(now[:, None] - before[None, :]), 2.0) + costs[-1][None, :]
            back = change.argmin(axis=1)
            cost = cost + change.min(axis=1)
        used.append(index)
        costs.append(cost)
        came_from.append(back)
    if used:
        state = int(costs[-1].argmin())
        for step in range(len(used) - 1, -1, -1):
            path[used[step]] = windows[used[step]][state]
            state = int(came_from[step][state])
    return path


def _own_cost(window: Sequence[Period], octave_share: float, wanted: float | None) -> Curve:
    rises = np.array([p.rise for p in window])
    octaves = np.log2([p.length for p in window])
    enough = octave_share * rises.max()
    cost: Curve = (enough - np.minimum(rises, enough)) * 4.0 / max(enough, 1e-6)
    if wanted is None:
        cost += 0.05 * (octaves - octaves.min())
    else:
        cost = 0.25 * cost + 4.0 * np.abs(octaves - math.log2(wanted))
    return cost
