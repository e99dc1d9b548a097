"""The rate head's density by hand, and the density head's scale."""

from __future__ import annotations

import math

import pytest
import torch

from escounts.nn.heads import DensityHeadConfig, RateHead, RateHeadConfig, build_head, period_bins, read_periods

CPU = torch.device("cpu")


def test_period_bins_are_log_spaced() -> None:
    bins = period_bins(RateHeadConfig(min_period=2, max_period=32, bins=5), CPU)
    assert bins.tolist() == pytest.approx([2, 4, 8, 16, 32])


def test_rate_head_by_hand() -> None:
    config = RateHeadConfig(min_period=2, max_period=8, bins=3)
    head = build_head(config, 4)
    assert isinstance(head, RateHead)
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.copy_(torch.tensor([math.log(3), 0.0, math.log(2), 0.0]))
    output = head(torch.randn(1, 5, 2, 2, 4))
    # Gate 3/4; periods 2, 4, 8 with shares 1/4, 1/2, 1/4.
    rate = 0.25 / 2 + 0.5 / 4 + 0.25 / 8
    assert output.rate_BT is not None and output.gate_logits_BT is not None
    torch.testing.assert_close(output.rate_BT, torch.full((1, 5), rate))
    torch.testing.assert_close(output.density_BT, torch.full((1, 5), 0.75 * rate))
    assert output.period_logits_BTP is not None
    torch.testing.assert_close(read_periods(config, output.period_logits_BTP)[1], torch.full((1, 5), 0.5))


def test_density_head_averages_over_space_and_divides_by_its_scale() -> None:
    head = build_head(DensityHeadConfig(scale=100.0), 1)
    with torch.no_grad():
        head.linear.weight.fill_(1.0)
        head.linear.bias.fill_(2.0)
    x = torch.tensor([[1.0, 3.0], [5.0, 7.0]]).view(1, 1, 2, 2, 1)
    assert head(x).density_BT.item() == pytest.approx((4 + 2) / 100)


def test_bad_periods_are_named() -> None:
    with pytest.raises(ValueError, match="periods 9 to 3"):
        RateHeadConfig(min_period=9, max_period=3)


def test_a_known_length_settles_which_of_two_periods_is_meant() -> None:
    config = RateHeadConfig(min_period=2, max_period=32, bins=5)  # 2, 4, 8, 16, 32
    logits = torch.tensor([[[-9.0, 3.0, 3.0, -9.0, -9.0]]])
    assert float(read_periods(config, logits)[0]) == pytest.approx((1 / 4 + 1 / 8) / 2, rel=1e-3)
    for length in (4.0, 8.0):
        rate, sharpness = read_periods(config, logits, about=length, spread=0.2)
        assert float(rate) == pytest.approx(1 / length, rel=0.02) and float(sharpness) > 0.95
    # It weighs little against a video that is clear.
    clear = torch.tensor([[[-9.0, 9.0, -9.0, -9.0, -9.0]]])
    assert float(read_periods(config, clear, about=8.0, spread=0.35)[0]) == pytest.approx(1 / 4, rel=0.01)


def test_a_cell_between_two_units_means_the_likelier() -> None:
    config = RateHeadConfig(min_period=2.0, max_period=64.0, bins=6)  # 2, 4, 8 …
    logits = torch.log(torch.tensor([[[1e-9, 0.6, 0.4, 1e-9, 1e-9, 1e-9]]]))
    assert float(read_periods(config, logits)[0]) == pytest.approx(0.6 / 4 + 0.4 / 8, rel=1e-3)
    rate, sharpness = read_periods(config, logits, near=0.35)
    assert float(rate) == pytest.approx(1 / 4, rel=1e-3)
    assert float(sharpness) == pytest.approx(0.6, rel=1e-3)
