"""Where the repetitions of a density map are: always as many as asked for. Places in cells (0 = left edge).

A map of "peaks" has one bump per repetition. The highest peaks are the repetitions; each reaches half-way to
its neighbours, but no further than the map's typical distance allows, so that a pause belongs to nobody. Where
the map has fewer peaks than repetitions, their middles are where its running sum passes 1/2, 3/2, 5/2 …

A map of "rate" has no bumps: repetitions end where its running sum passes whole numbers. The phase starts
anew after every stretch without repetitions, since a repetition begins where the motion begins: stretches are
given whole numbers of repetitions (largest remainders), and their running sums are scaled to end on them. Where both
ends of the video cut repetitions off and leave a rest, nothing is scaled: a rest that does not count lies before the
first repetition and after the last one, and one that counts is a repetition that is cut short.
Stretches are joined across the shortest gaps first when that brings their sums closer to whole numbers: then
the gap lies inside a repetition. Where in the motion a repetition begins is arbitrary, unless a border is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from escounts.decision.rules import RULES
from escounts.decision.units import cut_ends
from escounts.system.arrays import Array, IntArray

Found: TypeAlias = list[tuple[float, float]]


def find_peaks(values: npt.ArrayLike, *, above: float | None = None) -> IntArray:
    """Cells that are local maxima, in order; the middle cell of a plateau; borders count as low.

    above: only peaks higher than this. A flat map has no peak.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) == 0 or values.max() == values.min():
        return np.zeros(0, dtype=np.int64)
    begins = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
    ends = np.append(begins[1:], len(values)) - 1
    level = np.concatenate([[-np.inf], values[begins], [-np.inf]])
    high = (level[1:-1] > level[:-2]) & (level[1:-1] > level[2:])
    peaks: IntArray = (begins[high] + ends[high]) // 2
    return peaks if above is None else peaks[values[peaks] > above]


def spans_from_peaks(values: Array, count: int) -> Found:
    """`count` spans (start, end) of a map with one bump per repetition."""
    if count <= 0:
        return []
    positive = np.maximum(values, 0.0)
    peaks = find_peaks(positive, above=0.0)
    if len(peaks) >= count:
        highest = np.sort(peaks[np.argsort(-positive[peaks], kind="stable")[:count]])
        middles = np.array([p + 0.5 + parabola_vertex(positive, int(p)) for p in highest])
    else:
        middles = _crossings(positive, np.arange(count) + 0.5, count)
    gaps = np.diff(middles)
    typical = float(np.median(gaps)) if len(gaps) else _half_height_width(positive, float(middles[0]))
    reach = max(RULES.peak_reach * typical, 0.5 if len(gaps) == 0 else 0.0)
    left = np.maximum(middles - np.append(np.inf, gaps / 2), np.maximum(middles - reach, 0.0))
    left = np.maximum(left, np.append(-np.inf, (middles[:-1] + middles[1:]) / 2))
    right = np.minimum(middles + np.append(gaps / 2, np.inf), np.minimum(middles + reach, len(values)))
    return list(zip(left.tolist(), right.tolist(), strict=True))


class _Stretch(NamedTuple):
    """Cells first..last in which the motion repeats, and the repetitions they hold."""

    first: int
    last: int
    mass: float


def spans_from_rate(values: Array, count: int, anchors: Sequence[float] = ()) -> Found:
    """`count` spans (start, end) of a map of repetitions per cell.

    A rate has no phase: spans begin where a stretch begins, unless anchors (in cells) say where repetitions begin and
    end. They say so for all stretches: what is part of a repetition in one is so in the others.
    """
    if count <= 0:
        return []
    positive = np.maximum(values, 0.0)
    stretches = _join(_stretches(positive))
    shares = np.array([s.mass for s in stretches]) * count / sum(s.mass for s in stretches)
    given = np.floor(shares).astype(int)
    for index in np.argsort(given - shares, kind="stable")[: count - int(given.sum())]:
        given[index] += 1
    phase = _phase(positive, stretches, anchors)
    cut_off = phase is None and all(cut_ends(positive))
    found: Found = []
    for stretch, number in zip(stretches, given.tolist(), strict=True):
        if number == 0:
            continue
        begin, end = _borders(positive, stretch)
        inside = positive[stretch.first : stretch.last + 1]
        level = _rest_before(stretch, number, len(positive)) if cut_off else phase
        pairs = None if level is None else _anchored(inside, number, level)
        if pairs is None:
            edges = _crossings(inside, np.arange(number + 1), number)
            pairs = list(pairwise(edges.tolist()))
        low, high = begin - stretch.first, end - stretch.first
        found += [(stretch.first + max(a, low), stretch.first + min(b, high)) for a, b in pairs]
    return found


def _rest_before(stretch: _Stretch, count: int, cells: int) -> float | None:
    """Part of a repetition, 0..1, that a video of so many cells shows before the first of a stretch's `count` whole
    ones; None for a stretch that it cuts off nowhere. What both ends may have cut off is shared between them."""
    rest = stretch.mass - count
    if abs(rest) <= RULES.inexact:
        return None
    if stretch.first == 0:
        share = 0.5 if stretch.last == cells - 1 and rest > 0 else float(stretch.last < cells - 1)
        return (rest * share) % 1.0
    return 0.0 if stretch.last == cells - 1 else None


