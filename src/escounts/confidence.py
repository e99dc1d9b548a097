"""How sure a count is: what the views of a video agree on, how sharp their periods are, and calibration.

Calibration is fitted on generated validation videos (training/calibration.py), never on real test clips.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

BLOCK_SECONDS = 30.0
"""Long videos choose their view anew for every block of this length."""

SURE_ENOUGH = 0.5
"""Surety above which slow views need no help from a faster one …"""
SHORT_PERIOD = 0.8
"""… unless a repetition takes fewer seconds than this."""

FEATURES = ("bias", "surety", "decided", "agreement", "log_count", "cells", "shots")


@dataclass(frozen=True)
class Evidence:
    """One view's opinion on the base grid: density a frame, gate and sharpness of the period, both 0..1."""

    rate: float
    density: Array
    gate: Array
    sharpness: Array

    def surety(self, part: slice = slice(None)) -> float:
        """Mean of gate × sharpness where the repetitions are; little where the view sees none."""
        density = self.density[part]
        weighted = float((self.gate[part] * self.sharpness[part] * density).sum())
        return weighted / max(float(density.sum()), 0.5)

    def part(self, first: int, last: int) -> Evidence:
        """The opinion on base frames first..last."""
        cut = slice(first, last)
        return Evidence(self.rate, self.density[cut], self.gate[cut], self.sharpness[cut])


@dataclass(frozen=True)
class Calibration:
    """Logistic regression from FEATURES to the probability that the count is within one of the truth.

    view_weights: what a view's surety is multiplied by before views are compared, by rate.
    gate_bias: added to the gate's logit. Half of what a model sees in training does not repeat; what people bring
    to be counted mostly does, and more so when they mark an exemplar.
    nothing_below: surety under which, without an exemplar, nothing repeats.
    """

    weights: tuple[float, ...] = (-3.0, 6.0, 1.0, 1.0, 0.0, 0.0, 0.5)
    view_weights: Mapping[str, float] | None = None
    unsure_below: float = 0.6
    gate_bias: float = 0.0
    nothing_below: float = 0.0

    def confidence(
        self, evidence: Sequence[Evidence], density: Array, chosen: Sequence[int], base_rate: float, *, shots: int
    ) -> tuple[float, dict[str, float]]:
        """Probability 0..1 and the features it came from."""
        values = features(evidence, density, chosen, base_rate, shots=shots)
        logit = float(np.dot(self.weights, values))
        details = dict(zip(FEATURES[1:], (round(float(v), 4) for v in values[1:]), strict=True))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit)))), details

    def view_weight(self, rate: float) -> float:
        """How much a view's surety counts against the others'."""
        return (self.view_weights or {}).get(f"{rate:g}", 1.0)

    def to_json(self) -> str:
        """For a checkpoint's metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The inverse of to_json."""
        values = json.loads(text)
        return cls(**(values | {"weights": tuple(values["weights"])}))


def wants_faster(evidence: Sequence[Evidence], base_rate: float) -> bool:
    """Whether a faster view may say more: the best of these is unsure, or its periods are short."""
    best = max(evidence, key=lambda view: view.surety())
    seconds = float(best.gate.sum()) / base_rate / max(float(best.density.sum()), 0.3)
    return best.surety() < SURE_ENOUGH or seconds < SHORT_PERIOD


def choose_views(
    evidence: Sequence[Evidence], base_rate: float, calibration: Calibration, *, shots: int = 0
) -> tuple[Array, list[int]]:
    """The density of the surest view, chosen per block of a long video, and which view that was.

    Where no view is sure enough, nothing repeats; an exemplar says that something does.
    """
    frames = len(evidence[0].density)
    block = round(BLOCK_SECONDS * base_rate)
    count = max(1, round(frames / block))
    borders = np.linspace(0, frames, count + 1).round().astype(int)
    density = np.zeros(frames, np.float32)
    chosen = []
    for first, last in pairwise(borders.tolist()):
        # Half a block of context on each side, so that the choice does not hang on where blocks begin.
        around = slice(max(0, first - block // 2), last + block // 2)
        scores = [calibration.view_weight(e.rate) * e.surety(around) for e in evidence]
        best = int(np.argmax(scores))
        if shots or scores[best] >= calibration.nothing_below:
            density[first:last] = evidence[best].density[first:last]
        chosen.append(best)
    return density, chosen


def features(
    evidence: Sequence[Evidence], density: Array, chosen: Sequence[int], base_rate: float, *, shots: int
) -> npt.NDArray[np.float64]:
    """The vector FEATURES of one estimate, whose density has base_rate frames a second."""
    main = evidence[max(set(chosen), key=list(chosen).count)]
    total = float(density.sum())
    decided = float(np.abs(2 * main.gate - 1).mean()) if len(main.gate) else 0.0
    counts = [float(e.density.sum()) for e in evidence]
    near = [abs(c - total) <= max(0.5, 0.1 * total) for c in counts]
    agreement = (sum(near) - 1) / max(1, len(near) - 1)
    cells = main.rate * len(density) / base_rate / max(total, 0.5)
    log_cells = min(math.log(max(cells, 1e-3)), 5.0)
    return np.array([1.0, main.surety(), decided, agreement, math.log1p(total), log_cells, float(shots > 0)])
