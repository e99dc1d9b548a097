"""What a decision rests on: counts before and after a change of the rules, and each rule tried off.

    python benchmarks/decisions.py --clips DIR --out FILE.json
    python benchmarks/decisions.py --clips DIR --against FILE.json [--rule long_exemplar=9]

Counts the clips of DIR/dev.csv, the sets of DIR/sets.csv by their own range, and every labelled clip of DIR/pool that
is not trained on (`val`), zero-shot and with one exemplar; writes count, unit, hypotheses, confidence and reasons, or
prints what differs from such a file. --rule gives one of `CountingRules` another value.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import escounts
from escounts.decision.rules import RULES
from escounts.errors import EscountsError
from escounts.results import CountResult

HERE = Path(__file__).resolve().parent


class Asked(NamedTuple):
    """One stretch of a clip: its true count, its range (None: all of it), one marked repetition (None: none)."""

    truth: float
    range: tuple[float, float] | None
    exemplar: tuple[float, float] | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=HERE.parent.parent / "shared" / "clips")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rule", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    for name, value in (rule.split("=") for rule in options.rule):
        object.__setattr__(RULES, name, type(getattr(RULES, name))(value))  # every room holds this one object
    found = decisions(escounts.load("lite"), options.clips)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    if options.against:
        print_changes(json.loads(options.against.read_text()), found)


def decisions(counter: escounts.Counter, folder: Path) -> dict[str, dict[str, Any]]:
    """What is answered to every question, by file, number of the stretch and way of asking."""
    asked = defaultdict(list)
    for file, question in questions(folder):
        asked[file].append(question)
    found = {}
    for file, stretches in asked.items():
        encoded = counter.encode(folder / file)
        for number, (truth, span, exemplar) in enumerate(stretches):
            start, end = span or (None, None)
            for way, marked in {"zero-shot": [], "one exemplar": [exemplar] if exemplar else None}.items():
                if marked is None:
                    continue
                try:
                    answer = described(encoded.count(marked, start=start, end=end))
                except EscountsError as error:
                    answer = {"error": str(error)}
                found[f"{file} {number} {way}"] = {"truth": truth, **answer}
    return found


def questions(folder: Path) -> Iterator[tuple[str, Asked]]:
    """Files with what is asked of them."""
    for row in _rows(folder / "dev.csv"):
        yield row["file"], Asked(float(row["count"]), None, _span(row, "exemplar_start_s", "exemplar_end_s"))
    for row in _rows(folder / "sets.csv"):
        exemplar = _span(row, "exemplar_start_s", "exemplar_end_s")
        yield row["file"], Asked(float(row["count"]), _span(row, "t_start", "t_end"), exemplar)
    labelled: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _rows(folder / "pool_labels.csv"):
        labelled[row["file"]].append(row)
    for file, rows in labelled.items():
        if rows[0]["split"] == "val":
            times = next((row["rep_times"].split() for row in rows if row["rep_times"].strip()), [])
            low, _, high = times[len(times) // 2].partition("-") if times else ("", "", "")
            exemplar = (float(low), float(high)) if times else None
            yield file, Asked(sum(float(row["count"] or 0) for row in rows), None, exemplar)


def described(result: CountResult) -> dict[str, Any]:
    """What is compared."""
    document = result.to_dict()
    kept = ("count", "raw_count", "unit", "hypotheses", "confidence", "unsure", "reasons")
    return {name: document[name] for name in kept}


def print_changes(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> None:
    """A line per answer that differs, and how many counts came nearer to the truth or went away from it."""
    nearer = further = 0
    for key in sorted(before.keys() & after.keys()):
        old, new = before[key], after[key]
        if changed := [name for name in new if old.get(name) != new[name]]:
            print(key, *(f"{name}: {old.get(name)} -> {new[name]}" for name in changed), sep="; ")
        if "count" in old and "count" in new:
            off, now = (abs(one["count"] - one["truth"]) for one in (old, new))
            nearer, further = nearer + (now < off), further + (now > off)
    print(f"{len(before.keys() & after.keys())} answers; counts nearer to the truth: {nearer}, further: {further}")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _span(row: dict[str, str], start: str, end: str) -> tuple[float, float] | None:
    return (float(row[start]), float(row[end])) if row[start] else None


if __name__ == "__main__":
    main()