def _stretches(values: Array) -> list[_Stretch]:
    """Runs of cells that repeat, with the partly covered cells at their ends."""
    loud = values > RULES.silent * float(np.percentile(values[values > 0], 90))
    change = np.flatnonzero(np.diff(np.concatenate([[False], loud, [False]]).astype(int)))
    runs: list[_Stretch] = []
    for first, stop in change.reshape(-1, 2).tolist():
        first = first - 1 if first > 0 and values[first - 1] > 0 and not loud[first - 1] else first
        stop = stop + 1 if stop < len(values) and values[stop] > 0 and not loud[stop] else stop
        if runs and first <= runs[-1].last:
            first = runs[-1].last + 1
        runs.append(_Stretch(first, stop - 1, float(values[first:stop].sum())))
    return [run for run in runs if run.mass > 0]


def _join(stretches: list[_Stretch]) -> list[_Stretch]:
    """Join neighbours, shortest gap first, while their sums come closer to whole numbers."""
    joined = list(stretches)
    while len(joined) > 1:
        gaps = [b.first - a.last for a, b in pairwise(joined)]
        for index in np.argsort(gaps, kind="stable").tolist():
            a, b = joined[index : index + 2]
            both = _Stretch(a.first, b.last, a.mass + b.mass)
            if _residue(both.mass) + 1e-6 < max(_residue(a.mass), _residue(b.mass)) - 0.25:
                joined[index : index + 2] = [both]
                break
        else:
            break
    return joined


def _residue(mass: float) -> float:
    """Distance to the nearest whole number of repetitions, at least one."""
    return abs(mass - max(1, round(mass)))


def _borders(values: Array, stretch: _Stretch) -> tuple[float, float]:
    """Where a stretch begins and ends: its outer cells are covered only as far as their rate says."""
    first, last = stretch.first, stretch.last
    if first == last:
        return float(first), float(last + 1)
    left = min(1.0, float(values[first] / max(values[first + 1], 1e-12)))
    right = min(1.0, float(values[last] / max(values[last - 1], 1e-12)))
    return first + 1 - left, last + right


def _phase(values: Array, stretches: Sequence[_Stretch], anchors: Sequence[float]) -> float | None:
    """Part of a repetition, 0..1, from a stretch's start to its first border; None where no anchor lies in any."""
    at = [
        float(
            np.interp(anchor - stretch.first, np.arange(stretch.last - stretch.first + 2), _running(values, stretch))
        )
        for anchor in anchors
        for stretch in stretches
        if stretch.first <= anchor <= stretch.last + 1
    ]
    return float(np.angle(np.exp(2j * np.pi * np.array(at)).mean()) / (2 * np.pi)) % 1.0 if at else None


def _running(values: Array, stretch: _Stretch) -> Array:
    return np.concatenate([[0.0], np.cumsum(values[stretch.first : stretch.last + 1])])


def _anchored(values: Array, count: int, phase: float) -> list[tuple[float, float]] | None:
    """`count` spans that meet where the running sum is `phase` past whole numbers; None if it holds fewer.

    A part of a repetition is left at either end; of too many spans the one at an end with the smaller mass goes.
    """
    running = np.concatenate([[0.0], np.cumsum(values)]) + np.arange(len(values) + 1) * 1e-12
    levels = np.concatenate([[0.0], np.arange(phase, running[-1], 1.0), [running[-1]]])
    levels = levels[np.append(True, np.diff(levels) > 1e-6)]
    edges = np.interp(levels, running, np.arange(len(running)))
    spans = list(pairwise(edges.tolist()))
    masses = np.diff(levels).tolist()
    while len(spans) > count:
        place = 0 if masses[0] < masses[-1] else -1
        del spans[place], masses[place]
    return spans if len(spans) == count else None


def align(spans: Sequence[tuple[float, float]], at: float) -> Found:
    """The spans, all borders moved by the same part of a repetition, so that the one nearest to `at` lies there.

    A border moves into the repetition that it enters; the first and the last as if one more of the same length
    followed.
    """
    nearest = min((border for span in spans for border in span), key=lambda border: abs(border - at))
    entered = next((s for s in spans if (s[0] if at >= nearest else s[1]) == nearest), None)
    low, high = entered or next(s for s in spans if nearest in s)
    share = (at - nearest) / max(high - low, 1e-9)
    moved = []
    for (start, end), before, after in zip(spans, [None, *spans[:-1]], [*spans[1:], None], strict=True):
        own = end - start
        earlier = before[1] - before[0] if before is not None and before[1] == start else own
        later = after[1] - after[0] if after is not None and after[0] == end else own
        moved.append((start + share * (own if share > 0 else earlier), end + share * (later if share > 0 else own)))
    return moved


def _crossings(values: Array, levels: npt.NDArray[np.generic], count: int) -> Array:
    """Where the running sum, scaled to end at `count`, passes each level."""
    running = np.concatenate([[0.0], np.cumsum(values)])
    if running[-1] <= 0:
        return np.asarray(levels, dtype=np.float64) * len(values) / count
    # Cells without mass make the running sum flat; a tiny slope keeps it invertible.
    running = running * (count / running[-1]) + np.arange(len(running)) * 1e-12
    return np.interp(np.asarray(levels, dtype=np.float64), running, np.arange(len(running)))


def parabola_vertex(values: Array, at: int) -> float:
    """How far from `at`, -0.5 to 0.5, the parabola through it and its neighbours has its top; 0 where it has none."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, here, after = (float(value) for value in values[at - 1 : at + 2])
    bend = before - 2 * here + after
    return min(max(0.5 * (before - after) / bend, -0.5), 0.5) if bend < 0 else 0.0


def _half_height_width(values: Array, middle: float) -> float:
    """Cells around `middle` that are at least half as high as it."""
    peak = min(int(middle), len(values) - 1)
    low = values < values[peak] / 2
    before, after = np.flatnonzero(low[:peak]), np.flatnonzero(low[peak:])
    first = before[-1] + 1 if len(before) else 0
    stop = peak + after[0] if len(after) else len(values)
    return float(stop - first)
