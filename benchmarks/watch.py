"""`escounts watch` on real clips, beside `count`: the count at the end, delays, dropped frames, processor time.

    python benchmarks/watch.py --clips DIR [--speed 1] [--minutes 6]

Watches every clip of DIR/dev.csv at its own speed (or `--speed inf`, as fast as it is counted), the shortest first;
those that are in benchmarks/results/watch.json are not watched again.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from typing import Any

import torch
from labelled import read_sets
from report import RESULTS, arguments, markdown, write_json

import escounts
from escounts.counting.views import BASE_RATE

KEPT = RESULTS / "watch.json"


def main() -> None:
    parser = arguments(__doc__, clips=True)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no clip after so long")
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * options.minutes
    counter = escounts.load("lite", device="cpu")
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    way = known.setdefault("own speed" if options.speed == 1.0 else f"speed {options.speed:g}", {})
    clips = [clip for clip in read_sets(options.clips / "dev.csv", options.clips) if clip.name not in way]
    for clip in sorted(clips, key=lambda clip: clip.duration):
        if time.monotonic() > until:
            break
        expected = counter.count(clip.path)
        began, worked = time.perf_counter(), time.process_time()
        delays: list[float] = []
        for event in escounts.watch(clip.path, model=counter, speed=options.speed):
            if event.kind == "repetition" and event.delay is not None:
                delays.append(event.delay)
        way[clip.name] = {
            "count": expected.count,
            "watched": event.count,
            "seconds": expected.duration,
            "wall": time.perf_counter() - began,
            "processor": time.process_time() - worked,
            "dropped": event.dropped,
            "delays": delays,
        }
        write_json(KEPT, known)
        print(f"{clip.name}: {event.count}, count {expected.count}, {event.dropped} dropped", flush=True)
    for name, rows in known.items():
        print(f"\n{table(name, list(rows.values()))}")


def table(name: str, rows: list[dict[str, Any]]) -> str:
    """One way of watching."""
    seconds, processor, dropped = (sum(row[key] for row in rows) for key in ("seconds", "processor", "dropped"))
    near = sum(abs(row["watched"] - row["count"]) <= 1 for row in rows)
    same = sum(row["watched"] == row["count"] for row in rows)
    delays = [delay for row in rows for delay in row["delays"]]
    tenth = statistics.quantiles(delays, n=10)[-1]
    used = processor / seconds
    lines = [
        ("within one of `count`", f"{near} of {len(rows)} (equal: {same})"),
        ("delay", f"median {statistics.median(delays):.2f} s, 90th percentile {tenth:.2f} s"),
        ("processor", f"{used:.2f} s per second of video: {used / 2:.0%} of two cores"),
        ("frames dropped", f"{dropped / seconds / BASE_RATE:.1%}"),
    ]
    return markdown((f"{name}: {len(rows)} clips, {seconds:.0f} s of video", ""), lines)


if __name__ == "__main__":
    main()
