"""A training step never waits for the device, and what is made ahead is what would have been made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from stores import store, video
from torch import Tensor
from torch.backends.cuda import cudnn_sdp_enabled
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from escounts.nn import window_attention
from escounts.nn.decoder import PAPER, Decoder
from escounts.nn.heads import HeadOutput
from escounts.nn.window_attention import Size
from escounts.research.datasets.tokens import TokenStore
from escounts.research.training.objective import DensityObjectiveConfig, loss_terms
from escounts.research.training.optimisation import TrainConfig, step_if_finite
from escounts.research.training.stored_tokens import StoredTokensConfig, StoredTokensTask, TokenBatch
from escounts.research.training.trainer import Trainer
from paper.rivals import RivalHead

SMALL = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=2, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip


@pytest.fixture
def task(tmp_path: Path) -> StoredTokensTask:
    videos = [video(f"t{k}", count=2 + k % 4, cells=20 + 3 * (k % 3), action="ab"[k % 2]) for k in range(8)]
    store(tmp_path, videos)
    return StoredTokensTask(TokenStore(tmp_path), videos, (), StoredTokensConfig(batch_size=4))


@pytest.mark.parametrize("merge_masks", [False, True])
@pytest.mark.parametrize("window", [(4, 2, 2), "full"])
def test_no_value_is_asked_of_the_device(
    task: StoredTokensTask, window: Size | Literal["full"], merge_masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device nothing has a value: whatever would wait for one raises."""
    plan = window_attention.plan_windows
    monkeypatch.setattr(
        window_attention, "plan_windows", lambda *a, **o: plan(*a, **{**o, "merge_masks": merge_masks})
    )
    decoder = Decoder(replace(SMALL, window=window)).to("meta")
    padded = 0
    for step in range(6):
        batch = task.read(step).to(torch.device("meta"))
        padded += batch.valid_BT is not None
        loss_terms(DensityObjectiveConfig(), *task.forward(decoder, batch))["loss"].backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
    assert padded


class Moves(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts tensors that go from one device to another."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.seen += func is torch.ops.aten._to_copy.default and made.device != args[0].device
        return made


def test_a_rival_is_told_the_lengths_without_a_copy() -> None:
    """A copy from the host, unlike what is made on the device, would wait for all that the device has in hand."""

    class Rival(RivalHead):
        def read_tokens(self, tokens_BTHWC: Tensor, real_B: Tensor) -> HeadOutput:
            assert real_B.device == tokens_BTHWC.device and real_B.shape == (3,)
            return HeadOutput(tokens_BTHWC[..., 0, 0, 0])

    with Moves() as moves:
        Rival()(torch.zeros(3, 5, 2, 2, 8, device="meta"))
        assert moves.seen == 0
        torch.zeros(1).to("meta")
        assert moves.seen == 1


def test_known_lengths_say_what_the_mask_says(task: StoredTokensTask) -> None:
    decoder = Decoder(SMALL).eval()
    batch = next(b for b in map(task.read, range(6)) if b.valid_BT is not None)
    assert batch.valid_BT is not None and torch.equal(batch.valid_BT.sum(1), torch.tensor(batch.lengths))
    asked = decoder(batch.tokens_BTHWC.float(), valid_BT=batch.valid_BT).density_BT
    known = decoder(batch.tokens_BTHWC.float(), valid_BT=batch.valid_BT, lengths=batch.lengths).density_BT
    assert torch.equal(known, asked)


def test_batches_made_ahead_are_those_of_their_step(task: StoredTokensTask) -> None:
    for step in (0, 1, 2, 7, 8, 3):  # a resumed run starts anywhere
        ahead, now = task.batch(step, 0, 1), task.read(step)
        assert torch.equal(ahead.tokens_BTHWC, now.tokens_BTHWC)
        assert torch.equal(ahead.target.density_BT, now.target.density_BT)
        assert ahead.lengths == now.lengths


@pytest.mark.parametrize("fused", [False, True])
def test_a_bad_batch_changes_no_weight(fused: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(3, 3))
    optimiser = torch.optim.AdamW([weight], lr=0.1, fused=fused)

    def step(value: float) -> Tensor:
        weight.grad = torch.full_like(weight, value)
        step_if_finite(optimiser, torch.nn.utils.clip_grad_norm_([weight], 1.0))
        return weight.detach().clone()

    first = step(1.0)
    assert (first < 1).all()
    assert torch.equal(step(float("nan")), first)
    assert torch.equal(step(float("inf")), first)
    assert int(optimiser.state[weight]["step"]) == 1
    assert (step(1.0) < first).all()


def test_no_attention_kernel_that_plans_for_every_shape(
    task: StoredTokensTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = []
    fused: Callable[..., Tensor] = F.scaled_dot_product_attention

    def watched(*args: Tensor, **options: Tensor) -> Tensor:
        allowed.append(cudnn_sdp_enabled())  # type: ignore[no-untyped-call]
        return fused(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    objective = DensityObjectiveConfig()
    before = cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    trainer = Trainer(TrainConfig(steps=1), Decoder(SMALL), task, objective, tmp_path / "run", save=lambda *_: None)
    batch = task.batch(0, 0, 1)
    assert isinstance(batch, TokenBatch)
    trainer.gradients(batch)
    assert allowed
    assert not any(allowed)
    assert cudnn_sdp_enabled() == before  # type: ignore[no-untyped-call]
