"""What the network says of a video, view by view, and the features that a decision weighs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from escounts.decision.rules import BASE_RATE, RULES, Calibration
from escounts.system.arrays import Array, Array32, BoolArray

UNITS = (0.5, 1.0, 2.0)
"""An exemplar may ask for one side where a full cycle is counted without it, or for both."""


@dataclass(frozen=True)
class Evidence:
    """One view's prediction on the base grid: density per frame, gate and sharpness of the period, both 0..1.

    alternates, repeats: each frame's opinion of the whole video, logits: the motion has two opposite sides; there is
    a repetition at all. None where the model does not say.
    """

    rate: float
    density: Array32
    gate: Array32
    sharpness: Array32
    alternates: Array32 | None = None
    repeats: Array32 | None = None

    def certainty(self, part: slice = slice(None)) -> float:
        """Mean of gate × sharpness where the repetitions are; little where the view sees none."""
        density = self.density[part]
        weighted = float((self.gate[part] * self.sharpness[part] * density).sum())
        return weighted / max(float(density.sum()), 0.5)

    def count(self, part: slice = slice(None)) -> float:
        """Repetitions."""
        return float(self.density[part].sum())

    def cells(self, part: slice = slice(None)) -> float:
        """Cells of this view that a repetition takes, where it sees any."""
        return float(self.gate[part].sum()) * self.rate / BASE_RATE / max(self.count(part), 0.3)

    def part(self, first: int, last: int) -> Evidence:
        """The prediction for base frames first..last."""
        cut = slice(first, last)
        return Evidence(
            self.rate,
            self.density[cut],
            self.gate[cut],
            self.sharpness[cut],
            None if self.alternates is None else self.alternates[cut],
            None if self.repeats is None else self.repeats[cut],
        )

    def only(self, frames: BoolArray) -> Evidence:
        """The same with shut gates at all other frames."""
        return replace(self, density=self.density * frames, gate=self.gate * frames)

    def with_open_edges(self, views: Sequence[Evidence], borders: Sequence[int]) -> Evidence:
        """A fast view whose gate is, near the borders of scenes, at least as open as the slow views'; any other view
        as it is. borders: base frames, from the first one here, that the video's scenes begin and end with."""
        slow = [view.gate for view in views if view.rate <= RULES.whole_video_rate]
        if self.rate <= RULES.whole_video_rate or not slow:
            return self
        reach = RULES.edge_repetitions * float(self.gate.sum()) / max(self.count(), 0.3)
        middles = np.arange(len(self.gate)) + 0.5
        after = np.searchsorted(borders, middles).clip(1, len(borders) - 1)
        known = np.asarray(borders)
        near = np.minimum(np.abs(middles - known[after - 1]), np.abs(known[after] - middles)) < reach
        gate = np.where(near, np.maximum(self.gate, np.mean(slow, 0)), self.gate).astype(np.float32)
        density = self.density * (gate / np.maximum(self.gate, 0.02))
        return replace(self, density=density.astype(np.float32), gate=gate)

    def opinion(self, logits: Array32 | None, part: slice = slice(None)) -> float:
        """The frames' mean opinion of the video, weighted by the gate; 0 where the model does not say."""
        if logits is None or not len(logits[part]):
            return 0.0
        weight = self.gate[part] + RULES.video_floor
        return float((logits[part] * weight).sum() / weight.sum())


def wants_faster(evidence: Sequence[Evidence]) -> bool:
    """Whether a faster view may say more: the best of these is unsure, or one that is nearly as sure sees short
    periods. (A slow view that misses every other repetition sees long ones, and may be sure of them.)"""
    best = max(view.certainty() for view in evidence)
    near = [view for view in evidence if view.certainty() > RULES.nearly_as_sure * best]
    return best < RULES.sure_enough or min(view.cells() / view.rate for view in near) < RULES.short_period


def choice_features(evidence: Sequence[Evidence], part: slice = slice(None)) -> Array:
    """(V, CHOICE) of every view: its certainty, how much of the others' stands behind its count, all of theirs (both
    a mean over the others), and how far its cells per repetition are below few_cells."""
    certainty = np.array([view.certainty(part) for view in evidence])
    count = np.array([view.count(part) for view in evidence])
    cells = np.array([view.cells(part) for view in evidence])
    apart = np.abs(np.log((count[:, None] + 0.5) / (count[None] + 0.5)))
    among_others = (1 - np.eye(len(evidence))) / max(1, len(evidence) - 1)
    support = (np.exp(-apart / RULES.same_count) * among_others) @ certainty
    few = np.maximum(0.0, np.log(RULES.few_cells / np.maximum(cells, 0.5)))
    return np.stack([np.ones(len(evidence)), certainty, support, among_others @ certainty, few], -1)


