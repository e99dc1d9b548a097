"""What makes a kept figure stale."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from escounts.training import run_folder as module
from escounts.training.run_folder import PACKAGE, PREDICTING, code_digest


@pytest.mark.parametrize(
    "place",
    [
        *("confidence.py", "counter.py", "decoding.py", "exemplars.py", "hypotheses.py", "results.py", "spans.py"),
        *("video.py", "inference/stillness.py"),
    ],
)
def test_what_decides_a_count_makes_predictions_stale(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "p", ignore=lambda folder, names: [n for n in names if _other(folder, n)])
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "p")
    before = code_digest.__wrapped__(PREDICTING)
    with (tmp_path / "p" / place).open("a") as file:
        file.write("\n# a comment\n")
    assert code_digest.__wrapped__(PREDICTING) == before
    with (tmp_path / "p" / place).open("a") as file:
        file.write("CHANGED = 1\n")
    assert code_digest.__wrapped__(PREDICTING) != before


def _other(folder: str, name: str) -> bool:
    return not name.endswith(".py") and not ((Path(folder) / name).is_dir() and name != "__pycache__")
