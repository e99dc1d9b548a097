"""What counting returns. Frozen dataclasses; all times in seconds from the start of the video."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from escounts.decision.decide import ConfidenceKind as ConfidenceKind
from escounts.decision.decide import is_unsure
from escounts.decision.repetitions import DensityKind as DensityKind
from escounts.decision.repetitions import DensityMap as DensityMap
from escounts.decision.repetitions import Repetition as Repetition
from escounts.decision.repetitions import RepetitionSet, halves, pairs, regrouped, scored_as, with_border_at
from escounts.decision.rules import RULES
from escounts.decision.units import Hypothesis as Hypothesis
from escounts.decision.units import Unit as Unit
from escounts.decision.units import factor, in_other_unit, without_unit_doubt
from escounts.errors import EscountsError, OutputError
from escounts.system.arguments import checked, one_of, refused, text
from escounts.system.arguments import spans as span_list

Phase = Literal["arbitrary", "exemplar", "corrected"]
"""Where repetitions begin: somewhere, the same point of the motion in each; where a marked exemplar does; where a
person put a border."""

EXEMPLAR_CUT = "exemplar_cut"
"""In the details of a decision: seconds at which the film is cut inside an exemplar, of which one side was taken."""


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


@dataclass(frozen=True)
class Track:
    """One place and what was counted there. region: "x,y,width,height" in pixels of the upright picture."""

    region: str
    count: int
    unit: Unit | None
    confidence: float
    unsure: bool
    repetitions: tuple[Repetition, ...]


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
        return _output(".text").dataframe(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the headline, the places, and the picture where matplotlib is installed."""
        return str(_output(".png").notebook_html(self))

    def plot(self) -> Any:
        """A matplotlib figure: density, running count, frames of the repetitions. Needs the [plot] extra."""
        return _output(".png").figure(self)

    @checked(spans=span_list)
    def corrected(self, spans: Sequence[tuple[float, float]]) -> CountResult:
        """What a person said instead: (start, end) of every repetition in seconds, of the whole video."""
        repetitions = tuple(Repetition(start, end) for start, end in spans)
        first = min([self.range[0], *(one.start for one in repetitions)])
        last = max([self.range[1], *(one.end for one in repetitions)])
        if last > self.duration + RULES.past_the_end:
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

        The last one is counted RULES.readable seconds before the end of the range at the latest (but not in its first
        half): many videos end with a repetition, and what comes after their last frame is never seen.
        """
        first, last = self.range
        times = [min(max(repetition.end, first), last) for repetition in self.repetitions]
        if times:
            final = self.repetitions[-1]
            times[-1] = min(times[-1], max(last - RULES.readable, (final.start + final.end) / 2))
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
        moved = with_border_at(at, self.density, self.repetitions, self.range)
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
        if self.unit is None and not assume:
            raise EscountsError(
                f"{self.video}: counted without a unit, so that it cannot be turned into {unit}s; units are told by "
                "the default model, without an exemplar, where there are repetitions"
            )
        density = self.density.scaled(factor(self.unit, unit))
        if self.unit is None:
            found = halves(self.repetitions) if unit == "side" else pairs(self.repetitions)
            chosen = replace(
                self, unit=unit if found else None, without_unit=self.count if found else None, hypotheses=()
            )
        else:
            confidence, reasons = without_unit_doubt(self.confidence, self.details, self.reasons, self.hypotheses)
            unsure = is_unsure(confidence, self.confidence_kind, self.unsure_below or 0.0)
            chosen = replace(self, confidence=confidence, unsure=unsure, reasons=reasons if unsure else ())
            if unit == self.unit:
                return chosen
            count, hypotheses = in_other_unit(density.count, self.hypotheses, unit)
            chosen = replace(chosen, unit=unit, hypotheses=hypotheses)
            if count == 2 * self.count:
                found = halves(self.repetitions)
            else:
                known = () if self.phase == "arbitrary" else tuple(one.start for one in self.repetitions)
                again = density.repetitions(count, anchors=known)
                found = scored_as([(one.start, one.end) for one in again], self.repetitions)
        sets = regrouped(self.sets, found)
        total = density.count
        return replace(chosen, count=len(found), raw_count=total, repetitions=found, sets=sets, density=density)


def _output(module: str = "") -> Any:
    """escounts.output, or a module of it: it stands on this one and is loaded when a result is first written."""
    return importlib.import_module(f"escounts.output{module}")


def two_digits(confidence: float, *, unsure: bool) -> str:
    """`0.93`. Never so much that it would not be unsure: 0.8964 is 0.89 where less than 0.9 is."""
    return f"{math.floor(100 * confidence) / 100 if unsure else confidence:.2f}"
