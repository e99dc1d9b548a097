"""What a decision rests on: counts before and after a change of the rules, and each rule tried off.

    python benchmarks/decisions.py --clips DIR --out FILE.json
    python benchmarks/decisions.py --clips DIR --against FILE.json [--rule long_exemplar=9]

Counts the clips of DIR/dev.csv, the sets of DIR/sets.csv by their own range, and every labelled clip of DIR/pool that
is not trained on (`val`), zero-shot and with one exemplar; writes count, unit, hypotheses, confidence and reasons, or
prints what differs from such a file. --rule gives one of `CountingRules` another value.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from labelled import Span, by_clip, read_sets
from report import arguments, write_json

import escounts
from escounts.decision.rules import RULES
from escounts.errors import EscountsError

COMPARED = ("count", "raw_count", "unit", "hypotheses", "confidence", "unsure", "reasons")


class Asked(NamedTuple):
    """One stretch of a clip: its true count, its range (None: all of it), one marked repetition (None: none)."""

    truth: float
    range: Span | None
    exemplar: Span | None


def main() -> None:
    parser = arguments(__doc__, clips=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rule", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    for name, value in (rule.split("=") for rule in options.rule):
        object.__setattr__(RULES, name, type(getattr(RULES, name))(value))  # every room holds this one object
    found = decisions(escounts.load("lite"), options.clips)
    if options.out:
        write_json(options.out, found)
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
                    document = encoded.count(marked, start=start, end=end).to_dict()
                    answer = {name: document[name] for name in COMPARED}
                except EscountsError as error:
                    answer = {"error": str(error)}
                found[f"{file} {number} {way}"] = {"truth": truth, **answer}
    return found


def questions(folder: Path) -> Iterator[tuple[str, Asked]]:
    """Files with what is asked of them."""
    for list_name in ("dev.csv", "sets.csv"):
        for one in read_sets(folder / list_name, folder):
            yield one.name, Asked(one.count, one.within, one.exemplar)
    for name, sets in by_clip(read_sets(folder / "pool_labels.csv", folder, split="val")).items():
        exemplar = next((one.exemplar for one in sets if one.exemplar), None)
        yield name, Asked(sum(one.count for one in sets), None, exemplar)


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


if __name__ == "__main__":
    main()
