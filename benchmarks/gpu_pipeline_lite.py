"""The part of gpu_pipeline.py that counts many videos with `lite`: readers alone, counting alone, both together."""

from __future__ import annotations

import cProfile
import io
import logging
import os
import pstats
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
from torch.autograd import DeviceType

import escounts
from escounts.batching.read_ahead import (
    GPU_COUNTERS,
    MOST_BYTES,
    ReadAheadWorker,
    Shared,
    counter_of_read,
    images_folder,
    read_ahead_workers,
    reader,
    reading_told,
)
from escounts.batching.tasks import Settings, Task, find_tasks
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.system.task_processes import TaskProcess, answers
from escounts.video import nvdec

Keep = Callable[[str, Any], None]


def pipeline(
    device: str, footage: dict[str, tuple[Path, float]], videos: int, readers: int, limit: float, keep: Keep
) -> None:
    """Seconds of video per second: both together with everything started, from nothing on, readers alone, counting
    alone; for slow motion, then both together for fast motion."""
    keep("videos", videos)
    keep("readers", readers)
    settings = Settings(model="lite", device=device)
    with images_folder() as place:
        keep("images_in", f"{Path(place).parent}, {shutil.disk_usage(place).free / 2**30:.1f} GiB free")
    for motion, (source, seconds) in footage.items():
        if time.perf_counter() > limit:
            return
        with tempfile.TemporaryDirectory() as here:
            for index in range(videos):
                os.link(_beside(source, Path(here)), Path(here) / f"{index:03}.mp4")
            (Path(here) / "source").unlink()
            tasks = find_tasks([here], settings)
            if motion == "slow":
                keep("readers_alone", _readers_alone(tasks, readers, seconds))
            keep(f"{motion}_together", _together(tasks, settings, readers, seconds, warm=True))
            if motion == "slow" and time.perf_counter() < limit:
                keep("slow_from_nothing", _together(tasks, settings, readers, seconds, warm=False))
    for motion, (source, seconds) in footage.items():
        if time.perf_counter() < limit:
            keep(f"{motion}_counting_alone", _counting_alone(device, source, seconds))


MIXES = ((6, 10, 3), (8, 8, 3), (10, 10, 3), (5, 12, 3), (0, 10, 2), (16, 0, 2))
"""Processes at work together: readers that decode with the processor, readers that decode with NVDEC, counters."""


def engines(
    device: str, source: tuple[Path, float], videos: int, clips: Path | None, limit: float, keep: Keep
) -> None:
    """`lite` on many videos by mixes of readers; and the counts of clips, read by the processor and by NVDEC."""
    settings = Settings(model="lite", device=device)
    keep("videos", videos)
    keep("missing", nvdec.missing())
    refused = _refused(source[0])
    keep("refused", refused)
    if refused:  # its readers would decode with the processor, under NVDEC's name
        return
    with tempfile.TemporaryDirectory() as here, images_folder() as place:
        for index in range(videos):
            os.link(_beside(source[0], Path(here)), Path(here) / f"{index:03}.mp4")
        (Path(here) / "source").unlink()
        tasks = find_tasks([here], settings)
        began = time.perf_counter()
        with _pools(settings, Path(place), tasks[0]) as pools:
            keep("starting", time.perf_counter() - began)
            if clips is not None:
                keep("clips", _clips(clips, settings, pools))
            rows: list[dict[str, Any]] = []
            for mix in MIXES:
                if time.perf_counter() < limit:
                    rows.append({"mix": mix, **_mixed(tasks, pools(*mix), source[1], sum(mix[:2]))})
                    keep("mixes", rows)


class KeptWorker(ReadAheadWorker):
    """Its processes are another mix's afterwards."""

    def stop(self) -> None:
        pass


Pools = Callable[[int, int, int], list[KeptWorker]]


@contextmanager
def _pools(settings: Settings, folder: Path, first: Task) -> Iterator[Pools]:
    """Workers of a mix, of processes that all mixes share: started, and each has had a video."""
    reading = reading_told(settings.model)
    assert reading is not None
    most = [max(column) for column in zip(*MIXES, strict=True)]
    readers: list[Any] = [TaskProcess(reader, folder, MOST_BYTES) for _ in range(most[0])]
    by_engine: list[Any] = [TaskProcess(reader, folder, MOST_BYTES, True) for _ in range(most[1])]
    counters: list[Any] = [TaskProcess(counter_of_read, settings, threads=1) for _ in range(most[2])]
    every = [*readers, *by_engine, *counters]
    try:
        _begun(every)
        read = first, readers[0].ask((first, reading)), reading
        waiting = [threading.Thread(target=process.ask, args=(read,)) for process in counters]
        waiting += [threading.Thread(target=process.ask, args=((first, reading),)) for process in by_engine]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()

        def workers(processor: int, engine: int, counting: int) -> list[KeptWorker]:
            shared = Shared([*by_engine[:engine], *readers[:processor]])
            counted = Shared(counters[:counting])
            return [KeptWorker(shared, counted, reading, folder) for _ in range(2 * (processor + engine))]

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


