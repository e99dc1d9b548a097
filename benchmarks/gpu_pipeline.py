"""`lite` on many videos on one GPU: by mixes of readers that decode with the processor and with NVDEC.

    python benchmarks/gpu_pipeline.py [--videos 100] [--clips FOLDER] [--out FILE.json]

Processes are started, and each has had a video, before the clock starts. --clips compares the counts of a folder's
videos read by the processor and by NVDEC. A session with a GPU runs it in two minutes; it needs the extra [nvdec].
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from footage import looped, processor_name, segment

from escounts.batching.read_ahead import (
    MOST_BYTES,
    ReadAheadWorker,
    Shared,
    counter_of_read,
    images_folder,
    reader,
)
from escounts.batching.tasks import Settings, Task, find_tasks
from escounts.system.task_processes import TaskProcess, answers
from escounts.video import nvdec

HERE = Path(__file__).resolve().parent
MINUTE = 60.0
MIXES = ((6, 10, 3), (8, 8, 3), (10, 10, 3), (5, 12, 3), (0, 10, 2), (16, 0, 2))
"""Processes at work together: readers that decode with the processor, readers that decode with NVDEC, counters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=100)
    parser.add_argument("--clips", type=Path, help="folder of videos counted by both kinds of readers")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu_pipeline.json")
    options = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    folder.mkdir(exist_ok=True)
    source = looped(segment(folder / "segment.mp4"), folder / "minute.mp4", 6)
    settings = Settings(model="lite", device="cuda")
    missing = nvdec.missing() or _refused(source)
    if missing:  # its readers would decode with the processor, under NVDEC's name
        raise SystemExit(f"NVDEC does not decode here: {missing}")
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "processor": processor_name(), "mixes": []}
    with tempfile.TemporaryDirectory() as here, images_folder() as place:
        for index in range(options.videos):
            os.link(_beside(source, Path(here)), Path(here) / f"{index:03}.mp4")
        (Path(here) / "source").unlink()
        tasks = find_tasks([here], settings)
        with _pools(settings, Path(place), tasks[0]) as pools:
            if options.clips is not None:
                found["clips"] = _clips(options.clips, settings, pools)
            for mix in MIXES:
                found["mixes"].append({"mix": mix, **_mixed(tasks, pools(*mix), sum(mix[:2]))})
                print(json.dumps(found["mixes"][-1]), flush=True)
                options.out.write_text(json.dumps(found, indent=1) + "\n")


class KeptWorker(ReadAheadWorker):
    """Its processes are another mix's afterwards."""

    def stop(self) -> None:
        pass


Pools = Callable[[int, int, int], list[KeptWorker]]


@contextmanager
def _pools(settings: Settings, folder: Path, first: Task) -> Iterator[Pools]:
    """Workers of a mix, of processes that all mixes share: started, and each has had a video."""
    most = [max(column) for column in zip(*MIXES, strict=True)]
    counters: list[Any] = [TaskProcess(counter_of_read, settings, threads=1) for _ in range(most[2])]
    how = (folder, MOST_BYTES, settings, counters[0].ask(None)["reading"])
    readers: list[Any] = [TaskProcess(reader, *how) for _ in range(most[0])]
    by_engine: list[Any] = [TaskProcess(reader, *how, True) for _ in range(most[1])]
    every = [*readers, *by_engine, *counters]
    try:
        _begun(every)
        read = first, readers[0].ask(first)
        waiting = [threading.Thread(target=process.ask, args=(read,)) for process in counters]
        waiting += [threading.Thread(target=process.ask, args=(first,)) for process in by_engine]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()

        def workers(processor: int, engine: int, counting: int) -> list[KeptWorker]:
            shared = Shared([*by_engine[:engine], *readers[:processor]])
            counted = Shared(counters[:counting])
            return [KeptWorker(shared, counted, folder) for _ in range(2 * (processor + engine))]

        yield workers
    finally:
        for process in every:
            process.stop()


