"""How much speaks for each single repetition.

How like the others (or the exemplar) it looks, how clear its borders are, how open the gate was, how sharp the
period, how its length differs. A logistic regression makes a probability of it: that the span lies where the motion
repeats and lasts about as long as a repetition there. `benchmarks/repetition_scores.py` fits it on generated videos.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from escounts.decision.rules import RULES
from escounts.system.arrays import Array, Array32

Looks = Array32

SCORE_FEATURES = ("bias", "gate", "sharpness", "like", "borders", "length", "alone")
SCORE_WEIGHTS = (-8.309, 6.984, 6.628, 0.779, 0.273, -1.749, -0.489)


class SpanEvidence(NamedTuple):
    """What is known of N spans (start, end in seconds). gate, sharpness: (N,), their means over each span, 0..1.

    looks: (N, K, D), what is seen at K points spread evenly over each span. marked: (M, K, D), the same of exemplars
    of this video; None without.
    """

    spans: Sequence[tuple[float, float]]
    gate: Array
    sharpness: Array
    looks: Looks
    marked: Looks | None = None


def score(evidence: SpanEvidence) -> list[float]:
    """Of every span the probability, 0..1, that it is a repetition."""
    logits = features(evidence) @ np.array(SCORE_WEIGHTS)
    return [float(p) for p in 1 / (1 + np.exp(-np.clip(logits, -30, 30)))]


def features(evidence: SpanEvidence) -> Array:
    """(N, FEATURES) of N spans."""
    spans, gate, sharpness, looks, marked = evidence
    lengths = np.array([end - start for start, end in spans])
    typical = float(np.median(lengths))
    apart = [abs(math.log(max(length, 1e-3) / max(typical, 1e-3))) for length in lengths]
    every = looks if marked is None else np.concatenate([looks, marked])
    motion = looks - every.mean((0, 1))  # what stays the same is the scene
    known = None if marked is None else marked - every.mean((0, 1))
    pairs = list(zip(motion, _references(motion, known), strict=True))
    columns = (
        np.ones(len(spans)),
        gate,
        sharpness,
        np.array([0.0 if other is None else _alike(own, other) for own, other in pairs]),
        np.array([0.0 if other is None else _borders(own, other) for own, other in pairs]),
        np.minimum(apart, 1.5),
        np.full(len(spans), float(len(spans) == 1 and marked is None)),
    )
    return np.stack(columns, -1)


def _references(motion: Looks, marked: Looks | None) -> list[Looks | None]:
    """What each span should look like, (K, D): as the exemplars do, or as its neighbours where none is marked; None
    for the only one."""
    if marked is not None:
        return [marked.mean(0)] * len(motion)
    reach = RULES.neighbours
    around = [range(max(0, i - reach), min(len(motion), i + reach + 1)) for i in range(len(motion))]
    others = [[j for j in near if j != i] for i, near in enumerate(around)]
    return [motion[near].mean(0) if near else None for near in others]


def _alike(one: Looks, other: Looks) -> float:
    """Cosine of two looks, -1..1."""
    return float((one * other).sum() / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-6))


def _borders(own: Looks, reference: Looks) -> float:
    """How clear a span's borders are: its ends look as the others' ends do, and not as their middles."""
    middle = reference[len(reference) // 2 - 1 : len(reference) // 2 + 1].mean(0)
    return sum(_alike(own[end], reference[end]) - _alike(own[end], middle) for end in (0, -1)) / 2
