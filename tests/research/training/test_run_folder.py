"""What a run's folder says of itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from escounts import __version__
from escounts.research.training import run_folder
from escounts.research.training.run_folder import PACKAGE, PREDICTING, TRAINING, code_identity

REPOSITORY = Path(__file__).resolve().parents[3]
asked_anew = code_identity.__wrapped__


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_every_place_that_makes_a_figure_is_there() -> None:
    assert not [place for place in (*TRAINING, *PREDICTING) if not (PACKAGE / place).exists()]


def test_changed_code_makes_predictions_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "PACKAGE", tmp_path)
    for place in ("counting/spans.py", "serve/app.py"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_text("A = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    first = asked_anew(PREDICTING)
    assert first == git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "serve/app.py").write_text("A = 2\n")
    git(tmp_path, "commit", "-q", "-a", "-m", "the page")
    assert asked_anew(PREDICTING) == first, "the page decides no count"
    (tmp_path / "counting/spans.py").write_text("A = 2\n")
    changed = asked_anew(PREDICTING)
    assert changed.startswith(f"{first}+"), "not committed yet, and another code"
    (tmp_path / "counting/spans.py").write_text("A = 3\n")
    assert asked_anew(PREDICTING) not in (first, changed)
    git(tmp_path, "commit", "-q", "-a", "-m", "spans")
    assert asked_anew(PREDICTING) == git(tmp_path, "rev-parse", "HEAD") != first


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a checkout")
def test_the_commit_is_the_packages_and_not_that_of_the_folder_the_user_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "elsewhere")
    here = asked_anew()
    monkeypatch.chdir(tmp_path)
    assert asked_anew() == here != git(tmp_path, "rev-parse", "HEAD")
    assert len(here.partition("+")[0]) == 40


def test_a_machine_without_git_records_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asked_anew() == f"version {__version__}"
