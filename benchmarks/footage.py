"""Drawn footage, what work on it took, and children that are timed alone."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import av
import numpy as np

from escounts.output.mp4 import write_movie
from escounts.system.arrays import Image
from escounts.system.atomic_files import atomic_file

T = TypeVar("T")
FAST_UNITS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What the work gives, and the seconds it took: on the wall, of processor."""
    began, before = time.perf_counter(), time.process_time()
    value = work()
    return value, time.perf_counter() - began, time.process_time() - before


def peak_megabytes() -> float:
    """Peak memory of this process; NaN where the system does not tell. ru_maxrss would also remember the process it
    was forked from."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")


def processor_name() -> str:
    """The processor, its cores, and which units for short numbers it has, for a person."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    about = Path("/proc/cpuinfo")
    text = about.read_text() if about.exists() else ""
    name = re.search(r"model name\s*:\s*(.+)", text)
    flags = re.search(r"flags\s*:\s*(.+)", text)
    units = [unit for unit in FAST_UNITS if flags and unit in flags[1].split()]
    known = name[1] if name else platform.processor() or platform.machine()
    return f"{known}, {cores} core{'s' * (cores > 1)}" + (f" ({', '.join(units)})" if units else "")


SEGMENT_SECONDS, RATE = 10, 30
FOLDER = Path(tempfile.gettempdir()) / "escounts-benchmarks"
"""Where footage is kept from one run to the next."""
REPETITIONS_A_SEGMENT = 5
MARK = "4-6"
"""One of these repetitions, in seconds: an exemplar."""
FAST_REPETITIONS_A_SEGMENT = 25
"""A repetition in 0.4 s: what the default model encodes at its fast view, too."""


def segment(
    path: Path, repetitions: int = REPETITIONS_A_SEGMENT, *, size: tuple[int, int] = (1280, 720), seconds: int = 10
) -> Path:
    """Ten seconds of 720p30 with film grain. repetitions: per ten seconds; size: (width, height)."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    rng = np.random.default_rng(0)
    wall = np.kron(rng.integers(60, 150, (height // 8, width // 8, 3)), np.ones((8, 8, 1))).astype(np.int16)
    grain = [rng.normal(0, 4, (height // 8 * 8, width // 8 * 8, 1)).astype(np.int16) for _ in range(8)]
    tall, left, wide, margin = height * 7 // 18, width * 3 // 8, width * 7 // 32, height // 36

    def pictures() -> Iterator[Image]:
        for index in range(seconds * RATE):
            phase = repetitions * index / (SEGMENT_SECONDS * RATE)
            picture = wall.copy()
            top = int((height - tall - 2 * margin) * (0.5 + 0.5 * np.cos(2 * np.pi * phase))) + margin
            picture[top : top + tall, left : left + wide] = (220, 160, 60)
            yield np.clip(picture + grain[index % 8], 0, 255).astype(np.uint8)

    options = {"preset": "veryfast", "crf": "26", "g": "60"}
    write_movie(path, pictures(), size=(wall.shape[1], wall.shape[0]), rate=Fraction(RATE), options=options)
    return path


def looped(source: Path, path: Path, times: int) -> Path:
    """The same packets again and again with later times: a long video without encoding."""
    if path.exists():
        return path
    with av.open(str(source)) as reader:
        stream = reader.streams.video[0]
        packets = [packet for packet in reader.demux(stream) if packet.size]
        assert stream.time_base is not None
        span = int(SEGMENT_SECONDS / stream.time_base)
        with atomic_file(path) as partial, av.open(str(partial), "w", format="mp4") as writer:
            out = writer.add_stream_from_template(stream)
            stamps = [(packet.pts or 0, packet.dts or 0) for packet in packets]
            for turn in range(times):
                for packet, (pts, dts) in zip(packets, stamps, strict=True):
                    packet.stream = out
                    packet.pts, packet.dts = pts + turn * span, dts + turn * span
                    packet.time_base = stream.time_base
                    writer.mux(packet)
    return path


def minute(repetitions: int = REPETITIONS_A_SEGMENT) -> Path:
    """A minute of 720p30. repetitions: per ten seconds."""
    source = segment(FOLDER / f"segment-{repetitions}.mp4", repetitions)
    return looped(source, FOLDER / f"minute-{repetitions}.mp4", 60 // SEGMENT_SECONDS)


def decode(path: str) -> float:
    """Pure decoding: every frame, no conversion; how many there were."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        return float(sum(1 for _ in container.decode(stream)))


@dataclass(frozen=True)
class Cost:
    """What a child took: seconds on the wall, seconds of processor, megabytes at the peak; and what it said."""

    wall: float
    cpu: float
    peak_mb: float
    answer: float


def in_child(script: str, *arguments: object) -> Any:
    """What a script says, run again as `python script --child arguments`: the JSON values of its last line. Raises
    RuntimeError with the last line of its complaint."""
    command = [sys.executable, script, "--child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def cost_of(work: Callable[[], float]) -> Cost:
    """Do the work, in a child: what it took."""
    value, wall, cpu = timed(lambda: float(work()))
    return Cost(wall, cpu, peak_megabytes(), value)


def counting(path: str, model: str, device: str, mark: str | None = None) -> Callable[[], float]:
    """The work of counting a video with a model: `escounts count`; mark: with this exemplar. On a GPU loading and a
    first count are done before."""
    if device == "cpu":
        options = ["--model", model, "--device", device, *(("--exemplar", mark) if mark else ())]
        return lambda: _command("count", path, "--json", *options)
    from escounts.counter import load

    counter = load(model, device=device)
    counter.count(path)
    return lambda: counter.count(path, exemplars=[mark] if mark else ()).count


def _command(*arguments: str) -> float:
    """The count that the command prints."""
    from escounts.cli import app

    with redirect_stdout(io.StringIO()) as printed:
        app(list(arguments), standalone_mode=False)
    return float(json.loads(printed.getvalue())["count"])
