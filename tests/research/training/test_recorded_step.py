"""Recorded steps: what they compute, and that nothing of a step from pixels stands in their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from escounts.nn.network import LITE_TINY, Network
from escounts.research.training.objective import RateObjectiveConfig, loss_terms
from escounts.research.training.pixels import PixelConfig, PixelTask
from escounts.research.training.recorded_step import UNRECORDED, RecordedStep
from escounts.synthetic import Generator


class Row:
    """The smallest batch."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def tensors(self) -> list[Tensor]:
        return [self.x]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Row:
        return cls(*tensors)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A stand-in for CUDA graphs: what is computed while one is recorded is computed again, in place, by a replay."""
    made: list[Any] = []

    class Graph:
        def __init__(self) -> None:
            self.again: Any = None
            made.append(self)

        def pool(self) -> str:
            return "shared"

        def replay(self) -> None:
            self.again()

    @contextmanager
    def graph(recorded: Graph, *, pool: str | None, capture_error_mode: str) -> Iterator[None]:
        assert pool == (None if len(made) == 1 else "shared")
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    return made


def test_a_recording_gives_losses_and_gradients_of_the_batch_at_hand(recordings: list[Any]) -> None:
    layer = nn.Linear(3, 1)
    weight = layer.weight

    def step(batch: Row) -> dict[str, Tensor]:
        def compute() -> Tensor:
            if weight.grad is not None:
                weight.grad.zero_()
            loss: Tensor = layer(batch.x).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        loss = compute()
        if recordings and recordings[-1].again is None:
            recordings[-1].again = lambda: loss.copy_(compute())
        return {"loss": loss}

    recorded = RecordedStep(step)
    kept = []
    for number in range(2 * UNRECORDED + 4):
        x = torch.from_numpy(np.random.default_rng(number).normal(size=(2 + number % 2, 3)).astype(np.float32))
        kept.append((x, recorded(Row(x))["loss"]))
        (expected,) = torch.autograd.grad(layer(x).square().sum(), [weight])
        torch.testing.assert_close(weight.grad, expected)
    assert len(recordings) == 2  # one for each shape
    for x, loss in kept:  # those of earlier steps are not written over
        torch.testing.assert_close(loss, layer(x).square().sum().detach())


BROUGHT = {"tensor", "as_tensor", "from_numpy", "new_tensor", "linspace"}
FETCHED = {
    "item",
    "tolist",
    "nonzero",
    "masked_select",
    "cpu",
    "numpy",
    "__float__",
    "__bool__",
    "__int__",
    "__index__",
}
DRAWN = {"randint", "rand", "randn", "normal_"}


class Waits(TorchFunctionMode):
    """Names what brings values to the device, fetches them, or draws them: a recording would keep the first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in BROUGHT | FETCHED | DRAWN or (
            name == "__getitem__" and getattr(args[1], "dtype", None) is torch.bool
        ):
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


def test_a_step_from_pixels_can_be_recorded() -> None:
    generator = Generator(seed=1)
    task = PixelTask(generator, generator, batch_size=4, config=PixelConfig(lengths=(32,)), size=64)
    network = Network(LITE_TINY)
    batch = task.batch(3, 0, 1)
    waits = Waits()
    for number in range(2):  # constants are made in the first step
        if number:
            with waits:
                losses = loss_terms(RateObjectiveConfig(), *task.forward(network, batch))
                losses["loss"].backward()  # type: ignore[no-untyped-call]
        else:
            task.forward(network, batch)
    assert not waits.seen
