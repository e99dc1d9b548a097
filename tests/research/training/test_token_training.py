"""Training on stored tokens: the batch is the same for any number of processes, a killed run equals an
uninterrupted one, four videos are learnt by heart, and what was trained on is never evaluated."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stores import LAYOUT, STEP, store, video

from escounts.errors import DataError, ModelError
from escounts.models.checkpoint import load_decoder, read_tensors
from escounts.nn.decoder import PAPER, Decoder, DecoderConfig
from escounts.nn.heads import RateHeadConfig
from escounts.research.datasets.tokens import TokenStore
from escounts.research.training.batches import ExemplarSampling
from escounts.research.training.objective import RateObjectiveConfig, loss_terms
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.predictions import predict
from escounts.research.training.stored_tokens import StoredTokensConfig, StoredTokensTask
from escounts.research.training.token_run import (
    RunMetadata,
    TokenRun,
    changed,
    load_trained,
    refuse_leakage,
    train_on_tokens,
)
from escounts.system.config_codec import with_settings

SMALL = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=1, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip
TRAIN = TrainConfig(steps=12, batch_size=4, lr=1e-3, ema=0.9, log_every=1, validate_every=6, checkpoint_every=1)
RUN = TokenRun(SMALL, TRAIN, StoredTokensConfig(batch_size=4))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    videos = [video(f"t{k}", count=2 + k % 4, cells=20 + 3 * (k % 3), action="ab"[k % 2]) for k in range(8)]
    videos += [video(f"v{k}", split="valid", count=3, cells=24) for k in range(2)]
    videos += [video(f"e{k}", split="test", count=2 + k, cells=24) for k in range(3)]
    folder = tmp_path_factory.mktemp("toys")
    store(folder, videos)
    return folder


def dataset_of(folder: Path):  # type: ignore[no-untyped-def]
    from escounts.research.datasets.stores import load_labels

    return load_labels(folder)


def test_a_batch_does_not_depend_on_who_shares_it(toys: Path) -> None:
    dataset = dataset_of(toys)
    task = StoredTokensTask(TokenStore(toys), dataset.split("train"), (), StoredTokensConfig(batch_size=4))
    for step in range(6):
        whole = task.read(step)
        parts = [task.read(step, rank, 2) for rank in range(2)]
        counts = torch.stack([part.target.count_B for part in parts], 1).flatten()
        assert torch.equal(counts, whole.target.count_B)
        assert torch.equal(task.read(step).tokens_BTHWC, whole.tokens_BTHWC)


def test_steps_draw_their_shots_as_often_as_stated(toys: Path) -> None:
    task = StoredTokensTask(TokenStore(toys), dataset_of(toys).split("train"), (), StoredTokensConfig())
    drawn = [task.draw(step)[0] for step in range(1500)]
    assert all(drawn.count(shots) / 1500 == pytest.approx(1 / 3, abs=0.04) for shots in (0, 1, 2))


def test_targets_follow_the_start_in_time(toys: Path) -> None:
    dataset = dataset_of(toys)
    task = StoredTokensTask(TokenStore(toys), dataset.split("train"), (), StoredTokensConfig())
    one = dataset.find("t3")  # five repetitions in 20 cells
    rng = np.random.default_rng(0)
    whole = task.sample(one, (1, 0, 1.0), rng)
    shifted = task.sample(one, (0, 6, 1.0), rng)
    assert whole.count == 5
    assert whole.density_T.sum() == pytest.approx(5, abs=0.02)
    assert len(shifted.tokens_THWC) == len(whole.tokens_THWC) - 6
    assert shifted.count == 5 - sum((a + b) / 2 < 6 * STEP for a, b in one.spans)
    assert torch.equal(shifted.tokens_THWC, whole.tokens_THWC[6:])
    assert len(whole.exemplars) == 1
    assert shifted.exemplars == []


def test_padding_changes_nothing(toys: Path) -> None:
    """The loss of a padded batch is the mean of the losses of its videos on their own."""
    dataset = dataset_of(toys)
    config = StoredTokensConfig(batch_size=8, exemplars=ExemplarSampling((0,)), shifts=1)
    task = StoredTokensTask(TokenStore(toys), dataset.split("train"), (), config)
    torch.manual_seed(0)
    decoder = Decoder(SMALL).eval()
    batch = task.read(0)
    assert batch.valid_BT is not None
    together = loss_terms(RUN.objective, *task.forward(decoder, batch))["loss"]
    alone = [loss_terms(RUN.objective, *task.forward(decoder, task.read(0, rank, 8)))["loss"] for rank in range(8)]
    assert together.item() == pytest.approx(torch.stack(alone).mean().item(), rel=1e-5)


def test_four_videos_are_learnt_by_heart(tmp_path: Path) -> None:
    counts = (2, 3, 4, 5)
    videos = [video(f"t{k}", count=count, cells=24) for k, count in enumerate(counts)]
    videos += [replace(one, name=f"copy{k}", split="valid") for k, one in enumerate(videos)]
    made, dataset = store(tmp_path / "tokens", videos)
    run = TokenRun(
        replace(SMALL, channels=64),
        TrainConfig(
            steps=300, batch_size=4, lr=3e-3, schedule="cosine", warmup_steps=10, validate_every=300, log_every=1
        ),
        StoredTokensConfig(batch_size=4, exemplars=ExemplarSampling((0,)), shifts=1),
    )
    train_on_tokens(run, dataset, made, tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert log[0]["loss"] / min(entry["loss"] for entry in log[-20:]) > 50
    assert load_decoder(tmp_path / "run/last.safetensors")[1] == made.layout.encoder, "counting needs to know it"
    rows = predict(load_trained(tmp_path / "run", which="last"), made, dataset.split("train"), shifts=1)
    assert [round(row.predicted) for row in rows] == list(counts)


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "log.jsonl").read_text().splitlines()]


KILLED = """
import sys, time, torch
sys.path[:0] = {paths!r}
torch.set_num_threads(1)
from pathlib import Path
from test_token_training import RUN, dataset_of
from escounts.research.datasets.tokens import TokenStore
from escounts.research.training.token_run import train_on_tokens
toys = Path({toys!r})
def report(step, total, figures):
    print(step, flush=True)
    time.sleep(0.2)
