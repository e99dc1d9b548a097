"""How sure a count is: what the views of a video agree on, how sharp their periods are, and calibration.

Calibration is fitted on generated validation videos (research/training/calibration.py), never on real test clips.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np

from escounts.system.arrays import Array, Array32
from escounts.system.config_codec import from_plain

LARGEST = 1e4
"""No number of a calibration is larger: a logit of 40 is certainty."""
BLOCK_SECONDS = 30.0
"""Long videos choose their view anew for every block of this length."""

SURE_ENOUGH = 0.5
"""Surety above which slow views need no help from a faster one …"""
SHORT_PERIOD = 0.8
"""… unless a repetition takes fewer seconds than this …"""
NEARLY = 0.7
"""… to any view that is this nearly as sure as the surest."""

SAME_COUNT = 0.12
"""Two views' counts that differ by this part of themselves agree to 1 / e; by none, fully."""
FEW_CELLS = 6.0
"""A view that has fewer cells per repetition than this may take one rhythm for another (aliasing)."""

TWICE = 1.5
"""Sum of a density from which a motion is seen to come back. What is seen once repeats nothing."""

ENDS = 1.5
"""Repetitions at either end of a scene in which a fast view's gate is not believed alone: it sees four seconds at a
time, there with nothing after (or before) them, and shuts where slow views still see the motion go on."""

VIDEO_FLOOR = 0.05
"""Weight of a cell whose gate is shut, in what cells say of the whole video: where no gate opens, all speak alike."""

FEATURES = ("bias", "certainty", "decided", "agreement", "log_count", "cells", "exemplar", "unit", "doubt")
"""Of an estimate: is its count within one of the truth? doubt: what is not certain, times log_count. (A large count
is easily off by more than one where the period is vague, and hardly where it is clear.)"""
UNITS = (0.5, 1.0, 2.0)
"""An exemplar may ask for one side where a full cycle is counted without it, or for both."""
CHOICE = ("bias", "certainty", "support", "others", "few_cells")
"""Of one view among several: is it right?"""
REPEATS = ("bias", "certainty", "support", "repeats")
"""Of the view that speaks, and of what the slow views say: is there a repetition at all?"""
WHOLE_VIDEO = 12.0
"""Frames per second up to which a view sees enough of a video at once to speak of it as a whole: 13 s at 10 …"""
SEEN_CELLS = 3.0
"""… and cells per repetition that it needs to speak at all: what comes back in every other picture it cannot see."""
ALTERNATES = ("bias", "alternates")
"""Of the view that says so the loudest: does the motion have two opposite sides?"""


@dataclass(frozen=True)
class Evidence:
    """One view's opinion on the base grid: density per frame, gate and sharpness of the period, both 0..1.

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

    def cells(self, base_rate: float, part: slice = slice(None)) -> float:
        """Cells of this view that a repetition takes, where it sees any."""
        return float(self.gate[part].sum()) * self.rate / base_rate / max(self.count(part), 0.3)

    def part(self, first: int, last: int) -> Evidence:
        """The opinion on base frames first..last."""
        cut = slice(first, last)
        return Evidence(
            self.rate,
            self.density[cut],
            self.gate[cut],
            self.sharpness[cut],
            None if self.alternates is None else self.alternates[cut],
            None if self.repeats is None else self.repeats[cut],
        )

    def with_ends_of(self, views: Sequence[Evidence], borders: Sequence[int]) -> Evidence:
        """A fast view's opinion whose gate is, near borders, at least as open as the slow ones' of views; any other
        view's as it is. borders: base frames, from the first one here, that the video's scenes begin and end with."""
        slow = [view.gate for view in views if view.rate <= WHOLE_VIDEO]
        if self.rate <= WHOLE_VIDEO or not slow:
            return self
        reach = ENDS * float(self.gate.sum()) / max(self.count(), 0.3)
        middles = np.arange(len(self.gate)) + 0.5
        after = np.searchsorted(borders, middles).clip(1, len(borders) - 1)
        known = np.asarray(borders)
        near = np.minimum(np.abs(middles - known[after - 1]), np.abs(known[after] - middles)) < reach
        gate = np.where(near, np.maximum(self.gate, np.mean(slow, 0)), self.gate).astype(np.float32)
        density = self.density * (gate / np.maximum(self.gate, 0.02))
        return replace(self, density=density.astype(np.float32), gate=gate)

    def said(self, of: Array32 | None, part: slice = slice(None)) -> float:
        """The frames' mean opinion of the video, weighted by the gate; 0 where the model does not say."""
        if of is None or not len(of[part]):
            return 0.0
        weight = self.gate[part] + VIDEO_FLOOR
        return float((of[part] * weight).sum() / weight.sum())


