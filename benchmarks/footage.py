"""Footage for the benchmarks, and children that are timed alone: wall time, processor time, peak memory."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import av
import numpy as np

SEGMENT_SECONDS, RATE, WIDTH, HEIGHT = 10, 30, 1280, 720
REPETITIONS_A_SEGMENT = 5
FAST_REPETITIONS_A_SEGMENT = 25
"""A repetition in 0.4 s: what the default model encodes at its fast view, too."""


@dataclass(frozen=True)
class Cost:
    """What a child took: seconds on the wall, seconds of processor, megabytes at the peak; and what it said."""

    wall: float
    cpu: float
    peak_mb: float
    answer: float


def segment(path: Path, repetitions: int = REPETITIONS_A_SEGMENT) -> Path:
    """Ten seconds of 720p30: a block goes up and down so often before a textured wall, with film grain."""
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    wall = np.kron(rng.integers(60, 150, (HEIGHT // 8, WIDTH // 8, 3)), np.ones((8, 8, 1))).astype(np.int16)
    grain = [rng.normal(0, 4, (HEIGHT, WIDTH, 1)).astype(np.int16) for _ in range(8)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "26", "g": "60"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for index in range(SEGMENT_SECONDS * RATE):
            phase = repetitions * index / (SEGMENT_SECONDS * RATE)
            picture = wall.copy()
            top = int((HEIGHT - 320) * (0.5 + 0.5 * np.cos(2 * np.pi * phase))) + 20
            picture[top : top + 280, 480:760] = (220, 160, 60)
            picture = np.clip(picture + grain[index % 8], 0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def looped(source: Path, path: Path, times: int) -> Path:
    """The same packets again and again with later times: a long video without encoding."""
    if path.exists():
        return path
    with av.open(str(source)) as reader:
        stream = reader.streams.video[0]
        packets = [packet for packet in reader.demux(stream) if packet.size]
        span = SEGMENT_SECONDS / stream.time_base
        with av.open(str(path), "w") as writer:
            out = writer.add_stream_from_template(stream)
            stamps = [(packet.pts, packet.dts) for packet in packets]
            for turn in range(times):
                for packet, (pts, dts) in zip(packets, stamps, strict=True):
                    packet.stream = out
                    packet.pts, packet.dts = pts + int(turn * span), dts + int(turn * span)
                    packet.time_base = stream.time_base
                    writer.mux(packet)
    return path


def measured(script: Path, *arguments: object) -> Cost:
    """Run this script again as a child: `python script --child arguments`; it answers with `answer()`."""
    command = [sys.executable, str(script), "--child", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def answer(work: Callable[[], float]) -> None:
    """In the child: do the work, print its cost."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    value = float(work())
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps(asdict(Cost(time.perf_counter() - began, cpu, peak_megabytes(), value))))


def peak_megabytes() -> float:
    """Peak memory of this process. ru_maxrss would also remember the process it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decode(path: str) -> float:
    """Pure decoding: every frame, no conversion."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        return float(sum(1 for _ in container.decode(stream)))


def counting(path: str, model: str, device: str, *, thorough: bool = False) -> Callable[[], float]:
    """The work of counting a video with a model: `escounts count`. On a GPU loading and a first count are done
    before."""
    if device == "cpu":
        options = ["--model", model, "--device", device, *["--thorough"] * thorough]
        return lambda: _command("count", path, "--json", *options)
    from escounts.counter import load

    counter = load(model, device=device)
    counter.count(path, thorough=thorough)
    return lambda: counter.count(path, thorough=thorough).count


def _command(*arguments: str) -> float:
    """The count that the command prints."""
    from escounts.cli import app

    with redirect_stdout(io.StringIO()) as printed:
        app(list(arguments), standalone_mode=False)
    return float(json.loads(printed.getvalue())["count"])


def replace_section(name: str, text: str) -> None:
    """Write a table to benchmarks/results/ and show it on docs/benchmarks.md, where it stays in its place."""
    root = Path(__file__).resolve().parent.parent
    file = f"benchmarks/results/{name.replace(' ', '-')}.md"
    (root / file).write_text(text.strip() + "\n", encoding="utf-8")
    page = root / "docs" / "benchmarks.md"
    shown = page.read_text(encoding="utf-8")
    if f'--8<-- "{file}"' not in shown:
        page.write_text(shown.rstrip("\n") + f'\n\n--8<-- "{file}"\n', encoding="utf-8")
