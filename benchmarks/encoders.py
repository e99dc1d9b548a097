"""Encoders: windows a second, peak memory, and the share of this machine's matrix-product rate they reach.

    python benchmarks/encoders.py [--quick] [--out FILE.json] [--encoders NAME ...] [--compile]

The rate is measured in the same run: a large matrix product in the same precision. Arithmetic of an encoder is
counted from its own layers (two operations a multiply-add; norms and activations are not counted), so 100 %
would be an encoder that is nothing but matrix products at full speed.
Precisions: float32; bf16 (autocast, as counting does it on a GPU); bf16-weights (the whole encoder in bf16).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import build_encoder

PAPER_ENCODERS = ("mae-vit-b", "videomae-b", "swin3d-t", "r2plus1d-18", "resnext3d-101")
GPU_BATCHES = {"mae-vit-b": (32, 64, 128), "videomae-b": (64,), "swin3d-t": (32,), "r2plus1d-18": (32,)}
GPU_BATCH = (8,)
TRANSFORMERS = ("mae-vit-b", "videomae-b")


def seconds_a_call(call: Callable[[], object], device: torch.device, budget: float) -> float:
    """Best of several timed calls within a budget of seconds, after warming up."""

    def once() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    first = once()
    if first < budget:
        once()
    times, spent = [], 0.0
    while not times or (spent < budget and len(times) < 30):
        times.append(once())
        spent += times[-1]
    return min(times)


def product_rate(device: torch.device, dtype: torch.dtype, budget: float) -> float:
    """Operations a second of a large matrix product."""
    size = 8192 if device.type == "cuda" else 1024
    a = torch.randn(size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
    return 2 * size**3 / seconds_a_call(lambda: a @ b, device, budget)


def operations(encoder: Encoder) -> float:
    """Operations for one window: matrix products, convolutions and attention, counted on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    spec = encoder.spec
    frames = torch.empty(1, spec.window_frames, 3, spec.size, spec.size, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _explicit_attention(lambda: encoder(frames))
    return float(counter.get_total_flops())


def _explicit_attention(call: Callable[[], object]) -> None:
    """Run with attention as plain matrix products, so that its operations are counted on every version."""
    import torch.nn.functional as F

    fused = F.scaled_dot_product_attention

    def plain(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return (query @ key.transpose(-2, -1)).softmax(-1) @ value

    F.scaled_dot_product_attention = plain  # type: ignore[assignment]
    try:
        call()
    finally:
        F.scaled_dot_product_attention = fused


def peak_memory_mb(device: torch.device) -> float:
    """MB at the peak: of the device since the last reset, or of this process since it began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(
    name: str, device: torch.device, precision: str, batch: int, rate: float, budget: float, compiled: bool
) -> dict[str, Any]:
    """One row of the table."""
    with torch.device("meta"):
        work = operations(build_encoder(name))
    encoder = build_encoder(name).to(device).eval().requires_grad_(False)
    spec = encoder.spec
    if precision == "bf16-weights":
        encoder = encoder.to(torch.bfloat16)
    if device.type == "cuda" and name in ("r2plus1d-18", "resnext3d-101"):
        encoder = encoder.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    run: nn.Module = torch.compile(encoder) if compiled else encoder  # type: ignore[assignment]
    pixels = torch.randint(0, 256, (batch, spec.window_frames, 3, spec.size, spec.size), dtype=torch.uint8)
    frames = encoder.normalise(pixels.to(device))
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with torch.inference_mode(), autocast:
        seconds = seconds_a_call(lambda: run(frames), device, budget)
    achieved = work * batch / seconds
    return {
        "encoder": name,
        "device": device.type,
        "precision": precision + (" compiled" if compiled else ""),
        "batch": batch,
        "windows_per_second": batch / seconds,
        "peak_memory_mb": peak_memory_mb(device),
        "gflop_per_window": work / 1e9,
        "tflops": achieved / 1e12,
        "measured_rate_tflops": rate / 1e12,
        "share_of_rate": achieved / rate,
    }


def plan(arguments: argparse.Namespace, device: torch.device) -> list[tuple[str, str, int]]:
    """(encoder, precision, batch) of every row."""
    rows = []
    for name in arguments.encoders:
        if device.type == "cpu":
            precisions = ("float32",) if arguments.quick else ("float32", "bf16")
            rows += [(name, precision, 1) for precision in precisions]
            continue
        batches = GPU_BATCHES.get(name, GPU_BATCH)
        if arguments.quick:
            batches = batches[-2:-1] or batches
        for batch in batches:
            if batch == batches[0]:
                rows.append((name, "float32", min(batch, 16)))
            rows.append((name, "bf16", batch))
            if name in TRANSFORMERS:
                rows.append((name, "bf16-weights", batch))
    return rows


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['encoder']:<14} {row['device']:<5} {row['precision']:<22} {row['batch']:>5} "
        f"{row['windows_per_second']:>10.2f} {row['peak_memory_mb']:>10.0f} {row['tflops']:>8.2f} "
        f"{row['measured_rate_tflops']:>8.2f} {row['share_of_rate']:>7.1%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats: under 40 s on a GPU")
    parser.add_argument("--compile", action="store_true", help="also rows with torch.compile (ViT, GPU)")
    parser.add_argument("--out", type=Path, default=Path("out") / "encoders.json")
    parser.add_argument("--encoders", nargs="+", default=list(PAPER_ENCODERS), choices=PAPER_ENCODERS)
    parser.add_argument("--devices", nargs="+", default=None, help="cpu, cuda; both where there is a GPU")
    arguments = parser.parse_args()
    here = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    budget = 0.5 if arguments.quick else 3.0
    header = ("encoder", "device", "precision", "batch", "windows/s", "peak MB", "TFLOP/s", "rate", "share")
    print("{:<14} {:<5} {:<22} {:>5} {:>10} {:>10} {:>8} {:>8} {:>7}".format(*header))
    rows: list[dict[str, Any]] = []
    for device in map(torch.device, arguments.devices or here):
        if device.type == "cpu" and arguments.quick and "cuda" in here and arguments.devices is None:
            continue  # the CPU rows take minutes; ask for them with --devices cpu
        rates = {
            "float32": product_rate(device, torch.float32, budget),
            "bf16": product_rate(device, torch.bfloat16, budget),
        }
        jobs = [(*job, False) for job in plan(arguments, device)]
        if arguments.compile and device.type == "cuda":
            jobs += [("mae-vit-b", "bf16-weights", 64, True)]
        for name, precision, batch, compiled in jobs:
            rate = rates["float32" if precision == "float32" else "bf16"]
            try:
                row = measure(name, device, precision, batch, rate, budget, compiled)
            except torch.cuda.OutOfMemoryError:
                print(f"{name:<14} {device.type:<5} {precision:<22} {batch:>5} does not fit in memory")
                continue
            rows.append(row)
            show(row)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    about = {
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "cpu",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(about, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
