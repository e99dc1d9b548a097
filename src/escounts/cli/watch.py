"""`escounts watch`: a stream's count as it happens, in the terminal or as JSON lines."""

from __future__ import annotations

import json
import math
import sys
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import escounts
from escounts.cli import assume_repeats_option, collector_paused, device_option, model_option, sandbox_option
from escounts.cli.numbers import Number
from escounts.errors import EscountsError, ExemplarError
from escounts.exemplars import parse_exemplar

if TYPE_CHECKING:
    from escounts.cli.confined_watch import ConfinedWatch
    from escounts.live import LiveEvent, Watch

HEADER = f"count  {'start':>8} - {'end':<10}  known after"
"""Over the lines of `_show`."""
BAR = 20
"""Characters of the bar that shows the repetition going on."""


@click.command()
@click.argument("source", metavar="CAMERA|ADDRESS|FILE")
@click.option("--exemplar", "exemplars", multiple=True, metavar="[VIDEO@]START-END",
              help="One repetition to look for; without VIDEO@ a stretch of the source, used once seen.")  # fmt: skip
@model_option
@device_option
@assume_repeats_option
@click.option("--speed", type=Number(above=0, infinite=True), default=1.0, show_default=True,
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

    watching: Watch | ConfinedWatch  # both take the options under the names that `watch` has for them
    if sandbox:
        from escounts.cli.confined_watch import ConfinedWatch  # noqa: PLC0415 - as above

        watching = ConfinedWatch(source, exemplars=exemplars, **options)
    else:
        watching = watch(source, exemplars=exemplars, **options)
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
