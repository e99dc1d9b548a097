"""`escounts watch`: a stream's count as it happens, in the terminal or as JSON lines; with --sandbox the source is
opened and counted in a confined process, whose events arrive here."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, get_args

import click

import escounts
from escounts.cli import collector_paused
from escounts.cli.options import Number, assume_repeats_option, device_option, model_option, sandbox_option
from escounts.decision.running_count import EventKind, LiveEvent
from escounts.errors import EscountsError, ExemplarError, VideoError, one_line
from escounts.exemplars import parse_exemplar
from escounts.models.catalogue import counting_sandbox
from escounts.system.processes import Child, Line
from escounts.video.streams import find_source

if TYPE_CHECKING:
    from escounts.live import Watch

HEADER = f"count  {'start':>8} - {'end':<10}  known after"
"""Over the lines of `_show`."""
BAR = 20
"""Characters of the bar that shows the repetition going on."""
KINDS = get_args(EventKind)
NUMBERS = frozenset(field.name for field in fields(LiveEvent)) - {"kind", "reason"}


@click.command()
@click.argument("source", metavar="CAMERA|ADDRESS|FILE")
@click.option("--exemplar", "exemplars", multiple=True, metavar="[VIDEO@]START-END",
              help="One repetition to look for; without VIDEO@ a stretch of the source, used once seen.")  # fmt: skip
@model_option
@device_option
@assume_repeats_option
@click.option("--speed", type=Number(0, min_open=True), default=1.0, show_default=True,
              help="Of a file: 2 is twice its own speed, inf as fast as it can be counted.")  # fmt: skip
@sandbox_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event on stdout, nothing else.")
def watch_command(source: str, exemplars: tuple[str, ...], as_json: bool, sandbox: bool, **options: Any) -> int:
    """Count a camera (its number), a stream (rtsp://, http://) or a file while it runs; Ctrl-C ends it.

    To mark an exemplar while it runs, press Enter where a repetition begins and again where it ends, or type the
    stretch in seconds (3.2-4.8).

    Exit code 0: the source ended, or was stopped; 2: it could not be opened.
    """
    for exemplar in exemplars:
        parse_exemplar(exemplar)
    with collector_paused():
        watch = escounts.watch  # loads torch

    # Both take the options under the names that `watch` has for them.
    watching: Watch | ConfinedWatch = (ConfinedWatch if sandbox else watch)(source, exemplars=exemplars, **options)
    threading.Thread(target=_read_marks, args=(watching,), name="escounts-marks", daemon=True).start()
    last: LiveEvent | None = None
    try:
        for event in watching:
            if last is None and not as_json:  # the source is open
                click.echo(HEADER)
            last = event
            _show_json(event) if as_json else _show(event)
    except KeyboardInterrupt:
        watching.close()
        if not as_json:
            click.echo(f"\nstopped at {last.count if last else 0}", err=True)
    return 0


def _show_json(event: LiveEvent) -> None:
    values = {name: value for name, value in asdict(event).items() if value is not None}
    rounded = {name: round(v, 3) if isinstance(v, float) and math.isfinite(v) else v for name, v in values.items()}
    click.echo(json.dumps(rounded, ensure_ascii=False))


def _show(event: LiveEvent) -> None:
    """One line per repetition; on a terminal, a last line that shows what is going on."""
    terminal = sys.stdout.isatty()
    clear = "\r\x1b[K" if terminal else ""
    if event.kind == "repetition":
        click.echo(f"{clear}{event.count:5d}  {_stretch(event)}  {event.delay:.1f} s")
    elif event.kind == "gap":
        click.echo(f"{clear}       {_stretch(event)}  nothing seen: {event.reason}")
    elif event.kind == "exemplar":
        click.echo(f"{clear}{event.count:5d}  {_stretch(event)}  is the exemplar: counted anew like it")
    elif event.kind == "end":
        dropped = f", {event.dropped} frames dropped: this machine is too slow" if event.dropped else ""
        click.echo(f"{clear}{event.count} repetitions in {event.time:.1f} s{dropped}")
    if terminal and event.kind != "end":
        full = round(event.open * BAR)
        slow = f"  {event.dropped} frames dropped" if event.dropped else ""
        bar = "█" * full + "·" * (BAR - full)
        click.echo(f"{event.count:5d}  {bar}  {event.time:7.1f} s  {event.rate:4.2f} per s{slow}", nl=False)


def _stretch(event: LiveEvent) -> str:
    """Start and end in columns, in seconds."""
    assert event.start is not None and event.end is not None
    return f"{event.start:8.2f} - {f'{event.end:.2f} s':<10}"


def _read_marks(watching: Watch | ConfinedWatch) -> None:
    """Exemplars from the keyboard: Enter at a repetition's start and at its end, or its times."""
    begun: float | None = None
    for line in sys.stdin:
        try:
            if line.strip():
                span = parse_exemplar(line.strip())
                if span.video is not None:
                    raise ExemplarError(f"{line.strip()}: another video's exemplar is given with --exemplar")
                watching.mark(span.start, span.end)
            elif begun is None:
                begun = watching.time
                click.echo(f"exemplar begins at {begun:.2f} s; Enter where it ends", err=True)
            else:
                start, begun = begun, None
                watching.mark(start, watching.time)
        except EscountsError as error:
            click.echo(f"escounts: {error}", err=True)


class ConfinedWatch:
    """As much of `Watch` as the command needs; takes what `watch` does."""

    def __init__(self, source: str, *, model: str, exemplars: tuple[str, ...], **options: Any) -> None:
        found = find_source(source)
        camera, file = found.format is not None, not found.live
        self.time = 0.0
        self._source = source
        options |= {"model": model, "exemplars": exemplars}
        with ExitStack() as held:
            sandbox = held.enter_context(
                counting_sandbox(
                    model,
                    exemplars,
                    readable=[found.path] if file else [],
                    writable=[found.path] if camera else [],
                    network=not (camera or file),
                )
            )
            self._child = Child(watch_work, source, options, sandbox=sandbox)
            held.callback(self._child.end)
            self._held = held.pop_all()

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
        self._held.close()


def watch_work(line: Line, source: str, options: dict[str, Any]) -> None:
    """The process: reports ("event", fields) …, ("refused", why no mark), then ("end", None) or ("failed", why)."""
    marks = line.listen()
    try:
        watching = escounts.watch(source, **options)

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