@dataclass(frozen=True)
class Calibration:
    """Logistic regression from FEATURES to the probability that the count is within one of the truth.

    weights: of a count. nothing_weights: of the answer "no repetitions", for which little certainty is a good sign.
    choice: the same from CHOICE to the probability that a view is right; the likeliest one speaks.
    gate_bias: added to the gate's logit. Half of what a model sees in training does not repeat; what people bring
    to be counted mostly does, and more so when they mark an exemplar.
    gate_sharpness: what the sum is multiplied by. A gate at 0.8 throughout means "I think so", not "four fifths of it
    repeats": the sharper it is, the less a doubt takes off the count.
    nothing_below: the least that the chosen view's certainty and half of the others' support must come to; under it,
    without an exemplar, the answer is "no repetitions".
    repeats: from REPEATS to the probability that there is a repetition at all, under 0.5 of which the answer is "no
    repetitions" and nothing_below is not asked; alternates: from ALTERNATES to the probability that the motion has
    two sides. Empty for models whose views do not say.
    calibrated: fitted for this very model; if not, its confidence is not called a probability.
    """

    weights: tuple[float, ...] = (-3.0, 6.0, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0)
    nothing_weights: tuple[float, ...] = (1.0, -2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    choice: tuple[float, ...] = (0.0, 1.0, 0.0, 0.0, 0.0)
    unsure_below: float = 0.6
    gate_bias: float = 0.0
    gate_sharpness: float = 1.0
    nothing_below: float = 0.0
    calibrated: bool = True
    repeats: tuple[float, ...] = ()
    alternates: tuple[float, ...] = ()

    def confidence(
        self,
        evidence: Sequence[Evidence],
        density: Array32,
        chosen: Sequence[int],
        base_rate: float,
        *,
        zero_shot_count: float | None = None,
    ) -> tuple[float, dict[str, float]]:
        """Probability 0..1 and the features it came from. zero_shot_count: the count without the exemplar."""
        values = features(evidence, density, chosen, base_rate, zero_shot_count=zero_shot_count)
        logit = float(np.dot(self.nothing_weights if is_zero(density) else self.weights, values))
        details = dict(zip(FEATURES[1:], (round(float(v), 4) for v in values[1:]), strict=True))
        return logistic(logit), details

    def p_repeats(self, evidence: Sequence[Evidence], base_rate: float) -> float:
        """The probability that there is a repetition at all, of the block of a long video where it is largest."""
        frames = len(evidence[0].density)
        blocks = [repeats_features(evidence, base_rate, self, around) for _, _, around in _blocks(frames, base_rate)]
        return max(logistic(float(np.dot(self.repeats, values))) for values in blocks)

    def p_alternates(self, evidence: Sequence[Evidence]) -> float:
        """The probability that the motion has two opposite sides, if there are repetitions."""
        return logistic(float(np.dot(self.alternates, alternates_features(evidence))))

    def to_json(self) -> str:
        """For a checkpoint's metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The inverse of to_json."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError(f"calibration: a mapping is needed, not {type(values).__name__}")
        for name in ("weights", "nothing_weights"):  # features are added at the end; older files know fewer
            if name in values:
                values[name] += [0.0] * (len(FEATURES) - len(values[name]))
        read = from_plain(cls, values, ignore_unknown=True)
        for name, value in asdict(read).items():
            shape = np.shape(getattr(cls, name))
            left_out = {"repeats": len(REPEATS), "alternates": len(ALTERNATES)}
            if name in left_out and value:
                shape = (left_out[name],)
            if np.shape(value) != shape or not (np.abs(value) <= LARGEST).all():  # NaN is not, either
                allowed = f"numbers up to {LARGEST:g} like {getattr(cls, name)} are taken"
                raise ValueError(f"calibration: {name} is {value!r:.80}; {allowed}")
        if not (0 <= read.unsure_below <= 1 and read.gate_sharpness > 0):
            raise ValueError(
                f"calibration: unsure_below is {read.unsure_below}, gate_sharpness {read.gate_sharpness}; "
                "a probability and a number above 0 are taken"
            )
        return read


def wants_faster(evidence: Sequence[Evidence], base_rate: float) -> bool:
    """Whether a faster view may say more: the best of these is unsure, or one that is nearly as sure sees short
    periods. (A slow view that misses every other repetition sees long ones, and may be sure of them.)"""
    best = max(view.certainty() for view in evidence)
    near = [view for view in evidence if view.certainty() > NEARLY * best]
    return best < SURE_ENOUGH or min(view.cells(base_rate) / view.rate for view in near) < SHORT_PERIOD


def choice_features(evidence: Sequence[Evidence], base_rate: float, part: slice = slice(None)) -> Array:
    """(V, CHOICE) of every view: its certainty, how much of the others' stands behind its count, all of theirs (both
    a mean over the others), and how far it is below FEW_CELLS."""
    certainty = np.array([view.certainty(part) for view in evidence])
    count = np.array([view.count(part) for view in evidence])
    cells = np.array([view.cells(base_rate, part) for view in evidence])
    apart = np.abs(np.log((count[:, None] + 0.5) / (count[None] + 0.5)))
    among_others = (1 - np.eye(len(evidence))) / max(1, len(evidence) - 1)
    support = (np.exp(-apart / SAME_COUNT) * among_others) @ certainty
    few = np.maximum(0.0, np.log(FEW_CELLS / np.maximum(cells, 0.5)))
    return np.stack([np.ones(len(evidence)), certainty, support, among_others @ certainty, few], -1)


def choose_views(
    evidence: Sequence[Evidence], base_rate: float, calibration: Calibration, *, repeats: bool = False
) -> tuple[Array32, list[int]]:
    """The density of the view that is likeliest right, chosen per block of a long video, and which view that was.

    Where that view is not sure enough, or sees the motion once in all, there are no repetitions. repeats: there are,
    says an exemplar or the user.
    """
    frames = len(evidence[0].density)
    density = np.zeros(frames, np.float32)
    chosen = []
    for first, last, around in _blocks(frames, base_rate):
        values = choice_features(evidence, base_rate, around)
        best = int(np.argmax(values @ np.array(calibration.choice)))
        if calibration.repeats:
            row = _repeats_row(evidence, base_rate, values, best, around)
            holds = float(np.dot(calibration.repeats, row)) >= 0
        else:
            _, certainty, support, *_ = values[best]
            holds = certainty + 0.5 * support >= calibration.nothing_below
        if repeats or holds:
            density[first:last] = evidence[best].density[first:last]
        chosen.append(best)
    if not repeats and density.sum() < TWICE:
        density[:] = 0.0
    return density, chosen


def _blocks(frames: int, base_rate: float) -> list[tuple[int, int, slice]]:
    """First and last frame of every block of a video, and what is looked at for it: half a block more on each side,
    so that a choice does not hang on where blocks begin."""
    block = round(BLOCK_SECONDS * base_rate)
    borders = np.linspace(0, frames, max(1, round(frames / block)) + 1).round().astype(int)
    return [
        (first, last, slice(max(0, first - block // 2), last + block // 2))
        for first, last in pairwise(borders.tolist())
    ]


def repeats_features(
    evidence: Sequence[Evidence], base_rate: float, calibration: Calibration, part: slice = slice(None)
) -> Array:
    """The vector REPEATS of a stretch."""
    values = choice_features(evidence, base_rate, part)
    return _repeats_row(evidence, base_rate, values, int(np.argmax(values @ np.array(calibration.choice))), part)


def _repeats_row(evidence: Sequence[Evidence], base_rate: float, choices: Array, best: int, part: slice) -> Array:
    """choices: the views' CHOICE; best: the one that speaks."""
    _, certainty, support, *_ = choices[best]
    slow = [view for view in evidence if view.rate <= WHOLE_VIDEO] or evidence
    if not is_zero(evidence[best].density[part]):
        period = evidence[best].cells(base_rate, part) / evidence[best].rate
        slow = [view for view in slow if period * view.rate >= SEEN_CELLS] or slow[-1:]
    return np.array([1.0, certainty, support, np.mean([view.said(view.repeats, part) for view in slow])])


