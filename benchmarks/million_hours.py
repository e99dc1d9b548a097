"""A batch of a million hours on paper: N machines, slow ones, machines that are taken away, a store with limits.

    python benchmarks/million_hours.py

Inputs are the constants below and the costs of real clips (benchmarks/results/clip_costs.json, by clip_costs.py).
What counting costs, and how it differs from clip to clip, is measured; the others are assumptions to be changed.
Videos are taken as `batch` takes them, in the order of their paths, which says nothing of their length. Prints a
table of how long it takes, what it costs, and what is full first; and the hours of a GPU (results/gpu_nvdec.json).
"""

from __future__ import annotations

import heapq
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HOURS = 1_000_000
SECONDS_PER_VIDEO = 300.0
SPREAD = 0.9
"""Lengths of videos are log-normal around the mean with this sigma."""
SLOW_MOTION, FAST_MOTION = 3.7, 7.2
"""Processor seconds of a minute of 720p30 with `lite` in float32, in which a batch counts on every CPU; measured,
loading included (docs/models/lite.md), which a batch does once per process: rather too much than too little."""
COST = (SLOW_MOTION + FAST_MOTION) / 2 / 60
"""Processor seconds per second of video: half of the videos of slow motion, half of fast."""
CLIPS = Path(__file__).resolve().parent / "results" / "clip_costs.json"
"""Of real clips, each with its processor seconds: how a video's cost differs from the mean. Of 16 November, the
weights and the speed of that day, when the mean was 0.15: only the spread around it is used."""
GPU = CLIPS.with_name("gpu_nvdec.json")
"""Mixes of readers on an H200 with 16 cores, with its video engines."""
WITHOUT_ENGINES = 215.0
"""Times real time of the same where the processor alone reads (docs/speed.md)."""
CORES = 16
MEGABITS = 3.0
"""Of a video: what has to be fetched."""
STORE_GIGABITS, NODE_GIGABITS = 400.0, 10.0
PUTS = 3500.0
"""Rows per second that one folder of an object store takes."""
SLOW_SHARE, SLOWNESS = 0.03, 3.0
TAKEN_PER_HOUR, AWAY_HOURS = 0.02, 0.1
SAMPLE = 25
"""Videos simulated per slot; the rest is more of the same."""


def relative_costs() -> NDArray[np.float64]:
    """Processor seconds per second of every clip, over their mean: the spread that is simulated."""
    clips = [clip["PyTorch"] for clip in json.loads(CLIPS.read_text()).values()]
    costs = np.array([clip["processor_seconds"] / clip["seconds"] for clip in clips])
    return costs / costs.mean()


def simulate(nodes: int, *, seed: int = 0) -> tuple[float, float, dict[str, float]]:
    """Hours in all, core-hours, and the share of its limit that each part is used at."""
    random = np.random.default_rng(seed)
    slots = nodes * CORES // 2  # a process per two cores
    videos = slots * SAMPLE
    length = SECONDS_PER_VIDEO * random.lognormal(-(SPREAD**2) / 2, SPREAD, videos)
    work = length * COST / 2 * random.choice(relative_costs(), videos)
    slow = np.where(random.random(nodes) < SLOW_SHARE, SLOWNESS, 1.0)
    fetched = length * MEGABITS / 1000  # gigabits
    wanted = slots * fetched.mean() / work.mean()  # gigabits per second if fetching took no time
    share = min(1.0, STORE_GIGABITS / wanted, NODE_GIGABITS * nodes / wanted)
    fetch = np.maximum(0.0, work * (1 / share - 1)) + fetched / NODE_GIGABITS
    free = [(0.0, slot) for slot in range(slots)]
    heapq.heapify(free)
    spent = 0.0
    for video in range(videos):  # by path: a long one may be the last
        begin, slot = heapq.heappop(free)
        takes = work[video] * slow[slot % nodes] + fetch[video]
        lost = 0.0
        while random.random() < takes / 3600 * TAKEN_PER_HOUR:  # what was under way is begun again elsewhere
            lost += takes * random.random() + AWAY_HOURS * 3600
        spent += 2 * (takes + lost)
        heapq.heappush(free, (begin + takes + lost, slot))
    ends = np.array([end for end, _ in free])
    scale = HOURS * 3600 / length.sum()
    hours = (ends.mean() * scale + (ends.max() - ends.mean())) / 3600
    rows = videos * scale / (hours * 3600)
    full = {"cores": min(1.0, work.sum() / (work + fetch).sum()), "store": wanted * share / STORE_GIGABITS}
    return hours, spent * scale / 3600, {**full, "rows": rows / PUTS}


def gpu_hours() -> tuple[float, float]:
    """Hours of an H200 with 16 cores: with its video engines (the best mix that was measured), and without."""
    measured = json.loads(GPU.read_text())
    mixes = [mix for part in ("first", "second") for mix in measured[part]["nvdec"]["mixes"]]
    best = max(mix["times_real_time"] for mix in mixes)
    return HOURS / best, HOURS / WITHOUT_ENGINES


def main() -> None:
    """Print the table."""
    print("| machines | hours | core-hours | waiting for the store | store's bandwidth | rows written |")
    print("|---|---|---|---|---|---|")
    for nodes in (10, 100, 1000, 5000):
        hours, cores, full = simulate(nodes)
        print(
            f"| {nodes:,} | {hours:,.0f} | {cores:,.0f} | {1 - full['cores']:.0%} | {full['store']:.0%} "
            f"| {full['rows']:.0%} |"
        )
    engines, processor = gpu_hours()
    print(f"\nGPU-hours: {engines:,.0f} with the GPU's video engines, {processor:,.0f} without")


if __name__ == "__main__":
    main()
