"""Tracks: what repeats at one place of the picture, counted by itself; and several of them as one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from escounts.results import CountResult, DensityMap, Repetition, Unit


@dataclass(frozen=True)
class Track:
    """One place and what was counted there. region: "x,y,width,height" in pixels of the upright picture."""

    region: str
    count: int
    unit: Unit | None
    confidence: float
    unsure: bool
    repetitions: tuple[Repetition, ...]


def track_of(result: CountResult, region: str) -> Track:
    """A result of one place as its track."""
    return Track(region, result.count, result.unit, result.confidence, result.unsure, result.repetitions)


def together(results: Sequence[CountResult], regions: Sequence[str]) -> CountResult:
    """Results of several places of one video as one: the sum, as sure as the least sure of them.

    The unit stays open where places have different ones, and no other count is offered: each track stands by itself.
    """
    first = results[0]
    found = sorted((one for result in results for one in result.repetitions), key=lambda one: one.end)
    units = {result.unit for result in results if result.count}
    reasons = (f"place {number}: {reason}" for number, one in enumerate(results, 1) for reason in one.reasons)
    return replace(
        first,
        count=len(found),
        raw_count=sum(result.raw_count for result in results),
        repetitions=tuple(found),
        density=_sum([result.density for result in results]),
        confidence=min(result.confidence for result in results),
        unsure=any(result.unsure for result in results),
        reasons=tuple(reasons),
        unit=units.pop() if len(units) == 1 else None,
        hypotheses=(),
        details={},
        sets=(),
        tracks=tuple(track_of(result, region) for result, region in zip(results, regions, strict=True)),
    )


def _sum(maps: Sequence[DensityMap]) -> DensityMap:
    """All places' repetitions per cell; a map that ends earlier has none there."""
    total = np.zeros(max(len(one.values) for one in maps), np.float32)
    for one in maps:
        total[: len(one.values)] += one.values
    return replace(maps[0], values=total)
