"""What must not change a count: mirroring, scale, rate, light, compression, time's direction; and false counts.

    python benchmarks/metamorphic.py [--model lite|FILE.safetensors] [--quick] [--only relations|negatives] [--out F]

Relations: every clip of DIR/dev.csv is counted as it is and changed. A relation holds where the counts differ by at
most one (the clip after itself: from twice the count). Negatives: stretches without repetitions; whatever is counted
there is wrong. Every count is kept in a JSON file as it comes, and a run that was stopped goes on there, as long as
the model's weights and the code that counts, changes and makes the clips are the same. Prints tables; the whole run
of a shipped model is put into docs/benchmarks.md.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import transformed
from labelled import LabelledSet, read_sets
from negatives import FIVE, Negative, generated, real_stretches
from report import RESULTS, ROOT, arguments, markdown, replace_section
from transformed import Pictures

import escounts
from escounts.research.training.run_folder import PREDICTING, code_identity
from escounts.system.atomic_files import write_text

TOLERANCE = 1
WANTED = 0.90
QUICK_CLIPS, QUICK_PHOTOGRAPHS, PHOTOGRAPHS = 12, 3, 10
RELATIONS: dict[str, Callable[[Pictures], Pictures]] = {
    "mirrored": transformed.mirrored,
    "half the size": transformed.scaled,
    "a tenth cropped": transformed.cropped,
    "re-encoded (x264, crf 28)": transformed.re_encoded,
    "strongly compressed (crf 40)": transformed.compressed,
    "half the frame rate": transformed.half_rate,
    "double the frame rate": transformed.double_rate,
    "brighter": transformed.brighter,
    "darker": transformed.darker,
    "backwards": transformed.backwards,
    "after itself (twice the count)": transformed.twice,
    "1.25 times as fast": transformed.faster,
    "0.8 times as fast": transformed.slower,
    "in a box of a larger picture": transformed.in_a_box,
    "3 s still before and after": transformed.between_stills,
}
TWICE = "after itself (twice the count)"
BOXED = "in a box of a larger picture"


def main() -> None:
    parser = arguments(__doc__, clips=True, model="lite")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CLIPS} clips, {QUICK_PHOTOGRAPHS} photographs")
    parser.add_argument("--only", choices=("relations", "negatives"))
    parser.add_argument("--out", type=Path, help="JSON file of every count")
    options = parser.parse_args()
    counter = escounts.load(options.model, device=options.device)
    shipped = not Path(options.model).is_file()
    kept = RESULTS / f"metamorphic_{options.model}.json" if shipped and not options.quick else None
    record = Record.of(options.out or kept, options.model, weights_of(options.model), code_of())
    tables = []
    if options.only != "negatives":
        clips = chosen(read_sets(options.clips / "dev.csv", options.clips), QUICK_CLIPS if options.quick else None)
        tables.append(relations_table(relations(counter, clips, record)))
        print(tables[-1] + "\n", flush=True)
    if options.only != "relations":
        tables.append(negatives_table(false_counts(counter, options.clips, record, quick=options.quick)))
        print(tables[-1] + "\n", flush=True)
    if shipped and not options.quick and options.only is None:
        machine = f"{time.strftime('%Y-%m-%d')}, weights {record.weights[:12]}, {options.device}"
        heading = (
            f"## What must not change a count (`{options.model}`)\n\n`python benchmarks/metamorphic.py`, {machine}."
        )
        replace_section(f"metamorphic {options.model}", "\n\n".join([heading, *tables]))


@dataclass
class Record:
    """Every count that was made, by what was counted; written to a file after each."""

    path: Path | None
    model: str
    weights: str
    code: str
    counts: dict[str, Any]

    @classmethod
    def of(cls, path: Path | None, model: str, weights: str, code: str) -> Record:
        """The record in a file, as far as it is of the same weights and the same code."""
        counts: dict[str, Any] = {}
        if path is not None and path.is_file():
            kept = json.loads(path.read_text())
            if (kept.get("weights"), kept.get("code")) == (weights, code):
                counts = kept["counts"]
            else:
                print(f"{path} is of other {'code' if kept.get('weights') == weights else 'weights'}: starting anew")
        return cls(path, model, weights, code, counts)

    def get(self, name: str, count: Callable[[], Any]) -> Any:
        """What was counted under this name, now or before."""
        if name not in self.counts:
            self.counts[name] = count()
            if self.path is not None:
                about = {"model": self.model, "weights": self.weights, "code": self.code}
                whole = {**about, "counts": self.counts}
                write_text(self.path, json.dumps(whole, indent=1) + "\n")
        return self.counts[name]


def weights_of(model: str) -> str:
    """sha256 of a model's file; its name where it has none."""
    path = (
        Path(model) if Path(model).is_file() else Path(escounts.__file__).parent / "weights" / f"{model}.safetensors"
    )
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else model


