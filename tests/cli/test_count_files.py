"""The files of one folder agree, and one that cannot be written keeps no other from it."""

from __future__ import annotations

import csv
import json
import sys
from functools import partial
from pathlib import Path

import pytest
from command import run
from movies import bouncing, write_movie

from escounts.cli.count_jobs import LEDGER, Ledger, reserve_files

COUNT = ("count", "--model", "spectral")


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> partial:  # type: ignore[type-arg]
    return partial(run, capsys, monkeypatch)


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("files") / "a.mp4", bouncing(6, 6.0, size=(64, 48)))


def test_files_of_other_settings_are_made_again(escounts: partial, movie: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    """Counted in part with -f json, the CSV beside it says the same."""
    assert escounts(*COUNT, movie, "-o", tmp_path, "-f", "json,csv").code == 0
    done = escounts(*COUNT, movie, "-o", tmp_path, "-f", "json", "--to", "3")
    assert done.code == 0 and "a.csv: of other settings, made again" in done.err
    counted = json.loads((tmp_path / "a.json").read_text())["count"]
    with (tmp_path / "a.csv").open() as file:
        assert {row["count"] for row in csv.DictReader(file)} == {str(counted)} == {"3"}
    done = escounts(*COUNT, movie, "-o", tmp_path, "-f", "csv", "--to", "3")
    assert "finished already" in done.out, "both are of these settings now"


def test_files_of_a_changed_video_are_made_again(escounts: partial, movie: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    video = tmp_path / "v.mp4"
    video.write_bytes(movie.read_bytes())
    escounts(*COUNT, video, "-q", "-o", tmp_path / "out", "-f", "json,csv")
    write_movie(video, bouncing(4, 4.0, size=(64, 48)))
    assert escounts(*COUNT, video, "-q", "-o", tmp_path / "out", "-f", "json").code == 0
    with (tmp_path / "out" / "v.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4


def test_a_missing_extra_ends_no_other_format(
    escounts: partial,  # type: ignore[type-arg]
    movie: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without matplotlib there is no picture: the other files are written, and it says how to get this one."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib.figure", None)
        done = escounts(*COUNT, movie, "-o", tmp_path, "-f", "png,json,html,csv")
    assert done.code == 1
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "a.html", "a.csv", LEDGER}
    assert "a.png: png needs matplotlib; install it with: pip install" in done.err
    assert all(f"wrote {tmp_path / name}" in done.err for name in ("a.json", "a.html", "a.csv"))
    done = escounts(*COUNT, movie, "-o", tmp_path, "-f", "png,json,html,csv")
    assert done.code == 0 and (tmp_path / "a.png").exists(), "the picture comes once it can"


def test_a_broken_off_run_leaves_no_file_that_counts_as_finished(tmp_path: Path) -> None:
    """It may have replaced some of the files that it was about to write."""
    video = tmp_path / "v.mp4"
    video.write_bytes(b"1")
    for name in ("v.json", "v.csv"):
        (tmp_path / name).write_text("")
    Ledger(tmp_path).add("v", video, {"to": None}, ["v.json", "v.csv"], {"count": 4})
    reserve_files(tmp_path, "v", video, ["v.json"])
    assert Ledger(tmp_path).about("v", video, {"to": None}, ["v.json"]) is None
    assert Ledger(tmp_path).about("v", video, {"to": None}, ["v.csv"]) == {"count": 4}


def test_ledger_knows_settings_video_and_files(tmp_path: Path) -> None:
    video = tmp_path / "v.mp4"
    video.write_bytes(b"1")
    Ledger(tmp_path).add("v", video, {"model": "a"}, ["v.json"], {"count": 4})
    (tmp_path / "v.json").write_text("{}")
    assert Ledger(tmp_path).about("v", video, {"model": "a"}, ["v.json"]) == {"count": 4}
    assert Ledger(tmp_path).about("v", video, {"model": "b"}, ["v.json"]) is None
    assert Ledger(tmp_path).about("v", video, {"model": "a"}, ["v.json", "v.csv"]) is None
    video.write_bytes(b"22")
    assert Ledger(tmp_path).about("v", video, {"model": "a"}, ["v.json"]) is None
    with (tmp_path / LEDGER).open("a") as file:
        file.write('{"name": "v", "vid')  # a crash in the middle of a line
    Ledger(tmp_path).add("v", video, {"model": "a"}, ["v.json"], {"count": 4})
    assert Ledger(tmp_path).about("v", video, {"model": "a"}, ["v.json"]) == {"count": 4}
