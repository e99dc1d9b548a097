"""data, encode, train and evaluate as a person calls them: the whole chain on a folder of videos."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command import Outcome, run
from movies import bouncing, write_movie
from stores import store, video

from escounts.decision.rules import Calibration
from escounts.models.checkpoint import read_checkpoint, read_tensors, save_network
from escounts.nn.network import LITE_TINY, Network
from escounts.research.training.predictions import load_predictions
from escounts.research.training.synthetic_run import NETWORKS, RECIPE, SMOKE, SyntheticRun

Escounts = Callable[..., Outcome]


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Escounts:
    def call(*arguments: object) -> Outcome:
        return run(capsys, monkeypatch, *arguments)

    return call


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six videos of a block that goes up and down, every repetition marked; one with a label past its end."""
    root = tmp_path_factory.mktemp("mine")
    with (root / "labels.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["file", "start_s", "end_s", "class", "split"])
        for k in range(6):
            count, seconds = 2 + k % 3, 3.0
            write_movie(root / f"v{k}.mp4", bouncing(count, seconds, size=(64, 48)), rate=30)
            split = ("train", "train", "train", "train", "valid", "valid")[k]
            for n in range(count):
                writer.writerow([f"v{k}.mp4", n * seconds / count, (n + 1) * seconds / count, "bounce", split])
        writer.writerow(["late.mp4", 8, 9, "bounce", "train"])
        writer.writerow(["v0.mp4", 2, 1, "bounce", "train"])
    write_movie(root / "late.mp4", bouncing(2, 2.0, size=(64, 48)), rate=30)
    return root


def test_the_chain_on_your_own_videos(escounts: Escounts, mine: Path, tmp_path: Path) -> None:
    checked = escounts("data", "check", "folder", "--root", mine, "--open")
    assert checked.code == 0
    assert "train: 5 rows; 5 usable, 5 videos here" in checked.out
    assert "train/v0.mp4: end 1 s is not after start 2 s" in checked.out
    assert "train/late.mp4: repetition 8.00–9.00 s lies past the end of the video (2.00 s)" in checked.out

    out = tmp_path / "run"
    arguments = ("train", "folder", "--root", mine, "--init", "none", "--out", out, "--steps", 30, "--batch", 4)
    trained = escounts(*arguments, "--device", "cpu")
    assert trained.code == 0, trained.err
    assert "late.mp4" in trained.err, "left out by name"
    assert (out / "best.safetensors").exists()
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 30
    assert list(out.glob("tensorboard/*"))

    evaluated = escounts(
        "evaluate", out, "--tokens", out / "tokens", "--shots", "0,1", "--exemplars", "same,other", "--groups"
    )
    assert evaluated.code == 0, evaluated.err
    assert "2 of 2 videos scored" in evaluated.out
    files = sorted(path.name for path in (out / "predictions").glob("*.csv"))
    assert files == [f"folder-valid-{kind}-K4.csv" for kind in ("0-none", "1-other", "1-same")]
    rows = load_predictions(out / "predictions" / "folder-valid-1-same-K4.csv")
    assert [(row.name, row.count, row.shots) for row in rows] == [("v4.mp4", 3, 1), ("v5.mp4", 4, 1)]

    leaking = escounts("evaluate", out, "--tokens", out / "tokens", "--split", "train")
    assert leaking.code == 2
    assert "refused: the run trained on 4 of these videos" in leaking.err


def test_the_default_models_form_is_trained_on_and_counts(escounts: Escounts, mine: Path, tmp_path: Path) -> None:
    """--init takes a network: its encoder makes the tokens and stays as it is, its decoder learns."""
    torch.manual_seed(0)
    calibration = Calibration(unsure_below=0.9, gate_bias=1.0, nothing_below=0.2).to_json()
    save_network(tmp_path / "start.safetensors", Network(LITE_TINY), metadata={"calibration": calibration})
    out = tmp_path / "run"
    arguments = (
        "--root",
        mine,
        "--init",
        tmp_path / "start.safetensors",
        "--whole-decoder",
        "--out",
        out,
        "--steps",
        4,
        "--device",
        "cpu",
    )
    trained = escounts("train", "folder", *arguments)
    assert trained.code == 0, trained.err
    before, after = (read_tensors(path) for path in (tmp_path / "start.safetensors", out / "last.safetensors"))
    assert all(torch.equal(before[k], after[k]) for k in before if k.startswith("encoder."))
    assert any(not torch.equal(before[k], after[k]) for k in before if k.startswith("decoder."))
    for name in ("last", "best"):
        metadata = read_checkpoint(out / f"{name}.safetensors")[2]
        kept = Calibration.from_json(metadata["calibration"])
        assert (kept.gate_bias, kept.nothing_below) == (1.0, 0.2), "or it would count with other floors"
        assert not kept.calibrated, "it was fitted before the decoder changed"
    counted = escounts("count", mine / "v0.mp4", "--model", out / "best.safetensors", "--json")
    assert counted.code == 0, counted.err
    assert json.loads(counted.out)["count"] >= 0
    torch.manual_seed(1)
    save_network(tmp_path / "start.safetensors", Network(LITE_TINY))
    other = escounts("train", "folder", *arguments)
    assert other.code == 2
    assert "holds other tokens (identity:" in other.err


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SyntheticRun]:
    """The runs that `train synthetic` asks for; none is trained."""
    asked: list[SyntheticRun] = []
    monkeypatch.setattr("escounts.cli.train.train_synthetic", lambda run, **_: asked.append(run) or {})  # type: ignore[func-returns-value]
    return asked


