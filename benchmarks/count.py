"""A minute of 720p30: pure decoding against counting. Prints a table and writes it to benchmarks/results/.

    python benchmarks/count.py [--rounds 3] [--models spectral lite] [--device cuda]

Decoding and `escounts count` take turns, each in a process of its own; the median round is shown. Processor time is
what others on the machine disturb least. On a GPU the count is warm: loading is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import asdict

from footage import (
    FAST_REPETITIONS_A_SEGMENT,
    MARK,
    REPETITIONS_A_SEGMENT,
    Cost,
    cost_of,
    counting,
    decode,
    in_child,
    minute,
    processor_name,
)
from report import arguments, markdown, replace_section

PRECISION_VARIABLE = "ESCOUNTS_PRECISION"
"""escounts.nn.device has it, too; importing that is part of what is timed."""
MINUTE = 6
"""Segments."""
FAST = "fast motion"
MARKED = "one exemplar"
FLOAT32 = "in float32"
"""Said of a setting: counted so where the processor would choose bf16."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=None, help="default: spectral, and the default model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "VIDEO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, video = options.child
        model, _, setting = what.partition(", ")
        if setting.endswith(FLOAT32):
            os.environ[PRECISION_VARIABLE] = "float32"
        mark = MARK if setting == MARKED else None
        work = (lambda: decode(video)) if what == "decode" else counting(video, model, options.device, mark)
        print(json.dumps(asdict(cost_of(work))))
        return
    from escounts.models import catalogue
    from escounts.nn.device import cpu_has_bf16

    models = options.models or list(dict.fromkeys(["spectral", catalogue.default_name()]))
    video, quick = minute(), minute(FAST_REPETITIONS_A_SEGMENT)
    jobs = {"decode": video} | {model: video for model in models}
    for model in models:
        if model != "spectral":
            jobs |= {f"{model}, {MARKED}": video, f"{model}, {FAST}": quick}
            if options.device == "cpu" and cpu_has_bf16():
                jobs |= {f"{model}, {FLOAT32}": video, f"{model}, {FAST}, {FLOAT32}": quick}
    costs: dict[str, list[Cost]] = {job: [] for job in jobs}
    for _ in range(options.rounds):
        for job, footage in jobs.items():
            costs[job].append(Cost(**in_child(__file__, job, footage, "--device", options.device)))
    text = table(costs, options.device)
    print(text)
    replace_section("count" if options.device == "cpu" else f"count {options.device}", text)


def table(costs: dict[str, list[Cost]], device: str) -> str:
    """Markdown: one line a job."""
    plain = _median(costs["decode"], "cpu")
    about = (
        f"{processor_name()}; h264, {SECONDS} s, median of {len(costs['decode'])} rounds; "
        f"`python benchmarks/count.py --device {device}`. Truth: {MINUTE * REPETITIONS_A_SEGMENT} repetitions; "
        f"{FAST} {MINUTE * FAST_REPETITIONS_A_SEGMENT}."
    )
    rows = []
    for job, rounds in costs.items():
        wall, cpu = _median(rounds, "wall"), _median(rounds, "cpu")
        model, _, setting = job.partition(", ")
        name = "pure decoding" if job == "decode" else f"`{model}`, {setting or 'start to finish'}"
        counted = "–" if job == "decode" else f"{rounds[0].answer:.0f}"
        peak = max(cost.peak_mb for cost in rounds)
        rates = (f"{wall:.2f}", f"{SECONDS / wall:.0f}", f"{cpu:.2f}", f"{cpu / plain:.2f} ×")
        rows.append([name, *rates, f"{peak:.0f}", counted])
    headers = ("", "wall s", "× real time", "processor s", "against pure decoding", "peak MB", "count")
    heading = "## A minute of 720p30" + ("" if device == "cpu" else ", on a GPU")
    return f"{heading}\n\n{about}\n\n{markdown(headers, rows)}"


SECONDS = MINUTE * 10


def _median(rounds: list[Cost], field: str) -> float:
    return statistics.median(getattr(cost, field) for cost in rounds)


if __name__ == "__main__":
    main()
