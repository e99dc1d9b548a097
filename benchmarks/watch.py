"""`escounts watch` on real clips, and for a day on end.

    python benchmarks/watch.py clips --clips DIR [--speed 1] [--minutes 6]
    python benchmarks/watch.py day [--hours 24] [--every 15] [--network tiny|lite]

`clips` watches every clip of DIR/dev.csv at its own speed (or `--speed inf`, as fast as it is counted) and compares
with `count`, the shortest first; those that are in benchmarks/results/watch.json are not watched again. `day` feeds a
looped motion of 30 frames per second as fast as it is taken, estimates every so often, and prints the memory of
the process over time: `tiny` has the shipped network's structure with few channels, random weights and no fast view,
so that an hour takes seconds; the loop and every buffer are the real ones.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import time
from itertools import count as numbers
from pathlib import Path

import numpy as np
import psutil
import torch

import escounts
from escounts import live
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import BASE_RATE, View
from escounts.live import LiveCounter
from escounts.nn.network import LITE_TINY, Network
from escounts.video.files import Frame

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "watch.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(required=True)
    clips = ways.add_parser("clips")
    clips.add_argument("--clips", type=Path, default=HERE.parent.parent / "shared" / "clips")
    clips.add_argument("--minutes", type=float, default=math.inf, help="begin no clip after so long")
    clips.add_argument("--speed", type=float, default=1.0)
    clips.set_defaults(run=watch_clips)
    day = ways.add_parser("day")
    day.add_argument("--hours", type=float, default=24.0)
    day.add_argument(
        "--every", type=float, default=15.0, help="seconds of video between estimates (the command: 0.5)"
    )
    day.add_argument("--network", choices=["tiny", "lite"], default="tiny")
    day.set_defaults(run=watch_for_a_day)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.run(options)


def watch_clips(options: argparse.Namespace) -> None:
    until = time.monotonic() + 60 * options.minutes
    counter = escounts.load("lite", device="cpu")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    way = known.setdefault("own speed" if options.speed == 1.0 else f"speed {options.speed:g}", {})
    with open(options.clips / "dev.csv", newline="") as file:
        clips = {row["file"]: float(row["duration_s"]) for row in csv.DictReader(file)}
    for name in sorted(clips.keys() - way.keys(), key=clips.__getitem__):
        if time.monotonic() > until:
            break
        path = options.clips / name
        expected = counter.count(path)
        began, worked = time.perf_counter(), time.process_time()
        delays: list[float] = []
        for event in escounts.watch(path, model=counter, speed=options.speed):
            if event.kind == "repetition" and event.delay is not None:
                delays.append(event.delay)
        way[name] = {
            "count": expected.count,
            "watched": event.count,
            "seconds": expected.duration,
            "wall": time.perf_counter() - began,
            "processor": time.process_time() - worked,
            "dropped": event.dropped,
            "delays": delays,
        }
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{name}: {event.count}, count {expected.count}, {event.dropped} dropped", flush=True)
    for name, rows in known.items():
        print(table(name, list(rows.values())))


def table(name: str, rows: list[dict[str, object]]) -> str:
    """One way of watching, in the form of docs/live.md."""

    def total(key: str) -> float:
        return sum(float(row[key]) for row in rows)  # type: ignore[arg-type]

    near = sum(abs(int(row["watched"]) - int(row["count"])) <= 1 for row in rows)  # type: ignore[call-overload]
    same = sum(row["watched"] == row["count"] for row in rows)
    delays = [delay for row in rows for delay in row["delays"]]  # type: ignore[attr-defined]
    tenth = statistics.quantiles(delays, n=10)[-1]
    return (
        f"\n{name}: {len(rows)} clips, {total('seconds'):.0f} s of video\n"
        f"| within one of `count` | {near} of {len(rows)} (equal: {same}) |\n"
        f"| delay | median {statistics.median(delays):.2f} s, 90th percentile {tenth:.2f} s |\n"
        f"| processor | {total('processor') / total('seconds'):.2f} s per second of video: "
        f"{total('processor') / total('seconds') / 2:.0%} of two cores |\n"
        f"| frames dropped | {total('dropped') / total('seconds') / BASE_RATE:.1%} |"
    )


def watch_for_a_day(options: argparse.Namespace) -> None:
    live.INTERVAL = options.every
    counter = LiveCounter(network(options.network))
    size = counter.model.network.encoder.spec.size
    motion = [swing(size, phase / 36) for phase in range(36)]  # 1.2 s, over and over
    process = psutil.Process()
    steps = round(options.hours * 3600 * BASE_RATE)
    began = time.perf_counter()
    print("| hours of video | RSS, MB | windows kept | bytes of them | count | minutes |")
    for number in numbers():
        if number % max(1, steps // 24) == 0:
            encoding = counter._encoding
            kept, size_ = (0, 0) if encoding is None else (len(encoding.store.kept), encoding.store.nbytes)
            print(
                f"| {number / BASE_RATE / 3600:.2f} | {process.memory_info().rss / 1e6:.0f} | {kept} | {size_} "
                f"| {counter.count.count} | {(time.perf_counter() - began) / 60:.1f} |",
                flush=True,
            )
        if number == steps:
            break
        counter.push(Frame((number + 0.5) / BASE_RATE, motion[number % len(motion)]))
    counter.end()


def network(name: str) -> MultiRateModel:
    if name == "tiny":
        torch.manual_seed(0)
        return MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=())
    model = escounts.load("lite", device="cpu").model
    assert isinstance(model, MultiRateModel)
    return model


def swing(size: int, phase: float) -> np.ndarray:
    """A bright disc on its way to and fro."""
    y, x = np.mgrid[:size, :size] / size
    image = np.full((size, size, 3), 60, np.uint8)
    image[(x - 0.5 - 0.3 * math.sin(2 * math.pi * phase)) ** 2 + (y - 0.5) ** 2 < 0.02] = 230
    return image


if __name__ == "__main__":
    main()
