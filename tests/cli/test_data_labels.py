"""`escounts data import` and `export` as a person calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import Outcome, run

from escounts.research.datasets import folder

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


def test_import_keeps_what_it_does_not_read_and_puts_replaced_labels_aside(
    escounts: Callable[..., Outcome], tmp_path: Path
) -> None:
    """A hand-made split and remarks of other videos stay; what was labelled before lies beside it."""
    mine = tmp_path / "mine"
    mine.mkdir()
    kept = "file,start_s,end_s,class,split,remark\nb.mp4,1,2,jump,valid,mine\nb.mp4,3,4,rest,valid,\n"
    old = kept + "a.mp4,7,8,jump,test,\n"
    (mine / "labels.csv").write_text(old)
    (tmp_path / "events.csv").write_text(EVENTS)
    done = escounts("data", "import", tmp_path / "events.csv", "--root", mine, "--only", "jump")
    assert done.code == 0 and "a.mp4 had labels before" in done.out, done.err
    assert (mine / "labels.csv").read_text() == kept + "a.mp4,0.500,1.500,jump,,\n"
    assert (mine / "labels.csv.before").read_text() == old
    once = (mine / "labels.csv").read_text()
    again = escounts("data", "import", tmp_path / "events.csv", "--root", mine, "--only", "jump")
    assert again.code == 0 and "labels.csv.before-2" in again.out, again.err
    assert (mine / "labels.csv.before").read_text() == old, "what a person labelled is not written over"
    assert (mine / "labels.csv.before-2").read_text() == once


def test_classes_of_one_video_stay_classes_there_and_back(escounts: Callable[..., Outcome], tmp_path: Path) -> None:
    """Squats and jumps of one video had all become squats."""
    rows = "file,start_s,end_s,class\na.mp4,0.520,1.000,squat\na.mp4,1.000,1.520,jump\n"
    (tmp_path / "mine.csv").write_text(rows)
    assert escounts("data", "import", tmp_path / "mine.csv", "--root", tmp_path / "a").code == 0
    assert (tmp_path / "a" / "labels.csv").read_text() == rows
    for name in ("boris", "boris-tabular", "elan", "label-studio"):
        out = tmp_path / name
        assert escounts("data", "export", "--root", tmp_path / "a", "--format", name, "-o", out).code == 0
        (file,) = out.iterdir()
        refused = escounts("data", "import", file, "--root", tmp_path / "b")
        assert refused.code == 2 and "'squat', 'jump'; say which one" in refused.err
        done = escounts("data", "import", file, "--root", out / "back", "--only", "jump")
        assert done.code == 0 and (out / "back" / "labels.csv").read_text().splitlines()[1:] == [
            "a.mp4,1.000,1.520,jump"
        ]
    odd = escounts("data", "check", "folder", "--root", tmp_path / "a")
    assert "its rows are of several classes (squat, jump)" in odd.out


def test_times_past_the_end_are_refused_with_what_they_look_like(
    escounts: Callable[..., Outcome], tmp_path: Path
) -> None:
    assert escounts("sample", "-o", tmp_path / "a.mp4", "--repetitions", "3").code == 0
    (tmp_path / "ms.csv").write_text("file,start_s,end_s\na.mp4,500,1500\n")
    refused = escounts("data", "import", tmp_path / "ms.csv", "--root", tmp_path)
    assert refused.code == 2 and not (tmp_path / "labels.csv").exists()
    assert "line 2 (500–1500 s) lies past the end" in refused.err and "look like milliseconds" in refused.err


def test_export_writes_over_nothing(escounts: Callable[..., Outcome], tmp_path: Path) -> None:
    """A BORIS table is called labels.csv, too: exported into its own folder it replaced the labels themselves."""
    mine = "file,start_s,end_s,class\na.mp4,2,3,squat\n"
    (tmp_path / "labels.csv").write_text(mine)
    export = ("data", "export", "--root", tmp_path, "-o", tmp_path, "--format")
    for more in ((), ("--force",)):
        refused = escounts(*export, "boris", *more)
        assert refused.code != 0 and "another folder" in refused.err
        assert (tmp_path / "labels.csv").read_text() == mine
    (tmp_path / "a.mp4.eaf").write_text("hours of work")
    refused = escounts(*export, "elan")
    assert refused.code != 0 and "a.mp4.eaf is there already" in refused.err
    assert (tmp_path / "a.mp4.eaf").read_text() == "hours of work"
    assert escounts(*export, "elan", "--force").code == 0


@pytest.mark.parametrize("there", ["mine.mp4", "mine.json"])
def test_the_sample_is_drawn_over_nothing(escounts: Callable[..., Outcome], tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    refused = escounts("sample", "-o", tmp_path / "mine.mp4")
    assert refused.code != 0 and f"{there} is there already" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == [there] and (tmp_path / there).read_text() == "mine"
