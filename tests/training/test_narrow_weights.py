"""Weights cast in one go: the same arithmetic as autocast's, and the real weights back afterwards."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from escounts.models.decoder import PAPER, Decoder
from escounts.training.narrow_weights import NarrowWeights

SMALL = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=2, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip


@pytest.mark.parametrize("shots", [0, 1])
def test_the_same_as_autocast_alone(shots: int) -> None:
    torch.manual_seed(0)
    decoder = Decoder(SMALL)
    narrow = NarrowWeights(decoder)
    video, exemplar = torch.randn(2, 9, 2, 2, 8), torch.randn(2, 1, 4, 2, 2, 8) if shots else None
    results = []
    for dressed in (False, True):
        decoder.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16), narrow.worn() if dressed else nullcontext():
            assert (decoder.embed.weight.dtype == torch.bfloat16) == dressed
            density = decoder(video, exemplar).density_BT
        density.float().square().sum().backward()
        results.append([density, *(p.grad for p in decoder.parameters())])
    for alone, together in zip(*results, strict=True):
        assert (alone is None) == (together is None)
        if alone is not None:
            assert together.dtype == alone.dtype and torch.equal(together, alone)


def test_what_autocast_leaves_alone_stays() -> None:
    layers = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    layers[2].requires_grad_(False)
    own = dict(layers.named_parameters())
    narrow = NarrowWeights(layers)
    with narrow.worn():
        assert dict(layers.named_parameters()).keys() == own.keys()
        assert all(layers.get_parameter(name) is weight for name, weight in own.items())  # autocast is off
    with torch.autocast("cpu", dtype=torch.bfloat16), narrow.worn():
        kinds = [layers[0].weight.dtype, layers[1].weight.dtype, layers[2].weight.dtype]
    assert kinds == [torch.bfloat16, torch.float32, torch.float32]  # a norm, and a frozen layer
    assert all(layers.get_parameter(name) is weight for name, weight in own.items())


def test_a_pass_that_fails_leaves_the_weights() -> None:
    layer = nn.Linear(3, 3)
    own = layer.weight
    with pytest.raises(RuntimeError), torch.autocast("cpu", dtype=torch.bfloat16), NarrowWeights(layer).worn():
        layer(torch.zeros(1, 4))
    assert layer.weight is own and isinstance(layer.weight, nn.Parameter)


def test_a_layer_that_is_not_used_gets_no_gradient() -> None:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    with torch.autocast("cpu", dtype=torch.bfloat16), NarrowWeights(layers).worn():
        seen: Tensor = layers[1](torch.ones(1, 3))
    seen.float().sum().backward()
    assert layers[0].weight.grad is None
    assert layers[1].weight.grad is not None and layers[1].weight.grad.dtype == torch.float32


def test_a_network_without_linear_layers_passes() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), NarrowWeights(nn.LayerNorm(3)).worn():
        pass
