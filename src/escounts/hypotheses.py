"""What may be true of a video, and how probable it is: which counts are possible, and how much speaks for each
repetition.

A motion of two opposite sides (battle ropes, running on the spot) can be counted by full cycles or by sides; both are
right, and people do both; or there is no repetition at all. What is known is said with its probability instead of one
bare number.

Of a single repetition: how like the others (or the exemplar) it looks, how clear its borders are, how open the gate
was, how sharp the period, how its length differs. A logistic regression makes a probability of it: that the span lies
where the motion repeats and lasts about as long as a repetition there. `benchmarks/repetition_scores.py` fits it on
generated videos.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from escounts.arrays import Array, Array32
from escounts.results import Hypothesis

SIDES = 0.5
"""Of the people who count a motion that alternates, the share who count sides: public labels do about as often."""
LEAST = 0.01
"""Less probable answers are not listed."""

SHORT_EXEMPLAR = 0.45
"""Seconds below which a mark that is a frame off changes an exemplar's length by much …"""
BETWEEN_UNITS = 0.15
"""… and a count this far, in log, from half, once and twice the one without it follows the mark, not the motion …"""
SEEN_WITHOUT, FEW = 0.4, 3.0
"""… if that count is at least this certain, and this large."""

LONG_EXEMPLAR = 0.5
"""Share of what is counted above which a mark leaves no room for another like it, …"""
UNCHECKED = 0.5
"""… so that a count unlike the one without it is the mark's word alone: as likely right as wrong."""


def possible_counts(cycles: float, *, repeats: float, alternates: float, rest: float = 1.0) -> tuple[Hypothesis, ...]:
    """What a video may hold, the most useful first.

    cycles: the density's sum. repeats: probability that there is a repetition at all; alternates: that the motion has
    two sides, if there is one; rest: what the sum is multiplied by for a cycle that both ends of the video cut off,
    of which a side may be whole. "No repetitions" comes first only where it is the likelier; otherwise the count
    with the least expected relative error does.
    """
    side = SIDES * alternates * repeats
    found = [
        Hypothesis(max(1, round(rest * cycles)), "cycle", round(repeats - side, 4)),
        Hypothesis(max(1, round(2 * cycles)), "side", round(side, 4)),
        Hypothesis(0, None, round(1 - repeats, 4)),
    ]

    def expected_error(answer: Hypothesis) -> float:
        return sum(other.p * abs(answer.count - other.count) / max(1, other.count) for other in found)

    best = found[2] if repeats < 0.5 else min(found[:2], key=expected_error)
    others = sorted((one for one in found if one is not best and one.p >= LEAST), key=lambda one: -one.p)
    return (best, *others)


def unit_certainty(hypotheses: tuple[Hypothesis, ...]) -> float:
    """The most a confidence can be: 1 where one unit is live, else the share of the first among the live ones."""
    live = [one.p for one in hypotheses if one.unit is not None and one.live]
    return live[0] / sum(live) if len(live) > 1 else 1.0


def mark_certainty(counted: float, without: float, *, share: float) -> float:
    """The most a confidence can be beside an exemplar that lasts this share of what is counted.

    Somebody who marks nearly the whole video gets one repetition, and nothing in the video speaks for or against it;
    only where the count without the mark is within one of it do two ways of looking agree.
    """
    return UNCHECKED if share > LONG_EXEMPLAR and abs(counted - without) > 1 else 1.0


def known_unit(counted: float, without: float, *, certainty: float) -> float:
    """The count with a SHORT_EXEMPLAR, put to half, once or twice the count without it where it lies between them.

    certainty: of the count without. A mark that is a frame off makes a repetition of seven frames a seventh longer:
    its length alone must not decide.
    """
    if certainty < SEEN_WITHOUT or without < FEW or counted <= 0:
        return counted
    nearest = min((0.5 * without, without, 2 * without), key=lambda unit: abs(math.log(counted / unit)))
    return nearest if abs(math.log(counted / nearest)) > BETWEEN_UNITS else counted


Looks = Array32

SCORE_FEATURES = ("bias", "gate", "sharpness", "like", "borders", "length", "alone")
SCORE_WEIGHTS = (-8.309, 6.984, 6.628, 0.779, 0.273, -1.749, -0.489)
NEIGHBOURS = 4
"""Repetitions before and after one that it is compared with: in a long video the camera and the light change."""


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
    around = [range(max(0, i - NEIGHBOURS), min(len(motion), i + NEIGHBOURS + 1)) for i in range(len(motion))]
    others = [[j for j in near if j != i] for i, near in enumerate(around)]
    return [motion[near].mean(0) if near else None for near in others]


def _alike(one: Looks, other: Looks) -> float:
    """Cosine of two looks, -1..1."""
    return float((one * other).sum() / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-6))


def _borders(own: Looks, reference: Looks) -> float:
    """How clear a span's borders are: its ends look as the others' ends do, and not as their middles."""
    middle = reference[len(reference) // 2 - 1 : len(reference) // 2 + 1].mean(0)
    return sum(_alike(own[end], reference[end]) - _alike(own[end], middle) for end in (0, -1)) / 2
