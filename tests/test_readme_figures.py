"""The README's first figures are those of the evaluation that is kept beside the benchmarks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from escounts.models import catalogue, store

ROOT = Path(__file__).resolve().parents[1]
SETS = {"gym": "exercise", "QUVA": "quva52", "Countix": "countix", "speed": "rope", "web": None}
"""A row's first word → the action in the file; None: all of the held-out clips."""


def test_the_table_is_the_evaluation() -> None:
    files = {name: evaluations(name) for name in ("dev", "held-out")}
    text = (ROOT / "README.md").read_text().split("## How well it counts")[1]
    rows = re.findall(r"^\| (\w+)[^|]*\((\d+)\) \| ([\d.]+), (\d+) % \| ([\d.]+), (\d+) % \|", text, re.MULTILINE)
    assert {row[0] for row in rows} == set(SETS)
    for word, videos, *figures in rows:
        for shots, (mae, obo) in enumerate((figures[:2], figures[2:])):
            counted = [(video["count"], round(video["predicted"]))
                       for video in files["dev" if SETS[word] else "held-out"][shots]
                       if SETS[word] in (None, video["action"])]  # fmt: skip
            errors = [abs(truth - said) for truth, said in counted]
            assert len(counted) == int(videos), word
            relative = [error / truth for error, (truth, _) in zip(errors, counted, strict=True)]
            assert float(mae) == pytest.approx(sum(relative) / len(relative), abs=6e-4), (word, shots)
            assert int(obo) == pytest.approx(100 * sum(error <= 1 for error in errors) / len(errors), abs=0.51), word


def evaluations(name: str) -> dict[int, list[dict[str, Any]]]:
    """Every video's truth and prediction, by the number of exemplars; of the weights that are shipped."""
    kept = json.loads((ROOT / "benchmarks" / "results" / f"evaluate-lite-{name}.json").read_text())
    shipped = store.describe(catalogue.LITE_WEIGHTS)
    assert kept["model"]["identity"]["sha256"] == shipped.sha256, "new weights: evaluate again"
    return {one["shots"]: one["videos"] for one in kept["evaluations"]}
