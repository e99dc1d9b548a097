"""Your own action from few labels: real clips in halves, one half is learnt, the other is counted before and after.

    python benchmarks/own_action.py --clips DIR [--groups countix rope squats-by-side] [--out FILE.json]

DIR holds dev.csv and the clips it names (see real_clips.py). Clips of a group are halved by name, every other one;
each half is learnt once, from counts or the annotated ends of repetitions. `…-by-side` labels each half of a
repetition, the unit that the default model does not count. Nothing of the clips is kept. Prints a table, writes JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import escounts
from escounts.counting.density import pseudo_spans
from escounts.teach.own_action import FEWEST, LabelledVideo, Score, learn_action

HERE = Path(__file__).resolve().parent
GROUPS = {
    "countix": ("countix", ""),
    "rope": ("rope", ""),
    "exercise": ("exercise", ""),
    "squats-by-side": ("exercise", "squat"),
    "exercise-by-side": ("exercise", ""),
}
"""Name → the set in dev.csv and what the file's name holds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=HERE.parent.parent / "shared" / "clips")
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--halves", nargs="+", type=int, choices=[0, 1], default=[0, 1], help="which half is learnt")
    parser.add_argument("--most", type=int, default=10, help="most clips to learn from")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "own_action.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(HEADER)
    for group in options.groups:
        clips = labelled(options.clips, group)
        for half in options.halves:
            learnt, others = clips[half::2][: options.most], clips[1 - half :: 2][: options.most]
            if len(learnt) < FEWEST:
                print(f"{group}, half {half}: {len(learnt)} clips are too few to learn from", flush=True)
                continue
            rows.append(measure(group, learnt, others))
            print(line(rows[-1]), flush=True)
            options.out.parent.mkdir(exist_ok=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")


def labelled(folder: Path, group: str) -> list[LabelledVideo]:
    """The clips of a group with their repetitions, by name."""
    name, part = GROUPS[group]
    with (folder / "dev.csv").open(newline="") as table:
        found = [row for row in csv.DictReader(table) if row["set"] == name and part in row["file"]]
    return [
        _labelled(folder, row, by_side=group.endswith("-by-side")) for row in sorted(found, key=lambda r: r["file"])
    ]


def _labelled(folder: Path, row: dict[str, str], *, by_side: bool) -> LabelledVideo:
    count, ends = int(row["count"]), [float(end) for end in row["rep_ends_s"].split()]
    if len(ends) == count and count > 1:
        spans = list(pairwise([max(0.0, ends[0] - median(b - a for a, b in pairwise(ends))), *ends]))
    else:
        spans = pseudo_spans(count, 0.0, float(row["duration_s"]))
    if by_side:
        spans = [side for a, b in spans for side in ((a, (a + b) / 2), ((a + b) / 2, b))]
    return LabelledVideo(Path(row["file"]).name, folder / row["file"], len(spans), tuple(spans))


def measure(group: str, learnt: list[LabelledVideo], others: list[LabelledVideo]) -> dict[str, Any]:
    """Learn from some clips and count the others, before and after."""
    with tempfile.TemporaryDirectory() as folder:
        began, worked = time.perf_counter(), time.process_time()
        report = learn_action(learnt, Path(folder) / "own.safetensors", initial="lite", device="cpu")
        wall, cpu = time.perf_counter() - began, time.process_time() - worked
        truth = [clip.count for clip in others]
        old = escounts.load("lite", device="cpu")
        before = [old.count(clip.path).count for clip in others]
        new = escounts.load(str(report.path), device="cpu") if report.path else None
        after = before if new is None else [new.count(clip.path).count for clip in others]
    fitted = Score.of([video.fitted for video in report.videos], [video.labelled for video in report.videos])
    return {
        "group": group,
        "report": report.to_dict() | {"path": None},
        "fitted": asdict(fitted),
        "others": [
            {"name": clip.name, "labelled": clip.count, "before": b, "after": a}
            for clip, b, a in zip(others, before, after, strict=True)
        ],
        "others_before": asdict(Score.of(before, truth)),
        "others_after": asdict(Score.of(after, truth)),
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
    }


HEADER = (
    "| clips | learnt from: before | left out | fitted | other clips: before | after | helped | CPU, wall seconds |\n"
    "|---|---|---|---|---|---|---|---|"
)


def line(row: dict[str, Any]) -> str:
    """One row of the table: right of all, and the mean error."""

    def score(values: dict[str, Any], number: int) -> str:
        return f"{values['right']} of {number}, {values['error']:.2f}"

    learnt, others = len(row["report"]["videos"]), len(row["others"])
    cells = [
        row["group"],
        score(row["report"]["before"], learnt),
        score(row["report"]["after"], learnt),
        score(row["fitted"], learnt),
        score(row["others_before"], others),
        score(row["others_after"], others),
        "yes" if row["report"]["helped"] else "no, old model kept",
        f"{row['cpu_s']:.0f}, {row['wall_s']:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