def test_the_default_models_recipe_is_a_command(escounts: Escounts, tmp_path: Path, runs: list[SyntheticRun]) -> None:
    """That of the model card; options left out are the recipe's own values."""
    options = ["--steps", "12000", "--lr", "4e-4", "--ema", "0.999", "--compile"]
    for arguments in (options, []):
        outcome = escounts("train", "synthetic", "--out", tmp_path / "run", "--device", "cpu", *arguments)
        assert outcome.code == 0, outcome.err
    card = replace(SyntheticRun().train, steps=12000, lr=4e-4, ema=0.999, compile=True)
    assert [run.train for run in runs] == [card, SyntheticRun().train]


def test_a_smoke_run_follows_the_options_beside_it(
    escounts: Escounts, tmp_path: Path, runs: list[SyntheticRun]
) -> None:
    for options in ([], ["--model", "lite", "--steps", "7", "--lr", "1e-3", "--warmup", "2"]):
        outcome = escounts("train", "synthetic", "--smoke", "--out", tmp_path / "run", "--device", "cpu", *options)
        assert outcome.code == 0, outcome.err
    plain, changed = runs
    assert plain == SMOKE
    assert changed.network == NETWORKS["lite"] and changed.pixels == SMOKE.pixels
    assert (changed.train.steps, changed.train.lr, changed.train.warmup_steps) == (7, 1e-3, 2)
    assert changed.train.batch_size == SMOKE.train.batch_size


def test_every_field_of_the_default_models_recipe_can_be_set(
    escounts: Escounts, tmp_path: Path, runs: list[SyntheticRun]
) -> None:
    choices = ("weight_decay=0.1", "lengths=48,64", "window_blocks=3", "dark=0.1")
    train = ("train", "synthetic", "--out", tmp_path / "run", "--device", "cpu", "--precision", "bf16")
    outcome = escounts(*train, *(word for choice in choices for word in ("--set", choice)))
    assert outcome.code == 0, outcome.err
    run = runs[0]
    assert (run.train.weight_decay, run.train.precision, run.pixels.lengths) == (0.1, "bf16", (48, 64))
    assert (run.network.decoder.window_blocks, run.generator.dark) == (3, 0.1)
    mistake = escounts(*train, "--set", "weight_decoy=0.1")
    assert mistake.code == 2 and "near are train.weight_decay" in mistake.err


