"""A table with ours beside the published numbers, as text, Markdown and CSV. A cell nobody measured stays empty.

Whether one row is better than another is compared over the same videos and seeds, with an interval, beside what the
paper says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Literal

import numpy as np

from escounts.arrays import Array
from escounts.csv_text import csv_text
from escounts.evaluation.report import exemplar_report
from escounts.evaluation.table_runner import Measured, TableRunner, Unavailable
from escounts.evaluation.table_spec import Table, TableRow
from escounts.training.predictions import Prediction, true_counts

Errors = Array
"""(seeds, videos): relative count errors, the terms of MAE; videos whose true count is 0 are left out."""
Verdict = Literal["confirmed", "contradicted", "undecided"]
RESAMPLES = 4000


@dataclass(frozen=True)
class Difference:
    """Ours less the reference's in MAE, with a 95 % interval; verdict: what that says of the paper's order."""

    value: float
    low: float
    high: float
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]: {self.verdict}"


def relative_errors(seeds: Sequence[Sequence[Prediction]]) -> Errors:
    """|c − c̃| / c of every video, rounded counts, one line per seed."""
    lines = []
    for rows in seeds:
        truth, counted = true_counts(rows), np.rint([row.predicted for row in rows])
        some = truth > 0
        lines.append(np.abs(truth[some] - counted[some]) / truth[some])
    return np.stack(lines)


def resampled(errors_SV: Errors) -> Errors:
    """Means of the errors over seeds and videos drawn again, both with replacement, (RESAMPLES,)."""
    rng = np.random.default_rng(0)
    seeds, videos = errors_SV.shape
    means = np.empty(RESAMPLES)
    for turn in range(RESAMPLES):
        by_seed = errors_SV[rng.integers(seeds, size=seeds)].mean(0)
        means[turn] = by_seed[rng.integers(videos, size=videos)].mean()
    return means


def interval(errors_SV: Errors) -> tuple[float, float, float]:
    """MAE over all seeds and its 95 % interval over seeds and videos."""
    low, high = np.quantile(resampled(errors_SV), [0.025, 0.975])
    return float(errors_SV.mean()), float(low), float(high)


def compare(row_SV: Errors, reference_SV: Errors, *, paper: float | None) -> Difference:
    """A row against the reference on the same videos. paper: the published difference of the two in MAE.

    The paper's order is confirmed where our interval lies on its side of 0, contradicted where on the other,
    undecided where it holds 0 or the paper sees no difference.
    """
    seeds = min(len(row_SV), len(reference_SV))
    means = resampled(row_SV[:seeds] - reference_SV[:seeds])
    low, high = (float(value) for value in np.quantile(means, [0.025, 0.975]))
    value = float(row_SV.mean() - reference_SV.mean())
    verdict: Verdict = "undecided"
    if paper and (low > 0 or high < 0):
        verdict = "confirmed" if (value > 0) == (paper > 0) else "contradicted"
    return Difference(value, low, high, verdict)


NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """One printed row: whose numbers they are and, per column, the values of each seed (none: not measured).

    videos: how many of the split were scored. measured: where the values come from, for comparisons.
    """

    labels: tuple[str, ...]
    source: str
    values: tuple[tuple[float, ...], ...]
    videos: str = ""
    measured: tuple[Measured | None, ...] = ()

    def texts(self) -> list[str]:
        """Its cells as they are printed."""
        return [*self.labels, self.source, *(cell_text(values) for values in self.values), self.videos]


@dataclass(frozen=True)
class FilledTable:
    """A table as it is printed. notes: what is missing and why, spreads, machines."""

    name: str
    title: str
    headers: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)

    def texts(self) -> list[list[str]]:
        """All cells as text, without the header."""
        return [row.texts() for row in self.rows]

    def markdown(self) -> str:
        """The table in Markdown with its notes."""
        rows = [list(self.headers), ["---"] * len(self.headers), *self.texts()]
        body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"## Table {self.name}: {self.title}\n\n{body}\n{notes}\n"

    def csv(self) -> str:
        """One line per row and seed; empty where nothing was measured."""
        table: list[list[object]] = []
        for row in self.rows:
            for seed in range(max((len(values) for values in row.values), default=0) or 1):
                values = [v[seed] if seed < len(v) else None for v in row.values]
                own = row.measured or row.source.startswith("ours")
                table.append([*row.labels, row.source, *values, row.videos, seed if own else None])
        return csv_text([*self.headers, "seed"], table)


def fill(
    table: Table,
    runner: TableRunner,
    *,
    ours: str = "ours",
    extra: Sequence[Row] = (),
    notes: Sequence[str] = (),
) -> FilledTable:
    """Measure what can be measured. A row of ours that cannot be run as it is labelled is printed as not run, and
    the notes say with which command it would be. extra: further rows, which carry their own source."""
    rows: list[Row] = []
    told: dict[str, None] = {}
    for row in table.rows:
        if any(number is not None for cells in row.cells for number in cells.published):
            sources = dict.fromkeys(cells.source for cells in row.cells)
            rows.append(Row(row.labels, ", ".join(sources), _published(row)))
        if not any(cells.ours for cells in row.cells):
            continue
        found = [
            runner.measure(cells, group.columns) if cells.ours else None
            for cells, group in zip(row.cells, table.groups, strict=True)
        ]
        for outcome, cells in zip(found, row.cells, strict=True):
            if isinstance(outcome, Unavailable):
                command = f"; make it with: {outcome.command}" if outcome.command else ""
                told[f"{' '.join(row.labels)}: {NOT_RUN}, {outcome.reason}{command}"] = None
            elif outcome is not None:
                told[outcome.coverage.text()] = None
                if lacking := exemplar_report(outcome.rows[0], cells.spec.shots):
                    told[f"{' '.join(row.labels)}: {lacking}"] = None
        rows.append(_ours(table, row, found, ours))
    spread = ["± is the standard deviation over the seeds"] if len(runner.seeds) > 1 else []
    headers = (*table.labels, "source", *_headers(table), "videos")
    every = [*([table.note] if table.note else []), *told, *spread, *notes]
    return FilledTable(table.name, table.title, headers, (*rows, *extra), tuple(every))


def cell_text(values: Sequence[float]) -> str:
    """Mean and spread of the seeds; empty when there are none."""
    if not values:
        return ""
    digits = 2 if abs(values[0]) >= 10 else 3
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def _ours(table: Table, row: TableRow, found: Sequence[Measured | Unavailable | None], ours: str) -> Row:
    values: list[tuple[float, ...]] = []
    videos: list[str] = []
    measured: list[Measured | None] = []
    for outcome, group in zip(found, table.groups, strict=True):
        if isinstance(outcome, Measured):
            values += [tuple(outcome.values[column]) for column in group.columns]
            videos.append(outcome.coverage.short)
            measured.append(outcome)
        else:
            values += [()] * len(group.columns)
            videos.append("–" if outcome is None else NOT_RUN)
            measured.append(None)
    source = ours if any(measured) else f"{ours}, {NOT_RUN}"
    return Row(row.labels, source, tuple(values), " · ".join(videos), tuple(measured))


def _published(row: TableRow) -> tuple[tuple[float, ...], ...]:
    numbers = [number for cells in row.cells for number in cells.published]
    return tuple(() if number is None else (number,) for number in numbers)


def _headers(table: Table) -> list[str]:
    return [f"{group.title} {column}".strip() for group in table.groups for column in group.columns]
