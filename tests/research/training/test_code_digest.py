"""What makes a kept figure stale."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from escounts.research.training import run_folder as module
from escounts.research.training.run_folder import PACKAGE, PREDICTING, code_digest


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """Of a hundred files one changes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_meaning", lru_cache(module._meaning))
        yield


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that a test may change, and changes back."""
    place = tmp_path_factory.mktemp("copy") / "p"
    shutil.copytree(PACKAGE, place, ignore=lambda folder, names: [n for n in names if _other(folder, n)])
    return place


@pytest.fixture(scope="module")
def unchanged(package: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PACKAGE", package)
        return str(code_digest.__wrapped__(PREDICTING))


@pytest.mark.parametrize(
    "place",
    [
        *("counter.py", "exemplars.py", "results.py", "counting/confidence.py", "counting/hypotheses.py"),
        *("counting/spans.py", "counting/stillness.py", "video/decoding.py", "video/files.py"),
    ],
)
def test_what_decides_a_count_makes_predictions_stale(
    place: str, package: Path, unchanged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PACKAGE", package)
    source = (package / place).read_text(encoding="utf-8")
    try:
        (package / place).write_text(source + "\n# a comment\n", encoding="utf-8")
        assert code_digest.__wrapped__(PREDICTING) == unchanged
        (package / place).write_text(source + "\nCHANGED = 1\n", encoding="utf-8")
        assert code_digest.__wrapped__(PREDICTING) != unchanged
    finally:
        (package / place).write_text(source, encoding="utf-8")


def _other(folder: str, name: str) -> bool:
    return not name.endswith(".py") and not ((Path(folder) / name).is_dir() and name != "__pycache__")
