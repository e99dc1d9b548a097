"""What counting returns. Frozen dataclasses; all times in seconds from the start of the video."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from escounts.decision.decide import ConfidenceKind as ConfidenceKind
from escounts.decision.decide import Decision, is_unsure
from escounts.decision.decide import DensityKind as DensityKind
from escounts.decision.sets import RepetitionSet, Stretch, regrouped
from escounts.decision.spans import align, spans_from_peaks, spans_from_rate
from escounts.decision.tracks import Track
from escounts.decision.units import Hypothesis as Hypothesis
from escounts.decision.units import Unit as Unit
from escounts.decision.units import factor, in_other_unit, whole, without_unit_doubt
from escounts.errors import EscountsError, OutputError
from escounts.system.arguments import checked, one_of, refused, text
from escounts.system.arguments import spans as span_list
from escounts.system.arrays import Array, Array32

Phase = Literal["arbitrary", "exemplar", "corrected"]
"""Where repetitions begin: somewhere, the same point of the motion in each; where a marked exemplar does; where a
person put a border."""

PAST_THE_END = 1.0
"""Seconds that a person's repetition may end after the video does: players disagree about where that is."""
READABLE = 0.5
"""Seconds for which the final number of a running count stays on screen."""


@dataclass(frozen=True)
class Repetition:
    """One repetition: start and end in seconds; score in 0..1: how much speaks for it, None where a model says
    nothing of single repetitions."""

    start: float
    end: float
    score: float | None = None


@dataclass(frozen=True, repr=False)
class DensityMap:
    """Repetitions per cell over time; the sum is the count.

    values: one float per cell. start: time of the left edge of cell 0. step: seconds a cell lasts.
    kind: "peaks" has one bump per repetition (the paper's map), "rate" is 1/period inside repetitions.
    """

    values: Array32
    start: float
    step: float
    kind: DensityKind = "peaks"

    @property
    def times(self) -> Array:
        """Centre of every cell, in seconds."""
        centres = np.arange(len(self.values), dtype=np.float64) + 0.5
        return np.asarray(self.start + centres * self.step, dtype=np.float64)

    @property
    def end(self) -> float:
        """Time of the right edge of the last cell."""
        return self.start + len(self.values) * self.step

    @property
    def count(self) -> float:
        """The real-valued count: the sum of the map."""
        return float(self.values.sum(dtype=np.float64))

    @property
    def period(self) -> float:
        """Mean seconds of a repetition where there are any; 0 where there is none."""
        return self.step * float((self.values > 0).sum()) / self.count if self.count > 0 else 0.0

    def __repr__(self) -> str:
        return f"<DensityMap {self.kind}, {len(self.values)} cells of {self.step:.3g} s, sum {self.count:.2f}>"

    def repetitions(self, count: int | None = None, *, anchors: Sequence[float] = ()) -> tuple[Repetition, ...]:
        """Where `count` repetitions lie (None: the map's own count, rounded half to even), in order.

        anchors: seconds at which a repetition is known to begin or end (an exemplar's); they set the phase. A map
        alone says nothing of single repetitions: they have no score. `spans` explains the two kinds.
        """
        values = np.asarray(self.values, dtype=np.float64)
        wanted = whole(self.count) if count is None else count
        cells = [(time - self.start) / self.step for time in anchors]
        if self.kind == "rate":
            spans = spans_from_rate(values, wanted, cells)
        else:
            spans = spans_from_peaks(values, wanted)
            if spans and cells:
                spans = align(spans, cells[0])
        return tuple(Repetition(self.start + low * self.step, self.start + high * self.step) for low, high in spans)

    def scaled(self, factor: float) -> DensityMap:
        """The same map in another unit: `factor` repetitions for one."""
        return replace(self, values=self.values * np.float32(factor))


EXEMPLAR_CUT = "exemplar_cut"
"""In the details of an estimate: seconds at which the film is cut inside an exemplar, of which one side was taken."""


@dataclass(frozen=True)
class Estimate:
    """What a model says of one stretch of video, before it is turned into a CountResult.

    density: in the unit that the decision names as density_unit. score_spans: how much speaks for each of some spans
    (start, end in seconds) being a repetition, 0..1; None where the model has no evidence of single repetitions.
    stretches: where the video shows which motion; empty where the model does not tell motions apart. left_out:
    repetitions of other motions than the exemplar's.
    """

    density: DensityMap
    decision: Decision
    score_spans: Callable[[Sequence[tuple[float, float]]], list[float]] | None = None
    stretches: tuple[Stretch, ...] = ()
    left_out: tuple[Repetition, ...] = ()


@dataclass(frozen=True)
class ExemplarSpan:
    """Where an exemplar came from: video is None for the counted video itself."""

    start: float
    end: float
    video: str | None = None


@dataclass(frozen=True)
class MachineCount:
    """What the model had said of a video whose repetitions a person corrected."""

    count: int
    confidence: float
    unsure: bool