train_on_tokens(RUN, dataset_of(toys), TokenStore(toys), Path({out!r}), report=report)
"""
PATHS = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]


def test_killed_and_resumed_equals_uninterrupted(toys: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_on_tokens(RUN, dataset_of(toys), TokenStore(toys), whole)
    code = KILLED.format(paths=PATHS, toys=str(toys), out=str(killed))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 4:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "best.safetensors").exists(), "it was killed before the first validation"
    train_on_tokens(RUN, dataset_of(toys), TokenStore(toys), killed)
    for name in ("last.safetensors", "best.safetensors"):
        ours, theirs = read_tensors(killed / name), read_tensors(whole / name)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs), name
    assert losses(killed) == losses(whole)
    states = [torch.load(f / "last.pt", weights_only=True) for f in (whole, killed)]
    moments = [state["optimiser"]["state"][0]["exp_avg"] for state in states]
    assert torch.equal(*moments)


SHARED = """
import sys, torch
sys.path[:0] = {paths!r}
torch.set_num_threads(1)
from pathlib import Path
from test_token_training import RUN, dataset_of
from escounts.research.datasets.tokens import TokenStore
from escounts.research.training.token_run import train_on_tokens
toys = Path({toys!r})
train_on_tokens(RUN, dataset_of(toys), TokenStore(toys), Path({out!r}))
"""


def test_two_processes_train_like_one(toys: Path, tmp_path: Path) -> None:
    train_on_tokens(RUN, dataset_of(toys), TokenStore(toys), tmp_path / "one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = SHARED.format(paths=PATHS, toys=str(toys), out=str(tmp_path / "two"))
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    deadline = time.monotonic() + 120
    assert [process.wait(max(deadline - time.monotonic(), 1)) for process in processes] == [0, 0]
    one, two = (read_tensors(tmp_path / name / "last.safetensors") for name in ("one", "two"))
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=1e-3, atol=1e-4, msg=key)
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=2e-3)


def test_the_guard_refuses_videos_that_were_trained_on(toys: Path, tmp_path: Path) -> None:
    dataset = dataset_of(toys)
    run = replace(RUN, train=replace(TRAIN, steps=1))
    train_on_tokens(run, dataset, TokenStore(toys), tmp_path / "run")
    about = RunMetadata.read(tmp_path / "run")
    assert about.run == run
    assert about.layout == LAYOUT
    refuse_leakage(about, "toy", dataset.split("test"))
    with pytest.raises(DataError, match=r"refused: the run trained on 8 of these videos \(t0, t1, t2 and 5 more\)"):
        refuse_leakage(about, "toy", dataset.split("train"))
    with pytest.raises(DataError, match="refused"):
        refuse_leakage(about, "toy-open", dataset.videos[:1])  # another split of the same footage
    refuse_leakage(about, "other", dataset.split("train"))


def test_a_run_folder_is_one_runs(toys: Path, tmp_path: Path) -> None:
    dataset, made, out = dataset_of(toys), TokenStore(toys), tmp_path / "run"
    short = replace(RUN, train=replace(TRAIN, steps=1))
    train_on_tokens(short, dataset, made, out)
    before = (out / "last.safetensors").read_bytes()
    with pytest.raises(DataError, match="holds another run"):
        train_on_tokens(replace(short, train=replace(TRAIN, steps=1, lr=1.0)), dataset, made, out)
    from escounts.research.training.run_folder import RunFolder

    with RunFolder(out), pytest.raises(DataError, match="in use by another run"):
        train_on_tokens(short, dataset, made, out)
    assert (out / "last.safetensors").read_bytes() == before


def test_what_cannot_be_trained_is_said(toys: Path, tmp_path: Path) -> None:
    dataset, made = dataset_of(toys), TokenStore(toys)
    wide = replace(RUN, decoder=DecoderConfig())
    with pytest.raises(ModelError, match="takes 768 channels, the tokens have 8"):
        train_on_tokens(wide, dataset, made, tmp_path / "run")
    with pytest.raises(DataError, match="holds none of the 1 videos to train on"):
        StoredTokensTask(made, [video("elsewhere")], ())
    broken, _ = store(tmp_path / "broken", [video("a"), video("b")])
    next((tmp_path / "broken/videos").glob("b-*")).unlink()
    with pytest.raises(DataError, match=r"the tokens of b \(1 in all\) are damaged or missing"):
        StoredTokensTask(broken, [video("a"), video("b")], ())
    with pytest.raises(DataError, match="not a run on stored tokens"):
        RunMetadata.read(tmp_path)


def test_bf16_on_a_cpu_trains_and_validates(toys: Path, tmp_path: Path) -> None:
    """Validation decodes without autograd: it once met maps in bf16, which numpy does not know."""
    short = replace(RUN, train=replace(TRAIN, precision="bf16", steps=2, validate_every=1))
    for head in (SMALL, replace(SMALL, head=RateHeadConfig())):
        run = replace(short, decoder=head) if head is SMALL else replace(
            short, decoder=head, tokens=replace(short.tokens, target="rate"), objective=RateObjectiveConfig()
        )  # fmt: skip
        figures = train_on_tokens(run, dataset_of(toys), TokenStore(toys), tmp_path / head.head.kind)
        assert np.isfinite(figures["val_mae"])


def test_settings_reach_every_part_of_a_recipe() -> None:
    settings = {
        "window_blocks": "4",
        "betas": "[0.9, 0.95]",
        "same_class": "false",
        "train.seed": "3",
        "window": "full",
    }
    run = with_settings(TokenRun(), settings | {"objective.count_weight": "0.5"}, TokenRun.from_plain)
    assert isinstance(run.decoder, DecoderConfig)
    assert (run.decoder.window_blocks, run.decoder.window, run.train.betas) == (4, "full", (0.9, 0.95))
    assert not run.tokens.exemplars.same_class and (run.train.seed, run.tokens.seed) == (3, 0)
    assert run.objective.weights()["count"] == 0.5
    assert changed(run, {"settings": {"train.batch_size": "2"}}).tokens.batch_size == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("window_block", "4", "near are decoder.window_blocks"),
        ("seed", "4", "near are train.seed, tokens.seed"),
        ("schedule", "linear", "'linear'; it takes 'steps', 'cosine'"),
        ("windw_blocks", "4", "near are decoder.window_blocks, decoder.window_qkv_bias"),
        ("window_blocks", "65000", "window_blocks 65000 is out of range; 0 to 128"),
        ("window", "0,0,0", "window 0 is out of range"),
        ("betas", "0.9,2", "from 0, below 1"),
        ("weight_decay", "-1", "a number from 0"),
        ("lr", "NaN", "a number from 0"),
    ],
)
def test_a_setting_that_is_none_is_answered_with_near_ones(name: str, value: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        with_settings(TokenRun(), {name: value}, TokenRun.from_plain)
