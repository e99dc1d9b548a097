"""`python -m paper` as a person calls it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from command import Outcome, run
from stores import repcount, store, video

from escounts.cli import display
from escounts.models.checkpoint import write_checkpoint
from escounts.nn.encoders.registry import build_encoder
from escounts.research.datasets.encoding import encode_video
from escounts.research.datasets.registry import load_dataset
from escounts.research.evaluation import models
from escounts.research.training import token_run
from escounts.research.training.predictions import load_predictions
from escounts.video.files import Video
from paper.__main__ import app
from paper.released import released_truth

Command = Callable[..., Outcome]
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


@pytest.fixture
def paper(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return lambda *arguments: run(capsys, monkeypatch, *arguments, command=app)


@pytest.fixture(autouse=True)
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))


def released_files(folder: Path) -> tuple[Path, Path]:
    """A fake released checkpoint and a shallow encoder of the same width."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "nn" / "encoders"))
    sys.path.insert(0, str(Path(__file__).parents[1] / "nn"))
    import public_files

    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    encoder = build_encoder("mae-vit-b", depth=1)
    config = {"encoder": "mae-vit-b", "options": {"depth": 1}}
    write_checkpoint(folder / "encoder.safetensors", encoder.state_dict(), config=config)
    return folder / "encoder.safetensors", public_files.released_decoder_pyth(folder)


