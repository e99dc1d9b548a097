"""How much speaks for a single repetition: how like the others it looks, whether the motion is back where it began,
how open the gate was, how sharp the period.

A logistic regression makes a probability of it: that the span lies where the motion repeats and lasts about as long
as a repetition there. `benchmarks/repetition_scores.py` fits it on generated videos.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Looks = npt.NDArray[np.float32]

FEATURES = ("bias", "gate", "sharpness", "like", "returns", "length", "alone")
WEIGHTS = (-2.0, 2.0, 1.0, 2.0, 1.0, -3.0, 0.0)
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
    logits = features(evidence) @ np.array(WEIGHTS)
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
    columns = (
        np.ones(len(spans)),
        gate,
        sharpness,
        _likeness(motion, known),
        _returns(motion),
        np.minimum(apart, 1.5),
        np.full(len(spans), float(len(spans) == 1 and marked is None)),
    )
    return np.stack(columns, -1)


def _likeness(motion: Looks, marked: Looks | None) -> Array:
    """Cosine between what each span shows and the mean of its neighbours and of the exemplars; 0 for the only one."""
    found = np.zeros(len(motion))
    for index, own in enumerate(motion):
        near = [j for j in range(max(0, index - NEIGHBOURS), min(len(motion), index + NEIGHBOURS + 1)) if j != index]
        others = [*motion[near], *([] if marked is None else marked)]
        if others:
            mean = np.mean(others, axis=0)
            found[index] = float((own * mean).sum() / max(np.linalg.norm(own) * np.linalg.norm(mean), 1e-6))
    return found


def _returns(motion: Looks) -> Array:
    """How near the end of a span is to its beginning, against what lies half a span apart: 1 the same, 0 as far."""
    half = motion.shape[1] // 2
    ends = np.linalg.norm(motion[:, -1] - motion[:, 0], axis=-1)
    across = np.linalg.norm(motion[:, half:] - motion[:, :half], axis=-1).mean(-1)
    return np.asarray(np.clip(1 - ends / np.maximum(across, 1e-6), -1.0, 1.0), dtype=np.float64)
