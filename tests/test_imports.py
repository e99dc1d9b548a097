"""Imports stand at the top of a module; one inside a function says why, and the quick doors stay quick."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from movies import levels, write_movie

SOURCE = Path(__file__).resolve().parents[1] / "src"


def test_every_import_inside_a_function_names_its_reason() -> None:
    """ruff's PLC0415 finds them; this looks at the comments that allow them."""
    bare = [
        f"{file.relative_to(SOURCE)}:{number}"
        for file in SOURCE.rglob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "PLC0415" in line and not re.search(r"noqa: [A-Z0-9, ]+ - \S.{4,}", line)
    ]
    assert not bare, f"write `# noqa: PLC0415 - REASON` at {', '.join(bare)}"


@pytest.mark.parametrize("module", ["escounts", "escounts.cli.count", "escounts.cli.models", "escounts.serve.app"])
def test_what_has_to_start_at_once_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_without_weights_counts_without_torch(tmp_path: Path) -> None:
    """It takes longer to import than to count a minute."""
    video = write_movie(tmp_path / "v.mp4", levels(40, step=40))
    code = f"import sys, escounts; escounts.count({str(video)!r}, model='spectral'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_loading_the_default_model_does_not_import_torchs_compiler() -> None:
    """It did, by drawing random numbers without memory: 822 modules and a second of processor time."""
    code = (
        "import sys, escounts, torch; cores = torch.get_num_threads(); escounts.load('lite', device='cpu'); "
        "assert torch.get_num_threads() == cores; "
        "sys.exit(', '.join(m for m in ('sympy', 'torch._dynamo', 'torch._inductor') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
