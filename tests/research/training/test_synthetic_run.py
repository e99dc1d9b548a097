"""A run on generated repetitions: it resumes, starts from older weights, and is calibrated on labelled clips."""

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
from escounts.errors import DataError
from escounts.models.checkpoint import read_checkpoint, save_network, write_checkpoint
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import LITE_TINY, Network
from escounts.research.training import synthetic_run
from escounts.research.training.synthetic_run import (
    SMOKE,
    UNCALIBRATED,
    calibrate_on_labels,
    clip_files,
    train_synthetic,
)
from escounts.research.training.token_run import RunMetadata
from escounts.synthetic import GeneratorConfig

SHORT = replace(
    SMOKE,
    train=replace(SMOKE.train, steps=2, batch_size=2, validate_every=2, log_every=1, checkpoint_every=1),
    generator=GeneratorConfig(clips=0.0, motion=0.0, procedural=1.0),
)


def test_a_stopped_run_goes_on_and_another_one_is_refused(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train_synthetic(SHORT, out=whole, provenance={"footage": "none"})

    def stop(step: int, total: int, figures: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_synthetic(SHORT, out=stopped, provenance={"footage": "none"}, report=stop)
    train_synthetic(SHORT, out=stopped, provenance={"footage": "none"})
    (ours, _, metadata), (theirs, _, plain) = (read_checkpoint(out / "last.safetensors") for out in (stopped, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert metadata == plain and json.loads(plain["train"])["steps"] == 2 and "calibration" not in plain
    with pytest.raises(DataError, match=r"holds another run \(another generator\)"):
        train_synthetic(replace(SHORT, generator=replace(SHORT.generator, dark=0.5)), out=whole)
    with pytest.raises(DataError, match="is not a run on stored tokens"):
        RunMetadata.read(whole)


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
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/d.mp4").touch()
    assert clip_files(tmp_path / "mine", [table]) == [tmp_path / name for name in ("mine/d.mp4", "a.mp4", "c.mp4")]


def test_training_and_calibrating_need_no_video_reader() -> None:
    code = "import sys; sys.modules['av'] = None; import escounts.research.training.synthetic_run"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_can_start_from_a_checkpoint_of_an_earlier_form(tmp_path: Path) -> None:
    head = LITE_TINY.decoder.head
    assert isinstance(head, RateHeadConfig) and head.video_width, "today's form has the later parts"
    options = {name: value for name, value in LITE_TINY.encoder_options.items() if name != "amount"}
    first = replace(
        LITE_TINY, encoder_options=options, decoder=replace(LITE_TINY.decoder, head=replace(head, video_width=0))
    )
    old, begun = Network(first), Network(LITE_TINY)
    save_network(tmp_path / "old.safetensors", old)
    own = {name: value.clone() for name, value in begun.state_dict().items()}
    synthetic_run.start_from(begun, tmp_path / "old.safetensors")
    given = old.state_dict()
    assert {name for name in own if name not in given}, "or there is nothing that it lacks"
    assert all(torch.equal(value, given.get(name, own[name])) for name, value in begun.state_dict().items())


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
