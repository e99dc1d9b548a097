"""Labelled clips as every benchmark reads them: dev.csv, sets.csv and pool_labels.csv beside the clips, held_out.csv
here. The lists share their columns; pool.csv says whose footage a clip is."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from report import ROOT

Span = tuple[float, float]
HELD_OUT = ROOT / "benchmarks" / "held_out.csv"


@dataclass(frozen=True)
class LabelledSet:
    """Repetitions of one motion in a clip: a row of a list. Times in seconds.

    name: as the list writes the file. group: the part of a list that it belongs to. within: where they lie, None for
    the whole clip. spans, ends: all of them, where they are annotated. exemplar: the one that is marked, else the
    middle one. sure: the label is exact.
    """

    path: Path
    name: str
    count: int
    group: str
    source: str
    motion: str
    split: str
    duration: float
    within: Span | None
    spans: tuple[Span, ...]
    ends: tuple[float, ...]
    exemplar: Span | None
    sure: bool


def read_table(table: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_sets(table: Path, clips: Path, *, split: str | None = None) -> list[LabelledSet]:
    """The rows of a list. clips: the folder that its files lie in. split: of the rows, those of this split."""
    pool = clips / "pool.csv"
    sources = {row["file"]: row["source"] for row in read_table(pool)} if pool.is_file() else {}
    return [_labelled(row, clips, sources) for row in read_table(table) if split in (None, row.get("split"))]


def by_clip(sets: Iterable[LabelledSet]) -> dict[str, list[LabelledSet]]:
    """The sets of every clip, by its name."""
    found: dict[str, list[LabelledSet]] = defaultdict(list)
    for one in sets:
        found[one.name].append(one)
    return found


def _labelled(row: dict[str, str], clips: Path, sources: dict[str, str]) -> LabelledSet:
    spans = tuple(_span(*text.split("-")) for text in row.get("rep_times", "").split())
    marked = row.get("exemplar_start_s")
    return LabelledSet(
        path=clips / row["file"],
        name=row["file"],
        count=int(row["count"] or 0),
        group=row.get("set", ""),
        source=row.get("source") or sources.get(row["file"], row["file"]),
        motion=row.get("motion") or row.get("action", ""),
        split=row.get("split", ""),
        duration=float(row.get("duration_s") or "nan"),
        within=_span(row["t_start"], row["t_end"]) if row.get("t_start") else None,
        spans=spans,
        ends=tuple(float(end) for end in row.get("rep_ends_s", "").split()),
        exemplar=_span(marked, row["exemplar_end_s"]) if marked else spans[len(spans) // 2] if spans else None,
        sure=row.get("sure") != "0",
    )


def _span(start: str, end: str) -> Span:
    return float(start), float(end)