def _refused(video: Path) -> list[str]:
    """Why NVDEC does not take a video, as the log says; nothing where it decodes it."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    nvdec.log.addHandler(handler)
    try:
        for _ in nvdec.NvdecVideo(video).frames(size=(128, 128), rate=30.0):
            pass
    finally:
        nvdec.log.removeHandler(handler)
    return lines


def _clips(folder: Path, settings: Settings, pools: Pools) -> dict[str, Any]:
    """Counts of a folder's videos, read by the processor and by NVDEC: how many are equal, and which are not."""
    tasks, counts, took = find_tasks([str(folder)], settings), [], []
    for mix in ((min(8, MIXES[0][0]), 0, 2), (0, min(8, MIXES[0][1]), 2)):
        began = time.perf_counter()
        rows: dict[str, Any] = {task.video: row for task, row in answers(tasks, pools(*mix))}
        took.append(time.perf_counter() - began)
        counts.append({Path(video).name: (row.get("count"), row.get("raw_count")) for video, row in rows.items()})
    software, engine = counts
    moved = [
        abs(software[name][1] - engine[name][1]) for name in software if None not in (*software[name], *engine[name])
    ]
    return {
        "clips": len(software),
        "seconds": took,
        "equal": sum(software[name][0] == engine[name][0] for name in software),
        "unequal": {
            name: (software[name], engine[name]) for name in software if software[name][0] != engine[name][0]
        },
        "sums_differ_by": {"mean": sum(moved) / max(1, len(moved)), "most": max(moved, default=None)},
    }


def _beside(source: Path, folder: Path) -> Path:
    """A copy on the folder's file system, for hard links."""
    if not (folder / "source").exists():
        shutil.copy(source, folder / "source")
    return folder / "source"


def _mixed(tasks: Sequence[Task], workers: Sequence[Any], readers: int) -> dict[str, Any]:
    """How fast so many readers and their counters are at all tasks."""
    counters = len(workers[0]._counters.all)
    rows: list[Any] = []
    with _busy() as busy, _gpu_use() as use:
        ready, used = time.perf_counter(), _machine_seconds()
        for _, row in answers(tasks, workers):
            rows.append((time.perf_counter() - ready, row))
        wall, used = time.perf_counter() - ready, _machine_seconds() - used
    statuses, times = [row["status"] for _, row in rows], [time for time, _ in rows]
    within = times[len(times) // 5 : -len(times) // 5 or None]  # neither the first nor the last videos
    return {
        "times_real_time": len(rows) * MINUTE / wall,
        "wall": wall,
        "videos": len(rows),
        "steady_times_real_time": (len(within) - 1) * MINUTE / (within[-1] - within[0]) if len(within) > 1 else None,
        "first_row_after": times[0],
        "last_row_after": times[-1],
        "counted": statuses.count("counted"),
        "counts": sorted({row.get("count") for _, row in rows}, key=str),
        "errors": [row["error"] for _, row in rows if row["status"] == "error"][:2],
        "readers_busy": busy["reader"] / (wall * readers),
        "counters": counters,
        "counters_busy": busy["counter_of_read"] / (wall * counters),
        "counting_seconds_a_video": busy["counter_of_read"] / len(rows),
        "gpu_utilisation": use.mean(0),
        "engine_utilisation": use.mean(1),
        "processor_seconds_a_video": used / len(rows),
        "cores_busy": used / wall,
    }


def _begun(processes: Sequence[Any]) -> None:
    """All of them ready, started side by side."""
    threads = [threading.Thread(target=process.begin) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _busy() -> Iterator[dict[str, float]]:
    """Seconds that processes took over tasks, by what they were prepared with."""
    found: dict[str, float] = defaultdict(float)
    own, lock = TaskProcess._answer, threading.Lock()

    def timed(self: Any, task: Any) -> Any:
        began = time.perf_counter()
        try:
            return own(self, task)
        finally:
            with lock:
                found[self._prepare.__name__] += time.perf_counter() - began

    TaskProcess._answer = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        TaskProcess._answer = own  # type: ignore[method-assign]


def _machine_seconds() -> float:
    """Processor seconds of everything that ran on this machine so far; it should be ours alone."""
    user, nice, system, _idle, _waiting, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + sum(others[:2])) / os.sysconf("SC_CLK_TCK")


class GpuUse(list[list[float]]):
    """Samples of what is used of the GPU and of its video engines, in per cent."""

    def mean(self, column: int) -> float | None:
        """Of one of both; None where there are no samples."""
        return sum(row[column] for row in self) / len(self) if self else None


@contextmanager
def _gpu_use() -> Iterator[GpuUse]:
    """Five times a second, as nvidia-smi tells; empty where it does not."""
    found = GpuUse()
    if not torch.cuda.is_available() or shutil.which("nvidia-smi") is None:
        yield found
        return
    asked = "--query-gpu=utilization.gpu,utilization.decoder"
    command = ["nvidia-smi", asked, "--format=csv,noheader,nounits", "-lms", "200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):  # a driver that does not say it
                found.append([float(part) for part in line.split(",")])

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield found
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
