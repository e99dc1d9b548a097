"""Counting while it happens: `watch()` gives an event for every repetition, from a camera, a stream or a file.

Every half second the last minutes are estimated anew. An estimate may change its mind; the count does not go back: a
repetition that has been counted stays counted, and only the share of the one that is still open grows and shrinks.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from escounts.counter import Counter, load
from escounts.counting.live import LiveEncoding
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import BASE_RATE, MultiRateExemplar
from escounts.decision.decide import Decision
from escounts.decision.running_count import EventKind, RunningCount
from escounts.decision.running_count import LiveEvent as LiveEvent
from escounts.errors import ExemplarError, ModelError
from escounts.exemplars import check_exemplar, exemplar_list, parse_exemplar
from escounts.results import DensityMap, ExemplarSpan, Repetition
from escounts.system.arguments import checked, instance, number, refused, seconds, text, whole
from escounts.system.arrays import Image
from escounts.video.files import Frame
from escounts.video.streams import FrameStream, Gap, PushedFrames

INTERVAL = 0.5
"""Seconds between estimates …"""
BUSY_SHARE = 0.5
"""… which may take this share of the time; on a slow machine they come less often."""
MEMORY, BLOCK = 120.0, 30.0
"""Seconds that are estimated anew each time; when they are full, the oldest block becomes final."""
FILLED = 2.0
"""Seconds of missing frames during which the last one is taken to stand still; a longer hole is a gap."""

Source = str | os.PathLike[str] | int | Iterable[Frame]
"""A camera's number, an address, a file; or frames with their time from a program's own camera (`PushedFrames` drops
those that come too fast)."""


class LiveCounter:
    """Takes frames with their time, gives events. For a source that the caller reads; `watch` reads one itself."""

    def __init__(
        self,
        model: MultiRateModel,
        *,
        exemplars: Sequence[MultiRateExemplar] = (),
        assume_repeats: bool = False,
    ) -> None:
        self.model = model
        self.count = RunningCount()
        self._exemplars = list(exemplars)
        self._assume_repeats = assume_repeats
        self.now: Callable[[], float] | None = None
        """The time on the frames' clock; without it, they are taken to be looked at as they are made."""
        self._source = object()  # what all stretches between gaps are cut from
        self._encoding: LiveEncoding | None = None
        self._decision: Decision | None = None
        self._image: Image | None = None
        self._updated = 0.0
        self._cost = self._finished = 0.0  # of the newest estimate, in seconds of this machine
        self._marked: list[ExemplarSpan] = []
        self._lock = threading.Lock()

    @property
    def time(self) -> float:
        """How far the source has been seen, in seconds."""
        encoding = self._encoding
        return 0.0 if encoding is None else encoding.start + encoding.frames / BASE_RATE

    @property
    def density(self) -> DensityMap | None:
        """The newest estimate of what is remembered, the last two minutes at most; None before there is one."""
        return None if self._decision is None else self._decision.density

    @checked(frame=instance(Frame))
    def push(self, frame: Frame) -> list[LiveEvent]:
        """The next frame; what it brought about. Frames that are missing are filled with the last one."""
        events = []
        missing = round((frame.time - self.time) * BASE_RATE - 0.5) if self._encoding is not None else 0
        if missing > FILLED * BASE_RATE:
            events += self.gap(Gap(self.time, frame.time, "frames were dropped"))
            missing = 0
        if self._encoding is None:
            begin = frame.time - 0.5 / BASE_RATE
            self._encoding = LiveEncoding(self.model, start=begin, video=self._source)
            self._encoding.__enter__()
            self._updated = begin
        for _ in range(missing):
            self._encoding.push(self._image if self._image is not None else frame.image)
        if missing >= 0:  # a frame that comes more often than the base rate is not needed
            self._encoding.push(frame.image)
        self._image = frame.image
        rested = self.now is None or time.perf_counter() - self._finished >= self._cost * (1 / BUSY_SHARE - 1)
        if rested and self.time - self._updated >= INTERVAL - 1e-6:
            events += self._update()
        return events

    def gap(self, gap: Gap) -> list[LiveEvent]:
        """Nothing was seen for a while: what was open is closed, and what follows is encoded apart."""
        events = self.finish()
        return [*events, self._event("gap", start=gap.start, end=gap.end, reason=gap.reason)]

    def finish(self) -> list[LiveEvent]:
        """The source is over, or away: the last repetitions."""
        if self._encoding is None:
            return []
        events = self._update(over=True)
        self._encoding.__exit__(None, None, None)
        self._encoding = None
        self.count.close()
        return events

    def end(self) -> list[LiveEvent]:
        """The source is over: its last repetitions, and that it is over."""
        return [*self.finish(), self._event("end")]

    @checked(end=seconds)
    def mark(self, start: float, end: float) -> None:
        """From now on count what is like the stretch between two times of the source, which may still be to come.

        Raises ExemplarError where it is hardly a frame, or not remembered any more. From any thread.
        """
        span = ExemplarSpan(start, end)
        check_exemplar(span, frame=1 / BASE_RATE)
        encoding = self._encoding
        if encoding is not None and start < encoding.start:
            raise ExemplarError(
                f"exemplar {start:g}-{end:g} s is too long ago; the source is remembered from "
                f"{encoding.start:.1f} s on"
            )
        with self._lock:
            self._marked.append(span)

    def _update(self, *, over: bool = False) -> list[LiveEvent]:
        assert self._encoding is not None
        began = time.perf_counter()
        events = self._take_marked()
        density = self._estimated()
        before = self.count.count
        for place, repetition in enumerate(self.count.update(density, over=over), start=before + 1):
            events.append(self._counted(repetition, place))
        blocks = math.ceil((self.time - self._encoding.start - MEMORY) / BLOCK)
        if blocks > 0:  # several where a slow machine has not estimated for a while
            self.count.make_final(density, round(blocks * BLOCK * BASE_RATE))
            self._encoding.forget(blocks * BLOCK)
        self._updated = self.time
        self._finished = time.perf_counter()
        self._cost = self._finished - began
        return events or [self._event("update")]

    def _estimated(self) -> DensityMap:
        """What is remembered, estimated anew; an answer of "no repetitions" has none anywhere."""
        assert self._encoding is not None
        decision = self._encoding.update(self._exemplars, assume_repeats=self._assume_repeats)
        if decision.hypotheses and not decision.count:
            decision = replace(decision, density=decision.density.scaled(0.0))
        self._decision = decision
        return decision.density

    def _take_marked(self) -> list[LiveEvent]:
        """Cut the marked exemplars that have been seen to their end, and count anew with them."""
        encoding = self._encoding
        assert encoding is not None
        with self._lock:
            seen = [span for span in self._marked if span.end <= self.time]
            self._marked = [span for span in self._marked if span.end > self.time]
        seen = [span for span in seen if span.start >= encoding.start]  # otherwise a gap came between
        if not seen:
            return []
        self._estimated()  # the newest frames are encoded
        self._exemplars += [encoding.encode_exemplar(span.start, span.end) for span in seen]
        encoding.forget_exemplars()
        found = self.count.restart(self._estimated())
        kept = self.count.count - len(found)
        marked = [replace(self._event("exemplar", start=span.start, end=span.end), count=kept) for span in seen]
        return [*marked, *(self._counted(repetition, n) for n, repetition in enumerate(found, start=kept + 1))]

    def _counted(self, repetition: Repetition, number: int) -> LiveEvent:
        delay = (self.now() if self.now else self.time) - repetition.end
        event = self._event("repetition", start=repetition.start, end=repetition.end, delay=max(0.0, delay))
        return replace(event, count=number)

    def _event(self, kind: EventKind, **about: Any) -> LiveEvent:
        """What is known now. about: further fields of LiveEvent."""
        decision = self._decision
        newest = decision.density.values[-round(BASE_RATE) :] if decision else ()
        return LiveEvent(
            kind=kind,
            time=self._updated if self._encoding is None else self.time,
            count=self.count.count,
            open=self.count.open,
            rate=float(sum(newest)) * BASE_RATE / max(1, len(newest)),
            confidence=decision.confidence if decision else 0.0,
            **about,
        )


