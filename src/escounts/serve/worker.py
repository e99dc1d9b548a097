"""The process that opens videos: whatever a file does to it, it does to nothing else.

Commands come in and reports go out over one pipe. Two lanes run side by side: "slow" decodes, encodes and
draws; "fast" counts again what is already encoded, so that a recount never waits for another video.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import escounts
from escounts.errors import EscountsError
from escounts.models.catalogue import find
from escounts.output import FORMATS
from escounts.output.json import from_dict, to_dict
from escounts.results import CountResult
from escounts.serve.settings import Settings, Source, explain, lacks_memory, open_video, settle
from escounts.system.processes import Line

Lane = Literal["slow", "fast"]
LANES: tuple[Lane, ...] = ("slow", "fast")
REPORT_SECONDS = 0.15


@dataclass(frozen=True)
class CountTask:
    """Count a video. exemplars: (start, end, source or None for the same video), seconds.

    model: its name or path, None for the one that the worker was started with. region: the box of the counted video's
    picture that alone is looked at, None for all of it. each: count each place of it by itself.
    """

    id: str
    source: Source
    exemplars: tuple[tuple[float, float, Source | None], ...] = ()
    start: float | None = None
    end: float | None = None
    region: str | None = None
    each: bool = False
    assume_repeats: bool = False
    model: str | None = None

    def encoding(self, source: Source) -> str:
        """What a worker calls a video's encoding, `id#region@model`: without the whole picture and the worker's own
        model."""
        name = source.id if self.region is None or source != self.source else f"{source.id}#{self.region}"
        return name if self.model is None else f"{name}@{self.model}"

    @property
    def sources(self) -> frozenset[Source]:
        """All videos that it opens."""
        return frozenset(source for source in (self.source, *(s for *_, s in self.exemplars)) if source)

    @property
    def encodings(self) -> set[str]:
        """All encodings that it needs; those of places are found anew each time, and never kept."""
        if self.each:
            return {f"{self.source.id}#each"}
        return {self.encoding(source) for source in self.sources}


@dataclass(frozen=True)
class RenderTask:
    """Write target, whole or not at all: a stored result in a format, or, without a result, what shows the video
    itself: format "preview", "thumbnail" or "filmstrip"."""

    id: str
    source: Source
    target: str
    format: str
    document: dict[str, Any] | None = None

    @property
    def sources(self) -> frozenset[Source]:
        return frozenset({self.source})


def run(line: Line, settings: Settings) -> None:
    """Entry point of the process. Ends when the server closes its end of the pipe or says stop."""
    if hasattr(os, "nice"):
        os.nice(5)  # the page answers first
    worker = Worker(line, settings)
    try:
        worker.prepare()
    except Exception as error:
        unrecoverable = isinstance(error, EscountsError)  # a wrong model name is still wrong at the next try
        worker.report("unusable", "", (str(error) if unrecoverable else repr(error), unrecoverable))
        return
    worker.serve()


class Worker:
    """One model on one device."""

    def __init__(self, line: Line, settings: Settings) -> None:
        self._line = line
        self._settings = settings
        self._held: set[str] = set()
        self._cancelled: set[str] = set()
        self._holding = threading.Lock()
        self._lanes: dict[Lane, queue.SimpleQueue[CountTask | RenderTask]] = {
            lane: queue.SimpleQueue() for lane in LANES
        }
        self._counter: Any = None
        self._others: dict[str, tuple[Any, int]] = {}
        self._loading = threading.Lock()
        self._cache = EncodingCache(max_bytes=settings.cache_memory, max_videos=settings.cache_videos)

    def prepare(self) -> None:
        """Load the model, then bound the memory: what is loaded is not held against a video."""
        self._counter = escounts.load(self._settings.model, device=self._settings.devices[0])
        settle(self._settings)
        self.report("ready", "", self._counter.model.name)

    def serve(self) -> None:
        for lane in LANES:
            threading.Thread(target=self._run_lane, args=(lane,), name=lane, daemon=True).start()
        while True:
            command, argument = self._line.receive()
            if command == "stop":
                return
            self._handle(command, argument)

    def _handle(self, command: str, argument: Any) -> None:
        """Cancel a task by its id, forget a video by its id, or take a task into a lane."""
        if command == "cancel":
            with self._holding:
                self._cancelled |= {argument} & self._held  # one that has ended meanwhile stays as it is
        elif command == "forget":
            self._cache.forget(lambda name: re.split("[@#]", name)[0] == argument)  # of whatever model
            self.report("cached", "", self._cache.names())
        elif command in LANES:
            with self._holding:
                self._held.add(argument.id)
            self._lanes[command].put(argument)
        else:
            raise ValueError(f"{command!r} is not a command; there are cancel, forget, stop, slow and fast")

    def report(self, kind: str, task_id: str, value: object) -> None:
        self._line.report(kind, task_id, value)

    def _run_lane(self, lane: Lane) -> None:
        while True:
            task = self._lanes[lane].get()
            try:
                value = self._count(task) if isinstance(task, CountTask) else self._render(task)
                self.report("done", task.id, value)
            except CancelledError:
                self.report("cancelled", task.id, None)
            except Exception as error:
                self.report("failed", task.id, self._explain(error, task.source))
            with self._holding:
                self._held.discard(task.id)
                self._cancelled.discard(task.id)

    def _count(self, task: CountTask) -> dict[str, Any]:
        began = time.perf_counter()
        if task.each:
            return self._document(self._each(task), task.source.name, {}, time.perf_counter() - began)
        encoded = self._encoded(task, task.source)
        exemplars: list[object] = []
        names: dict[str, str] = {}
        for start, end, source in task.exemplars:
            if source is None:
                exemplars.append((start, end))
            else:
                exemplars.append((self._encoded(task, source), start, end))
                names[source.path] = source.id
        if task.id in self._cancelled:
            raise CancelledError
        result = encoded.count(
            exemplars=exemplars,
            start=task.start,
            end=task.end,
            assume_repeats=task.assume_repeats,
            progress=self._progress(task.id),  # an exemplar may want a rate that is not encoded yet
        )
        return self._document(result, task.source.name, names, time.perf_counter() - began)

    def _each(self, task: CountTask) -> CountResult:
        result: CountResult = self._counter_of(task.model).count(
            self._opened(task.id, task.source),
            region=task.region,
            each=True,
            start=task.start or 0.0,
            end=task.end,
            assume_repeats=task.assume_repeats,
            progress=self._progress(task.id),
        )
        return result

    @staticmethod
    def _document(result: CountResult, name: str, exemplar_videos: dict[str, str], seconds: float) -> dict[str, Any]:
        """The result as JSON types, with the names and ids that clients know instead of paths."""
        shown = replace(
            result,
            video=name,
            exemplars=tuple(
                replace(span, video=exemplar_videos.get(span.video, "another video") if span.video else None)
                for span in result.exemplars
            ),
            timings={**result.timings, "job": seconds},
        )
        return to_dict(shown)

    def _counter_of(self, model: str | None) -> Any:
        """The counter of a model, loaded when it is first asked for, and again when its file has changed since."""
        if model is None:
            return self._counter
        path = find(model).checkpoint
        changed = path.stat().st_mtime_ns if path is not None and path.exists() else 0
        with self._loading:
            if self._others.get(model, (None, -1))[1] != changed:
                self._others.pop(model, None)
                self._cache.forget(lambda name: name.partition("@")[2] == model)
                self._others[model] = (escounts.load(model, device=self._settings.devices[0]), changed)
            return self._others[model][0]

    def _encoded(self, task: CountTask, source: Source) -> Any:
        """The encoding of a video: kept, or made now with progress reported."""
        task_id, name = task.id, task.encoding(source)
        counter = self._counter_of(task.model)
        kept = self._cache.get(name)
        if kept is not None:
            return kept
        video = self._opened(task_id, source)
        region = task.region if source == task.source else None
        encoded = counter.encode(video, region=region, progress=self._progress(task_id))
        self._cache.put(name, encoded)
        self.report("cached", task_id, self._cache.names())
        return encoded

    def _opened(self, task_id: str, source: Source) -> Any:
        """The video, described to the server."""
        video = open_video(source, self._settings)
        described = {name: getattr(video.info, name) for name in ("duration", "width", "height", "fps")}
        self.report("info", task_id, (source.id, described))
        return video

    def _progress(self, task_id: str) -> Callable[[float, float], None]:
        last = 0.0

        def progress(done: float, total: float) -> None:
            nonlocal last
            if task_id in self._cancelled:
                raise CancelledError
            now = time.monotonic()
            if now - last >= REPORT_SECONDS:
                last = now
                self.report("progress", task_id, (done, total))

        return progress

    def _render(self, task: RenderTask) -> str:
        from escounts.serve.previews import (  # noqa: PLC0415 - PyAV and numpy: the server's process, which imports this module, needs neither
            write_filmstrip,
            write_preview,
            write_thumbnail,
        )

        video = open_video(task.source, self._settings)
        if task.document is None:
            write = {"preview": write_preview, "thumbnail": write_thumbnail, "filmstrip": write_filmstrip}
            write[task.format](video, Path(task.target))
            return task.target
        FORMATS[task.format].write(from_dict(task.document), Path(task.target), video=Path(task.source.path))
        return task.target

    def _explain(self, error: Exception, source: Source) -> str:
        if lacks_memory(error):
            self._cache.forget(lambda name: True)
            self.report("cached", "", [])
        fault = f"{source.name} could not be counted: "
        return explain(error, self._settings, [source], what=source.name, fault=fault)


class EncodingCache:
    """Encoded videos a worker keeps, so that a recount does not decode again: within a number of bytes and of videos,
    the least recently used go first. Safe to call from any thread."""

    def __init__(self, *, max_bytes: int, max_videos: int) -> None:
        self._max_bytes = max_bytes
        self._max_videos = max_videos
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Any] = OrderedDict()

    def get(self, video_id: str) -> Any | None:
        """The encoding, now the most recently used, or None."""
        with self._lock:
            if video_id not in self._entries:
                return None
            self._entries.move_to_end(video_id)
            return self._entries[video_id]

    def put(self, video_id: str, encoding: Any) -> None:
        """Keep an encoding, which knows its size (`nbytes`). One that is alone larger than the limit is kept until
        the next one comes."""
        with self._lock:
            self._entries[video_id] = encoding
            self._entries.move_to_end(video_id)
            while len(self._entries) > 1 and (self._bytes() > self._max_bytes or len(self) > self._max_videos):
                self._entries.popitem(last=False)

    def forget(self, which: Callable[[str], bool]) -> None:
        """Drop the encodings whose names are these."""
        with self._lock:
            for name in filter(which, list(self._entries)):
                del self._entries[name]

    def names(self) -> list[str]:
        with self._lock:
            return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _bytes(self) -> int:
        """Measured anew each time: an encoding grows when an exemplar asks for a faster view."""
        return sum(encoding.nbytes for encoding in self._entries.values())
