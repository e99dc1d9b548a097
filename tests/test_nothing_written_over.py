"""What a command did not write, it does not write over: one line, and the user's file as it was."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Outcome, run
from movies import bouncing, write_movie
from stores import LAYOUT, video
from stores import tokens as made_tokens

from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import DataError, OutputError
from escounts.models.catalogue import TAUGHT
from escounts.models.checkpoint import save_network
from escounts.models.onnx_export import export_onnx
from escounts.models.store import stored_path
from escounts.nn.network import LITE_TINY, Network
from escounts.research.datasets import generated
from escounts.research.datasets.tokens import TokenWriter
from escounts.research.evaluation.prediction_files import Coverage, PredictionFile
from escounts.research.training.run_folder import OWN_FILES, reserve_run_folder

Command = Callable[..., Outcome]


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


def test_a_table_is_not_written_over_a_video(escounts: Command, tmp_path: Path) -> None:
    """--summary a.mp4 b.mp4: the first of the videos was taken for the table's name."""
    (tmp_path / "a.mp4").write_bytes(b"mine")
    refused = escounts("count", "--summary", tmp_path / "a.mp4", tmp_path / "b.mp4")
    assert refused.code == 2 and "is no .csv" in refused.err
    assert (tmp_path / "a.mp4").read_bytes() == b"mine"


def test_a_table_is_not_written_over_a_table_of_labels(escounts: Command, tmp_path: Path) -> None:
    """--summary labels.csv: the name of a table that somebody made by hand, and the first to come to mind."""
    video = write_movie(tmp_path / "a.mp4", bouncing(2, 1.0, size=(32, 32)))
    labels = tmp_path / "labels.csv"
    labels.write_text("file,count\na.mp4,2\n")
    count = ("count", "--model", "spectral", video, "--summary", labels)
    refused = escounts(*count)
    assert refused.code == 2 and "is no summary of escounts" in refused.err and len(refused.err.splitlines()) == 1
    assert refused.out == "" and labels.read_text() == "file,count\na.mp4,2\n"
    assert escounts(*count, "--force").code == 0 and labels.read_text().startswith("video,status")
    assert escounts(*count).code == 0, "its own table is replaced"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_pipe_is_neither_waited_for_nor_replaced_by_a_table(
    escounts: Command, tmp_path: Path, force: tuple[str, ...]
) -> None:
    pipe = tmp_path / "summary.csv"
    os.mkfifo(pipe)
    ended = threading.Timer(3.0, lambda: os.close(os.open(pipe, os.O_RDWR)))  # who waits for it waits no longer
    ended.start()
    refused = escounts("count", "--model", "spectral", tmp_path, "--summary", pipe, *force)
    ended.cancel()
    assert refused.code == 2 and "a pipe or a device" in refused.err and pipe.is_fifo()


def test_a_report_is_not_written_over_labels_or_a_video(escounts: Command, tmp_path: Path) -> None:
    """evaluate --json labels.csv: both were lost without a word."""
    write_movie(tmp_path / "a.mp4", bouncing(2, 1.0, size=(32, 32)))
    (tmp_path / "labels.csv").write_text("file,count\na.mp4,2\n")
    evaluate = ("evaluate", "spectral", "--data", "folder", "--root", tmp_path, "--out", tmp_path / "out", "--json")
    for name in ("a.mp4", "labels.csv"):
        before = (tmp_path / name).read_bytes()
        refused = escounts(*evaluate, tmp_path / name)
        assert refused.code == 2 and "is no report" in refused.err and (tmp_path / name).read_bytes() == before
    for _ in range(2):  # its own is replaced
        assert escounts(*evaluate, tmp_path / "report.json").code == 0
        assert json.loads((tmp_path / "report.json").read_text())["evaluations"]


def test_a_generated_dataset_is_not_drawn_into_somebodys_own(tmp_path: Path) -> None:
    labels = tmp_path / "annotation" / "train.csv"
    labels.parent.mkdir()
    labels.write_text("mine")
    small = generated.SyntheticSet(train=1, valid=1, test=1, seconds=(1.0, 1.0), size=(32, 32))
    with pytest.raises(DataError, match="holds files and no generated dataset"):
        generated.create(tmp_path, small)
    assert labels.read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["annotation"]
    generated.create(tmp_path / "new", small)
    (tmp_path / "new" / "made.json").rename(tmp_path / "new" / "made.json.begun")  # as a run that was stopped
    assert len(generated.create(tmp_path / "new", small).videos) == 3
    assert not (tmp_path / "new" / "made.json.begun").exists()


@pytest.mark.parametrize("name", OWN_FILES)
def test_a_run_does_not_begin_in_a_folder_with_files_of_its_names(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match=r"is there already; no run\.json"):
        reserve_run_folder(tmp_path, {"train": 1})
    assert os.listdir(tmp_path) == [name] and (tmp_path / name).read_text() == "mine"


def test_an_own_action_is_not_taught_over_a_checkpoint(escounts: Command, tmp_path: Path) -> None:
    (tmp_path / "best.safetensors").write_bytes(b"mine")
    for more in ((), ("--replace",)):
        refused = escounts("train", "folder", "--root", tmp_path, "--out", tmp_path, *more)
        assert refused.code != 0 and "best.safetensors is" in refused.err and len(refused.err.splitlines()) == 1
        assert (tmp_path / "best.safetensors").read_bytes() == b"mine"


def test_weights_are_not_added_over_a_model_that_was_taught(
    escounts: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))
    save_network(tmp_path / "new.safetensors", Network(LITE_TINY))
    taught = stored_path("my-squats")
    save_network(taught, Network(LITE_TINY), metadata={TAUGHT: "squats"})
    before = taught.read_bytes()
    refused = escounts("weights", "add", tmp_path / "new.safetensors", "--as", "my-squats")
    assert refused.code != 0 and "is a model that was taught" in refused.err
    assert taught.read_bytes() == before
    taught.write_bytes(b"damaged")
    assert escounts("weights", "add", tmp_path / "new.safetensors", "--as", "my-squats").code == 0


def test_a_model_is_not_exported_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"mine": 1}')
    with pytest.raises(OutputError, match=r"model\.json is there already"):
        export_onnx(MultiRateModel("tiny", Network(LITE_TINY)), tmp_path)
    assert (tmp_path / "model.json").read_text() == '{"mine": 1}' and os.listdir(tmp_path) == ["model.json"]


def test_predictions_of_another_model_are_kept(tmp_path: Path) -> None:
    def file(model: dict[str, str]) -> PredictionFile:
        return PredictionFile(tmp_path / "p.csv", {"model": model})

    file({"name": "lite", "sha256": "a"}).finish([], Coverage("toy", "test", 0, 0, {}))
    file({"name": "lite", "sha256": "b"}).keep_others()  # stale: made anew
    with pytest.raises(DataError, match="holds the predictions of lite; choose another --out"):
        file({"name": "spectral"}).keep_others()


def test_tokens_that_cannot_be_read_just_now_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files, no right, a disk that stumbles: hours of encoding are not thrown away for it."""
    with TokenWriter(tmp_path, LAYOUT) as writer:
        writer.write(made_tokens(video("a")))
        (stored,) = (tmp_path / "videos").iterdir()

        def stumbles(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("escounts.research.datasets.tokens.safe_open", stumbles)
            with pytest.raises(DataError, match="Too many open files"):
                writer.has("a")
        assert stored.exists() and writer.has("a")
        stored.write_bytes(stored.read_bytes()[:100])
        assert not writer.has("a") and not stored.exists(), "a torn one is made anew"
