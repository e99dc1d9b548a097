"""A run is pushed to the hub with a card of its own figures; what is wrong there is said before it trains."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import Outcome
from command import run as command
from stores import store, video

from escounts.models.store import header_metadata


class Hub:
    """A stand-in for the hub library: keeps what it is given."""

    def __init__(self, folder: Path, *, known: bool = True) -> None:
        self.folder, self.known, self.made = folder, known, ""
        self.HfApi = lambda: self

    def whoami(self) -> None:
        if not self.known:
            raise PermissionError("Token is required\nlog in")

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        assert private and exist_ok
        self.made = name

    def upload_folder(self, *, repo_id: str, folder_path: Path) -> None:
        assert repo_id == self.made
        shutil.copytree(folder_path, self.folder)

    def model_info(self, name: str, files_metadata: bool) -> Any:
        return SimpleNamespace(
            siblings=[SimpleNamespace(rfilename=path.name) for path in self.folder.iterdir()], sha="0" * 40
        )

    def snapshot_download(self, name: str, revision: str, allow_patterns: list[str]) -> str:
        assert allow_patterns == ["best.safetensors"]
        return str(self.folder)


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    videos = [video(f"t{k}", count=2 + k) for k in range(3)] + [video(f"v{k}", split="valid") for k in range(2)]
    store(tmp_path / "tokens" / "repcount-patches", videos, name="repcount")
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))

    def call(*arguments: object, hub: Hub | None) -> Outcome:
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        small = [f"decoder.{name}" for name in ("channels=16", "heads=2", "latent_tokens=16")]
        common = ("--tokens", tmp_path / "tokens", "--out", tmp_path / "run", "--device", "cpu", "--steps", 2)
        settings = [part for setting in small for part in ("--set", setting)]
        return command(capsys, monkeypatch, "train", "repcount", *common, "--batch", 2, *settings, *arguments)

    def add(*arguments: object) -> Outcome:
        return command(capsys, monkeypatch, "weights", "add", *arguments)

    return SimpleNamespace(run=call, add=add)


def test_a_run_is_pushed_with_its_own_figures_and_can_be_added(train: Any, tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub")
    done = train.run("--push-to-hub", "me/squats", hub=hub)
    assert done.code == 0, done.err
    assert done.out.endswith("pushed to me/squats\n")
    text = (tmp_path / "hub" / "README.md").read_text()
    assert "3 videos of `repcount`" in text and "`patches`" in text and "2 steps of 2 videos" in text
    printed = {line.split()[0]: line.split()[1] for line in done.out.splitlines() if line.startswith(("mae", "obo"))}
    assert printed and all(f"| {name} | {value} |" in text for name, value in printed.items())
    best = tmp_path / "run" / "best.safetensors"
    assert header_metadata(tmp_path / "hub" / "best.safetensors") == header_metadata(best)
    added = train.add("me/squats", "--as", "squats")
    assert added.code == 0 and added.out.startswith("squats: decoder"), added.err


@pytest.mark.parametrize(
    ("repository", "hub", "said"),
    [
        ("squats", "known", "'squats' is no repository of the hub; write ORG/NAME"),
        ("me/squats", "unknown", "cannot push to me/squats (PermissionError: Token is required)"),
        ("me/squats", "missing", "pushing to the hub needs"),
    ],
)
def test_what_is_wrong_is_said_before_training(
    repository: str, hub: str, said: str, train: Any, tmp_path: Path
) -> None:
    stand_in = None if hub == "missing" else Hub(tmp_path / "hub", known=hub == "known")
    refused = train.run("--push-to-hub", repository, hub=stand_in)
    assert refused.code == 2 and said in " ".join(refused.err.split()), refused.err
    assert not (tmp_path / "run").exists()
