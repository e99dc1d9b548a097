"""What a run's folder says of itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from escounts import __version__
from escounts.research.training.run_folder import package_commit

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a checkout")
def test_the_commit_is_the_packages_and_not_that_of_the_folder_the_user_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "elsewhere"], check=True)
    here = package_commit()
    monkeypatch.chdir(tmp_path)
    elsewhere = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert package_commit() == here != elsewhere
    assert len(here) == 40


def test_a_machine_without_git_records_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert package_commit() == f"version {__version__}"
