"""`escounts doctor`: versions, device, decoders, weights: what works here and what to do about the rest."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from escounts.extras import install_command
from escounts.sandbox import missing_protections
from escounts.zoo import catalogue

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
DECODERS = ("h264", "hevc", "vp9", "av1", "mpeg4", "gif", "png", "mjpeg")


@dataclass(frozen=True)
class Finding:
    """One line of the report: good, bad, or good enough (None) with a hint."""

    good: bool | None
    text: str


@click.command()
def doctor_command() -> int:
    """Check this machine. Exit code 1 when something that counting needs is missing."""
    bad = 0
    for check in (_versions, _device, _decoders, _reads_video, _models, _extras, _sandbox, _space):
        for finding in _safely(check):
            mark = {True: "ok  ", False: "BAD ", None: "note"}[finding.good]
            click.echo(f"{mark}  {finding.text}")
            bad += finding.good is False
    click.echo("everything that counting needs works" if not bad else f"{bad} problems: see the lines marked BAD")
    return 1 if bad else 0


def _safely(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that breaks is a finding, too: the doctor never falls ill."""
    try:
        yield from check()
    except Exception as error:
        yield Finding(False, f"{check.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}")


def _versions() -> Iterator[Finding]:
    found = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    for name in ("escounts", "torch", "av", "numpy", "safetensors"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(False, f"{name} is not installed: pip install {name}")
    yield Finding(True, ", ".join(found))


def _device() -> Iterator[Finding]:
    import torch  # noqa: PLC0415 - it may be what is broken here, and that is a finding

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none, so that --device cpu is used"
    yield Finding(True, f"cpu: {cores} cores, torch uses {torch.get_num_threads()}; cuda: {cuda}")


def _decoders() -> Iterator[Finding]:
    import av  # noqa: PLC0415 - PyAV may be what is broken here, and that is a finding

    missing = [name for name in DECODERS if name not in av.codecs_available]
    if missing:
        yield Finding(None, f"decoders missing from PyAV: {', '.join(missing)}; reinstall av from its wheel")
    encoder = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    there = ", ".join(name for name in DECODERS if name not in missing)
    yield Finding(True, f"decoders: {there}; counted mp4 is encoded with {encoder}")


def _reads_video() -> Iterator[Finding]:
    """Write a tiny moving video and read it back."""
    import av  # noqa: PLC0415 - PyAV may be what is broken here, and that is a finding
    import numpy as np  # noqa: PLC0415 - PyAV may be what is broken here, and that is a finding

    from escounts.video import Video  # noqa: PLC0415 - PyAV may be what is broken here, and that is a finding

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "check.mp4"
        with av.open(str(path), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for index in range(10):
                image = np.full((48, 64, 3), 20 * index, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode(None))
        frames = sum(1 for _ in Video(path).frames())
    yield Finding(frames == 10, f"video written and read back: {frames} of 10 frames")


def _models() -> Iterator[Finding]:
    catalogue.build("default", "cpu")
    yield Finding(True, f"the default model ({catalogue.default_name()}) loads")
    ready = {entry.name: entry.state() == "ready" for entry in catalogue.entries()}
    lacking = sum(not there for there in ready.values())
    rest = f"; {lacking} more need weights: `escounts models` says which" if lacking else ""
    yield Finding(True, f"models: {', '.join(name for name, there in ready.items() if there)}{rest}")


def _extras() -> Iterator[Finding]:
    there = []
    for module, (extra, what) in EXTRAS.items():
        try:
            importlib.import_module(module)
            there.append(module)
        except ImportError:
            yield Finding(None, f"{module} is not installed; for {what}: {install_command(extra)}")
    if there:
        yield Finding(True, f"extras: {', '.join(there)}")


def _sandbox() -> Iterator[Finding]:
    missing = missing_protections()
    if not missing:
        yield Finding(True, "sandbox: the server's workers have no network and write to their own folder alone")
    for what, why in missing.items():
        yield Finding(None, f"sandbox: the server's workers run without protection of {what}: {why}")


def _space() -> Iterator[Finding]:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    good = True if free > 200e6 else None
    yield Finding(good, f"{free / 1e9:.1f} GB free for temporary files")
