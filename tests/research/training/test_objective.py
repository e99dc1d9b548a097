"""Eq. 6 and the rate objective, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from escounts.nn.heads import HeadOutput, RateHeadConfig
from escounts.research.training.objective import DensityObjectiveConfig, RateObjectiveConfig, Target, loss_terms

PERIODS = RateHeadConfig(min_period=2, max_period=8, bins=3)  # 2, 4, 8


def test_equation_6_by_hand() -> None:
    output = HeadOutput(torch.tensor([[0.5, 0.5, 1.0, 9.0], [0.0, 1.0, 0.0, 0.0]]))
    valid = torch.tensor([[True, True, True, False], [True] * 4])
    target = Target(torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.0] * 4]), torch.tensor([4.0, 0.0]), valid)
    losses = loss_terms(DensityObjectiveConfig(), output, target)
    assert losses["map"].item() == pytest.approx((0.5 / 3 + 1 / 4) / 2)
    assert losses["count"].item() == pytest.approx(((4 - 2) / 4 + 1 / 1) / 2)  # a count of 0 divides by 1
    assert losses["loss"].item() == pytest.approx(losses["map"].item() + losses["count"].item())
    alone = loss_terms(DensityObjectiveConfig(count_weight=0.0), output, target)
    assert alone["loss"].item() == pytest.approx(losses["map"].item())


def test_drop_leaves_cells_out_of_the_map_term() -> None:
    torch.manual_seed(0)
    output = HeadOutput(torch.ones(1, 10_000))
    target = Target(torch.zeros(1, 10_000), torch.tensor([1.0]))
    losses = loss_terms(DensityObjectiveConfig(drop=0.2), output, target)
    assert losses["map"].item() == pytest.approx(0.8, abs=0.02)


def rate_output(gate: list[float], period: list[list[float]]) -> HeadOutput:
    logits = torch.tensor([gate])
    return HeadOutput(torch.tensor([[0.25] * len(gate)]), logits, torch.tensor([period]).log())


def test_rate_objective_by_hand() -> None:
    output = rate_output([0.0, 0.0, 0.0], [[0.2, 0.5, 0.3]] * 3)
    target = Target(torch.tensor([[0.5, 0.25, 0.0]]), torch.tensor([0.75]), period_BT=torch.tensor([[2.0, 4.0, 0.0]]))
    losses = loss_terms(RateObjectiveConfig(head=PERIODS), output, target)
    assert losses["map"].item() == pytest.approx((0.0625 + 0 + 0.0625) / (0.25 + 0.0625))
    assert losses["count"].item() == pytest.approx(0.0, abs=1e-6)
    # Periods 2 and 4 are classes 0 and 1; the cell outside has none.
    assert losses["period"].item() == pytest.approx(-(math.log(0.2) + math.log(0.5)) / 2, rel=1e-5)
    assert losses["gate"].item() == pytest.approx(math.log(2))
    total = losses["map"] + losses["count"] + 0.5 * losses["period"] + losses["gate"]
    assert losses["loss"].item() == pytest.approx(total.item())


def test_a_period_between_classes_is_shared() -> None:
    output = rate_output([0.0], [[0.2, 0.5, 0.3]])
    period = 2 * 2**0.25  # a quarter of the way from 2 to 4 in log
    target = Target(torch.tensor([[0.3]]), torch.tensor([1.0]), period_BT=torch.tensor([[period]]))
    losses = loss_terms(RateObjectiveConfig(head=PERIODS), output, target)
    assert losses["period"].item() == pytest.approx(-(0.75 * math.log(0.2) + 0.25 * math.log(0.5)), rel=1e-5)


@pytest.mark.parametrize("period", [0.5, 2.0, 8.0, 100.0])
def test_periods_out_of_range_go_to_the_last_class(period: float) -> None:
    output = rate_output([0.0], [[0.2, 0.5, 0.3]])
    target = Target(torch.tensor([[0.3]]), torch.tensor([1.0]), period_BT=torch.tensor([[period]]))
    expected = -math.log(0.2 if period <= 2 else 0.3)
    losses = loss_terms(RateObjectiveConfig(head=PERIODS), output, target)
    assert losses["period"].item() == pytest.approx(expected, rel=1e-4)


def test_padding_adds_nothing() -> None:
    output = rate_output([1.0, -1.0], [[0.2, 0.5, 0.3]] * 2)
    target = Target(torch.tensor([[0.5, 0.0]]), torch.tensor([0.5]), period_BT=torch.tensor([[2.0, 0.0]]))
    longer = rate_output([1.0, -1.0, 5.0], [[0.2, 0.5, 0.3]] * 3)
    valid = torch.tensor([[True, True, False]])
    periods = torch.tensor([[2.0, 0.0, 3.0]])
    padded = Target(torch.tensor([[0.5, 0.0, 9.0]]), torch.tensor([0.5]), valid, periods)
    objective = RateObjectiveConfig(head=PERIODS)
    for name, value in loss_terms(objective, output, target).items():
        assert loss_terms(objective, longer, padded)[name].item() == pytest.approx(value.item()), name


def test_a_density_output_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a rate head"):
        loss_terms(RateObjectiveConfig(), HeadOutput(torch.zeros(1, 3)), Target(torch.zeros(1, 3), torch.zeros(1)))