@dataclass(frozen=True, repr=False)
class CountResult:
    """A counted video.

    count: whole repetitions; len(repetitions) == count. unit: what it counts, None where the model does not say.
    raw_count: the sum of the density map. confidence: 0..1, see confidence_kind. unsure: confidence is below
    unsure_below, or is not a probability. reasons: why it is unsure. range: the seconds counted. region: the box of
    the picture that alone was looked at, "x,y,width,height" in pixels; None for all of it. phase: what the borders of
    the repetitions stand on. hypotheses: what else may be true, the most useful (this count) first; empty where a
    model gives none. without_unit: the model's number, where it gave no unit, a person did, and it was therefore
    doubled or halved.
    machine: where a person corrected the repetitions, what the model had said; density, raw_count and confidence are
    still the model's. sets: the repetitions by motion and pause. left_out: repetitions of other motions than the
    exemplar's, which are not counted. tracks: where every place of the picture was asked for (`each`), what repeats
    at each; the count is then all of theirs.
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
    confidence_kind: ConfidenceKind = "probability"
    unsure_below: float | None = None
    unit: Unit | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    phase: Phase = "arbitrary"
    machine: MachineCount | None = None
    without_unit: int | None = None
    reasons: tuple[str, ...] = ()
    region: str | None = None
    sets: tuple[RepetitionSet, ...] = ()
    left_out: tuple[Repetition, ...] = ()
    tracks: tuple[Track, ...] = ()

    def __str__(self) -> str:
        """`squats.mp4: 8 repetitions, confidence 0.93`."""
        noun = "repetition" if self.count == 1 else "repetitions"
        sure = "confidence" if self.confidence_kind == "probability" else "agreement"
        unsure = ", unsure" if self.unsure else ""
        number = two_digits(self.confidence, unsure=self.unsure)
        return f"{Path(self.video).name}: {self.count} {noun}, {sure} {number}{unsure}"

    def __repr__(self) -> str:
        return f"<CountResult {self}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as docs/json-schema.md describes them."""
        document: dict[str, Any] = _output(".json").to_dict(self)
        return document

    @checked(path=text)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file in the format that its ending names: .json, .csv, .srt, .txt, .html, .png or .mp4.

        Pictures of the video are taken from `video`; where it is not at hand, .png and .html do without them. The
        folder must exist.
        """
        folder = Path(path).parent
        if not folder.is_dir():
            raise OutputError(f"{path}: there is no folder {str(folder)!r}; make it first, or give another path")
        _output().save(self, Path(path))

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per repetition: start_s, end_s, seconds, score and region. Needs pandas."""
        return _output(".notebook").dataframe(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the headline, the places, and the picture where matplotlib is installed."""
        return str(_output(".notebook").html(self))

    def plot(self) -> Any:
        """A matplotlib figure: density, running count, frames of the repetitions. Needs the [plot] extra."""
        return _output(".png").figure(self)

    @checked(spans=span_list)
    def corrected(self, spans: Sequence[tuple[float, float]]) -> CountResult:
        """What a person said instead: (start, end) of every repetition in seconds, of the whole video."""
        repetitions = tuple(Repetition(start, end) for start, end in spans)
        first = min([self.range[0], *(one.start for one in repetitions)])
        last = max([self.range[1], *(one.end for one in repetitions)])
        if last > self.duration + PAST_THE_END:
            raise refused("spans", spans[-1], f"times inside the video, which lasts {self.duration:.2f} s")
        return replace(
            self,
            count=len(repetitions),
            repetitions=repetitions,
            sets=regrouped(self.sets, repetitions),
            left_out=(),
            tracks=(),
            unsure=False,
            reasons=(),
            duration=max(self.duration, last),
            range=(first, last),
            unit=None,
            without_unit=None,
            hypotheses=(),
            phase="corrected",
            machine=self.machine or MachineCount(self.count, self.confidence, self.unsure),
        )

    @property
    def counting_times(self) -> list[float]:
        """Seconds at which a running count goes up, one for every repetition: where it ends.

        The last one is counted READABLE seconds before the end of the range at the latest (but not in its first
        half): many videos end with a repetition, and what comes after their last frame is never seen.
        """
        first, last = self.range
        times = [min(max(repetition.end, first), last) for repetition in self.repetitions]
        if times:
            final = self.repetitions[-1]
            times[-1] = min(times[-1], max(last - READABLE, (final.start + final.end) / 2))
        return times

    @checked()
    def aligned(self, *, at: float) -> CountResult:
        """The same repetitions with all borders moved by one phase, so that a border lies at `at` (seconds).

        Where a repetition begins is arbitrary until somebody says it; said of one, it is known of all. The count
        stays; what is cut off at an end of the counted range is shorter. Raises EscountsError without repetitions, or
        for a time outside the range.
        """
        first, last = self.range
        if not self.repetitions or not first <= at <= last:
            counted = "there are no repetitions" if not self.repetitions else f"counted are {first:g} to {last:g} s"
            raise EscountsError(f"{self.video}: no border can lie at {at:g} s: {counted}")
        before = [(one.start, one.end) for one in self.repetitions]
        low, high = min(before, key=lambda span: max(span[0] - at, at - span[1]))
        # A border that was dragged out of a stretch has the same phase as one a whole repetition further inside.
        length = max(high - low, 1e-6)
        missing = max(low - at, 0.0) - max(at - high, 0.0)
        inside = at + math.copysign(math.ceil(abs(missing) / length) * length, missing)
        found = [(one.start, one.end) for one in self.density.repetitions(self.count, anchors=[inside])]
        near = min((border for span in found for border in span), key=lambda border: abs(border - at))
        if abs(near - at) < 0.25 * length:
            found = [(at if start == near else start, at if end == near else end) for start, end in found]
        else:  # the density holds too few repetitions at that phase
            found = align(before, at)
        clipped = [(min(max(start, first), last), min(max(end, first), last)) for start, end in found]
        moved = _scored(clipped, self.repetitions)
        return replace(self, repetitions=moved, sets=regrouped(self.sets, moved), phase="corrected")

    @checked(unit=one_of("cycle", "side"))
    def in_unit(self, unit: Unit, *, assume: bool = False) -> CountResult:
        """The same video counted by cycles or by sides, as a person chose it: one cycle is two sides.

        The doubt about the unit is gone: confidence is what it is for a unit that is given (`details`), where the
        model says. Where the model did not say in which unit it counted, raises EscountsError; or, with assume, takes
        its number for that of the other unit, so that it is doubled or halved, and says so (`without_unit`).
        """
        if len(self.tracks) > 1:
            raise EscountsError(f"{self.video}: several places, each with its own motion; count again by {unit}s")
        if self.unit is None and assume:
            return self._assumed(unit)
        if self.unit is None:
            raise EscountsError(
                f"{self.video}: counted without a unit, so that it cannot be turned into {unit}s; units are told by "
                "the default model, without an exemplar, where there are repetitions"
            )
        confidence, reasons = without_unit_doubt(self.confidence, self.details, self.reasons, self.hypotheses)
        unsure = is_unsure(confidence, self.confidence_kind, self.unsure_below or 0.0)
        return replace(self.converted(unit), confidence=confidence, unsure=unsure, reasons=reasons if unsure else ())

    def _assumed(self, unit: Unit) -> CountResult:
        """Each repetition as two sides, or two that follow one another as one cycle; an odd last one stays alone."""
        if unit == "side":
            found = tuple(half for repetition in self.repetitions for half in _halves(repetition))
        else:
            pairs = zip_longest(self.repetitions[::2], self.repetitions[1::2])
            found = tuple(replace(first, end=(second or first).end) for first, second in pairs)
        density = self.density.scaled(factor(None, unit))
        return replace(
            self,
            count=len(found),
            raw_count=density.count,
            repetitions=found,
            sets=regrouped(self.sets, found),
            density=density,
            unit=unit if found else None,
            without_unit=self.count if found else None,
            hypotheses=(),
        )

    def converted(self, unit: Unit) -> CountResult:
        """Density, repetitions and count in another unit; the rest, confidence too, stays as it is."""
        if self.unit is None or unit == self.unit:
            return self
        density = self.density.scaled(factor(self.unit, unit))
        count, hypotheses = in_other_unit(density.count, self.hypotheses, unit)
        if count == 2 * self.count:
            found = tuple(half for repetition in self.repetitions for half in _halves(repetition))
        else:
            known = () if self.phase == "arbitrary" else tuple(one.start for one in self.repetitions)
            again = density.repetitions(count, anchors=known)
            found = _scored([(one.start, one.end) for one in again], self.repetitions)
        return replace(
            self,
            count=count,
            raw_count=density.count,
            repetitions=found,
            sets=regrouped(self.sets, found),
            density=density,
            unit=unit,
            hypotheses=hypotheses,
        )


def _output(module: str = "") -> Any:
    """escounts.output, or a module of it: it stands on this one and is loaded when a result is first written."""
    return importlib.import_module(f"escounts.output{module}")


def two_digits(confidence: float, *, unsure: bool) -> str:
    """`0.93`. Never so much that it would not be unsure: 0.8964 is 0.89 where less than 0.9 is."""
    return f"{math.floor(100 * confidence) / 100 if unsure else confidence:.2f}"


def _scored(spans: Sequence[tuple[float, float]], before: Sequence[Repetition]) -> tuple[Repetition, ...]:
    """Spans as repetitions; each takes the score of the one before that it shares most time with."""
    found = []
    for start, end in spans:
        most = max(before, key=lambda one: min(one.end, end) - max(one.start, start))
        found.append(Repetition(start, end, most.score))
    return tuple(found)


def _halves(cycle: Repetition) -> tuple[Repetition, Repetition]:
    """A cycle's two sides."""
    middle = (cycle.start + cycle.end) / 2
    return Repetition(cycle.start, middle, cycle.score), Repetition(middle, cycle.end, cycle.score)