class Watch:
    """Iterates over the events of a source; `mark` and `close` may be called meanwhile, from any thread."""

    def __init__(self, source: Source, counter: LiveCounter, *, speed: float) -> None:
        self._counter = counter
        size = counter.model.network.encoder.spec.size
        self._stream: FrameStream | PushedFrames | None = None
        if isinstance(source, PushedFrames):
            self._stream = source
            counter.now = source.now
        elif isinstance(source, (str, os.PathLike, int)):
            self._stream = FrameStream(source, size=(size, size), rate=BASE_RATE, speed=speed)
            if speed < float("inf"):
                counter.now = self._stream.now
        self._items: Iterable[Frame | Gap] = self._stream if self._stream is not None else source  # type: ignore[assignment]

    def __iter__(self) -> Iterator[LiveEvent]:
        try:
            for item in self._items:
                events = self._counter.gap(item) if isinstance(item, Gap) else self._counter.push(item)
                for event in events:
                    yield replace(event, dropped=self.dropped)
            for event in self._counter.end():
                yield replace(event, dropped=self.dropped)
        finally:
            self.close()

    @property
    def dropped(self) -> int:
        """Frames that came too fast to be looked at."""
        return self._stream.dropped if self._stream is not None else 0

    @property
    def time(self) -> float:
        """How far the source has been seen, in seconds."""
        return self._counter.time

    @property
    def density(self) -> DensityMap | None:
        """The newest estimate of the last two minutes; see `LiveCounter.density`."""
        return self._counter.density

    def mark(self, start: float, end: float) -> None:
        """From now on count what is like the stretch between two times of the source; see `LiveCounter.mark`."""
        self._counter.mark(start, end)

    def close(self) -> None:
        """Stop reading the source; the iteration ends."""
        if self._stream is not None:
            self._stream.close()


