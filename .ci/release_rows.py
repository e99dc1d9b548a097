"""Rows of the release check: what one line of its table holds, how pieces of a part add up, and the table."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """One line of the table. failed: what it asks for was not met, or not looked at, though nothing was lost.

    note: what else is to be said. figures: numbers to be said, which add up over the pieces of a part. unchecked:
    what could not be looked at from here, though nothing speaks against it; it stays visible.
    """

    name: str
    cases: int
    survived: int
    lost: int = 0
    hangs: int = 0
    tracebacks: int = 0
    note: str = ""
    failed: bool = False
    figures: dict[str, int] = field(default_factory=dict)
    unchecked: str = ""

    @property
    def good(self) -> bool:
        return not (self.failed or self.lost or self.hangs or self.tracebacks)

    @property
    def said(self) -> str:
        """The cell of the table beside the figures."""
        figures = ", ".join(f"{what}: {number}" for what, number in self.figures.items())
        unchecked = f"**not checked**: {self.unchecked}" if self.unchecked else ""
        text = "; ".join(filter(None, [figures, self.note, unchecked]))
        return text if self.good else f"**failed** {text}".rstrip()


def merged(rows: Iterable[Row]) -> list[Row]:
    """Rows of one name are one row: their figures added up, what they note said once."""
    found: dict[str, Row] = {}
    for row in rows:
        whole = found.setdefault(row.name, Row(row.name, 0, 0))
        whole.cases += row.cases
        whole.survived += row.survived
        whole.lost += row.lost
        whole.hangs += row.hangs
        whole.tracebacks += row.tracebacks
        whole.failed |= row.failed
        for what, number in row.figures.items():
            whole.figures[what] = whole.figures.get(what, 0) + number
        for text in ("note", "unchecked"):
            if getattr(row, text) not in getattr(whole, text):
                setattr(whole, text, "; ".join(filter(None, [getattr(whole, text), getattr(row, text)])))
    return list(found.values())


Records = Mapping[str, list[dict[str, Any]]]
"""By part, what its pieces left: commit, began, seconds, processor_seconds, load, lanes, rows."""


def rows_of(records: list[dict[str, Any]]) -> list[Row]:
    return merged(Row(**row) for record in records for row in record["rows"])


def table(records: Records) -> str:
    """Every row that there is, with the start, the commit and the load that it was measured at."""
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    every = [record for part in records.values() for record in part]
    lines = [f"{machine}. {clock(every)}. Times are UTC; minutes and the machine's load are of the whole part.", ""]
    lines += ["| | cases | survived | lost | hangs | tracebacks | | measured |", "|---|---|---|---|---|---|---|---|"]
    for name, part in records.items():
        low, high = min(one["load"][0] for one in part), max(one["load"][1] for one in part)
        busy = sum(one["processor_seconds"] for one in part) / 60
        commits = ", ".join(sorted({one["commit"][:8] for one in part}))
        when = f"{name}: {commits}, {clock(part)}, {busy:.0f} of the processor, load {low:g} to {high:g}"
        for row in rows_of(part):
            figures = " | ".join(str(n) for n in (row.cases, row.survived, row.lost, row.hangs, row.tracebacks))
            lines.append(f"| {row.name} | {figures} | {row.said} | {when} |")
            when = name
    return "\n".join(lines)


def clock(records: list[dict[str, Any]]) -> str:
    """When the first of some pieces began, and how long it was by the clock until the last had ended."""
    first = min(one["began"] for one in records)
    minutes = (max(one["began"] + one["seconds"] for one in records) - first) / 60
    began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(first))
    together = f" ({len(records)} pieces, {sum(one['seconds'] for one in records) / 60:.0f} together)"
    return f"{began}, {minutes:.0f} min by the clock{together if len(records) > 1 else ''}"


def summary(rows: Iterable[Row]) -> str:
    """The last lines of the command: what failed, and what was not checked."""
    every = list(rows)
    failed = [row.name for row in every if not row.good]
    lines = [f"{len(every) - len(failed)} of {len(every)} rows passed"]
    lines += [f"failed: {name}" for name in failed]
    lines += [f"not checked: {row.name}: {row.unchecked}" for row in every if row.unchecked]
    return "\n".join(lines)