def test_the_released_objective_is_an_option(
    escounts: Escounts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from escounts.nn.decoder import RELEASED, DecoderConfig
    from escounts.research.datasets.annotations import Dataset
    from escounts.research.datasets.stores import save_labels
    from escounts.research.training import recipes
    from escounts.research.training.objective import RELEASED_OBJECTIVE, DensityObjectiveConfig
    from escounts.research.training.token_run import TokenRun

    videos = (video("t0", count=2, cells=20, action="a"),)
    store(tmp_path, list(videos))
    save_labels(tmp_path, Dataset("repcount", videos, {"train": 1}))
    asked: list[TokenRun] = []
    monkeypatch.setattr(recipes, "train_on_tokens", lambda run, *_, **__: asked.append(run) or {})  # type: ignore[func-returns-value]
    train = ("train", "repcount", "--tokens", tmp_path, "--out", tmp_path / "run", "--device", "cpu")
    for options in (
        (),
        ("--objective", "released"),
        ("--decoder", "released", "--epochs", 3),
        ("--set", "window_blocks=4", "--set", "betas=[0.9,0.95]"),
    ):
        outcome = escounts(*train, *options)
        assert outcome.code == 0, outcome.err
    paper, released = DensityObjectiveConfig(), RELEASED_OBJECTIVE
    assert [run.objective for run in asked] == [paper, released, released, paper]
    assert [run.train.betas for run in asked] == [(0.9, 0.999), *[(0.9, 0.95)] * 3]
    assert isinstance(asked[3].decoder, DecoderConfig) and asked[3].decoder.window_blocks == 4
    mistake = escounts(*train, "--set", "window_block=4")
    assert mistake.code == 2 and "near are decoder.window_blocks" in mistake.err
    assert asked[2].decoder == replace(RELEASED, in_channels=8)
    assert asked[2].train.epochs == 3


def test_the_generators_choices_are_options(escounts: Escounts, tmp_path: Path, runs: list[SyntheticRun]) -> None:
    train = ("train", "synthetic", "--out", tmp_path / "run", "--device", "cpu")
    choices = ("clips=0.48", "period=3,60", "subframes=2")
    outcome = escounts(*train, *(word for choice in choices for word in ("--generator", choice)))
    assert outcome.code == 0, outcome.err
    assert runs[0].generator == replace(RECIPE, clips=0.48, period=(3.0, 60.0), subframes=2)
    for choice, said in {
        "clip=1": "no one setting is called 'generator.clip'; near are generator.clips",
        "clips": "--set generator.clips: write KEY=VALUE",
        "clips=": "clips is ''; it takes a number",
        "period=3": "period is [3]; it takes 2 numbers",
        "subframes=1.5": "subframes is 1.5; it takes a whole number",
        "negative=0.9": "siblings always repeat",
        "clips=48": "clips is 48.0, expected a share from 0 to 1",
        "clips=NaN": "clips is nan, expected a finite number",
        "clips=-0.1": "clips is -0.1, expected nothing below 0",
        "jitter=0.5,0.1": "expected the smaller number first",
        "few_most=0": "few_most is 0, expected at least 1",
    }.items():
        refused = escounts(*train, "--generator", choice)
        assert refused.code == 2
        assert said in " ".join(refused.err.split()), refused.err


def test_encode_states_the_disk_and_resumes(escounts: Escounts, mine: Path, tmp_path: Path) -> None:
    arguments = ("encode", "folder", "--root", mine, "--tokens", tmp_path, "--encoder", "patches", "--device", "cpu")
    estimate = escounts(*arguments, "--estimate")
    assert "7 videos: about" in estimate.out
    assert "the released code's layout, float32 14×14 at stride 16" in estimate.out
    assert "about 1 min on this machine, by the first seconds of one of them" in estimate.out
    nowhere = escounts(*arguments, "--videos", tmp_path, "--estimate")
    assert f"none of them is under {tmp_path}: how long it takes is not known" in nowhere.out
    assert not list(tmp_path.iterdir())
    first = escounts(*arguments)
    assert first.code == 0, first.err
    assert "6 videos" in first.out
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert escounts(*arguments).code == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
    assert "6 videos, all as written" in escounts("data", "verify", tmp_path / "folder-patches").out
    victim = next(path for path in before if path.name.startswith("v3.mp4"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    damaged = escounts("data", "verify", tmp_path / "folder-patches")
    assert damaged.code == 2
    assert "1 damaged: v3.mp4" in damaged.err
    other = escounts(*arguments, "--shifts", "1")
    assert other.code == 2
    assert "holds other tokens (offsets:" in other.err


def test_check_names_what_is_odd_in_the_real_labels(escounts: Escounts, shared: Path) -> None:
    outcome = escounts("data", "check", "repcount", "--root", shared / "annotations")
    assert outcome.code == 0
    assert "train: 758 rows, the paper has 758; 757 usable, 0 videos here" in outcome.out
    assert "test/stu4_5.mp4: 10 of 51 repetitions last 0 s" in outcome.out
    assert "missing videos: 1040" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data", "check", "repcount", "--root", "nowhere"), "no folder nowhere"),
        (("train", "repcount", "--tokens", "nowhere", "--out", "run"), "make them with: escounts encode repcount"),
        (("train", "folder", "--root", "nowhere", "--out", "run"), "no folder nowhere"),
        (("evaluate", ".", "--data", "synthetic", "--root", "."), "holds no generated dataset"),
        (("evaluate", ".", "--tokens", "nowhere"), "name the one to evaluate on with --data"),
        (("table", "3a", "--data", "synthetic", "--quick"), "in its folder: python -m paper table"),
        (("figure", "scatter", "--run", "."), "in its folder: python -m paper figure"),
    ],
)
def test_mistakes_are_one_line(
    escounts: Escounts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = escounts(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert "Traceback" not in outcome.err


@pytest.fixture(scope="module")
def by_side(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three bouncing blocks; every half is labelled, in a labels.csv and as BORIS exports it."""
    root = tmp_path_factory.mktemp("sides")
    rows, events = ["file,start_s,end_s"], ["Observation id,Media file,Behavior,Behavior type,Start (s),Stop (s)"]
    for count in (4, 5, 6):
        write_movie(root / f"bounce{count}.mp4", bouncing(count, 0.9 * count))
        for half in range(2 * count):
            span = f"{0.45 * half:.3f},{0.45 * (half + 1):.3f}"
            rows.append(f"bounce{count}.mp4,{span}")
            events.append(f"1,C:\\clips\\bounce{count}.mp4,bounce,STATE,{span}")
        events.append(f"1,C:\\clips\\bounce{count}.mp4,look,STATE,0,1")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    (root / "events.csv").write_text("\n".join(events) + "\n")
    return root


def test_an_own_action_is_taught_by_one_command_and_counted_by_its_name(  # type: ignore[no-untyped-def]
    escounts, by_side: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path))
    taught = escounts("train", "folder", "--root", by_side, "--as", "my-bounce", "--device", "cpu")
    assert taught.code == 0, taught.err
    lines = taught.out.splitlines()
    assert lines[0].split() == ["labelled", "before", "left", "out", "learnt"]
    table = [line.split() for line in lines[1:4]]
    assert [(row[0], row[1], row[3]) for row in table] == [("8", "4", "8"), ("10", "5", "10"), ("12", "6", "12")]
    assert lines[4].startswith("it helped: with each of the 3 videos left out in turn, ")
    assert lines[5] == "count with it: escounts count --model my-bounce VIDEO"
    counted = escounts("count", by_side / "bounce5.mp4", "--model", "my-bounce", "--device", "cpu")
    assert "bounce5.mp4: 10 repetitions, agreement" in counted.out and "sure" not in counted.out, counted.err
    assert "my-bounce: ready" in escounts("models").out
    again = escounts("train", "folder", "--root", by_side, "--as", "my-bounce", "--device", "cpu")
    assert again.code == 2 and "there is a model called 'my-bounce' already" in again.err


def test_labels_of_another_tool_teach_in_one_command(  # type: ignore[no-untyped-def]
    escounts, by_side: Path, tmp_path: Path
) -> None:
    events = by_side / "events.csv"
    several = escounts("train", "folder", "--labels", events, "--out", tmp_path / "own")
    assert several.code == 2 and "'bounce', 'look'; say which one is meant" in several.err
    taught = escounts(
        "train", "folder", "--labels", events, "--only", "bounce", "--out", tmp_path / "own", "--device", "cpu"
    )
    assert taught.code == 0 and "it helped" in taught.out, taught.err
    assert (tmp_path / "own" / "best.safetensors").is_file()
    elsewhere = escounts("train", "folder", "--labels", events, "--only", "bounce", "--root", tmp_path, "--as", "x")
    assert elsewhere.code == 2 and "0 usable videos, and at least 3 are needed; left out: " in elsewhere.err
    assert "bounce4.mp4" in elsewhere.err
