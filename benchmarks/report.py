"""What the benchmarks share: their arguments, Markdown tables, intervals, and pages of the docs."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CLIPS = ROOT.parent / "shared" / "clips"
RESAMPLES = 2000


def arguments(about: str | None, *, clips: bool = False, model: str | None = None) -> argparse.ArgumentParser:
    """A script's parser. about: its docstring. clips: it takes the folder of labelled clips. model: the default of
    the model that it takes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if clips:
        parser.add_argument("--clips", type=Path, default=CLIPS, help="folder of labelled clips and their lists")
    if model:
        parser.add_argument("--model", default=model)
    return parser


def markdown(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    first, *others = (f"| {' | '.join(map(str, cells))} |" for cells in (headers, *rows))
    return "\n".join([first, "|" + "---|" * len(headers), *others])


def interval(values: Sequence[float], sources: Sequence[object] | None = None) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean. sources: of each value; whole sources are then drawn."""
    of: dict[object, list[float]] = defaultdict(list)
    for value, source in zip(values, sources or range(len(values)), strict=True):
        of[source].append(float(value))
    sums, sizes = (np.array([measure(group) for group in of.values()]) for measure in (sum, len))
    drawn = np.random.default_rng(0).integers(0, len(sums), (RESAMPLES, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / sizes[drawn].sum(1), (0.025, 0.975))
    return float(low), float(high)


def mean_text(values: Sequence[float], sources: Sequence[object] | None = None) -> str:
    """`0.123 (0.10–0.15)`: the mean and its interval."""
    if not len(values):
        return "–"
    low, high = interval(values, sources)
    return f"{np.mean(values):.3f} ({low:.2f}–{high:.2f})"


def write_json(path: Path, values: object) -> None:
    """Keep what was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n")


def replace_section(name: str, text: str) -> None:
    """Write a table to benchmarks/results/ and show it on docs/benchmarks.md, where it stays in its place."""
    file = RESULTS / f"{name.replace(' ', '-')}.md"
    file.write_text(text.strip() + "\n", encoding="utf-8")
    page = ROOT / "docs" / "benchmarks.md"
    shown, line = page.read_text(encoding="utf-8"), f'--8<-- "{file.relative_to(ROOT)}"'
    if line not in shown:
        page.write_text(f"{shown.rstrip()}\n\n{line}\n", encoding="utf-8")
