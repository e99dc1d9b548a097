"""A table with ours beside the published numbers, as text, Markdown and CSV. A cell nobody measured stays empty.

Whether one row is better than another is compared over the same videos and seeds, with an interval, beside what the
paper says of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Literal

import numpy as np

from escounts.output.text import csv_text
from escounts.research.evaluation.report import exemplar_report
from escounts.research.training.predictions import Prediction, true_counts
from escounts.system.arrays import Array
from paper.entries import Table, TableRow
from paper.runs import Measured, TableRunner, Unavailable

Errors = Array
"""(seeds, videos): relative count errors, the terms of MAE; videos whose true count is 0 are left out."""
Verdict = Literal["confirmed", "contradicted", "undecided"]
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 15: 2.13, 25: 2.06, 60: 2.00,
           1000: 1.96}  # fmt: skip
"""97.5 % quantiles of Student's t by degrees of freedom; between two, the smaller holds."""


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


@dataclass(frozen=True)
class SeedSpread:
    """How far MAE differs from seed to seed: standard deviation, and how many differences it was measured from."""

    deviation: float
    freedom: int

    @classmethod
    def over(cls, rows: Iterable[Errors]) -> SeedSpread | None:
        """Of rows that are the same kind of run, taken together: three seeds alone say next to nothing about it. None
        where no row has two seeds."""
        several = [errors_SV.mean(1) for errors_SV in rows if len(errors_SV) > 1]
        freedom = sum(len(means) - 1 for means in several)
        if not freedom:
            return None
        squares = sum(((means - means.mean()) ** 2).sum() for means in several)
        return cls(float(np.sqrt(squares / freedom)), freedom)


def interval(
    errors_SV: Errors, spread: SeedSpread | None = None, sources_V: Sequence[str] | None = None
) -> tuple[float, float, float]:
    """MAE over all seeds and its 95 % interval over seeds and videos. spread: from seed to seed; None: by these
    seeds. sources_V: where each video is from, for an interval over sources."""
    seeds, spread = len(errors_SV), spread or SeedSpread.over([errors_SV])
    value = float(errors_SV.mean())
    by_seed = (spread.deviation**2 / seeds, float(spread.freedom)) if spread else (0.0, 1.0)
    half = _half_width(by_seed, _over_videos(errors_SV.mean(0), sources_V))
    return value, value - half, value + half


def compare(
    row_SV: Errors,
    reference_SV: Errors,
    *,
    paper: float | None,
    spread: SeedSpread | None = None,
    paired: bool = False,
    sources_V: Sequence[str] | None = None,
) -> Difference:
    """A row against the reference on the same videos. paper: the published difference of the two in MAE.

    spread: of MAE from seed to seed, where rows are of one kind; None: by the seeds of these two. paired: both are
    evaluations of the same runs, seed by seed. sources_V: where each video is from.
    The paper's order is confirmed where our interval lies on its side of 0, contradicted where on the other,
    undecided where it holds 0, where nothing is known of how seeds differ, or where the paper sees no difference.
    """
    value = float(row_SV.mean() - reference_SV.mean())
    if paired:
        own = SeedSpread.over([row_SV - reference_SV])
        by_seed = None if own is None else (own.deviation**2 / len(row_SV), float(own.freedom))
    elif spread is not None:
        runs = 1 / len(row_SV) + 1 / len(reference_SV)
        by_seed = spread.deviation**2 * runs, float(spread.freedom)
    else:
        by_seed = _welch(row_SV, reference_SV)
    if by_seed is None:
        return Difference(value, -math.inf, math.inf, "undecided")
    half = _half_width(by_seed, _over_videos(row_SV.mean(0) - reference_SV.mean(0), sources_V))
    verdict: Verdict = "undecided"
    if paper and abs(value) > half:
        verdict = "confirmed" if (value > 0) == (paper > 0) else "contradicted"
    return Difference(value, value - half, value + half, verdict)


def differences(
    table: Table,
    errors: Mapping[tuple[str, ...], Mapping[int, Errors]],
    *,
    spread: SeedSpread | None = None,
    sources: Sequence[str] | None = None,
) -> dict[tuple[str, ...], Difference]:
    """Every measured row against the table's reference. errors: labels of a row → seed → its errors. Evaluations of
    one run are compared seed by seed, over the seeds that both have. spread, sources: see `compare`."""
    reference = table.reference
    if reference is None or reference not in errors:
        return {}
    runs = {row.labels: row.cells[0].recipe for row in table.rows}
    found = {}
    for labels, mine in errors.items():
        if labels != reference:
            both = sorted(mine.keys() & errors[reference].keys())  # a run may lack an evaluation yet
            paired = runs[labels] == runs[reference] and bool(both)
            ours, other = (
                np.stack([one[seed] for seed in (both if paired else one)]) for one in (mine, errors[reference])
            )
            paper = table.published_difference(labels)
            found[labels] = compare(ours, other, paper=paper, spread=spread, paired=paired, sources_V=sources)
    return found


def _over_videos(errors_V: Errors, sources_V: Sequence[str] | None = None) -> float:
    """Variance of a mean over videos; what one of them adds is bounded, and they are hundreds. With their sources:
    videos of one source stray together, and sources are what is drawn."""
    if sources_V:
        _, place_V = np.unique(list(sources_V), return_inverse=True)
        strayed_G = np.bincount(place_V, errors_V - errors_V.mean())
        groups = len(strayed_G)
        return float((strayed_G**2).sum() / len(errors_V) ** 2 * groups / max(groups - 1, 1))
    return float(errors_V.var(ddof=1) / len(errors_V)) if len(errors_V) > 1 else 0.0


def _welch(one_SV: Errors, other_SV: Errors) -> tuple[float, float] | None:
    """Variance of the difference of two means over seeds, each with a spread of its own, and its freedom (Welch)."""
    parts = []
    for errors_SV in (one_SV, other_SV):
        own = SeedSpread.over([errors_SV])
        if own is None:
            return None
        parts.append((own.deviation**2 / len(errors_SV), own.freedom))
    variance = sum(part for part, _ in parts)
    return variance, variance**2 / sum(part**2 / n for part, n in parts) if variance else math.inf


def _half_width(by_seed: tuple[float, float], by_video: float) -> float:
    """Of a 95 % interval: Student's t for what few seeds say of their own spread (Welch–Satterthwaite)."""
    variance, freedom = by_seed
    total = variance + by_video
    if not total:
        return 0.0
    shared = freedom * (total / variance) ** 2 if variance else math.inf
    return STUDENT[max(n for n in STUDENT if n <= max(shared, 1))] * math.sqrt(total)


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
        body = markdown_table(self.headers, self.texts())
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


def fill(table: Table, runner: TableRunner, *, ours: str = "ours", notes: Sequence[str] = ()) -> FilledTable:
    """Measure what can be measured. A row of ours that cannot be run as it is labelled is printed as not run, and
    the notes say with which command it would be."""
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
    return FilledTable(table.name, table.title, headers, tuple(rows), tuple(every))


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [list(headers), ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


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
    trained = dict.fromkeys(one.training for one in measured if one is not None and one.training)
    source = "; ".join([ours, *trained]) if any(measured) else f"{ours}, {NOT_RUN}"
    return Row(row.labels, source, tuple(values), " · ".join(videos), tuple(measured))


def _published(row: TableRow) -> tuple[tuple[float, ...], ...]:
    numbers = [number for cells in row.cells for number in cells.published]
    return tuple(() if number is None else (number,) for number in numbers)


def _headers(table: Table) -> list[str]:
    return [f"{group.title} {column}".strip() for group in table.groups for column in group.columns]
