"""One list of formats, read by command line, service and page: CONTRIBUTING's recipe for another one, followed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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
from escounts.serve.app import create_app
from escounts.serve.settings import Settings
from escounts.serve.video_api import limits
app = create_app(Settings(data=Path(sys.argv[1]), model="spectral", devices=("cpu",)))
download = app.openapi()["paths"]["/api/jobs/{job_id}/download/{format}"]["get"]
shown = limits(app.state.service)
enum = next(p["schema"]["enum"] for p in download["parameters"] if p["name"] == "format")
print(json.dumps({"enum": enum, "kinds": list(download["responses"]["200"]["content"]), "titles": shown.titles}))
"""


def test_a_new_format_is_a_file_and_a_line(tmp_path: Path) -> None:
    """A module with `write` and a line in FORMATS: the command writes it, the service and the page offer it."""
    pytest.importorskip("fastapi", reason="needs escounts[serve]")
    source = Path(escounts.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "static")
    package = shutil.copytree(source, tmp_path / "src" / "escounts", ignore=ignored)
    (package / "serve" / "static").symlink_to(source / "serve" / "static")
    (package / "output" / "tsv.py").write_text(WRITER)
    listed = package / "output" / "__init__.py"
    text = listed.read_text()
    head = "FORMATS: dict[str, Format] = {\n"
    assert head in text
    entry = '    "tsv": Format(".tsv", "text/tab-separated-values", "Tabs", "tsv.write"),\n'
    listed.write_text(text.replace(head, head + entry))
    movie = write_movie(tmp_path / "a.mp4", bouncing(4, 4.0, size=(64, 48)))

    def python(*arguments: object) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    python("-m", "escounts", "count", movie, "--model", "spectral", "-o", tmp_path / "out", "-f", "tsv")
    assert len((tmp_path / "out" / "a.tsv").read_text().splitlines()) == 4
    service = json.loads(python("-c", SERVICE, tmp_path / "data"))
    assert "tsv" in service["enum"] and "text/tab-separated-values" in service["kinds"]
    assert service["titles"]["tsv"] == "Tabs", "the page draws a button for each of these"
