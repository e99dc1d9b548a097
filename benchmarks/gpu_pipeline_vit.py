"""The part of gpu_pipeline.py about the paper's encoders: frames in memory to tokens in memory; kernels by time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from encoders import operations
from engines import Engine, paper_model
from torch.autograd import DeviceType

from escounts.counting.paper_windows import PAPER_WINDOWS, PaperWindowModel
from escounts.nn.encoders.registry import build_encoder
from escounts.video.files import Frame, Video

Keep = Callable[[str, Any], None]


class DecodedVideo(Video):
    """A video whose frames were decoded before, again and again until it lasts as long as is wanted."""

    def __init__(self, video: Video, size: tuple[int, int], every: int, frames: int) -> None:
        self.path = video.path
        self._read = list(video.frames(size=size, every=every))
        self._wanted, self._step = frames, every / video.info.fps
        self.info = replace(video.info, duration=frames * self._step)

    def frames(self, **unused: Any) -> Iterator[Frame]:
        """As they were decoded, with times that go on."""
        for index, frame in enumerate(islice(cycle(self._read), self._wanted)):
            yield Frame(index * self._step, frame.image)


def decoded_frames(device: str, source: Path, tiny: bool, rate: float, limit: float, keep: Keep) -> None:
    """ViT-B as counting runs it, from decoded frames to tokens: windows per second and the share of the rate."""
    name = "swin3d-t" if tiny else "mae-vit-b"
    with torch.device("meta"):
        work = operations(build_encoder(name))
    model: PaperWindowModel = paper_model(Engine(name, device, "float32" if tiny else "bf16"))
    video = Video(source)
    size = model.spec.read_size(video.info.width, video.info.height)
    rows: list[dict[str, Any]] = []
    first = DecodedVideo(video, size, model.spec.every, 16 if tiny else 450)
    wanted = ((1, 16),) if tiny else ((32, 4500), (64, 4500), (16, 4500), (32, 450))
    if not tiny:
        model.batch = 64
        model.encode(first)  # warms up
    for batch, frames in wanted:
        if time.perf_counter() > limit:
            return
        model.batch = batch
        first._wanted = frames
        first.info = replace(first.info, duration=frames * first._step)
        best: dict[str, Any] = {}
        for _ in range(1 if tiny else 2):
            began, used = time.perf_counter(), time.process_time()
            encoding = model.encode(first)
            wall, used = time.perf_counter() - began, time.process_time() - used
            windows = sum(-(-sequence.cells // model.spec.cells) for sequence in encoding.sequences)
            if not best or wall < best["wall"]:
                best = {"encoder": name, "batch": batch, "frames": frames, "windows": windows, "wall": wall}
                best |= {"processor_seconds": used, "windows_per_second": windows / wall}
                best |= {"tflops": windows * work / wall / 1e12, "share_of_rate": windows * work / wall / rate}
                best |= {"times_real_time": first.info.duration / wall}
        if device != "cpu":
            best["peak_mb"] = torch.cuda.max_memory_allocated() / 2**20
        rows.append(best)
        keep("rows", rows)
    keep("shifts", PAPER_WINDOWS.shifts)


def kernels(name: str, device: torch.device, precision: str, batch: int) -> dict[str, Any]:
    """What a forward pass spends its time on: kernels of a GPU (operators of a CPU) by milliseconds, and the wall."""
    encoder = build_encoder(name).to(device).eval().requires_grad_(False)
    if precision == "bf16-weights":
        encoder = encoder.to(torch.bfloat16)
    spec = encoder.spec
    pixels = torch.randint(0, 256, (batch, spec.window_frames, 3, spec.size, spec.size), dtype=torch.uint8)
    frames = encoder.normalise(pixels.to(device))
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    on_gpu = device.type == "cuda"
    kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if on_gpu else [])]

    def once() -> float:
        began = time.perf_counter()
        encoder(frames)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    with torch.inference_mode(), autocast:
        once()
        wall = min(once() for _ in range(3 if on_gpu else 1))
        with torch.profiler.profile(activities=kinds) as profiled:
            once()
    field = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU  # an operator has its kernels' time, too: not both
    events = [event for event in profiled.key_averages() if event.device_type == kind]
    averages = sorted(events, key=lambda event: -getattr(event, field))
    return {
        "batch": batch,
        "wall_ms": wall * 1e3,
        "busy_ms": sum(getattr(event, field) for event in averages) / 1e3,
        "top": [[e.key[:90], e.count, round(getattr(e, field) / 1e3, 3)] for e in averages[:16] if getattr(e, field)],
    }
