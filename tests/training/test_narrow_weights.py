"""Weights cast in one go: the same arithmetic as autocast's, and the real weights back afterwards."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from escounts.nn.attention import CrossBlock
from escounts.nn.decoder import PAPER, Decoder, DecoderConfig
from escounts.nn.lite import LITE_TINY
from escounts.training.narrow_weights import NarrowWeights

SMALL = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=2, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip
NARROW = torch.autocast("cpu", dtype=torch.bfloat16)


def block() -> CrossBlock:
    torch.manual_seed(0)
    return CrossBlock(8, 2, mlp_ratio=2, bias=True)


@pytest.mark.parametrize("config", [SMALL, LITE_TINY.decoder], ids=["paper", "lite"])
@pytest.mark.parametrize("shots", [0, 1])
def test_the_same_as_autocast_alone(shots: int, config: DecoderConfig) -> None:
    """Of the paper's decoder, and of the default model's, part of which turns autocast off."""
    torch.manual_seed(0)
    decoder = Decoder(config)
    narrow = NarrowWeights(decoder)
    channels = decoder.config.in_channels
    video, exemplar = torch.randn(2, 9, 4, 4, channels), torch.randn(2, 1, 4, 4, 4, channels) if shots else None
    results = []
    for dressed in (False, True):
        decoder.zero_grad()
        with NARROW, narrow.worn() if dressed else nullcontext():
            assert (decoder.cross[0].mlp.widen.weight.dtype == torch.bfloat16) == dressed
            density = decoder(video, exemplar, cells_BS=torch.full((2, 1), 3.0) if shots else None).density_BT
        density.float().square().sum().backward()
        results.append([density, *(p.grad for p in decoder.parameters())])
    for alone, together in zip(*results, strict=True):
        assert (alone is None) == (together is None)
        if alone is not None:
            assert together.dtype == alone.dtype and torch.equal(together, alone)


def test_what_autocast_leaves_alone_stays() -> None:
    layers = block()
    layers.cross_attention.requires_grad_(False)
    own = dict(layers.named_parameters())
    narrow = NarrowWeights(layers)
    with narrow.worn():
        assert all(layers.get_parameter(name) is weight for name, weight in own.items())  # autocast is off
    with NARROW, narrow.worn():
        kinds = [layers.mlp.widen.weight.dtype, layers.mlp.norm.weight.dtype, layers.cross_attention.out.weight.dtype]
    assert kinds == [torch.bfloat16, torch.float32, torch.float32]  # a norm, and a frozen layer
    assert all(layers.get_parameter(name) is weight for name, weight in own.items())


def test_a_pass_that_fails_leaves_the_weights() -> None:
    layers = block()
    own = layers.mlp.widen.weight
    with pytest.raises(RuntimeError), NARROW, NarrowWeights(layers).worn():
        layers.mlp(torch.zeros(1, 4))
    assert layers.mlp.widen.weight is own and isinstance(own, nn.Parameter)


def test_a_layer_that_is_not_used_gets_no_gradient() -> None:
    layers = block()
    with NARROW, NarrowWeights(layers).worn():
        seen = layers.mlp(torch.ones(1, 8))
    seen.float().sum().backward()
    assert layers.self_attention.qkv.weight.grad is None
    assert layers.mlp.widen.weight.grad is not None and layers.mlp.widen.weight.grad.dtype == torch.float32


def test_a_network_without_blocks_passes() -> None:
    layer = nn.Linear(3, 3)
    with NARROW, NarrowWeights(layer).worn():
        assert layer.weight.dtype == torch.float32
