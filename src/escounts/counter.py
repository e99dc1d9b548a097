"""`Counter`: encode a video once, count it as often as you like. `load()` and `count()` are the short ways in."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import escounts
from escounts.counting import CountingModel, EncodedExemplar, Encoding, Progress
from escounts.decision.decide import Decision, assuming
from escounts.decision.repetitions import into_sets, typical
from escounts.decision.rules import RULES
from escounts.errors import EscountsError, ExemplarError, VideoError
from escounts.exemplars import check_exemplar, exemplar_list, parse_exemplar
from escounts.models import catalogue
from escounts.results import CountResult, ExemplarSpan, Unit
from escounts.system.arguments import checked, flag, number, optional, refused, seconds, text
from escounts.video.regions import Region
from escounts.video.regions import region as region_of

if TYPE_CHECKING:
    from escounts.video.files import Video, VideoInfo

Exemplar = Any
"""(start, end) · "3.2-4.8" · "other.mp4@1.0-2.5" · ExemplarSpan · (EncodedVideo, start, end)."""

WantedUnit = Unit | Literal["auto"]
"""Count by cycles, by sides, or as the model thinks best."""

AnyVideo = Any
"""A path, a Video, or (with fps) frames: arrays (height, width, 3) of uint8, in a list or one after another."""
AnyRegion = str | Sequence[float] | Region
"""A box of the picture: "25%,0%,50%,100%", "40,30,320,200" or (40, 30, 320, 200)."""

REFERENCES = 8
"""Stretches around exemplars of other videos that a counter remembers."""


def _counting_model(name: str, value: Any) -> Any:
    if not (hasattr(value, "encode") and hasattr(value, "unsure_below")):
        raise refused(name, value, "a counting model; escounts.load(NAME) makes a counter of a model's name")
    return value


class Counter:
    """A counting model with videos: encodes them, remembers the exemplars' videos.

    Processes that are forked from one that has counted, as a DataLoader's workers are, count with one thread on the
    CPU; for CUDA start them by spawn.

    >>> counter = escounts.load("spectral")
    >>> encoded = counter.encode("squats.mp4")
    >>> encoded.count().count, encoded.count(exemplars=["3.2-4.8"]).count
    """

    @checked(model=_counting_model)
    def __init__(self, model: CountingModel) -> None:
        self.model = model
        self._references: dict[tuple[Any, ...], EncodedVideo] = {}

    @checked(region=optional(region_of), fps=optional(number))
    def encode(
        self,
        video: AnyVideo,
        *,
        fps: float | None = None,
        start: float = 0.0,
        end: float | None = None,
        region: AnyRegion | None = None,
        progress: Progress | None = None,
    ) -> EncodedVideo:
        """Decode and encode a video between start and end (seconds): the expensive half, done once.

        fps: of a video that is given as frames. region: the box of the picture that is looked at; None: all of it.
        progress is called with the seconds done and the seconds in all.
        """
        opened = _opened(video, region, fps)
        _check_range(opened, start, end)
        began = time.perf_counter()
        encoding = self.model.encode(opened, start=start, end=end, progress=progress)
        return EncodedVideo(self, opened, encoding, seconds=time.perf_counter() - began, to_the_end=end is None)

    @checked(exemplars=exemplar_list, region=optional(region_of), each=flag, fps=optional(number))
    def count(
        self,
        video: AnyVideo,
        *,
        exemplars: Sequence[Exemplar] = (),
        fps: float | None = None,
        start: float = 0.0,
        end: float | None = None,
        region: AnyRegion | None = None,
        assume_repeats: bool = False,
        unit: WantedUnit = "auto",
        like_set: int | None = None,
        each: bool = False,
        progress: Progress | None = None,
    ) -> CountResult:
        """Encode and count in one go. Exemplars are checked first, so a wrong one costs no decoding.

        each: find the places of the picture where something repeats, and count each by itself (`result.tracks`).
        """
        opened = _opened(video, region, fps)
        if each:
            marked = [*exemplars, *([] if like_set is None else [like_set])]
            return self._each(opened, marked, start, end, progress, assume_repeats=assume_repeats, unit=unit)
        checked = [_parsed(exemplar, opened.info) for exemplar in exemplars]
        encoded = self.encode(opened, start=start, end=end, progress=progress)
        return encoded.count(checked, assume_repeats=assume_repeats, unit=unit, like_set=like_set)

    def _each(
        self,
        video: Video,
        exemplars: Sequence[Exemplar],
        start: float,
        end: float | None,
        progress: Progress | None,
        **counting: Any,
    ) -> CountResult:
        features = getattr(self.model, "frame_features", None)
        if features is None:
            raise EscountsError(
                f"model {self.model.name!r} does not look for places; count each with region=, or lite"
            )
        if exemplars:
            raise ExemplarError("each and an exemplar: it shows one place's motion; count that place with region=")
        from escounts.counting.places import count_each  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

        def one(part: Video, report: Progress | None) -> CountResult:
            return self.encode(part, start=start, end=end, progress=report).count(**counting)

        _check_range(video, start, end)
        began = time.perf_counter()
        result = count_each(video, one, features, start=start, end=end, progress=progress)
        return replace(result, timings={**result.timings, "total": time.perf_counter() - began})

    @checked(end=seconds)
    def reference(self, video: Path | Video, start: float, end: float) -> EncodedVideo:
        """The stretch around an exemplar, encoded once and remembered while it is among the last ones used."""
        opened = _opened(video)
        path, box = opened.info.path, opened.info.region
        _check_exemplar(ExemplarSpan(start, end, str(path)), opened.info)
        state = path.stat().st_mtime_ns if path.exists() else id(opened)  # frames of a program have no file
        key = (str(path.resolve()), state, start, end, box)
        encoded = self._references.pop(key, None)
        if encoded is None:
            first = max(0.0, start - RULES.exemplar_context)
            last = min(end + RULES.exemplar_context, max(opened.info.duration, end))
            encoded = self.encode(opened, start=first, end=last)
        self._references[key] = encoded  # the last one is the one used last
        while len(self._references) > REFERENCES:
            del self._references[next(iter(self._references))]
        return encoded


class EncodedVideo:
    """One encoded video: `count()` is cheap, with whatever exemplars and range you like.

    An exemplar may ask for a rate that is not encoded yet: the first such count reads the video once more, reports
    to its `progress`, and the encoding grows.
    """

    def __init__(
        self, counter: Counter, video: Video, encoding: Encoding, *, seconds: float, to_the_end: bool = False
    ) -> None:
        """to_the_end: it was read as far as there are frames, so a header that says much more is wrong."""
        self._counter, self._video, self._seconds = counter, video, seconds
        self.encoding = encoding
        stated, read = video.info.duration, encoding.end
        false = to_the_end and read < stated - max(1.0, 0.05 * stated)
        self.info: VideoInfo = replace(video.info, duration=read if false else max(stated, read))

    @checked(exemplars=exemplar_list, start=optional(seconds))
    def count(
        self,
        exemplars: Sequence[Exemplar] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
        unit: WantedUnit = "auto",
        like_set: int | None = None,
        progress: Progress | None = None,
    ) -> CountResult:
        """Count between start and end (all that is encoded when None), like the exemplars where there are any.

        unit: by cycles or by sides of a motion that alternates; "auto": what the model holds most useful. like_set:
        the number, from 1 on, of one of the sets that a count without exemplars finds; one of its repetitions is the
        exemplar then. progress is called where the video has to be read again.
        """
        first = self.encoding.start if start is None else max(start, self.encoding.start)
        end = None if end is None else min(end, self.encoding.end)
        last = self.encoding.end if end is None else end
        if last <= first:
            raise VideoError(
                f"{self.info.path}: nothing between {first:.2f} s and {last:.2f} s; encoded are "
                f"{self.encoding.start:.2f} s to {self.encoding.end:.2f} s"
            )
        began = time.perf_counter()
        if like_set is not None:
            exemplars = [*exemplars, self._of_set(like_set, self.count(start=start, end=end, progress=progress))]
        encoded, spans = self._exemplars(exemplars, progress)
        ask = partial(self.encoding.estimate, encoded, start=start, end=end, progress=progress)
        decision = assuming(ask) if assume_repeats else ask()
        result = self._result(decision, spans, (first, last))
        if unit != "auto" and result.count > 0:
            result = self._in_unit(result, unit, assume_repeats)
        spent = time.perf_counter() - began
        return replace(result, timings={"encode": self._seconds, "count": spent, "total": self._seconds + spent})

    def _of_set(self, number: int, counted: CountResult) -> ExemplarSpan:
        """One repetition of a set, as an exemplar."""
        if not 1 <= number <= len(counted.sets):
            found = f"sets 1 to {len(counted.sets)}" if counted.sets else "no sets"
            raise ExemplarError(f"{self.info.path}: set {number} is asked for; {found} are found without an exemplar")
        one = typical(counted.repetitions, counted.sets[number - 1])
        return ExemplarSpan(one.start, min(one.end, self.encoding.end))

    @property
    def nbytes(self) -> int:
        """Bytes that the encoding holds in memory now."""
        return self.encoding.nbytes

    def _result(self, decision: Decision, spans: Sequence[ExemplarSpan], counted: tuple[float, float]) -> CountResult:
        """The decision as a result, with its repetitions."""
        model = self._counter.model
        density = decision.density.scaled(decision.rest)
        marked = [border for span in spans if span.video is None for border in (span.start, span.end)]
        # Without a mark by the map's own sums, so that what is cut off is not spread over the others.
        found = (density if marked else decision.density).repetitions(decision.count, anchors=marked)
        if decision.scored is not None:
            found = decision.scored(found)
        return CountResult(
            video=str(self.info.path),
            model=model.name,
            count=decision.count,
            raw_count=density.count,
            repetitions=found,
            sets=into_sets(found, decision.stretches),
            density=density,
            confidence=decision.confidence,
            unsure=decision.unsure,
            duration=self.info.duration,
            range=counted,
            region=None if self.info.region is None else str(Region(*self.info.region)),
            exemplars=tuple(spans),
            details=decision.details,
            confidence_kind=decision.kind,
            unsure_below=model.unsure_below if decision.kind == "probability" else None,
            unit=decision.unit,
            hypotheses=decision.hypotheses,
            phase="exemplar" if marked else "arbitrary",
            reasons=decision.reasons,
            left_out=decision.left_out,
        )

    def _in_unit(self, result: CountResult, unit: Unit, assumed: bool) -> CountResult:
        if result.exemplars:
            raise ExemplarError(f"unit {unit!r} and an exemplar: the exemplar says what one repetition is; give one")
        if result.unit is None and assumed:
            raise EscountsError(
                f"unit {unit!r} and assume_repeats: what is taken to repeat is not told apart into cycles and sides; "
                "give one of them"
            )
        if result.unit is None:
            raise EscountsError(
                f"model {result.model!r} does not tell cycles from sides; leave the unit at 'auto', or mark "
                f"one {unit} as an exemplar"
            )
        return result.in_unit(unit)

    def _exemplars(
        self, exemplars: Sequence[Exemplar], progress: Progress | None
    ) -> tuple[list[EncodedExemplar], list[ExemplarSpan]]:
        found, spans = [], []
        for exemplar in exemplars:
            if isinstance(exemplar, tuple) and len(exemplar) == 3:
                encoded, start, end = exemplar
                if type(encoded.encoding) is not type(self.encoding):
                    raise ExemplarError(f"the exemplar of {encoded.info.path} was encoded by another model")
                _check_exemplar(ExemplarSpan(start, end, str(encoded.info.path)), encoded.info)
                span = ExemplarSpan(start, end, None if encoded is self else str(encoded.info.path))
                source: EncodedVideo = encoded
            else:
                span = _parsed(exemplar, self.info)
                source = self._source(span)
            found.append(source.encoding.encode_exemplar(span.start, span.end, progress=progress))
            spans.append(span)
        return found, spans

    def _source(self, span: ExemplarSpan) -> EncodedVideo:
        """Who can cut this exemplar: this encoding, or a stretch of a video that is encoded for it."""
        slack = 1.0 / self.info.fps
        inside = self.encoding.start - slack <= span.start and span.end <= self.encoding.end + slack
        if span.video is None and inside:
            return self
        video = self._video if span.video is None else Path(span.video)
        return self._counter.reference(video, span.start, span.end)


@checked(name=text)
def load(name: str = "default", *, device: str = "auto") -> Counter:
    """A counter by the name of its model: "default" is the best that ships; `escounts models` lists all.

    device: "auto", "cpu", "cuda", or "mps" (Apple's GPUs, untested).
    """
    return Counter(catalogue.build(name, device))


@checked(exemplars=exemplar_list, region=optional(region_of), each=flag, fps=optional(number))
def count(
    video: AnyVideo,
    *,
    model: str = "default",
    device: str = "auto",
    exemplars: Sequence[Exemplar] = (),
    fps: float | None = None,
    start: float = 0.0,
    end: float | None = None,
    region: AnyRegion | None = None,
    assume_repeats: bool = False,
    unit: WantedUnit = "auto",
    like_set: int | None = None,
    each: bool = False,
    progress: Progress | None = None,
) -> CountResult:
    """Count one video. Options are those of `load` and of `Counter.count`; times in seconds.

    video: a path, a Video, or frames, one array after another, of which `fps` come in a second.

    region: the box of the picture that alone is looked at, from its left upper corner: x, y, width and height in
    pixels or, as text, in percent ("25%,0%,50%,100%").

    >>> result = escounts.count("squats.mp4", exemplars=[(3.2, 4.8)])
    """
    return load(model, device=device).count(
        video,
        exemplars=exemplars,
        fps=fps,
        start=start,
        end=end,
        region=region,
        assume_repeats=assume_repeats,
        unit=unit,
        like_set=like_set,
        each=each,
        progress=progress,
    )


def _opened(video: AnyVideo, region: AnyRegion | None = None, fps: float | None = None) -> Video:
    from escounts.video.in_memory import VideoInMemory  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    if isinstance(video, escounts.Video):
        opened = video
    elif isinstance(video, (str, os.PathLike)):
        opened = escounts.Video(video)
    elif fps is not None:
        return _opened(VideoInMemory(video, fps=fps), region)
    else:
        raise refused("video", video, "a path, a Video, or frames together with fps=")
    if fps is not None:
        raise refused("fps", fps, "nothing where the video is a file, which says itself how fast it is")
    return opened if region is None else opened.cropped(region)


def _parsed(exemplar: Exemplar, info: VideoInfo) -> ExemplarSpan:
    """An exemplar of this or another video as a span; one of this video is checked against its length."""
    if isinstance(exemplar, tuple) and len(exemplar) == 3:
        return exemplar  # type: ignore[return-value]  # already encoded; checked when it is cut
    span: ExemplarSpan = parse_exemplar(exemplar) if isinstance(exemplar, str) else exemplar
    if span.video is not None and Path(span.video).resolve() == info.path.resolve():
        span = replace(span, video=None)
    if span.video is None:
        _check_exemplar(span, info)
    return span


def _check_exemplar(span: ExemplarSpan, info: VideoInfo) -> None:
    named = span if span.video else replace(span, video=str(info.path))
    check_exemplar(named, duration=info.duration, frame=1.0 / info.fps)


def _check_range(video: Video, start: float, end: float | None) -> None:
    if not (0 <= start < math.inf) or (end is not None and not end > start):
        raise VideoError(f"{video.path}: range {start:g} to {end} s; 0 <= start < end is needed")
    if start >= video.info.duration:
        raise VideoError(f"{video.path}: starts at {start:g} s, but lasts {video.info.duration:.2f} s")
