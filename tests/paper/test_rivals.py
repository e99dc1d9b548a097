"""The rivals' heads learn to count on tokens that can be counted, and padding does not change what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stores import store, video
from torch import nn

from escounts.research.datasets.tokens import TokenLayout
from escounts.research.training.objective import Target, loss_terms
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.predictions import head_of, map_kind, predict
from escounts.research.training.token_run import load_trained, train_on_tokens
from paper.generated import QUICK_SCALE, generated_run
from paper.rivals import (
    Method,
    PeriodObjectiveConfig,
    RepNet,
    RepNetConfig,
    RepNetOutput,
    RivalRecipe,
    TransRAC,
    TransRACConfig,
    self_similarity,
)

REPNET = RepNetConfig(in_channels=8, channels=32, filters=4, window=16, periods=8, strides=(1, 2))
TRANSRAC = TransRACConfig(in_channels=8, channels=32, filters=4, frames=16, dropout=0.0)


def heads() -> list[nn.Module]:
    torch.manual_seed(0)
    return [RepNet(REPNET).eval(), TransRAC(TRANSRAC).eval()]


@pytest.mark.parametrize("head", heads(), ids=["repnet", "transrac"])
def test_a_padded_video_is_counted_as_if_it_were_alone(head: nn.Module) -> None:
    torch.manual_seed(1)
    short, long = torch.randn(1, 11, 2, 2, 8), torch.randn(1, 37, 2, 2, 8)
    padded = torch.cat([torch.cat([short, torch.zeros(1, 26, 2, 2, 8)], 1), long])
    valid = torch.arange(37)[None] < torch.tensor([[11], [37]])
    with torch.no_grad():
        together = head(padded, valid_BT=valid).density_BT
        alone = [head(tokens).density_BT[0] for tokens in (short, long)]
    # The convolution over time sees the zeros beyond the end; three cells away from it nothing is different.
    torch.testing.assert_close(together[1], alone[1], atol=1e-5, rtol=0)
    assert together[0, 11:].abs().max() == 0
    assert together.shape == (2, 37)


def test_transracs_map_keeps_its_sum_however_long_the_video_is() -> None:
    head = TransRAC(TRANSRAC).eval()
    tokens = torch.randn(1, 48, 2, 2, 8)
    slow = tokens.repeat_interleave(3, 1)
    with torch.no_grad():
        counts = [float(head(x).density_BT.sum()) for x in (tokens, slow)]
    assert counts[0] == pytest.approx(counts[1], rel=0.15)


def test_frames_a_period_apart_look_alike_whatever_the_size_of_the_tokens() -> None:
    torch.manual_seed(0)
    turn = torch.arange(32) * (2 * torch.pi / 8)
    ways = torch.randn(2, 64)
    frames = torch.stack([turn.cos(), turn.sin()], 1) @ ways + 0.2 * torch.randn(32, 64)
    seen = self_similarity(frames[None], RepNetConfig().temperature)
    torch.testing.assert_close(seen, self_similarity(30 * frames[None], RepNetConfig().temperature))
    later, half = seen[0, torch.arange(24), torch.arange(24) + 8], seen[0, torch.arange(24), torch.arange(24) + 4]
    assert later.mean() > 20 * half.mean() and later.mean() > 0.2 * seen[0].diagonal().mean()


def test_repnets_objective_knows_the_stride() -> None:
    """A repetition of six cells is class 5 at full speed and class 2 when every second cell is shown."""
    objective = PeriodObjectiveConfig(periods=8)
    target = Target(torch.full((1, 12), 1 / 6), torch.tensor([2.0]), period_BT=torch.full((1, 12), 6.0))
    for stride, right in ((1, 5), (2, 2)):
        logits = torch.zeros(1, 12, 8)
        logits[..., right] = 20.0
        output = RepNetOutput(torch.zeros(1, 12), torch.full((1, 12), 20.0), logits, None, stride=stride)
        assert loss_terms(objective, output, target)["loss"] == pytest.approx(0.0, abs=1e-5)
        wrong = replace(output, period_logits_BTP=logits.roll(1, -1))
        assert loss_terms(objective, wrong, target)["period"] > 5
    too_long = Target(torch.zeros(1, 12), torch.tensor([0.0]), period_BT=torch.full((1, 12), 30.0))
    closed = RepNetOutput(torch.zeros(1, 12), torch.full((1, 12), -20.0), torch.zeros(1, 12, 8), None, stride=1)
    assert loss_terms(objective, closed, too_long)["loss"] == pytest.approx(0.0, abs=1e-5), (
        "not periodic at this speed"
    )


@pytest.mark.parametrize("method", ["repnet", "transrac"])
def test_a_rival_is_trained_by_the_one_trainer_and_learns(method: Method, tmp_path: Path) -> None:
    videos = [video(f"t{k}", count=2 + k % 4, cells=32) for k in range(20)]
    videos += [video(f"w{k}", split="valid", count=2 + k, cells=32) for k in range(4)]
    made, dataset = store(tmp_path / "tokens", videos)
    run = rival_run(method, made.layout)
    if method == "repnet":
        one_speed = replace(REPNET, window=32, periods=16, strides=(1,))
        run = replace(run, decoder=one_speed, objective=PeriodObjectiveConfig(periods=16))
    else:
        run = replace(run, decoder=TRANSRAC)
    run = replace(run, tokens=replace(run.tokens, crop=1.0, shifts=1))
    train_on_tokens(run, dataset, made, tmp_path / "run")
    head = load_trained(tmp_path / "run")
    assert type(head) is type(head_of(head)) is {"repnet": RepNet, "transrac": TransRAC}[method]
    rows = predict(head, made, dataset.split("valid"), shifts=1)
    assert {row.kind for row in rows} == {map_kind(head)}
    agreement = np.corrcoef([row.count for row in rows], [row.predicted for row in rows])[0, 1]
    assert agreement > 0.85, [(row.count, row.predicted) for row in rows]


def rival_run(method: Method, layout: TokenLayout):  # type: ignore[no-untyped-def]
    train: TrainConfig = replace(QUICK_SCALE.train, steps=300, lr=1e-3)
    return generated_run(RivalRecipe(method=method), layout, scale=replace(QUICK_SCALE, train=train))
