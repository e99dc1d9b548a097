"""This machine's table: every engine on the same video, by turns, and the table as Markdown or as values."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path

import torch

from escounts.benchmarking.engines import DECODING, NUMPY, ONNX, PLAIN, TRANSFORMERS, Engine, Speed
from escounts.benchmarking.measuring import looped, processor_name, segment
from escounts.counter import load
from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import EscountsError
from escounts.models import catalogue
from escounts.models.onnx_export import export_onnx
from escounts.nn.device import counting_precision

MINUTE = 6
"""Segments of the footage."""
PAPER_SECONDS = 4
"""Of video for the paper's encoders: a minute would take a processor a quarter of an hour."""
PARTS = ("end to end", "decoding", "encoder", "decoder")
RIVALS = ("mae-vit-b", "videomae-b", "swin3d-t")
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Bench:
    """The rows, and what they were measured on."""

    machine: str
    gpu: str | None
    versions: str
    rounds: int
    speeds: tuple[Speed, ...]


def bench(
    video: Path | None = None,
    *,
    device: str = "auto",
    quick: bool = False,
    rounds: int = 1,
    report: Report | None = None,
) -> Bench:
    """Time every engine that runs here. video: default 720p30 that is drawn for it, a minute long, ten seconds when
    quick. device: "cpu", "cuda", or "auto" for what is here. rounds: how often all engines take turns; medians count.
    quick leaves out the paper's encoders, ONNX and the plainly written model."""
    with tempfile.TemporaryDirectory(prefix="escounts-bench-") as kept:  # shared machines have many users
        folder = Path(kept)
        long, brief = (video, video) if video else _footage(folder, quick=quick)
        engines = engines_here(device, quick=quick, exported=None if quick or device == "cuda" else exported(folder))
        turns: dict[Engine, list[Speed]] = {engine: [] for engine in engines}
        for turn in range(rounds):
            for index, engine in enumerate(engines):
                if report is not None:
                    report(turn * len(engines) + index, rounds * len(engines), f"{engine.model}, {engine.runs}")
                turns[engine].append(in_child(engine, brief if engine.model in RIVALS else long))
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = f"escounts {version('escounts')}, PyTorch {torch.__version__}"
    return Bench(processor_name(), gpu, versions, rounds, tuple(median(speeds) for speeds in turns.values()))


def _footage(folder: Path, *, quick: bool) -> tuple[Path, Path]:
    """The videos that are drawn: for most engines, and for the paper's encoders."""
    short = segment(folder / "segment.mp4")
    long = short if quick else looped(short, folder / "minute.mp4", MINUTE)
    return long, segment(folder / f"{PAPER_SECONDS}-seconds.mp4", seconds=PAPER_SECONDS)


def engines_here(device: str = "auto", *, quick: bool = False, exported: str | None = None) -> list[Engine]:
    """What is timed on this machine. exported: the folder of the default model for ONNX Runtime."""
    if device not in ("auto", "cpu", "cuda"):
        raise EscountsError(f"device is {device!r}; it takes auto, cpu or cuda")
    default = catalogue.default_name()
    found = [Engine("decoding alone", runs=DECODING), Engine("spectral", runs=NUMPY)]
    if device != "cuda":
        chosen = counting_precision(torch.device("cpu"))  # what `count` would take here
        found += [Engine(default, precision=chosen)]
        if not quick:
            other = "bf16" if chosen == "float32" else "float32"
            found += [Engine(default, precision=other), Engine(default, runs=PLAIN)]
            found += [Engine(default, runs=ONNX, folder=exported)] if exported else []
            found += _rivals("cpu", "float32")
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        found += [Engine(default, "cuda", "bf16"), Engine(default, "cuda")]
        found += [] if quick else [Engine(default, "cuda", runs=PLAIN), *_rivals("cuda", "bf16")]
    return found


def _rivals(device: str, precision: str) -> list[Engine]:
    rivals = [Engine(name, device, precision) for name in RIVALS]
    if importlib.util.find_spec("transformers"):
        rivals.append(Engine("videomae-b", device, precision, TRANSFORMERS))
    return rivals


def exported(folder: Path) -> str | None:
    """The default model for ONNX Runtime, exported into the folder; None where the extra [onnx] is missing."""
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime", "onnxscript"))):
        return None
    model = load(device="cpu").model
    if not isinstance(model, MultiRateModel):
        return None
    export_onnx(model, folder / "onnx")
    return str(folder / "onnx")


def in_child(engine: Engine, video: Path) -> Speed:
    """One engine's Speed, measured in a process of its own."""
    command = [sys.executable, "-m", "escounts.benchmarking.engines", json.dumps(asdict(engine)), str(video)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Speed(engine, float("nan"), error=last)
    values = json.loads(done.stdout.splitlines()[-1])
    return Speed(**{**values, "engine": engine})


def median(speeds: Sequence[Speed]) -> Speed:
    """The rounds of one engine as one: each part's median, the largest peak, the first error."""
    first = next((speed for speed in speeds if speed.error), speeds[0])
    wall = {part: statistics.median(speed.wall[part] for speed in speeds) for part in first.wall}
    processor = {part: statistics.median(speed.processor[part] for speed in speeds) for part in first.processor}
    peaks = [speed.peak_mb for speed in speeds if speed.peak_mb is not None]
    return replace(first, wall=wall, processor=processor, peak_mb=max(peaks, default=None))


def markdown(found: Bench, *, by_processor: bool = False) -> str:
    """The table in the form of the docs. by_processor: rates per second of processor (all cores together) instead of
    per second on the wall; for a machine that others use, too."""
    on_gpu = f", {found.gpu}" if found.gpu else ", no GPU"
    unit = "processor second (all cores together)" if by_processor else "second"
    turns = "one round" if found.rounds == 1 else f"medians of {found.rounds} rounds"
    lines = [
        f"{found.machine}{on_gpu}; {found.versions}. Seconds of video per {unit}: more is faster; {turns}, each "
        "engine in a process of its own. Starting is not in the rates; the peak is the process's, or a GPU's.",
        "",
        f"| model | device | precision | engine | {' | '.join(PARTS)} | start s | peak MB | count |",
        "|---" * (len(PARTS) + 7) + "|",
    ]
    return "\n".join([*lines, *(as_row(speed, by_processor=by_processor) for speed in found.speeds)])


def as_row(speed: Speed, *, by_processor: bool = False) -> str:
    """A row of the table."""
    engine = speed.engine
    name = engine.model if engine.runs == DECODING else f"`{engine.model}`"
    cells = [name, engine.device, "–" if engine.runs == DECODING else engine.precision, engine.runs]
    if speed.error:
        return "| " + " | ".join([*cells, f"did not run: {speed.error}", *["–"] * (len(PARTS) + 2)]) + " |"
    times = speed.processor if by_processor else speed.wall
    cells += [_figure(speed.seconds / times[part]) if times.get(part) else "–" for part in PARTS]
    cells.append("–" if speed.start is None else f"{speed.start:.1f}")
    cells.append("–" if speed.peak_mb is None else f"{speed.peak_mb:.0f}")
    known = speed.count is not None and engine.model not in RIVALS  # these have random weights
    return "| " + " | ".join([*cells, f"{speed.count:.2f}" if known else "–"]) + " |"


def _figure(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def as_values(found: Bench) -> dict[str, object]:
    """The same for programs: plain values, times in seconds."""
    return {field.name: getattr(found, field.name) for field in fields(found) if field.name != "speeds"} | {
        "rows": [asdict(speed) for speed in found.speeds]
    }