def test_released_checkpoint_from_file_to_table_row(
    escounts: Command, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """weights add → evaluate --released, stopped and gone on with → a row of Table 1a with its coverage."""
    monkeypatch.chdir(tmp_path)
    lengths = {"a.mp4": 40, "b.mp4": 64, "gone.mp4": 50, "odd.mp4": 65}
    root = repcount(tmp_path / "RepCount", lengths, absent=("gone.mp4",))
    labels, even, close = root / "annotation" / "test.csv", "b.mp4,3,0,21,21,43,43,64", "b.mp4,3,0,5,5,8,30,60"
    assert even in labels.read_text()
    labels.write_text(labels.read_text().replace(even, close))  # two middles in one cell: the loader's truth is 2
    encoder, decoder = released_files(tmp_path / "files")
    assert escounts("weights", "add", encoder, "--as", "mae-vit-b").code == 0
    assert escounts("weights", "add", decoder).out.startswith("escounts-repcount: decoder")
    evaluate = (
        "evaluate",
        "escounts-repcount",
        "--data",
        "repcount",
        "--root",
        root,
        "--released",
        "--device",
        "cpu",
    )

    opened: list[str] = []
    encode = encode_video

    def stopping(path: Path, annotation, *rest):  # type: ignore[no-untyped-def]
        opened.append(annotation.name)
        if len(opened) == 2:
            raise KeyboardInterrupt
        return encode(path, annotation, *rest)

    monkeypatch.setattr(models, "encode_video", stopping)
    assert paper(*evaluate).code == 130
    finished = paper(*evaluate)
    assert finished.code == 0, finished.err
    assert opened == ["a.mp4", "b.mp4", "b.mp4", "odd.mp4"], "what was counted is not counted again"
    assert "repcount test: 2 of 4 videos scored" in finished.out
    assert "gone.mp4 (not here)" in finished.out
    assert "odd.mp4 (the released code fails here: its two maps have 8 and 9 cells)" in finished.out
    assert "MAE as the released code has it" in finished.out
    grouped = paper(*evaluate, "--groups").out.splitlines()
    (overall,) = [line.split("  ")[-1].split()[0] for line in grouped if "MAE as the released" in line]
    assert {line.split()[3] for line in grouped if line.split()[:1] == ["squat"]} == {overall}, "one MAE, not two"

    folder = tmp_path / "tables" / "models" / "escounts-repcount"
    rows = load_predictions(folder / "repcount-test-0-none-released.csv")
    truths = {
        v.name: released_truth(v) for v in load_dataset("repcount", root).split("test") if v.name in "a.mp4b.mp4"
    }
    assert {row.name: row.released_truth for row in rows} == pytest.approx(truths)
    assert truths == pytest.approx({"a.mp4": 3.0, "b.mp4": 2.0}, abs=0.01)
    errors = [abs(round(row.predicted) - truths[row.name]) / (truths[row.name] + 0.1) for row in rows]
    (printed,) = [line for line in finished.out.splitlines() if "MAE as the released code has it" in line]
    assert float(printed.split()[7]) == pytest.approx(np.mean(errors), abs=1e-3), printed
    assert not list(folder.glob("*.partial.jsonl"))

    opened.clear()
    table = paper("table", "1a", "--root", f"repcount={root}", "--device", "cpu", "--tokens", tmp_path / "none")
    assert table.code == 0, table.err
    text = (tmp_path / "tables" / "1a.md").read_text()
    (line,) = [line for line in text.splitlines() if "released arithmetic" in line and line.startswith("|")]
    assert "| 2/4" in line
    assert opened == ["odd.mp4"], "the table shows what evaluate kept, and tries again what failed"
    assert "RepNet's head, re-run ViT-B: not run" in text
    assert "escounts encode repcount --root FOLDER --encoder mae-vit-b" in text


def test_a_table_of_labels_without_videos_says_so(
    escounts: Command, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = repcount(tmp_path / "RepCount", {"a.mp4": 90})
    for path in root.rglob("*.mp4"):
        path.unlink()
    table = paper("table", "1a", "--root", f"repcount={root}", "--device", "cpu", "--tokens", tmp_path / "none")
    assert table.code == 0, table.err
    assert "repcount test: 0 of 1 videos scored; missing: a.mp4 (not here)" in (tmp_path / "tables/1a.md").read_text()


def test_the_command_that_a_row_names_makes_it_and_says_how_far_it_is(
    escounts: Command, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "LINE_EVERY", -1.0)
    repcount(tmp_path / "RepCount", {"a.mp4": 90, "b.mp4": 90})
    assert paper("table", "text", "--device", "cpu").code == 0
    said = (tmp_path / "tables/text.md").read_text().splitlines()
    (row,) = [line for line in said if line.startswith("- predictions within ±3, spectral: not run")]
    command = row.split("make it with: python -m paper ")[1].replace("FOLDER", "RepCount").split()
    made = paper(*command, "--device", "cpu")
    assert "spectral: a.mp4" in made.err and "2/2 videos  spectral: b.mp4" in made.err
    (line,) = [one for one in (tmp_path / "tables/text.md").read_text().splitlines() if "±3, spectral |" in one]
    assert line.endswith("| ours | 100.00 | 2/2 |")


def test_the_first_videos_of_a_split_are_not_called_the_split(
    escounts: Command, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = repcount(tmp_path / "RepCount", {"a.mp4": 90, "b.mp4": 90, "c.mp4": 90})
    first = escounts("evaluate", "spectral", "--data", "repcount", "--root", root, "--limit-videos", 2)
    assert "repcount test: 2 of 2 videos scored (the first of 3)" in first.out
    table = paper("table", "text", "--root", f"repcount={root}", "--device", "cpu", "--limit-videos", 2)
    assert table.code == 0, table.err
    (line,) = [one for one in (tmp_path / "tables/text.md").read_text().splitlines() if "±3, spectral |" in one]
    assert "| 2/2 of 3 |" in line
    every = escounts("evaluate", "spectral", "--data", "repcount", "--root", root)
    assert "3 of 3 videos scored\n" in every.out, "its own file: the limited one does not stand for it"


def test_all_tables_are_estimated_and_what_they_lack_is_named(
    escounts: Command, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = paper("table", "all", "--estimate", "--device", "cpu")
    assert told.code == 0
    assert "nothing to train: rows that are not trained yet lack tokens" in told.err
    for data, encoder in (("repcount", "swin3d-t"), ("ucfrep", "resnext3d-101"), ("ovr-ego4d", "mae-vit-b")):
        assert f"escounts encode {data} --root FOLDER --encoder {encoder}" in told.err
    assert not (tmp_path / "tables").exists()


def test_tables_without_data_are_the_papers(paper: Command, tmp_path: Path) -> None:
    listed = paper("table", "--list")
    assert "localisation" in listed.out
    outcome = paper("table", "1a", "--tokens", tmp_path / "none", "--out", tmp_path / "tables")
    assert outcome.code == 0, outcome.err
    text = (tmp_path / "tables/1a.md").read_text()
    assert "| ESCounts | ViT-B | paper | 4.455 | 0.213 | 0.245 | 0.563 | 0.436 | 0.519 |" in text
    assert "| ESCounts | ViT-B | ours, not run |  |  |  |  |  |  | not run · not run |" in text
    assert "RACnet | R2D50 | published, not re-run |  | 0.444 |  | 0.393 |" in text
    unknown = paper("table", "9z")
    assert unknown.code == 2
    assert "no table '9z'; there are 1a" in unknown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("evaluate spectral --data repcount --root RepCount --released", "spectral has its own: leave it out"),
        ("evaluate mean --data repcount --root RepCount --released", "mean count has its own: leave it out"),
        ("evaluate spectral --data folder --root mine --released", "the released code's evaluation of repcount"),
        ("table L --epochs 0", "not in the range x>=1"),
        ("table L --seeds 0", "not in the range x>=1"),
        ("table L --root repcoutn=RepCount", "no dataset 'repcoutn'; there are repcount, "),
        ("table 1a --root repcount", "write DATASET=FOLDER"),
        ("figure scatter", "give --run or --predictions"),
        ("figure scatter --run .", "has no predictions yet"),
    ],
)
def test_mistakes_are_one_line(
    arguments: str, said: str, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repcount(tmp_path / "RepCount", {"a.mp4": 90})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/labels.csv").write_text("file,count,duration_s\na.mp4,3,2\n")
    outcome = paper(*arguments.split())
    assert outcome.code == 2 and said in " ".join(outcome.err.split()), outcome.err
    assert "Traceback" not in outcome.err and not (tmp_path / "tables").exists()


def test_figures_are_drawn_from_predictions(escounts: Command, paper: Command, tmp_path: Path) -> None:
    root = repcount(tmp_path / "RepCount", {"a.mp4": 90, "b.mp4": 60})
    out = tmp_path / "run" / "predictions"
    said = escounts("evaluate", "spectral", "--data", "repcount", "--root", root, "--out", out)
    assert said.code == 0, said.err
    for kind in ("scatter", "groups", "classes", "off-by-n", "qualitative", "localisation"):
        drawn = paper("figure", kind, "--run", out.parent, "--out", tmp_path / f"{kind}.png")
        assert drawn.code == 0, drawn.err
        assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    film = paper("figure", "compilation", "--run", out.parent, "--root", root, "--out", tmp_path / "film.mp4")
    assert film.code == 0, film.err
    assert Video(tmp_path / "film.mp4").info.duration == pytest.approx(5.0, abs=0.2)


def test_a_rivals_run_is_trained_and_evaluated_in_several_processes(
    escounts: Command, paper: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = [video(f"t{k}", count=2 + k) for k in range(3)]
    videos += [video(f"{split}{k}", split=split) for split in ("valid", "test") for k in range(2)]
    store(tmp_path / "tokens" / "repcount-patches", videos, name="repcount")
    common = ("--tokens", tmp_path / "tokens", "--out", tmp_path / "run", "--device", "cpu")
    trained = paper("train", "repcount", "--decoder", "transrac", "--steps", 2, "--batch", 2, *common)
    assert trained.code == 0, trained.err
    with monkeypatch.context() as alone:
        alone.setattr(token_run, "OTHER_HEADS", {})  # as where `paper` was never imported
        refused = escounts("evaluate", tmp_path / "run", "--tokens", tmp_path / "tokens")
    assert refused.code == 2 and "a run of 'transrac' is read in a checkout" in refused.err
    found = paper("evaluate", tmp_path / "run", "--tokens", tmp_path / "tokens", "--device", "cpu", "--jobs", 2)
    assert found.code == 0, found.err
    assert "repcount test: 2 of 2 videos scored" in found.out


def test_the_package_is_run_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paper", "table", "--list"], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert done.stdout.count("\n") == 22 and "localisation" in done.stdout
