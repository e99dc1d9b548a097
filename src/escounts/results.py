"""What counting returns. Frozen dataclasses; all times in seconds from the start of the video."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
DensityKind = Literal["peaks", "rate"]


@dataclass(frozen=True)
class Repetition:
    """One repetition: start and end in seconds, score in 0..1 (how sure its span is)."""

    start: float
    end: float
    score: float


@dataclass(frozen=True)
class DensityMap:
    """Repetitions per cell over time; the sum is the count.

    values: one float per cell. start: time of the left edge of cell 0. step: seconds a cell lasts.
    kind: "peaks" has one bump a repetition (the paper's map), "rate" is 1/period inside repetitions.
    """

    values: FloatArray
    start: float
    step: float
    kind: DensityKind = "peaks"

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """Centre of every cell, in seconds."""
        centres = np.arange(len(self.values), dtype=np.float64) + 0.5
        return np.asarray(self.start + centres * self.step, dtype=np.float64)

    @property
    def count(self) -> float:
        """The real-valued count: the sum of the map."""
        return float(self.values.sum(dtype=np.float64))


@dataclass(frozen=True)
class Estimate:
    """What a model says of one stretch of video, before it is turned into a CountResult."""

    density: DensityMap
    confidence: float
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ExemplarSpan:
    """Where an exemplar came from: video is None for the counted video itself."""

    start: float
    end: float
    video: str | None = None


@dataclass(frozen=True)
class CountResult:
    """A counted video.

    count: whole repetitions, raw_count rounded half to even; len(repetitions) == count.
    raw_count: the sum of the density map. confidence: 0..1, calibrated: the probability that count is
    within one of the truth. unsure: confidence below the model's threshold. range: the seconds counted.
    """

    video: str
    model: str
    count: int
    raw_count: float
    repetitions: tuple[Repetition, ...]
    density: DensityMap
    confidence: float
    unsure: bool
    duration: float
    range: tuple[float, float]
    exemplars: tuple[ExemplarSpan, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, float] = field(default_factory=dict)