def repeats_features(
    evidence: Sequence[Evidence],
    choice: Sequence[float],
    part: slice = slice(None),
) -> Array:
    """The vector REPEATS of a stretch. choice: weights of CHOICE, which say what view speaks."""
    values = choice_features(evidence, part)
    best = int(np.argmax(values @ np.array(choice)))
    _, certainty, support, *_ = values[best]
    slow = [view for view in evidence if view.rate <= RULES.whole_video_rate] or evidence
    if not is_zero(evidence[best].density[part]):
        period = evidence[best].cells(part) / evidence[best].rate
        slow = [view for view in slow if period * view.rate >= RULES.seen_cells] or slow[-1:]
    return np.array([1.0, certainty, support, np.mean([view.opinion(view.repeats, part) for view in slow])])


def alternates_features(evidence: Sequence[Evidence]) -> Array:
    """The vector ALTERNATES of a video."""
    return np.array([1.0, max(view.opinion(view.alternates) for view in evidence)])


def features(
    evidence: Sequence[Evidence],
    density: Array32,
    chosen: Sequence[int],
    *,
    zero_shot_count: float | None = None,
) -> Array:
    """The vector FEATURES of one answer, whose density has BASE_RATE frames per second.

    agreement, 0..1: share of the other views that count alike. unit, 0..1: with an exemplar, about which one view
    only is asked, how near the count is to half, once or twice the one without it (zero_shot_count).
    """
    main = evidence[main_view(chosen)]
    total = float(density.sum())
    decided = float(np.abs(2 * main.gate - 1).mean()) if len(main.gate) else 0.0
    near = [abs(view.count() - total) <= max(0.5, 0.1 * total) for view in evidence]
    agreement = max(0, sum(near) - 1) / max(1, len(near) - 1)
    cells = main.rate * len(density) / BASE_RATE / max(total, 0.5)
    log_cells = min(math.log(max(cells, 1e-3)), 5.0)
    unit = 0.0
    if zero_shot_count is not None:
        apart = min(abs(math.log((total + 0.5) / (share * zero_shot_count + 0.5))) for share in UNITS)
        unit = math.exp(-apart / RULES.same_count)
    guided = float(zero_shot_count is not None)
    certainty, log_count = main.certainty(), math.log1p(total)
    doubt = (1 - certainty) * log_count
    return np.array([1.0, certainty, decided, agreement, log_count, log_cells, guided, unit, doubt])


def main_view(chosen: Sequence[int]) -> int:
    """The view that most blocks of a video chose."""
    return max(set(chosen), key=list(chosen).count)


def blocks(frames: int) -> list[tuple[int, int, slice]]:
    """First and last frame of every block of a video, and what is looked at for it: half a block more on each side,
    so that a choice does not hang on where blocks begin."""
    block = round(RULES.block_seconds * BASE_RATE)
    borders = np.linspace(0, frames, max(1, round(frames / block)) + 1).round().astype(int)
    return [
        (first, last, slice(max(0, first - block // 2), last + block // 2))
        for first, last in pairwise(borders.tolist())
    ]


def is_zero(density: Array32) -> bool:
    """Whether a density answers that there are no repetitions."""
    return float(density.sum()) < 0.5


def choose_views(
    views: Sequence[Evidence],
    calibration: Calibration,
    *,
    repeats: bool = False,
) -> tuple[Array32, list[int]]:
    """The density of the view that is likeliest right, chosen per block of a long video, and which view that was.

    Where that view is not sure enough, or sees the motion once in all and not clearly, there are no repetitions.
    repeats: there are, says an exemplar or the user.
    """
    frames = len(views[0].density)
    density = np.zeros(frames, np.float32)
    chosen = []
    clear = False
    for first, last, around in blocks(frames):
        values = choice_features(views, around)
        best = int(np.argmax(values @ np.array(calibration.choice)))
        if calibration.repeats:
            row = repeats_features(views, calibration.choice, around)
            probability = logistic(float(np.dot(calibration.repeats, row)))
            holds, clear = probability >= 0.5, clear or probability >= RULES.clear_once
        else:
            _, certainty, support, *_ = values[best]
            holds = certainty + 0.5 * support >= calibration.nothing_below
        if repeats or holds:
            density[first:last] = views[best].density[first:last]
        chosen.append(best)
    if not (repeats or clear) and density.sum() < RULES.seen_twice:
        density[:] = 0.0
    return density, chosen


def logistic(logit: float) -> float:
    """The probability of a logit, without overflow."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))
