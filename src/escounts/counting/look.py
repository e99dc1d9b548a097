"""Which parts of a video show the motion that an exemplar marks, by what they look like.

A look is the mean of what the encoder says of single frames (`LiteEncoder.look_features`) over a repetition or more,
so that it does not depend on the phase. A video is parted where the film is cut, and where its look changes by much
at once or by less for long, unless repetitions go on there at one pace: then the camera moves. Parts that look alike
show one motion: a scene that comes back stays with the mark. Distances are in units of how far repetitions of one set
differ; the encoder's head is fitted so. One motion looks different from another side: what is shown in the same
colours for a short time is taken for the same motion, with a doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np

from escounts.counting.views import Window, WindowStore
from escounts.decision.doubts import runs
from escounts.decision.repetitions import Stretch
from escounts.decision.rules import RULES, CountingRules
from escounts.system.arrays import Array, Array32, BoolArray, Image, IntArray

SIDE = 8
"""Pixels of a small picture's side: colours and where they are, no more."""


@dataclass(frozen=True)
class Mark:
    """What a marked repetition looks like, (D,), and the second in its middle; None in another video."""

    look: Array32
    middle: float | None


@dataclass(frozen=True)
class Motions:
    """P parts of a video: their borders in seconds (P + 1), which motion each shows (P), the marked one being 0; how
    far each looks from the mark (P), and its colours from those of the nearest marked part (P, levels of 255), both
    infinite without one; which scene it lies in (P)."""

    borders: Array = field(repr=False)
    motion: Sequence[int]
    distance: Array = field(repr=False)
    colours: Array = field(repr=False)
    scene: IntArray = field(repr=False)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The parts."""
        spans = pairwise(self.borders.tolist())
        return tuple(Stretch(a, b, motion) for (a, b), motion in zip(spans, self.motion, strict=True))

    def marked(self, seconds: Array, density: Array32, rules: CountingRules = RULES) -> tuple[BoolArray, bool]:
        """At which of some times the marked motion is shown, and whether that is unclear; density: repetitions at
        each. A part that holds less than a repetition is a set's first or last movement, and goes with the marked
        ones if there are any; a long one may show the marked motion from another side, uncounted."""
        part = self._part(seconds)
        held: Array = np.bincount(part, weights=density, minlength=len(self.motion)).astype(np.float64)
        little = held < rules.look_least
        other_side = self._other_side(held, rules)
        marked = (np.array(self.motion) == 0) | other_side
        low, high = (share * rules.look_same for share in rules.look_unclear)
        vague = ~little & (self.distance > low) & (self.distance < high)
        unseen = little & ~marked & (self.colours < rules.look_colours) & (self.distance < rules.look_side)
        long = (np.ptp(self.borders[[first, end]]) > rules.look_set_seconds for first, end in runs(unseen))
        shown: BoolArray = (marked | little if (marked & ~little).any() else marked)[part]
        return shown, bool((other_side | vague).any()) or any(long)

    def _other_side(self, held: Array, rules: CountingRules) -> BoolArray:
        """Which parts may show the marked motion from another side: of the same colours, and too short for a set.
        held: repetitions of each."""
        found = np.zeros(len(self.motion), dtype=bool)
        home = self.scene[np.array(self.motion) == 0]
        few, fewer = rules.look_set_repetitions
        for motion, run in groupby(range(len(self.motion)), key=lambda part: self.motion[part]):
            places = list(run)
            seconds = self.borders[places[-1] + 1] - self.borders[places[0]]
            repetitions = held[places].sum()
            cut = not np.isin(self.scene[places], home).all()
            short = repetitions < (few if cut and seconds < rules.look_set_seconds else fewer)
            near = self.colours[places].min() < rules.look_colours and self.distance[places].min() < rules.look_side
            found[places] = motion != 0 and short and near and repetitions >= rules.look_least
        return found

    def likeness(self, seconds: Array, rules: CountingRules = RULES) -> Array:
        """How alike what is shown at some times is to the mark, 0..1; a half where it just is the same motion."""
        distance: Array = self.distance[self._part(seconds)]
        return 1 / (1 + (distance / rules.look_same) ** 4)

    def _part(self, seconds: Array) -> IntArray:
        return np.clip(np.searchsorted(self.borders, seconds, side="right") - 1, 0, len(self.motion) - 1)


@dataclass(frozen=True)
class Looks:
    """What the cells of a video look like, (T, D), from second `start` on, `rate` per second; a small picture of
    each, (T, P; P is 0 of a live view), and which cells a scene begins with."""

    values_TD: Array32
    pictures_TP: Image
    scenes: Sequence[int]
    start: float
    rate: float

    def of(self, start: float, end: float) -> Array32:
        """The look of what lies between two times."""
        first, last = (round((time - self.start) * self.rate) for time in (start, end))
        first = min(max(0, first), len(self.values_TD) - 1)
        look: Array32 = self.values_TD[first : max(first + 1, last)].mean(0)
        return look

    def motions(
        self,
        weight_T: Array,
        density_VT: Array32,
        seconds: float,
        marks: Sequence[Mark] = (),
        rules: CountingRules = RULES,
    ) -> Motions:
        """The parts that differ, and which of them show one motion.

        Args:
            weight_T: how much repeats at each cell; a part's look is what it looks like where it repeats.
            density_VT: what each view counts there. Where repetitions go on at one pace no other motion begins.
            seconds: how long a repetition lasts.
            marks: of one motion, which becomes number 0.
            rules: the constants.
        """
        values = self.values_TD
        borders = sorted({0, *self.scenes, len(values)})
        for context, least in rules.look_borders:
            length = round(max(seconds, context) * self.rate)
            borders = _more_borders(values, borders, length, least, apart=rules.look_border_apart * length)
        weight = weight_T[:, None] + 1e-6  # a part without repetitions has a look, too
        parts = _means(values, weight, borders)
        reach = round(max(seconds, rules.look_borders[0][0]) * self.rate)
        goes_on = [
            place not in self.scenes
            and np.linalg.norm(after - before) < rules.look_camera
            and _evenness(density_VT[:, max(0, place - reach) : place + reach]) > rules.look_even
            for place, (before, after) in zip(borders[1:-1], pairwise(parts), strict=True)
        ]
        borders = [border for border, within in zip(borders, [False, *goes_on, False], strict=True) if not within]
        parts = _means(values, weight, borders)
        nodes = np.stack([*parts, *(mark.look for mark in marks)])
        apart = np.linalg.norm(nodes[:, None] - nodes[None], axis=2)
        anchors = list(range(len(parts), len(nodes)))
        apart[np.ix_(anchors, anchors)] = 0.0  # several marks are one motion
        for place, mark in enumerate(marks, len(parts)):
            cell = -1 if mark.middle is None else int((mark.middle - self.start) * self.rate)
            if 0 <= cell < len(values):  # else it lies elsewhere
                home = int(np.searchsorted(borders, cell, side="right")) - 1
                apart[place, home] = apart[home, place] = 0.0
                anchors.append(home)
        groups = _linked(apart < rules.look_same)
        order = list(dict.fromkeys([*groups[len(parts) :], *groups[: len(parts)]]))
        distance = apart[: len(parts), anchors].min(1, initial=np.inf)
        motion = [order.index(group) for group in groups[: len(parts)]]
        scenery = np.stack([np.median(self.pictures_TP[a:b], 0) for a, b in pairwise(borders)])
        pictured = bool(marks) and self.pictures_TP.size > 0
        marked = [scenery[part] for part, number in enumerate(motion) if pictured and number == 0]
        colours = np.min([np.full(len(parts), np.inf), *(np.abs(scenery - one).mean(1) for one in marked)], 0)
        scene: IntArray = np.searchsorted(self.scenes, borders[:-1], side="right")
        return Motions(self.start + np.array(borders) / self.rate, motion, distance, colours, scene)


def read_looks(store: WindowStore, windows: Sequence[Window], cells: int) -> Array32 | None:
    """(T, D), of every cell of a view; a still part looks as what came before it. None where all is still."""
    known = np.zeros(cells, dtype=bool)
    found: Array32 | None = None
    for window in windows:
        if window.offset is None:
            continue
        looks = store.read_looks(window)[: max(0, cells - window.start)]
        if found is None:
            found = np.zeros((cells, looks.shape[1]), np.float32)
        found[window.start : window.start + len(looks)] = looks
        known[window.start : window.start + len(looks)] = True
    if found is None:
        return None
    last = np.maximum.accumulate(np.where(known, np.arange(cells), -1))
    filled: Array32 = found[np.where(last < 0, int(np.argmax(known)), last)]
    return filled


def small_picture(image: Image) -> bytes:
    """The mean colours of SIDE × SIDE squares of an (S, S, 3) picture."""
    square = image.shape[0] // SIDE
    rows = image[: SIDE * square, : SIDE * square].reshape(SIDE, square, SIDE, square, 3)
    small: Image = rows.mean((1, 3)).astype(np.uint8)
    return small.tobytes()


def _more_borders(looks_TD: Array32, known: Sequence[int], length: int, least: float, *, apart: float) -> list[int]:
    """Cells that parts begin with, and the end: the known ones, and where the `length` cells that come after differ
    by `least` from those that came before, not nearer than `apart` to another."""
    cells = len(looks_TD)
    sums = np.concatenate([np.zeros((1, looks_TD.shape[1])), np.cumsum(looks_TD, 0, dtype=np.float64)])
    at = np.arange(1, cells)
    begins, ends = np.asarray(known[:-1]), np.asarray(known[1:])
    low = np.maximum(at - length, begins[np.searchsorted(begins, at) - 1])
    high = np.minimum(at + length, ends[np.searchsorted(ends, at, side="right")])
    before = (sums[at] - sums[low]) / (at - low)[:, None]
    after = (sums[high] - sums[at]) / (high - at)[:, None]
    # Less than a repetition shows its phase, not a motion: near a part's end a change counts for less.
    share = np.minimum(at - low, high - at) / length
    change = np.linalg.norm(after - before, axis=1) * np.sqrt(share)
    found = list(known)
    candidates = np.flatnonzero(change >= least)
    for place in candidates[np.argsort(-change[candidates], kind="stable")]:
        if min(abs(int(at[place]) - border) for border in found) >= apart:
            found.append(int(at[place]))
    return sorted(found)


def _means(looks_TD: Array32, weight_T1: Array, borders: Sequence[int]) -> list[Array]:
    """What each part looks like, (D,)."""
    return [
        (looks_TD[a:b] * weight_T1[a:b]).sum(0, dtype=np.float64) / weight_T1[a:b].sum(dtype=np.float64)
        for a, b in pairwise(borders)
    ]


def _evenness(density_VT: Array32) -> float:
    """Of the view in which repetitions go on most evenly, the least density as a share of the largest."""
    return float((density_VT.min(1) / np.maximum(density_VT.max(1), 1e-6)).max())


def _linked(near: BoolArray) -> IntArray:
    """A number for each node, the same for all that are linked over near ones, (N,)."""
    group: IntArray = np.arange(len(near))
    for node in range(len(near)):
        joined = np.unique(group[near[node]])
        group[np.isin(group, joined)] = joined[0]
    return group
