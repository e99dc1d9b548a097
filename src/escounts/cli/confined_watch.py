"""`escounts watch --sandbox`: the source is opened and counted in a confined process, whose events arrive here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any, get_args

import click

from escounts.errors import EscountsError, VideoError, one_line
from escounts.live import EventKind, LiveEvent, watch
from escounts.models.catalogue import counting_sandbox
from escounts.system.processes import Child, Line
from escounts.video.streams import find_source

KINDS = get_args(EventKind)
NUMBERS = frozenset(field.name for field in fields(LiveEvent)) - {"kind", "reason"}


class ConfinedWatch:
    """As much of `Watch` as the command needs; takes what `watch` does."""

    def __init__(self, source: str, *, model: str, exemplars: tuple[str, ...], **options: Any) -> None:
        found = find_source(source)
        camera, file = found.format is not None, not found.live
        self.time = 0.0
        self._source = source
        self._scratch = counting_sandbox(
            model,
            exemplars,
            readable=[found.path] if file else [],
            writable=[found.path] if camera else [],
            network=not (camera or file),
        )
        sandbox = self._scratch.__enter__()
        try:
            self._child = Child(
                watch_work, source, {"model": model, "exemplars": exemplars, **options}, sandbox=sandbox
            )
        except OSError as error:
            self._scratch.__exit__(None, None, None)
            raise EscountsError(f"no process could be started: {error.strerror or error}") from error

    def __iter__(self) -> Iterator[LiveEvent]:
        try:
            while True:
                report = self._child.take(1.0)
                if report is None:
                    continue
                kind, value = report
                if kind == "end":
                    return
                if kind == "failed":
                    raise EscountsError(one_line(str(value)))
                if kind == "refused":
                    click.echo(f"escounts: {one_line(str(value))}", err=True)
                    continue
                event = checked_event(value)
                self.time = event.time
                yield event
        except (EOFError, OSError) as error:
            raise VideoError(f"{one_line(self._source)}: {self._child.death()}") from error
        except ValueError as error:
            raise VideoError(f"{one_line(self._source)}: its process sent what is not a report") from error
        finally:
            self.close()

    def mark(self, start: float, end: float) -> None:
        """One repetition to look for; what is wrong with it is said when the process has looked at it."""
        self._child.send((start, end))

    def close(self) -> None:
        self._child.end()
        self._scratch.__exit__(None, None, None)


def watch_work(line: Line, source: str, options: dict[str, Any]) -> None:
    """The process: reports ("event", fields) …, ("refused", why no mark), then ("end", None) or ("failed", why)."""
    marks = line.listen()
    try:
        watching = watch(source, **options)

        def mark() -> None:
            while True:
                try:
                    watching.mark(*marks())
                except EscountsError as error:
                    line.report("refused", str(error))

        threading.Thread(target=mark, name="marks", daemon=True).start()
        for event in watching:
            line.report("event", asdict(event))
        line.report("end", None)
    except EscountsError as error:
        line.report("failed", str(error))


def checked_event(value: object) -> LiveEvent:
    """The event that a process reports; ValueError where it is none: a video may have taken the process over."""
    if (
        not isinstance(value, dict)
        or value.get("kind") not in KINDS
        or not set(value) <= NUMBERS | {"kind", "reason"}
    ):
        raise ValueError("not an event")
    numbers = [value.get(name, 0.0) for name in ("time", "count", "open", "rate", "confidence")]
    optional = [number for name in ("start", "end", "delay") if (number := value.get(name)) is not None]
    if not all(isinstance(number, int | float) for number in [*numbers, *optional, value.get("dropped", 0)]):
        raise ValueError("not an event")
    reason = value.get("reason")
    return LiveEvent(**{**value, "reason": None if reason is None else one_line(str(reason))})