def _readers_alone(tasks: Sequence[Task], readers: int, seconds: float) -> dict[str, float]:
    reading = reading_told("lite")
    assert reading is not None
    with images_folder() as folder:
        processes: list[Any] = [TaskProcess(reader, Path(folder), MOST_BYTES) for _ in range(readers)]
        _begun(processes)
        began, used = time.perf_counter(), _machine_seconds()
        asked = [(task, reading) for task in tasks]
        for _, read in answers(asked, processes):
            assert read is not None, "no room for the images"
            Path(read["images"]).unlink()
        wall, used = time.perf_counter() - began, _machine_seconds() - used
    return {
        "times_real_time": len(tasks) * seconds / wall,
        "wall": wall,
        "processor_seconds_a_video": used / len(tasks),
        "times_real_time_a_core": seconds * len(tasks) / used,
    }


def _together(
    tasks: Sequence[Task], settings: Settings, readers: int, seconds: float, *, warm: bool
) -> dict[str, Any]:
    """warm: processes are started, and each has counted a video, before the clock starts."""
    readers = min(readers, len(tasks))
    with images_folder() as folder:
        began = time.perf_counter()
        workers = read_ahead_workers(settings, readers, Path(folder))
        assert isinstance(workers[0], ReadAheadWorker)
        shared = workers[0]
        if warm:
            _begun([*shared._readers.all, *shared._counters.all])
            read = shared._readers.all[0].ask((tasks[0], shared._reading))
            for counting in shared._counters.all:
                counting.ask(read)
        starting = time.perf_counter() - began
        found = _mixed(tasks, workers, seconds, readers, since=None if warm else began)
    return {**found, "starting": starting}


def _mixed(
    tasks: Sequence[Task], workers: Sequence[Any], seconds: float, readers: int, *, since: float | None = None
) -> dict[str, Any]:
    """How fast so many readers and their counters are at all tasks; since: when the clock started, now when None."""
    counters = len(workers[0]._counters.all)
    rows: list[Any] = []
    with _busy() as busy, _gpu_use() as use:
        ready, used = time.perf_counter(), _machine_seconds()
        for _, row in answers(tasks, workers):
            rows.append((time.perf_counter() - ready, row))
        wall, used = time.perf_counter() - (ready if since is None else since), _machine_seconds() - used
    statuses, times = [row["status"] for _, row in rows], [time for time, _ in rows]
    within = times[len(times) // 5 : -len(times) // 5 or None]  # neither the first nor the last videos
    return {
        "times_real_time": len(rows) * seconds / wall,
        "wall": wall,
        "videos": len(rows),
        "steady_times_real_time": (len(within) - 1) * seconds / (within[-1] - within[0]) if len(within) > 1 else None,
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


def _counting_alone(device: str, source: Path, seconds: float) -> dict[str, Any]:
    """One process, images in memory: wall time, what the GPU itself takes of it, and where Python's time goes."""
    counter = escounts.load("lite", device=device)
    model = counter.model
    assert isinstance(model, MultiRateModel)
    size = model.network.encoder.spec.size
    images = [frame.image for frame in escounts.Video(source).frames(size=(size, size), rate=30.0)]

    def once() -> float:
        began = time.perf_counter()
        encoding = MultiRateEncoding(model, lambda _: images, start=0.0)
        model.encode_views(encoding)
        encoding.estimate()
        return time.perf_counter() - began

    once()
    walls = [once() for _ in range(5)]
    found: dict[str, Any] = {
        "times_real_time": seconds / min(walls),
        "walls": walls,
        "processes_on_a_gpu": GPU_COUNTERS,
    }
    profile = cProfile.Profile()
    profile.enable()
    once()
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(18)
    found["python"] = [line[:110] for line in text.getvalue().splitlines()[6:] if line.strip()]
    if device != "cpu":
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profiled:
            once()
            torch.cuda.synchronize()
        events = profiled.key_averages()
        averages = [event for event in events if event.device_type == DeviceType.CUDA]
        found["gpu_seconds"] = sum(event.self_device_time_total for event in averages) / 1e6
        found["launches"] = sum(event.count for event in events if event.key.startswith("cudaLaunchKernel"))
        found["kernels"] = [
            [event.key[:80], event.count, round(event.self_device_time_total / 1e3, 2)]
            for event in sorted(averages, key=lambda event: -event.self_device_time_total)[:10]
        ]
    return found


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