def alternates_features(evidence: Sequence[Evidence]) -> Array:
    """The vector ALTERNATES of a video."""
    return np.array([1.0, max(view.said(view.alternates) for view in evidence)])


def logistic(logit: float) -> float:
    """The probability of a logit, without overflow."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))


def features(
    evidence: Sequence[Evidence],
    density: Array32,
    chosen: Sequence[int],
    base_rate: float,
    *,
    zero_shot_count: float | None = None,
) -> Array:
    """The vector FEATURES of one estimate, whose density has base_rate frames a second.

    agreement, 0..1: share of the other views that count alike. unit, 0..1: with an exemplar, about which one view
    only is asked, how near the count is to half, once or twice the one without it.
    """
    main = evidence[max(set(chosen), key=list(chosen).count)]
    total = float(density.sum())
    decided = float(np.abs(2 * main.gate - 1).mean()) if len(main.gate) else 0.0
    near = [abs(view.count() - total) <= max(0.5, 0.1 * total) for view in evidence]
    agreement = max(0, sum(near) - 1) / max(1, len(near) - 1)
    cells = main.rate * len(density) / base_rate / max(total, 0.5)
    log_cells = min(math.log(max(cells, 1e-3)), 5.0)
    unit = 0.0
    if zero_shot_count is not None:
        apart = min(abs(math.log((total + 0.5) / (share * zero_shot_count + 0.5))) for share in UNITS)
        unit = math.exp(-apart / SAME_COUNT)
    guided = float(zero_shot_count is not None)
    certainty, log_count = main.certainty(), math.log1p(total)
    doubt = (1 - certainty) * log_count
    return np.array([1.0, certainty, decided, agreement, log_count, log_cells, guided, unit, doubt])


def is_zero(density: Array32) -> bool:
    """Whether a density answers that there are no repetitions."""
    return float(density.sum()) < 0.5
