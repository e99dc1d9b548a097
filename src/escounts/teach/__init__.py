"""Your own action: labels to a model that counts it. Here is what a service says of it; it loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FEWEST = 3
"""Labelled videos: with fewer, one cannot be left out and an action still be seen twice."""
Stage = Literal["encoding", "checking", "training"]


@dataclass(frozen=True)
class Score:
    """Videos counted right, videos within one, and the mean of |count − label| / max(label, 1)."""

    right: int
    within_one: int
    error: float

    @classmethod
    def of(cls, counted: Sequence[int], labelled: Sequence[int]) -> Score:
        """The score of counts against labels."""
        off = [abs(count - label) for count, label in zip(counted, labelled, strict=True)]
        relative = [miss / max(label, 1) for miss, label in zip(off, labelled, strict=True)]
        return cls(sum(miss == 0 for miss in off), sum(miss <= 1 for miss in off), sum(relative) / len(relative))
