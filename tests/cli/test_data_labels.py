"""`escounts data import` and `export` as a person calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import Outcome, run

from escounts.datasets import folder

EVENTS = (
    "Observation id,Media file,Behavior,Behavior type,Start (s),Stop (s)\n"
    "1,C:\\clips\\a.mp4,jump,STATE,0.5,1.5\n1,C:\\clips\\a.mp4,rest,STATE,1.5,9.0\n"
)


@pytest.fixture()
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


def test_labels_of_boris_become_labels_that_training_reads_and_go_out_to_elan(
    escounts: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "events.csv").write_text(EVENTS)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "labels.csv").write_text("file,start_s,end_s,class\nold.mp4,2,3,squat\n")
    several = escounts("data", "import", tmp_path / "events.csv", "--root", mine)
    assert several.code != 0 and "'jump', 'rest'; say which one is meant" in several.err
    done = escounts("data", "import", tmp_path / "events.csv", "--root", mine, "--only", "jump")
    assert done.code == 0, done.err
    assert "a.mp4: 1 repetitions (there is no a.mp4" in done.out
    found = {video.name: (video.spans, video.action) for video in folder.load_folder(mine).videos}
    assert found == {"old.mp4": (((2.0, 3.0),), "squat"), "a.mp4": (((0.5, 1.5),), "jump")}
    exported = escounts("data", "export", "--root", mine, "--format", "elan", "-o", tmp_path / "eaf")
    assert exported.code == 0, exported.err
    assert sorted(path.name for path in (tmp_path / "eaf").iterdir()) == ["a.mp4.eaf", "old.mp4.eaf"]
    back = escounts("data", "import", tmp_path / "eaf" / "a.mp4.eaf", "--root", tmp_path / "back")
    assert (
        back.code == 0 and (tmp_path / "back" / "labels.csv").read_text().splitlines()[1] == "a.mp4,0.500,1.500,jump"
    )


def test_overlapping_labels_are_refused(escounts: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("file,start_s,end_s\na.mp4,0,2\na.mp4,1,3\n")
    refused = escounts("data", "import", tmp_path / "labels.csv", "--root", tmp_path / "mine")
    assert refused.code != 0 and "0.00–2.00 s and 1.00–3.00 s overlap" in refused.err
    assert not (tmp_path / "mine").exists()
