"""What the next session with a GPU runs, in one call: `lite` on 100 videos, and the encoders' share of the bf16 rate.

    python benchmarks/gpu_pipeline.py                          # on a GPU: 100 videos of 720p, a minute each
    python benchmarks/gpu_pipeline.py --device cpu --tiny      # tried without one: two short videos, one window

Three figures of the pipeline, so that the bottleneck has a name and a share: readers alone (all processes read,
nobody counts), counting alone (one video's images in memory, again and again), and both together (`escounts batch
--readers`). Writes benchmarks/results/gpu_pipeline.json and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from encoders import measure as measure_encoder
from encoders import product_rate
from footage import looped, segment

import escounts
from escounts.batching.processes import TaskProcess, answers
from escounts.batching.read_ahead import MOST_BYTES, images_folder, reader, reading_of
from escounts.batching.tasks import Settings, find_tasks
from escounts.benchmarking.measuring import processor_name
from escounts.inference.multi_rate_encoding import MultiRateEncoding
from escounts.nn.device import bf16_speedup

HERE = Path(__file__).resolve().parent
BATCHES = {"mae-vit-b": (64, 128), "swin3d-t": (16, 32, 64)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--videos", type=int, default=100)
    parser.add_argument("--readers", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--tiny", action="store_true", help="two short videos, one window of Swin-T: only to try it")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu_pipeline.json")
    options = parser.parse_args()
    device = torch.device(options.device)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else None
    found: dict[str, Any] = {"gpu": gpu, "processor": processor_name(), "torch": torch.__version__}
    found["pipeline"] = pipeline(options.device, 2 if options.tiny else options.videos, options.readers, options.tiny)
    found["encoders"] = encoder_shares(device, options.tiny)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


def pipeline(device: str, videos: int, readers: int, tiny: bool) -> dict[str, float]:
    """Seconds of video per second: readers alone, counting alone, together, and the share of the slower."""
    cache = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    cache.mkdir(exist_ok=True)
    if tiny:
        source, seconds = segment(cache / "tiny.mp4", size=(128, 96), seconds=4), 4.0
    else:
        source, seconds = looped(segment(cache / "segment.mp4"), cache / "minute.mp4", 6), 60.0
    settings = Settings(model="lite", device=device)
    with tempfile.TemporaryDirectory() as here, images_folder() as images:
        for index in range(videos):
            shutil.copy(source, Path(here) / f"{index:03}.mp4")
        tasks = find_tasks([here], settings)
        counter = escounts.load("lite", device=device)
        reading = reading_of(counter.model)
        assert reading is not None
        processes = [TaskProcess(reader, Path(images), reading, MOST_BYTES) for _ in range(readers)]
        for process in processes:
            process._start()  # starting is not reading
        began = time.perf_counter()
        for _, read in answers(tasks, processes):
            read.images.unlink()  # type: ignore[union-attr]
        reading_rate = videos * seconds / (time.perf_counter() - began)
        counting_rate = counting(counter, source, seconds)
        counter = None  # the GPU is the batch's now
        began = time.perf_counter()
        rows = escounts.batch([here], out=Path(here) / "out", settings=settings, readers=readers)
        together = videos * seconds / (time.perf_counter() - began)
        assert rows["status"].to_pylist() == ["counted"] * videos
    slower = min(reading_rate, counting_rate)
    return {
        "videos": videos,
        "readers": readers,
        "readers_alone": reading_rate,
        "counting_alone": counting_rate,
        "together": together,
        "share_of_slower": together / slower,
    }


def counting(counter: escounts.Counter, source: Path, seconds: float) -> float:
    """Seconds of video per second of encoder and decoder alone, on images in memory; the first time warms up."""
    model: Any = counter.model
    size = model.network.encoder.spec.size
    images = [frame.image for frame in escounts.Video(source).frames(size=(size, size), rate=30.0)]
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        encoding = MultiRateEncoding(model, lambda _: images, start=0.0)
        model.encode_views(encoding)
        encoding.estimate()
        best = min(best, time.perf_counter() - began)
    return seconds / best


def encoder_shares(device: torch.device, tiny: bool) -> list[dict[str, Any]]:
    """Windows per second of ViT-B and Swin-T by precision and batch, and their share of the rate measured beside."""
    if tiny:
        rate = product_rate(device, torch.float32, 0.1)
        return [measure_encoder("swin3d-t", device, "float32", 1, rate, 0.1, False)]
    if bf16_speedup(device) < 1:
        raise SystemExit(f"{device} multiplies bf16 slower than float32: there is no share of its rate to measure")
    rate = product_rate(device, torch.bfloat16, 2.0)
    return [
        measure_encoder(name, device, precision, batch, rate, 2.0, False)
        for name, batches in BATCHES.items()
        for batch in batches
        for precision in ("bf16", "bf16-weights")
    ]


def table(found: dict[str, Any]) -> str:
    """Markdown: the pipeline, then the encoders."""
    flow = found["pipeline"]
    slower = "reading" if flow["readers_alone"] < flow["counting_alone"] else "counting"
    lines = [
        f"{found['gpu'] or 'no GPU'}, {found['processor']}, PyTorch {found['torch']}; `lite` on {flow['videos']} "
        f"videos, {flow['readers']} readers.",
        "",
        "| | seconds of video per second |",
        "|---|---|",
        f"| readers alone | {flow['readers_alone']:.0f} |",
        f"| counting alone, images in memory | {flow['counting_alone']:.0f} |",
        f"| together, starting included | {flow['together']:.0f} ({flow['share_of_slower']:.0%} of {slower} alone) |",
        "",
        "| encoder | precision | batch | windows per second | peak MB | share of the rate |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["encoders"]:
        lines.append(
            f"| `{row['encoder']}` | {row['precision']} | {row['batch']} | {row['windows_per_second']:.0f} "
            f"| {row['peak_memory_mb']:.0f} | {row['share_of_rate']:.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
