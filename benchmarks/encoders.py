"""Encoders: windows a second, peak memory, and the share of this machine's matrix-product rate they reach.

    python benchmarks/encoders.py [--quick] [--out FILE.json] [--encoders NAME ...] [--devices cpu cuda]

The rate is measured in the same run: a large matrix product in the same precision. Arithmetic of an encoder is
counted from its own layers (two operations a multiply-add; norms and activations are not counted), so 100 %
would be an encoder that is nothing but matrix products at full speed.
Precisions: float32; bf16 (autocast, as counting does it on a GPU); bf16-weights (the whole encoder in bf16).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from footage import peak_megabytes, timed
from report import arguments, markdown, write_json
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import build_encoder

PAPER_ENCODERS = ("mae-vit-b", "videomae-b", "swin3d-t", "r2plus1d-18", "resnext3d-101")
GPU_BATCHES = {"mae-vit-b": (32, 64, 128), "videomae-b": (64,), "swin3d-t": (32,), "r2plus1d-18": (32,)}
GPU_BATCH = (8,)
CONVOLUTIONS, TRANSFORMERS = ("r2plus1d-18", "resnext3d-101"), ("mae-vit-b", "videomae-b")
MOST_CALLS = 30


def seconds_a_call(call: Callable[[], object], device: torch.device, budget: float) -> float:
    """Best of several timed calls within a budget of seconds, after warming up."""

    def done() -> None:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()

    if timed(done)[1] < budget:
        done()
    times: list[float] = []
    while not times or (sum(times) < budget and len(times) < MOST_CALLS):
        times.append(timed(done)[1])
    return min(times)


def product_rate(device: torch.device, dtype: torch.dtype, budget: float) -> float:
    """Operations a second of a large matrix product."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds_a_call(lambda: a @ b, device, budget)


def operations(name: str) -> float:
    """Operations for one window: matrix products, convolutions and attention, counted on the meta device."""
    with torch.device("meta"):
        encoder = build_encoder(name)
    spec = encoder.spec
    frames = torch.empty(1, spec.window_frames, 3, spec.size, spec.size, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        encoder(frames)
    return float(counter.get_total_flops())


def measure(
    name: str, device: torch.device, precision: str, batch: int, rate: float, budget: float
) -> dict[str, Any]:
    """One row of the table."""
    work = operations(name)
    encoder: Encoder = build_encoder(name).to(device).eval().requires_grad_(False)
    spec = encoder.spec
    if precision == "bf16-weights":
        encoder = encoder.to(torch.bfloat16)
    if device.type == "cuda" and name in CONVOLUTIONS:
        encoder = encoder.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    pixels = torch.randint(0, 256, (batch, spec.window_frames, 3, spec.size, spec.size), dtype=torch.uint8)
    frames = encoder.normalise(pixels.to(device))
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with torch.inference_mode(), autocast:
        seconds = seconds_a_call(lambda: encoder(frames), device, budget)
    return {
        "encoder": name,
        "device": device.type,
        "precision": precision,
        "batch": batch,
        "windows_per_second": batch / seconds,
        "peak_memory_mb": torch.cuda.max_memory_allocated() / 1e6 if device.type == "cuda" else peak_megabytes(),
        "gflop_per_window": work / 1e9,
        "tflops": work * batch / seconds / 1e12,
        "share_of_rate": work * batch / seconds / rate,
    }


def planned(name: str, device: torch.device, *, quick: bool) -> Iterator[tuple[str, int]]:
    """(precision, batch) of an encoder's rows."""
    if device.type == "cpu":
        yield from ((precision, 1) for precision in (("float32",) if quick else ("float32", "bf16")))
        return
    batches = GPU_BATCHES.get(name, GPU_BATCH)
    yield "float32", min(batches[0], 16)
    for batch in (batches[-2:-1] or batches) if quick else batches:
        yield "bf16", batch
        if name in TRANSFORMERS:
            yield "bf16-weights", batch


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats: under 40 s on a GPU")
    parser.add_argument("--out", type=Path, default=Path("out") / "encoders.json")
    parser.add_argument("--encoders", nargs="+", default=list(PAPER_ENCODERS), choices=PAPER_ENCODERS)
    parser.add_argument("--devices", nargs="+", help="default: the GPU where there is one, else the CPU")
    options = parser.parse_args()
    here, budget = "cuda" if torch.cuda.is_available() else "cpu", 0.5 if options.quick else 3.0
    rows: list[dict[str, Any]] = []
    for device in map(torch.device, options.devices or [here]):
        types = {"float32": torch.float32, "bf16": torch.bfloat16}
        rates = {precision: product_rate(device, dtype, budget) for precision, dtype in types.items()}
        for name in options.encoders:
            for precision, batch in planned(name, device, quick=options.quick):
                try:
                    rows.append(
                        measure(name, device, precision, batch, rates[precision.removesuffix("-weights")], budget)
                    )
                except torch.cuda.OutOfMemoryError:
                    print(f"{name} in {precision}: {batch} windows do not fit in memory")
                    torch.cuda.empty_cache()
                    continue
                print(rows[-1], flush=True)
    headers = ("encoder", "device", "precision", "batch", "windows_per_second", "peak_memory_mb", "tflops")
    print(markdown([*headers, "share"], ([*(_cell(row[key]) for key in headers), f"{row['share_of_rate']:.1%}"]
                                         for row in rows)))  # fmt: skip
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "cpu"
    write_json(options.out, {"machine": machine, "torch": torch.__version__, "rows": rows})
    print(f"written to {options.out}")


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
