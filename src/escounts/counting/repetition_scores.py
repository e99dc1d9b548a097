"""How much speaks for each single repetition.

How like the others (or the exemplar) it looks, how clear its borders are, how open the gate was, how sharp the
period, how its length differs. A logistic regression makes a probability of it: that the span lies where the motion
repeats and lasts about as long as a repetition there. `benchmarks/repetition_scores.py`
(commit 3f4f2c8) fitted it on generated videos.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from escounts.counting.look import Motions
from escounts.counting.views import MultiRateExemplar, View, appearance, best_window
from escounts.decision.evidence import Evidence
from escounts.decision.repetitions import Repetition
from escounts.decision.rules import BASE_RATE, RULES
from escounts.system.arrays import Array, Array32

if TYPE_CHECKING:
    from escounts.counting.multi_rate_encoding import MultiRateEncoding

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


def scored(
    encoding: MultiRateEncoding,
    view: View,
    evidence: Evidence,
    first: int,
    exemplars: Sequence[MultiRateExemplar],
    motions: Motions | None,
    found: Sequence[Repetition],
) -> tuple[Repetition, ...]:
    """Repetitions with what speaks for each, by one view's evidence from base frame `first` on; no more than how
    alike it is to what is marked."""
    if not found:
        return ()
    spans = [(one.start, one.end) for one in found]
    scores = score(span_evidence(encoding, view, evidence, first, exemplars, spans))
    if motions is not None:
        alike = motions.likeness(np.mean(spans, 1))
        scores = [min(own, float(like)) for own, like in zip(scores, alike, strict=True)]
    return tuple(replace(one, score=number) for one, number in zip(found, scores, strict=True))


@torch.inference_mode()
def span_evidence(
    encoding: MultiRateEncoding,
    view: View,
    evidence: Evidence,
    first: int,
    exemplars: Sequence[MultiRateExemplar],
    spans: Sequence[tuple[float, float]],
) -> SpanEvidence:
    """What is known of each span: its gate and sharpness, and what it shows beside what the exemplars show."""
    frames = [
        (round((a - encoding.start) * BASE_RATE) - first, (b - encoding.start) * BASE_RATE - first) for a, b in spans
    ]
    parts = [slice(max(0, low), max(low + 1, math.ceil(high))) for low, high in frames]
    gate = np.array([evidence.gate[part].mean() for part in parts], dtype=np.float64)
    sharpness = np.array([evidence.sharpness[part].mean() for part in parts], dtype=np.float64)
    moving = [window for window in encoding.windows[view] if window.offset is not None]
    window, tokens, looks = None, torch.empty(0), []
    for start, end in spans:
        held = best_window(moving, encoding.cell(view, start), encoding.cell(view, end))
        if held != window:  # neighbours share theirs, and hours of them lie in a file
            window, tokens = held, encoding.store.read([held], encoding.model.device).tokens_BTHWC[0]
        looks.append(appearance(tokens[torch.from_numpy(encoding.cells_of(view, held, start, end))]))
    own = [appearance(exemplar.tokens[view]) for exemplar in exemplars if encoding.same_video(exemplar)]
    return SpanEvidence(spans, gate, sharpness, np.stack(looks), np.stack(own) if own else None)


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
