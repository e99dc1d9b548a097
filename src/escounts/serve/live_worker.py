"""The process of one live session: pictures come in over a pipe, the count goes out as it changes.

It is confined like the workers that open videos, and counts with the engine of `escounts watch`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import escounts
from escounts.errors import EscountsError
from escounts.serve.settings import Settings, explain, settle
from escounts.system.processes import Line

if TYPE_CHECKING:
    from escounts.live import LiveEvent, Watch
    from escounts.results import DensityMap
    from escounts.video.streams import PushedFrames

SHOWN = 30.0
"""Seconds of the density and of the repetitions that a report holds."""
POOLED = 3
"""Cells of the density that are added up for it: a tenth of a second."""
MAX_PIXELS = 1920 * 1080
"""Of one picture."""


def run(line: Line, settings: Settings, assume_repeats: bool) -> None:
    """Entry point of the process.

    Reports ("ready", model), ("state", dict) …, then ("ended", dict) or ("failed", why).
    Takes ("frames", [(seconds, JPEG bytes)]), ("mark", (start, end)) and ("end", None).
    """
    try:
        _Session(line, settings, assume_repeats).serve()
    except Exception as error:
        line.report("failed", explain(error, settings))


class _Session:
    """Reads the pipe in one thread and counts in another, so that what comes too fast is dropped and not queued."""

    def __init__(self, line: Line, settings: Settings, assume_repeats: bool) -> None:
        from escounts.video import files, streams  # noqa: PLC0415 - here alone: the server's process never opens a picture

        counter = escounts.load(settings.model, device=settings.devices[0])
        self._line, self._settings = line, settings
        self._frames: PushedFrames = streams.PushedFrames()
        self._watch: Watch = escounts.watch(self._frames, model=counter, assume_repeats=assume_repeats)
        settle(settings)
        network: Any = getattr(counter.model, "network", None)
        self._read_jpeg = files.jpeg_reader(network.encoder.spec.size, max_pixels=MAX_PIXELS)
        self._spans: dict[str, deque[LiveEvent]] = {kind: deque() for kind in ("repetition", "gap", "exemplar")}
        self._problem: str | None = None
        line.report("ready", counter.model.name)

    def serve(self) -> None:
        """Until the session is ended, or the server is gone."""
        threading.Thread(target=self._count, name="count", daemon=True).start()
        while True:
            command, argument = self._line.receive()
            if command == "frames":
                for seconds, data in argument:
                    self._frames.push(self._read_jpeg(seconds, data))
            elif command == "mark":
                try:
                    self._watch.mark(*argument)
                    self._problem = None
                except EscountsError as error:
                    self._problem = str(error)
            else:
                self._frames.end()

    def _count(self) -> None:
        kind = "state"
        try:
            for event in self._watch:
                if event.kind == "exemplar":  # those after it are counted anew, and follow
                    known = self._spans["repetition"]
                    self._spans["repetition"] = deque(each for each in known if each.count <= event.count)
                if event.kind in self._spans:
                    self._spans[event.kind].append(event)
                kind = "ended" if event.kind == "end" else "state"
                self._line.report(kind, self._state(event))
        except Exception as error:
            self._line.report("failed", explain(error, self._settings))
        os._exit(0)

    def _state(self, event: LiveEvent) -> dict[str, Any]:
        """What is known now, of the last seconds: whoever misses one report misses nothing."""
        for spans in self._spans.values():
            while spans and (spans[0].end or 0.0) < event.time - SHOWN:
                spans.popleft()
        stretches = {
            f"{kind}s": [{"start": _rounded(each.start), "end": _rounded(each.end)} for each in spans]
            for kind, spans in self._spans.items()
        }
        names = ("time", "open", "rate", "confidence")
        return {
            **{name: _rounded(getattr(event, name)) for name in names},
            "count": event.count,
            "dropped": event.dropped,
            "problem": self._problem,
            "density": shown_density(self._watch.density),
            **stretches,
        }


def shown_density(density: DensityMap | None) -> dict[str, Any]:
    """The last seconds of a density map, in fewer cells: repetitions in each, as in a result's document."""
    if density is None:
        return {"values": []}
    step = density.step * POOLED
    first = max(0, len(density.values) - round(SHOWN / step) * POOLED) // POOLED * POOLED
    values = [float(value) for value in density.values[first:]]
    cells = [sum(values[n : n + POOLED]) for n in range(0, len(values) - POOLED + 1, POOLED)]
    start = density.start + first * density.step
    return {"start": _rounded(start), "step": round(step, 6), "values": [round(value, 4) for value in cells]}


def _rounded(value: float | None) -> float:
    return round(value or 0.0, 3)
