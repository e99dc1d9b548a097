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

from escounts.counting.confidence import Evidence
from escounts.counting.spans import rest_factor
from escounts.results import LIVE, Hypothesis, Unit
from escounts.system.arrays import Array, Array32

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
MARK_FRAMES, MARK_TEMPO = 1.1, 0.12
"""Typical error of a mark's length in frames of 1/30 s, both borders together; and how far a repetition's own length,
in log, is from the others'."""
MARK_VOTE = 1.0
"""What the network's word for a unit, given the mark, weighs beside the mark's length: odds of e to 1."""

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


def known_unit(
    counted: float, without: float, *, lengths: float, frames: float, certainty: float
) -> list[tuple[float, float]]:
    """Counts with a SHORT_EXEMPLAR in the units that may be meant, each with its probability, the likeliest first.

    counted: the count with the exemplar, without: the one without it, which says how often the motion comes, in
    cycles or sides; certainty: of that. lengths: how often the exemplar's length fits into what repeats; frames: that
    length at 30 a second. The unit is half, once or twice the count without the exemplar: a mark that is a frame off
    makes a repetition of six frames a sixth longer, and may make the network count cycles where a side was marked.
    Neither decides alone. A count that lies between units is put to the one that is meant.
    """
    if certainty < SEEN_WITHOUT or without < FEW or counted <= 0 or lengths <= 0:
        return [(counted, 1.0)]
    units = [0.5 * without, without, 2 * without]
    said = min(units, key=lambda unit: abs(math.log(counted / unit)))
    away = [math.log(lengths / unit) / math.hypot(MARK_FRAMES / frames, MARK_TEMPO) for unit in units]
    if min(abs(math.log(lengths / unit)) for unit in units) > math.log(2) / 2:  # a mark of none of them says nothing
        away = [0.0] * len(units)
    odds = [math.exp(MARK_VOTE * (unit == said) - far**2 / 2) for unit, far in zip(units, away, strict=True)]
    first, *others = sorted(zip(units, odds, strict=True), key=lambda pair: -pair[1])
    meant = counted if abs(math.log(counted / first[0])) <= BETWEEN_UNITS else first[0]
    whole = max(sum(odds), 1e-300)
    return [(meant, first[1] / whole), *((unit, odd / whole) for unit, odd in others)]


def in_known_unit(
    density: Array32, without: Sequence[Evidence], zero_shot_count: float, marked: Sequence[float]
) -> tuple[Array32, float, tuple[Hypothesis, ...]]:
    """A density that short exemplars asked for in the unit that is meant, how probable that is, and both units where
    a second one is live: the larger count is then of sides.

    without: what the views say without them, and zero_shot_count: their count. marked: frames that each mark lasts.
    """
    best = max(without, key=lambda view: view.certainty())
    frames, counted = float(np.exp(np.mean(np.log(marked)))), max(float(density.sum()), 1e-6)
    lengths = float(best.gate.sum()) / frames
    possible = known_unit(counted, zero_shot_count, lengths=lengths, frames=frames, certainty=best.certainty())
    (meant, p), (other, also) = [*possible, (counted, 0.0)][:2]
    density = density * np.float32(meant / counted)
    if also < LIVE:
        return density, p, ()
    rest = rest_factor(density)
    names: tuple[Unit, Unit] = ("side", "cycle") if meant > other else ("cycle", "side")
    counts = (max(1, round(rest * float(density.sum()))), max(1, round(other)))
    return (
        density,
        p,
        tuple(Hypothesis(*one) for one in zip(counts, names, (round(p, 4), round(also, 4)), strict=True)),
    )


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
