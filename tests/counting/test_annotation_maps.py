"""Every row of every real annotation file with repetition times: the map's sum is the number of spans."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from escounts.counting.maps import density_map, rate_map

FRAMES_PER_CELL = 8.0
ROWS = 10_727


class Row(NamedTuple):
    """One annotated video, in frames; cells: of its whole map."""

    file: str
    name: str
    counted: str | None
    spans: list[tuple[float, float]]
    cells: int


def rows(shared: Path) -> Iterator[Row]:
    """Every row that has columns for repetition times."""
    for path in sorted((shared / "annotations").rglob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                times = [key for key in row if key.startswith("L") and key[1:].isdigit()]
                if not times:
                    continue
                values = [float(row[key]) - float(row.get("start_frame", 0)) for key in times if row[key]]
                frames = float(row.get("num_frames") or max(values, default=0) + 1)
                yield Row(
                    file=f"{path.parent.name}/{path.name}",
                    name=row.get("name") or row["video_id"],
                    counted=row.get("count", row.get("counts")),
                    spans=list(zip(values[::2], values[1::2], strict=True)),
                    cells=math.ceil(frames / FRAMES_PER_CELL),
                )


def test_sum_of_every_real_row(shared: Path) -> None:
    seen = Counter[str]()
    differs: dict[str, tuple[str | None, int]] = {}
    for file, name, count, spans, cells in rows(shared):
        seen["rows"] += 1
        total = density_map(spans, cells=cells, step=FRAMES_PER_CELL, outside="keep").sum()
        assert total == pytest.approx(len(spans), abs=1e-4), f"{file} {name}"
        end = max((high for _, high in spans), default=0.0)
        all_cells = math.floor(end / FRAMES_PER_CELL) + 1
        rate = rate_map(spans, cells=all_cells, step=FRAMES_PER_CELL).sum()
        assert rate == pytest.approx(len(spans), abs=1e-4), f"{file} {name}"
        if not count or float(count) != len(spans):
            differs[f"{file} {name}"] = (count, len(spans))
    assert seen["rows"] == ROWS
    print(f"{len(differs)} rows whose count is missing or differs from their spans:")
    for where, (count, found) in differs.items():
        print(f"  {where}: count {count!r}, {found} spans")
    assert differs == {
        "repcount/train.csv test118.mp4": ("6.0", 5),
        "repcount/train.csv stu6_44.mp4": ("", 0),
        "repcount_open_set/test.csv test118.mp4": ("6", 5),
    }
