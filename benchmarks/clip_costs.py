"""What each real clip costs, and whether ONNX Runtime counts it as PyTorch does; on one core, clip by clip.

    python benchmarks/clip_costs.py [--exported lite/] [--limit 300]

The clips of ../shared/clips/dev.csv. Processor seconds per second of video, reading included: a distribution, not a
mean. Every clip is written when it is done (benchmarks/results/clip_costs.json), and what is there is not measured
again: --limit stops after so many seconds, and the next call goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from footage import replace_section
from real_clips import Clip, read_dev

import escounts

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "clip_costs.json"
PERCENTILES = (5, 25, 50, 75, 95, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=HERE.parent.parent / "shared" / "clips")
    parser.add_argument("--exported", type=Path, help="folder that `escounts export` wrote: ONNX Runtime too")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which it stops")
    options = parser.parse_args()
    began = time.monotonic()
    torch.set_num_threads(1)
    counters = {"PyTorch": escounts.load("lite", device="cpu")}
    if options.exported:
        counters["ONNX Runtime"] = escounts.load(str(options.exported))
    known: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    clips = list(read_dev(options.clips))
    for clip in clips:
        there = known.setdefault(clip.path.name, {})
        for name, counter in counters.items():
            if name not in there and time.monotonic() - began < options.limit:
                there[name] = counted(counter, clip)
                RESULT.write_text(json.dumps(known, indent=1) + "\n")
    whole = {name: row for name, row in known.items() if "PyTorch" in row}
    text = table(whole)
    print(f"{len(whole)} of {len(clips)} clips\n\n{text}")
    if len(whole) == len(clips):
        replace_section("clip-costs", text)


def counted(counter: escounts.Counter, clip: Clip) -> dict[str, float]:
    """Zero-shot and with the exemplar: both counts, and what the first took."""
    before = time.process_time()
    encoded = counter.encode(clip.path)
    zero_shot = encoded.count()
    spent = time.process_time() - before
    exemplar = encoded.count(exemplars=[clip.exemplar])
    return {
        "seconds": encoded.info.duration,
        "processor_seconds": spent,
        "zero_shot": zero_shot.raw_count,
        "one_exemplar": exemplar.raw_count,
    }


def table(known: dict[str, Any]) -> str:
    """Markdown: percentiles of the cost, and how the two engines agree."""
    lines = [
        "## What a clip costs",
        "",
        f"`python benchmarks/clip_costs.py` on {len(known)} real clips with `lite`, one core, zero-shot, reading "
        "included: percentiles over clips.",
        "",
        "| | " + " | ".join(f"{p} %" if p < 100 else "most" for p in PERCENTILES) + " | mean |",
        "|---" * (len(PERCENTILES) + 2) + "|",
    ]
    own = [row["PyTorch"] for row in known.values()]
    rows = {
        "PyTorch, processor s per s of video": np.array([row["processor_seconds"] / row["seconds"] for row in own]),
        "PyTorch, processor s per video": np.array([row["processor_seconds"] for row in own]),
    }
    both = [(row["PyTorch"], row["ONNX Runtime"]) for row in known.values() if "ONNX Runtime" in row]
    if both:
        ratios = [theirs["processor_seconds"] / mine["processor_seconds"] for mine, theirs in both]
        rows["ONNX Runtime, times PyTorch's"] = np.array(ratios)
    for name, values in rows.items():
        cells = [f"{np.percentile(values, p):.3g}" for p in PERCENTILES]
        lines.append(f"| {name} | {' | '.join(cells)} | {values.mean():.3g} |")
    lines.append("")
    for asked in ("zero_shot", "one_exemplar") if both else ():
        pairs = [(mine[asked], theirs[asked]) for mine, theirs in both]
        same = sum(round(a) == round(b) for a, b in pairs)
        worst = max(abs(a - b) for a, b in pairs)
        lines.append(
            f"ONNX Runtime's count equals PyTorch's on {same} of {len(pairs)} clips, {asked.replace('_', ' ')} "
            f"(largest difference before rounding {worst:.2g})."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
