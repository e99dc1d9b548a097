"""Label files that nobody can mean and records torn by a crash: one line each, and the rest goes on."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from movies import bouncing, write_movie

from escounts.cli import main
from escounts.cli.count_jobs import LEDGER, Ledger, output_names
from escounts.errors import DataError
from escounts.models import catalogue, store
from escounts.research.datasets import counted
from escounts.research.datasets import folder as own_folder
from escounts.research.datasets.stores import load_labels
from escounts.research.datasets.tokens import TokenStore
from escounts.research.training.run_folder import RunFolder, reserve_run_folder

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("count", ["1e12", "100001", "-1", "nan", "1e999", "many", "3.5"])
def test_a_count_that_nobody_can_mean_leaves_the_rest_alone(tmp_path: Path, count: str) -> None:
    write_movie(tmp_path / "a.mp4", bouncing(2, 1.0))
    write_movie(tmp_path / "b.mp4", bouncing(2, 1.0))
    (tmp_path / "labels.csv").write_text(f"file,count\na.mp4,{count}\nb.mp4,2\n")
    dataset = own_folder.load_folder(tmp_path)
    assert [video.name for video in dataset.videos] == ["b.mp4"]
    assert [problem.name for problem in dataset.problems if problem.unusable] == ["a.mp4"]


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    write_movie(tmp_path / "b.mp4", bouncing(2, 1.0))
    (tmp_path / "labels.csv").write_text(f"file,start_s,end_s\n{'x' * 5000}.mp4,0,1\nb.mp4,0,0.5\n")
    dataset = own_folder.load_folder(tmp_path)
    found = {video.name[:5]: dataset.locate(tmp_path, video) for video in dataset.videos}
    assert found["b.mp4"] == tmp_path / "b.mp4" and found["xxxxx"] is None


def test_of_videos_that_are_none_the_rest_goes_on(tmp_path: Path) -> None:
    """Where a table has counts alone, each video is opened for its length: one that is none is one problem."""
    write_movie(tmp_path / "b.mp4", bouncing(2, 1.0))
    (tmp_path / "text.mp4").write_text("not a video")
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "loop.mp4").symlink_to(tmp_path / "loop.mp4")
    bad = ["text.mp4", "pipe.mp4", "loop.mp4", "gone.mp4", "x" * 5000 + ".mp4"]
    (tmp_path / "labels.csv").write_text("file,count\n" + "".join(f"{name},2\n" for name in (*bad, "b.mp4")))
    dataset = own_folder.load_folder(tmp_path)
    assert [video.name for video in dataset.videos] == ["b.mp4"]
    assert [problem.name for problem in dataset.problems if problem.unusable] == bad


@pytest.mark.parametrize("video", [7, [], "x", [["x"], 1, 2], [None, 1, 2], {"a": 1}])
@pytest.mark.parametrize("files", [7, [7], None, ["v.json"]])
@pytest.mark.parametrize("key", ["name", "claimed"])
def test_a_line_of_the_record_that_nobody_wrote(tmp_path: Path, key: str, video: object, files: object) -> None:
    """Passed over: the folder can still be counted into, and no name in it is taken."""
    (tmp_path / LEDGER).write_text(json.dumps({key: "v", "video": video, "files": files}) + "\n")
    (tmp_path / "v.mp4").write_bytes(b"video")
    (tmp_path / "v.json").write_text("mine")
    ledger = Ledger(tmp_path)
    assert list(output_names([tmp_path / "v.mp4"], ledger.owners)) == [(tmp_path / "v.mp4", "v")]
    assert ledger.about("v", tmp_path / "v.mp4", {}, ["v.json"]) is None
    assert ledger.foreign_files(["v.json"]) == ["v.json"]
    ledger.drop_if_empty()


@pytest.mark.parametrize(
    "text", [DEEP, "[1]", "7", "null", "{", '{"a": 1}', '"x"', "\ud800".encode("utf-8", "replace").decode()]
)
def test_records_of_the_wrong_kind(tmp_path: Path, text: str) -> None:
    for name in ("labels-x.json", "index.json", "layout.json", "ovr_ego4d_release.json"):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError):
        load_labels(tmp_path)
    with pytest.raises(DataError):
        TokenStore(tmp_path)
    with pytest.raises(DataError):
        counted.load_ovr(tmp_path)


def test_a_torn_run_folder(tmp_path: Path) -> None:
    reserve_run_folder(tmp_path, {"seed": 1})
    about = tmp_path / "run.json"
    about.write_text(about.read_text()[:5])
    with pytest.raises(DataError, match=r"run\.json is damaged .*delete it"):
        reserve_run_folder(tmp_path, {"seed": 1})
    (tmp_path / ".last.pt.01234567.partial").write_bytes(b"half")
    with RunFolder(tmp_path) as folder:
        assert not list(tmp_path.glob(".*.partial"))
        folder.log(1, {"loss": 2.0})
        folder.log(2, {"loss": 1.0})
        with open(tmp_path / "log.jsonl", "a") as file:
            file.write('{"step": 3, "lo')
        folder.forget_after(2)
        assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [1, 2]
        folder.save_state({"step": 2})
        whole = (tmp_path / "last.pt").read_bytes()
        for length in (0, 10, len(whole) // 2, len(whole) - 5):
            (tmp_path / "last.pt").write_bytes(whole[:length])
            with pytest.raises(DataError, match="delete it to train from the beginning") as raised:
                folder.load_state()
            assert "\n" not in str(raised.value)


def test_no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "ESCOUNTS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", staticmethod(nowhere))
    assert store.stored() == [] and store.find("mae-vit-b") is None
    assert "spectral" in {entry.name for entry in catalogue.entries() if entry.state() == "ready"}
    assert "ESCOUNTS_CACHE" in os.fspath(store.store_folder())


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_labels_that_are_no_file_are_not_waited_for(kind: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to held `evaluate` for ever; a device filled the memory."""
    labels = tmp_path / "labels.csv"
    if kind == "pipe":
        os.mkfifo(labels)
    else:
        labels.symlink_to("/dev/null")
    ended = threading.Timer(3.0, lambda: os.close(os.open(labels, os.O_RDWR)))  # who waits for it waits no longer
    ended.start()
    with pytest.raises(DataError, match="a pipe or a device"):
        own_folder.load_folder(tmp_path)
    ended.cancel()


def test_too_little_memory_for_a_command_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(**options: object) -> int:
        raise MemoryError

    monkeypatch.setattr("escounts.cli.app", out_of_memory)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("escounts: not enough memory")
