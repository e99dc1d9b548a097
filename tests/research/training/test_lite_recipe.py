"""The four commands of docs/models/lite.md, in small: from tables of clips to calibrated, checked weights."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command import Outcome, run
from movies import bouncing, write_movie

from escounts.decision.rules import Calibration
from escounts.models.checkpoint import load_network, read_checkpoint, read_tensors
from escounts.nn.encoders.lite import LiteEncoder
from escounts.research.training.synthetic_run import SMOKE

Escounts = Callable[..., Outcome]
BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
LABELLED = (  # split, source, repetitions
    *(("train", "them/jumps", count) for count in (2, 3)),
    *(("train", "you/jumps", count) for count in (2, 4)),
    *(("val", "we/jumps", count) for count in (0, 2, 3)),
)


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Escounts:
    def call(*arguments: object) -> Outcome:
        return run(capsys, monkeypatch, *arguments)

    return call


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all the tables of the recipe, and clips of a block that goes up and down."""
    folder = tmp_path_factory.mktemp("clips", numbered=False)
    footage: list[list[object]] = []
    pool: list[list[object]] = []
    labels: list[list[object]] = []
    sets: list[list[object]] = []
    for number in range(2):
        write_movie(folder / f"footage{number}.mp4", bouncing(3 + number, 3.0, size=(64, 64)), rate=30)
        footage.append([f"footage{number}.mp4", "MIT License"])
    for number, (split, source, count) in enumerate(LABELLED):
        file, seconds = f"{number}.mp4", 3.0
        write_movie(folder / file, bouncing(count, seconds, size=(64, 64)), rate=30)
        times = " ".join(f"{n * seconds / count:.2f}-{(n + 1) * seconds / count:.2f}" for n in range(count))
        pool.append([file, source, "none"])
        labels.append([file, split, "jump" if count else "none", count, times, "", "sure"])
        if split == "val" and count:
            sets.append([file, count, 0, seconds, 0, seconds / count])
    tables: dict[str, tuple[list[object], list[list[object]]]] = {
        "footage": (["file", "licence"], footage),
        "pool": (["file", "source", "licence"], pool),
        "pool_labels": (["file", "split", "motion", "count", "rep_times", "alternates", "sure"], labels),
        "sets": (["file", "count", "t_start", "t_end", "exemplar_start_s", "exemplar_end_s"], sets),
        "use": (["file", "use"], [["footage1.mp4", "motion"]]),
        "filmed": (["file", "borders_s"], [["clips/footage0.mp4", "0 1 2 3"]]),
    }
    for name, (columns, rows) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as handle:
            csv.writer(handle).writerows([columns, *rows])
    return folder


def test_the_recipe_from_tables_to_the_check(
    escounts: Escounts,
    clips: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smoke = replace(SMOKE, train=replace(SMOKE.train, validate_every=1), pixels=replace(SMOKE.pixels, lengths=(16,)))
    monkeypatch.setattr("escounts.cli.train.SMOKE", smoke)

    def train(name: str) -> Outcome:
        tables = [f"--clip-table={clips / 'footage.csv'}", f"--clip-table={clips / 'pool.csv'}"]
        left_out = [f"--exclude={clips / 'use.csv'}", f"--exclude={clips / 'pool_labels.csv'}"]
        shown = [f"--labels={clips / 'pool_labels.csv'}", f"--filmed={clips / 'filmed.csv'}", "--coded-stills=1"]
        return escounts(
            "train", "synthetic", *tables, *left_out, *shown, "--smoke", "--steps=3", "--out", tmp_path / name
        )

    assert train("whole").code == 0
    with monkeypatch.context() as patched:
        patched.setattr("escounts.research.training.trainer.Trainer.update", stops_at(2))
        assert train("stopped").code != 0
    last = tmp_path / "stopped" / "last.safetensors"
    assert not same(tmp_path / "whole" / "last.safetensors", last), "it was stopped before its end"
    assert train("stopped").code == 0
    assert same(tmp_path / "whole" / "last.safetensors", last), "a run that goes on ends with the same weights"

    script("look_head", monkeypatch)(last, "--clips", clips)
    calibrated = escounts("train", "calibrate", last, "--labels", clips / "pool_labels.csv")
    assert calibrated.code == 0, calibrated.err
    encoder, metadata = load_network(last)[0].encoder, read_checkpoint(last)[2]
    assert isinstance(encoder, LiteEncoder) and encoder.look is not None
    assert Calibration.from_json(metadata["calibration"]) == Calibration.from_json(calibrated.out.splitlines()[-1])
    assert metadata["calibration_clips"] == "3 of val" and metadata["labelled_clips"] == "4"

    script("labelled_clips", monkeypatch)("--clips", clips, "--model", last)
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert rows[0][-1] == "last"
    assert [float(row[-1].split()[-1]) for row in rows if row[0] in ("two: exact", "sets: MAE")] == [1, 2]


def stops_at(step: int) -> Callable[..., torch.Tensor]:
    """The trainer's `update`, until a person stops the run within a step."""
    from escounts.research.training.trainer import Trainer

    update = Trainer.update

    def stopping(trainer: Trainer) -> torch.Tensor:
        if trainer.step == step:
            raise KeyboardInterrupt
        return update(trainer)

    return stopping


def same(one: Path, other: Path) -> bool:
    """Whether two checkpoints have the same weights, bit by bit."""
    first, second = read_tensors(one), read_tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A script of benchmarks/, to be called with its arguments."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)

    def call(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        module.main()

    return call