def _speed(name: str, value: Any) -> float:
    if isinstance(value, float) and value == math.inf:
        return value
    if number(name, value, takes := "a number above 0, or infinity") <= 0:
        raise refused(name, value, takes)
    return float(value)


def _source(name: str, value: Any) -> Any:
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike)):
        return value
    return whole(name, value) if isinstance(value, (int, np.integer)) else text(name, value)


@checked(
    source=_source,
    model=lambda name, value: value if isinstance(value, Counter) else text(name, value),
    exemplars=exemplar_list,
    speed=_speed,
)
def watch(
    source: Source,
    *,
    model: str | Counter = "default",
    device: str = "auto",
    exemplars: Sequence[str | ExemplarSpan] = (),
    assume_repeats: bool = False,
    speed: float = 1.0,
) -> Watch:
    """Count a camera (0), a stream ("rtsp://…", "http://…"), a file at its own speed, or frames with their time.

    exemplars: "other.mp4@1.0-2.5", or "3.2-4.8" of the source itself, used once it has been seen.
    speed: of a file; infinite reads it as fast as it can be counted.

    >>> for event in escounts.watch(0):
    ...     if event.kind == "repetition":
    ...         print(event.count, event.start, event.end, event.confidence)
    """
    counter = load(model, device=device) if isinstance(model, str) else model
    if not isinstance(counter.model, MultiRateModel):
        raise ModelError(f"model {counter.model.name!r} cannot count a video that goes on; `lite` can")
    spans = [parse_exemplar(given) if isinstance(given, str) else given for given in exemplars]
    references = [_reference(counter, span) for span in spans if span.video is not None]
    _warm_up(counter.model)
    live = LiveCounter(counter.model, exemplars=references, assume_repeats=assume_repeats)
    for span in spans:
        if span.video is None:
            live.mark(span.start, span.end)
    return Watch(source, live, speed=speed)


def _reference(counter: Counter, span: ExemplarSpan) -> MultiRateExemplar:
    """An exemplar from another video."""
    encoded = counter.reference(Path(str(span.video)), span.start, span.end)
    exemplar: MultiRateExemplar = encoded.encoding.encode_exemplar(span.start, span.end)
    return exemplar


def _warm_up(model: MultiRateModel) -> None:
    """The first estimate of a process takes longer than others; nobody is to wait for it."""
    size = model.network.encoder.spec.size
    with LiveEncoding(model) as encoding:
        for level in range(16):
            encoding.push(np.full((size, size, 3), level, np.uint8))
        encoding.update()
