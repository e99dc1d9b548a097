"""A run on generated repetitions leaves a checkpoint that says how sure it is, fitted on videos it never saw."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from movies import write_movie

from escounts.decision.rules import Calibration
from escounts.errors import DataError, ModelError
from escounts.models.checkpoint import load_network, read_checkpoint, save_network, write_checkpoint
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import LITE_TINY, Network
from escounts.research.training import synthetic_run
from escounts.research.training.synthetic_run import (
    SMOKE,
    UNCALIBRATED,
    calibrate_on_labels,
    clip_files,
    mean_of_runs,
    train_synthetic,
)
from escounts.research.training.token_run import RunMetadata
from escounts.synthetic import GeneratorConfig

SHORT = replace(
    SMOKE,
    train=replace(SMOKE.train, steps=2, batch_size=2, validate_every=2),
    generator=GeneratorConfig(clips=0.0, motion=0.0, procedural=1.0),
)


def test_the_last_checkpoint_is_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_run, "CALIBRATION_LENGTHS", (180,))
    train_synthetic(SHORT, out=tmp_path, provenance={"footage": "none"})
    before, config, plain = read_checkpoint(tmp_path / "last.safetensors")
    assert "calibration" not in plain, "a smoke run is not calibrated"
    # The same command again finds the run finished, and only calibrates.
    train_synthetic(replace(SHORT, calibration_videos=4), out=tmp_path, provenance={"footage": "none"})
    after, config_after, metadata = read_checkpoint(tmp_path / "last.safetensors")
    fitted = Calibration.from_json(metadata.pop("calibration"))
    assert metadata.pop("calibration_videos") == "4"
    assert metadata == plain and config_after == config
    assert json.loads(metadata["train"])["steps"] == 2
    assert all(torch.equal(after[name], before[name]) and after[name].dtype == before[name].dtype for name in before)
    assert fitted.weights != UNCALIBRATED.weights
    kept = ("unsure_below", "gate_bias", "gate_sharpness")
    assert all(getattr(fitted, name) == getattr(UNCALIBRATED, name) for name in kept)
    with pytest.raises(DataError, match=r"holds another run \(another generator\)"):
        train_synthetic(replace(SHORT, generator=replace(SHORT.generator, dark=0.5)), out=tmp_path)
    with pytest.raises(DataError, match="is not a run on stored tokens"):
        RunMetadata.read(tmp_path)


def test_a_checkpoint_is_calibrated_on_labelled_clips(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), ["file,split,motion,count,rep_times,alternates,sure"]
    for clip in range(3):
        pictures = [np.roll(rng.integers(0, 255, (64, 64, 3), np.uint8), 8 * (n % 10), 0) for n in range(60)]
        write_movie(tmp_path / f"{clip}.mp4", pictures, rate=15)
        rows.append(f"{clip}.mp4,val,jump,{clip},{['', '1-2', '0.5-2 2-3.5'][clip]},,sure")
    rows.append("3.mp4,train,jump,1,1-2,,sure")  # of another split: no such file
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    torch.manual_seed(0)
    save_network(tmp_path / "tiny.safetensors", Network(LITE_TINY), metadata={"licence": "MIT"})
    fitted = calibrate_on_labels(tmp_path / "tiny.safetensors", tmp_path / "labels.csv", split="val")
    _, _, metadata = read_checkpoint(tmp_path / "tiny.safetensors")
    assert metadata["calibration_clips"] == "3 of val" and metadata["licence"] == "MIT"
    assert Calibration.from_json(metadata["calibration"]) == fitted
    assert fitted.repeats and fitted != UNCALIBRATED


def test_clips_for_training_are_permissive_and_not_held_out(tmp_path: Path) -> None:
    table, held_out = tmp_path / "pool.csv", tmp_path / "held_out.csv"
    table.write_text("file,licence\na.mp4,MIT License\nb.mp4,none\nc.mp4,Apache License\n")
    held_out.write_text("file,start_s,end_s,kind,what\nc.mp4,0,5,nothing,a street\n")
    assert clip_files(None, [table], exclude=[held_out]) == [tmp_path / "a.mp4"]
    assert clip_files(None, [table], every_licence=True, exclude=[held_out]) == [
        tmp_path / "a.mp4",
        tmp_path / "b.mp4",
    ]


def test_training_and_calibrating_need_no_video_reader() -> None:
    code = "import sys; sys.modules['av'] = None; import escounts.research.training.synthetic_run"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_networks_of_different_form_have_no_mean(tmp_path: Path) -> None:
    wider = replace(LITE_TINY, encoder_options={**LITE_TINY.encoder_options, "widths": (8, 16, 24, 40)})
    for name, config in (("a", LITE_TINY), ("b", wider)):
        save_network(tmp_path / name, Network(config))
    with pytest.raises(ModelError, match="different networks"):
        mean_of_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_the_mean_with_a_checkpoint_of_an_earlier_form(tmp_path: Path) -> None:
    head = LITE_TINY.decoder.head
    assert isinstance(head, RateHeadConfig) and head.video_width, "today's form has the later parts"
    options = {name: value for name, value in LITE_TINY.encoder_options.items() if name != "amount"}
    first = replace(
        LITE_TINY, encoder_options=options, decoder=replace(LITE_TINY.decoder, head=replace(head, video_width=0))
    )
    old, new = Network(first), Network(LITE_TINY)
    assert isinstance(new.encoder.amount, torch.Tensor)
    torch.nn.init.ones_(new.encoder.amount)
    for name, network in (("old", old), ("new", new)):
        save_network(tmp_path / name, network)
    mean_of_runs([tmp_path / name for name in ("old", "old", "new")], tmp_path / "mean")
    mean = load_network(tmp_path / "mean")[0].state_dict()
    olds, news = old.state_dict(), new.state_dict()
    torch.testing.assert_close(mean["encoder.amount"], torch.full_like(news["encoder.amount"], 1 / 3))
    torch.testing.assert_close(mean["decoder.head.video.0.weight"], news["decoder.head.video.0.weight"])
    wanted = (2 * olds["decoder.head.linear.weight"] + news["decoder.head.linear.weight"]) / 3
    torch.testing.assert_close(mean["decoder.head.linear.weight"], wanted)


def test_a_run_can_start_from_weights_with_a_look(tmp_path: Path) -> None:
    network = Network(LITE_TINY)
    save_network(tmp_path / "tiny.safetensors", network)
    tensors, config, metadata = read_checkpoint(tmp_path / "tiny.safetensors")
    looking = {**tensors, synthetic_run.LOOK: torch.ones(4, 8)}
    write_checkpoint(tmp_path / "tiny.safetensors", looking, config=config, metadata=metadata)
    begun = Network(LITE_TINY)
    synthetic_run.start_from(begun, tmp_path / "tiny.safetensors")
    state = begun.state_dict()
    assert all(torch.equal(state[name], value) for name, value in network.state_dict().items())
