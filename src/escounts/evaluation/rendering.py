"""A table of the paper with ours beside it, as text, Markdown and CSV. A cell nobody measured stays empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

from escounts.evaluation.workbench import Measured, TableRunner, Unavailable
from escounts.training.recipes import Row, Table


@dataclass(frozen=True)
class Line:
    """One printed line: whose numbers they are and, per column, the values of each seed (none: not measured)."""

    labels: tuple[str, ...]
    source: str
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class FilledTable:
    """A table as it is printed. notes: what is missing and why, spreads, machines."""

    name: str
    title: str
    headers: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)

    def texts(self) -> list[list[str]]:
        """All cells as text, without the header."""
        return [[*line.labels, line.source, *(cell(values) for values in line.values)] for line in self.lines]

    def markdown(self) -> str:
        """The table in Markdown with its notes."""
        rows = [list(self.headers), ["---"] * len(self.headers), *self.texts()]
        body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"## Table {self.name}: {self.title}\n\n{body}\n{notes}\n"

    def csv(self) -> str:
        """One row a line and seed; empty where nothing was measured."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([*self.headers, "seed"])
        for line in self.lines:
            for seed in range(max((len(values) for values in line.values), default=0) or 1):
                values = [str(v[seed]) if seed < len(v) else "" for v in line.values]
                writer.writerow([*line.labels, line.source, *values, seed if line.source != "paper" else ""])
        return text.getvalue()


def fill(
    table: Table,
    bench: TableRunner,
    *,
    ours: str = "ours",
    paper: str = "paper",
    extra: Sequence[Line] = (),
    notes: Sequence[str] = (),
) -> FilledTable:
    """Measure what can be measured. extra: further lines, such as baselines; they carry their own source."""
    lines: list[Line] = []
    missing: dict[str, None] = {}
    for row in table.rows:
        lines.append(Line(row.labels, paper, _published(row)))
        values: list[tuple[float, ...]] = []
        for cells, group in zip(row.cells, table.groups, strict=True):
            found: Measured | Unavailable = Unavailable("")
            if cells.recipe is not None:
                found = bench.measure(cells, group.columns)
            if isinstance(found, Unavailable):
                missing[found.reason] = None
                values += [()] * len(group.columns)
            else:
                values += [tuple(found[column]) for column in group.columns]
        if any(values):
            lines.append(Line(row.labels, ours, tuple(values)))
    lines += extra
    absent = [f"not measured here: {reason}" for reason in missing if reason]
    spread = ["± is the standard deviation over the seeds"] if len(bench.seeds) > 1 else []
    headers = (*table.labels, "source", *_headers(table))
    every = [*([table.note] if table.note else []), *absent, *spread, *notes]
    return FilledTable(table.name, table.title, headers, tuple(lines), tuple(every))


def cell(values: Sequence[float]) -> str:
    """Mean and spread of the seeds; empty when there are none."""
    if not values:
        return ""
    digits = 2 if abs(values[0]) >= 10 else 3
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def _published(row: Row) -> tuple[tuple[float, ...], ...]:
    numbers = [number for cells in row.cells for number in cells.published]
    return tuple(() if number is None else (number,) for number in numbers)


def _headers(table: Table) -> list[str]:
    return [f"{group.title} {column}".strip() for group in table.groups for column in group.columns]