def code_of() -> str:
    """A hash of what decides a count here: the package's arithmetic, and how clips are changed and made."""
    beside = b"".join(
        (ROOT / "benchmarks" / f"{name}.py").read_bytes() for name in ("metamorphic", "transformed", "negatives")
    )
    return f"{code_identity(PREDICTING)}-{hashlib.sha256(beside).hexdigest()[:16]}"


def chosen(clips: list[LabelledSet], limit: int | None) -> list[LabelledSet]:
    """All, or `limit` evenly over the list, shorter ones than half a minute."""
    if limit is None:
        return clips
    short = [clip for clip in clips if clip.duration < 20]
    return [short[index * len(short) // limit] for index in range(limit)]


def relations(counter: escounts.Counter, clips: Sequence[LabelledSet], record: Record) -> list[dict[str, Any]]:
    """For every clip: name, truth, and [count, raw count, sure] as it is and by relation."""
    rows = []
    for number, clip in enumerate(clips, 1):
        began = time.perf_counter()
        rows.append(record.get(f"clip {clip.path.name}", partial(_related, counter, clip)))
        print(f"{number}/{len(clips)} {clip.path.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows


def _related(counter: escounts.Counter, clip: LabelledSet) -> dict[str, Any]:
    pictures = transformed.read(clip.path)
    row: dict[str, Any] = {"clip": clip.path.name, "truth": clip.count, "as it is": _count(counter, pictures)}
    for name, change in RELATIONS.items():
        row[name] = _count(counter, change(pictures), region=transformed.BOX if name == BOXED else None)
    return row


def _count(counter: escounts.Counter, pictures: Pictures, *, region: str | None = None) -> list[Any]:
    result = counter.count(pictures.as_video(), region=region)
    return [result.count, round(result.raw_count, 3), not result.unsure]


def relations_table(rows: Sequence[dict[str, Any]]) -> str:
    """How often each relation holds, and how often both counts are called sure where it does not."""
    about = (
        f"{len(rows)} clips, each counted as it is and changed. Tolerance: the counts differ by at most {TOLERANCE}\n"
        f"(the clip after itself: from twice the count). Asked of each relation: {WANTED:.0%} of the clips."
    )
    lines = []
    for name in RELATIONS:
        factor = 2 if name == TWICE else 1
        changes = [(abs(row[name][0] - factor * row["as it is"][0]), row) for row in rows]
        same = sum(change == 0 for change, _ in changes)
        held = sum(change <= TOLERANCE for change, _ in changes)
        sure = sum(change > TOLERANCE and row[name][2] and row["as it is"][2] for change, row in changes)
        worst, row = max(changes, key=lambda pair: pair[0])
        example = f"{row['as it is'][0]} → {row[name][0]}" if worst else "–"
        verdict = "holds" if held >= WANTED * len(rows) else "**falls short**"
        lines.append([name, same, f"{held} ({held / len(rows):.0%})", sure, example, verdict])
    headers = ("relation", "same count", "within 1", "off by more and both sure", "largest change", "")
    return f"{about}\n\n{markdown(headers, lines)}"


def false_counts(counter: escounts.Counter, folder: Path, record: Record, *, quick: bool) -> list[dict[str, Any]]:
    """For every negative: group, name, seconds, count, sure."""
    made = generated(folder, QUICK_PHOTOGRAPHS if quick else PHOTOGRAPHS)
    stretches = real_stretches(folder, QUICK_CLIPS if quick else None)
    return [
        record.get(f"{negative.group}: {negative.name}", partial(_false, counter, negative))
        for negative in chain(made, stretches)
    ]


def _false(counter: escounts.Counter, negative: Negative) -> dict[str, Any]:
    pictures = negative.pictures()
    count, raw, sure = _count(counter, pictures)
    about = {"group": negative.group, "name": negative.name, "seconds": round(pictures.duration, 2)}
    return {**about, "count": count, "raw": raw, "sure": sure}


def negatives_table(rows: Sequence[dict[str, Any]]) -> str:
    """False counts per minute by group, and how many were called sure."""
    about = (
        "Stretches without repetitions: what is counted there is wrong. Asked: stills over the first five codecs at\n"
        "most 1 per minute, none of them sure. Fresh stills are of clips that nobody had in view when choosing."
    )
    parts = {group: [group] for group in dict.fromkeys(row["group"] for row in rows)}
    for kind in ("still", "fresh still"):
        parts[f"**{kind}s over five codecs**"] = [f"{kind}, {codec}" for codec in FIVE]
    parts["**all**"] = [*parts]
    lines = [_negatives_row(name, [row for row in rows if row["group"] in of]) for name, of in parts.items()]
    headers = ("", "stretches", "counted", "of these sure", "false counts per minute")
    return f"{about}\n\n{markdown(headers, lines)}"


def _negatives_row(name: str, rows: Sequence[dict[str, Any]]) -> list[object]:
    counted = [row for row in rows if row["count"] > 0]
    minutes = sum(row["seconds"] for row in rows) / 60
    rate = sum(row["count"] for row in rows) / minutes if minutes else 0.0
    return [name, len(rows), len(counted), sum(row["sure"] for row in counted), f"{rate:.1f}"]


if __name__ == "__main__":
    main()
