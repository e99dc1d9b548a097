"""The parts of gpu_pipeline.py, one after another, and the file that their figures go to."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from encoders import measure as measure_encoder
from encoders import product_rate
from engines import PLAIN, TRANSFORMERS, Engine, as_row, in_child
from footage import looped, processor_name, segment
from gpu_pipeline_lite import engines, pipeline
from gpu_pipeline_tables import table
from gpu_pipeline_vit import decoded_frames, kernels

from escounts import __version__
from escounts.nn.device import bf16_speedup

HERE = Path(__file__).resolve().parent
PARTS = ("pipeline", "vit", "encoders", "bench", "nvdec")
USUAL = PARTS[:-1]
SECONDS = {"pipeline": 110.0, "nvdec": 110.0, "vit": 40.0, "encoders": 50.0, "bench": 150.0}
"""A part begins nothing new after so long."""
ENCODERS = (
    *(("mae-vit-b", "bf16-weights", 64), ("mae-vit-b", "bf16", 64)),
    *(("swin3d-t", "bf16-weights", 32), ("swin3d-t", "bf16", 32), ("swin3d-t", "bf16-weights", 64)),
)
TINY_ENCODERS = (("swin3d-t", "float32", 1),)

Keep = Callable[[str, Any], None]
"""Called with a name of a figure and the figure."""


class Results:
    """Figures of the parts, written to a file at each change."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.values, self.began = path, about, time.perf_counter()

    def keep(self, part: str) -> Keep:
        """A function that keeps figures of a part."""

        def kept(name: str, value: Any) -> None:
            self.values.setdefault(part, {})[name] = value
            self.path.write_text(json.dumps(self.values, indent=1, default=str) + "\n")
            print(f"[{time.perf_counter() - self.began:6.1f} s] {part}.{name}: {str(value)[:300]}", flush=True)

        return kept


def main(about_it: str) -> None:
    """The command; about_it: what it says of itself."""
    parser = argparse.ArgumentParser(description=about_it, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", default=",".join(USUAL), help=f"of {', '.join(PARTS)}; as ordered")
    parser.add_argument("--seconds", type=float, help="for each part; default: " + str(SECONDS))
    parser.add_argument("--videos", type=int, default=100)
    parser.add_argument("--readers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--clips", type=Path, help="folder of videos whose counts by both kinds of readers are compared"
    )
    parser.add_argument("--tiny", action="store_true", help="two short videos, one window of Swin-T: only to try it")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of gpu_pipeline.json and .md")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(options.device)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else None
    about = {"gpu": gpu, "processor": processor_name(), "torch": torch.__version__, "escounts": __version__}
    results = Results(options.out / "gpu_pipeline.json", about)
    for part in options.parts.split(","):
        keep = results.keep(part)
        limit = time.perf_counter() + (options.seconds or SECONDS[part])
        began = time.perf_counter()
        try:
            if part == "pipeline":
                videos = 2 if options.tiny else options.videos
                pipeline(options.device, footage(options.tiny), videos, options.readers, limit, keep)
            elif part == "nvdec":
                videos = 2 if options.tiny else options.videos
                engines(options.device, footage(options.tiny)["slow"], videos, options.clips, limit, keep)
            elif part == "vit":
                rate = the_rate(device, options.tiny, keep)
                decoded_frames(options.device, footage(options.tiny)["slow"][0], options.tiny, rate, limit, keep)
            elif part == "encoders":
                encoders_alone(device, options.tiny, limit, keep)
            elif part == "bench":
                bench(options.device, options.tiny, limit, keep)
            else:
                raise SystemExit(f"part {part!r}; it takes {', '.join(PARTS)}")
        except Exception:  # whatever it is, the other parts are measured
            keep("error", traceback.format_exc(limit=6))
        keep("took", round(time.perf_counter() - began, 1))
        if device.type == "cuda":
            torch.cuda.empty_cache()
    text = table(results.values)
    (options.out / "gpu_pipeline.md").write_text(text + "\n")
    print(text, flush=True)


def footage(tiny: bool) -> dict[str, tuple[Path, float]]:
    """A video of slow and one of fast motion, and the seconds they last."""
    folder = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    folder.mkdir(exist_ok=True)
    if tiny:
        return {"slow": (segment(folder / "tiny.mp4", size=(128, 96), seconds=4), 4.0)}
    slow = looped(segment(folder / "segment.mp4"), folder / "minute.mp4", 6)
    fast = looped(segment(folder / "fast-segment.mp4", 25), folder / "fast-minute.mp4", 6)
    return {"slow": (slow, 60.0), "fast": (fast, 60.0)}


def the_rate(device: torch.device, tiny: bool, keep: Keep) -> float:
    """Operations per second of a large product in bf16 (float32 where that is only tried)."""
    if not tiny and bf16_speedup(device) < 1:
        raise RuntimeError(f"{device} multiplies bf16 slower than float32: there is no share of its rate to measure")
    rate = product_rate(device, torch.float32 if tiny else torch.bfloat16, 0.1 if tiny else 1.5)
    keep("rate_tflops", rate / 1e12)
    return rate


def encoders_alone(device: torch.device, tiny: bool, limit: float, keep: Keep) -> None:
    """Windows per second of ViT-B and Swin-T by precision and batch, and their share of the rate measured beside."""
    rate = the_rate(device, tiny, keep)
    rows: list[dict[str, Any]] = []
    for name, precision, batch in TINY_ENCODERS if tiny else ENCODERS:
        if time.perf_counter() > limit:
            break
        rows.append(measure_encoder(name, device, precision, batch, rate, 0.1 if tiny else 1.5, False))
        keep("rows", rows)
    for precision in ("float32",) if tiny else ("bf16-weights", "bf16"):
        if time.perf_counter() < limit:
            keep(f"swin3d-t kernels, {precision}", kernels("swin3d-t", device, precision, 1 if tiny else 32))
    if not tiny and time.perf_counter() < limit:
        keep("mae-vit-b kernels, bf16-weights", kernels("mae-vit-b", device, "bf16-weights", 64))


def bench(device: str, tiny: bool, limit: float, keep: Keep) -> None:
    """Engines one after another, each in a process of its own, as rows of docs/speed.md; what counting uses first."""
    videos = footage(tiny)
    folder = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    brief = videos["slow"][0] if tiny else segment(folder / "4-seconds.mp4", seconds=4)
    engines = [Engine("lite", device, "float32")]
    if not tiny:
        engines = [
            *(Engine("lite", device, "bf16"), Engine("lite", device), Engine("lite", device, runs=PLAIN)),
            *(Engine("videomae-b", device, "bf16", TRANSFORMERS), Engine("mae-vit-b", device, "bf16")),
            *(Engine("swin3d-t", device, "bf16"), Engine("spectral", runs="NumPy")),
            Engine("decoding alone", runs="PyAV"),
            *(Engine("videomae-b", device, "bf16"), Engine("videomae-b", device, "float32", TRANSFORMERS)),
        ]
    rows: list[str] = []
    for engine in engines:
        if time.perf_counter() > limit:
            keep("left out", [str(engine) for engine in engines[len(rows) :]])
            break
        paper = engine.model not in ("lite", "spectral", "decoding alone")
        speed = in_child(engine, brief if paper else videos["slow"][0])
        rows.append(as_row(speed))
        keep("rows", rows)
