"""The recipes of CONTRIBUTING.md, followed in a copy of the package: a format, an encoder, a dataset."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from movies import bouncing, write_movie

import escounts

WRITER = """
from escounts.system.atomic_files import write_text


def write(result, path, *, video=None):
    write_text(path, "\\n".join(f"{r.start:.2f}\\t{r.end:.2f}" for r in result.repetitions))
"""
SERVICE = """
import json, sys
from pathlib import Path
from escounts.serve.app import create_app, limits
from escounts.serve.settings import Settings
app = create_app(Settings(data=Path(sys.argv[1]), model="spectral", devices=("cpu",)))
download = app.openapi()["paths"]["/api/jobs/{job_id}/download/{format}"]["get"]
shown = limits(app.state.service)
enum = next(p["schema"]["enum"] for p in download["parameters"] if p["name"] == "format")
print(json.dumps({"enum": enum, "kinds": list(download["responses"]["200"]["content"]), "titles": shown.titles}))
"""


ENCODER = """
import torch

from escounts.nn.encoders.interface import Encoder, EncoderSpec


class BrightnessEncoder(Encoder):
    def __init__(self):
        spec = EncoderSpec(
            name="brightness", channels=1, window_frames=16, every=1, size=32, mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25), cells=16, grid=(1, 1), fps=10.0,
        )
        super().__init__(spec)

    def forward(self, frames_BTCHW):
        return frames_BTCHW.mean((2, 3, 4))[:, :, None, None, None]
"""
DATASET = """
from escounts.research.datasets.annotations import VideoAnnotation, assemble


def load_mine(root):
    lines = (root / "counts.txt").read_text().split()
    spans = tuple((float(index), float(index + 1)) for index in range(int(lines[1])))
    video = VideoAnnotation(
        name=lines[0], file=lines[0], action=None, count=len(spans), spans=spans, fps=None, duration=None,
        split="test",
    )
    return assemble("mine", [video], {"test": 1})
"""


@dataclass(frozen=True)
class Copy:
    """A copy of the package that can be changed, and programs that run with it."""

    package: Path

    def add(self, file: str, text: str, *lines: tuple[str, str, str]) -> None:
        """Write a new file, and add lines to others: (file, the line before, the new line)."""
        (self.package / file).write_text(text)
        for listed, before, line in lines:
            source = (self.package / listed).read_text()
            assert source.count(before) == 1
            (self.package / listed).write_text(source.replace(before, before + line))

    def python(self, *arguments: object) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.package.parent), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    source = Path(escounts.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "static", "weights")
    package = shutil.copytree(source, tmp_path / "src" / "escounts", ignore=ignored)
    (package / "serve" / "static").symlink_to(source / "serve" / "static")
    (package / "weights").symlink_to(source / "weights")
    return Copy(package)


def test_a_new_format_is_a_file_and_a_line(tmp_path: Path, copy: Copy) -> None:
    """The command writes it, the service and the page offer it."""
    pytest.importorskip("fastapi", reason="needs escounts[serve]")
    entry = '    "tsv": Format(".tsv", "text/tab-separated-values", "Tabs", "tsv.write"),\n'
    copy.add("output/tsv.py", WRITER, ("output/__init__.py", "FORMATS: dict[str, Format] = {\n", entry))
    movie = write_movie(tmp_path / "a.mp4", bouncing(4, 4.0, size=(64, 48)))
    copy.python("-m", "escounts", "count", movie, "--model", "spectral", "-o", tmp_path / "out", "-f", "tsv")
    assert len((tmp_path / "out" / "a.tsv").read_text().splitlines()) == 4
    service = json.loads(copy.python("-c", SERVICE, tmp_path / "data"))
    assert "tsv" in service["enum"] and "text/tab-separated-values" in service["kinds"]
    assert service["titles"]["tsv"] == "Tabs", "the page draws a button for each of these"


def test_a_new_encoder_and_a_new_dataset_are_a_file_and_an_entry_each(tmp_path: Path, copy: Copy) -> None:
    """The commands check the dataset and encode it into a token store; models of the encoder are listed."""
    made = '{"escounts-brightness": "Trained on brightness."}'
    public = '(PublicFile("b.pth", "nowhere", "MIT", "read"),)'
    entry = f'    "brightness": EncoderEntry("brightness:BrightnessEncoder", {{}}, {public}, {made}),\n'
    table = "ENCODERS: Mapping[str, EncoderEntry] = {\n"
    copy.add("nn/encoders/brightness.py", ENCODER, ("nn/encoders/registry.py", table, entry))
    listed = copy.python("-m", "escounts", "models")
    assert "escounts-brightness: missing: encoder brightness: get b.pth (nowhere)" in listed
    registry = "research/datasets/registry.py"
    copy.add(
        "research/datasets/mine.py",
        DATASET,
        (registry, "import escounts\n", "from escounts.research.datasets import mine\n"),
        (registry, "DATASETS: Mapping[str, DatasetEntry] = {\n",
         '    "mine": DatasetEntry("my dataset", "counts.txt and videos", mine.load_mine),\n'),
    )  # fmt: skip
    write_movie(tmp_path / "a.mp4", bouncing(4, 4.0, size=(64, 48)))
    (tmp_path / "counts.txt").write_text("a.mp4 4\n")
    checked = copy.python("-m", "escounts", "data", "check", "mine", "--root", tmp_path)
    assert "test: 1 rows; 1 usable, 1 videos here" in checked and "4 repetitions" in checked
    tokens = tmp_path / "tokens"
    options = ("--encoder", "brightness", "--tokens", tokens)
    copy.python("-m", "escounts", "encode", "mine", "--root", tmp_path, *options)
    assert json.loads((tokens / "mine-brightness" / "layout.json").read_text())["channels"] == 1
