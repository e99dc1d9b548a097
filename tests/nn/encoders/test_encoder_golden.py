"""Every encoder gives the public models' numbers on deterministic weights in the public format."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch
from golden_encoders import checkpoint, clip, fixture

from escounts.models.checkpoint import strict_load
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.registry import build_encoder, read_public
from escounts.nn.window_attention import relative_index

TOLERANCE = {"official_encoder": 2e-5, "r2plus1d_18": 5e-6, "swin3d_t": 2e-5, "resnext101": 1e-4}
OPTIONS = {
    "r2plus1d_18": {"frames": 16, "size": 112},
    "swin3d_t": {"frames": 16, "size": 112},
    "resnext101": {"frames": 32, "size": 112},
}


def load(name: str, keys: dict[str, list[int]], rule: str) -> Encoder:
    """The encoder of a fixture with the fixture's weights, through its public format."""
    tensors = checkpoint(keys, rule)
    public = read_public(tensors)
    assert public is not None
    encoder_name, _, ours, options = public
    encoder = build_encoder(encoder_name, **OPTIONS.get(name, {}), **options)
    strict_load(encoder, ours)
    return encoder.eval()


def tap(encoder: Encoder, *modules: str) -> dict[str, torch.Tensor]:
    """Fills a dictionary with the outputs of the named modules when the encoder runs."""
    taps: dict[str, torch.Tensor] = {}
    for name in modules:

        def keep(_module: object, _inputs: object, output: Any, name: str = name) -> Any:
            taps[name] = output.detach().clone()

        encoder.get_submodule(name).register_forward_hook(keep)
    return taps


def run(name: str, rule: str, taps: tuple[str, ...] = ()) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    about, arrays = fixture(name)
    case = next(case for case in about["cases"] if case["rule"] == rule)
    encoder = load(name, about["keys"], rule)
    kept = tap(encoder, *taps)
    with torch.inference_mode():
        tokens = encoder(clip(case))
    assert tokens.shape[1:] == (encoder.spec.cells, *encoder.spec.grid, encoder.spec.channels)
    golden = {key.removeprefix(f"{case['name']}/"): value for key, value in arrays.items()}
    return tokens[0].numpy(), kept, golden


@pytest.mark.parametrize("rule", ["mix", "sin"])
def test_mae_vit_b_equals_the_released_encoder(rule: str) -> None:
    tokens, taps, golden = run("official_encoder", rule, ("patch_embed", "blocks.0", "blocks.5", "blocks.11"))
    tolerance = TOLERANCE["official_encoder"]
    for name, output in taps.items():
        sampled = output[0].reshape(-1, 768)[::97, ::64].numpy()
        np.testing.assert_allclose(sampled, golden[f"tap/{name}[::97,::64]"], atol=10 * tolerance, err_msg=name)
    np.testing.assert_allclose(tokens.reshape(-1, 768)[::97, ::64], golden["tokens[::97,::64]"], atol=tolerance)
    wide = tokens.astype(np.float64)
    np.testing.assert_allclose(wide.mean((1, 2, 3)), golden["mean_per_time_step"], atol=tolerance)
    np.testing.assert_allclose(wide.std((1, 2, 3)), golden["std_per_time_step"], atol=tolerance)
    np.testing.assert_allclose(wide.mean((0, 3)), golden["mean_per_position_14x14"], atol=tolerance)


@pytest.mark.parametrize("rule", ["mix", "sin"])
@pytest.mark.parametrize("name", ["r2plus1d_18", "swin3d_t"])
def test_torchvision_features(name: str, rule: str) -> None:
    check_features(name, rule)


@pytest.mark.parametrize("rule", ["mix", "sin"])
def test_resnext_features(rule: str) -> None:
    check_features("resnext101", rule)


def check_features(name: str, rule: str) -> None:
    stages = [f"features.{i}" for i in range(7)] if name == "swin3d_t" else [f"layer{i}" for i in (1, 2, 3, 4)]
    tokens, taps, golden = run(name, rule, tuple(stages))
    tolerance = TOLERANCE[name]
    for stage, output in taps.items():
        flat = output.reshape(-1)
        sampled = flat[:: max(1, flat.numel() // 97)].numpy()
        np.testing.assert_allclose(sampled, golden[f"tap/{stage}"], atol=tolerance, err_msg=stage)
    features_CTHW = tokens.transpose(3, 0, 1, 2)
    np.testing.assert_allclose(features_CTHW[::16], golden["features[0,::16]"], atol=tolerance)
    np.testing.assert_allclose(features_CTHW.mean((1, 2, 3)), golden["channel_mean"], atol=tolerance)


def test_relative_positions_are_the_public_ones() -> None:
    about, _ = fixture("swin3d_t")
    index = relative_index((8, 7, 7), (8, 7, 7), "released").astype("<i8")
    assert int(index.sum()) == about["relative_position_index"]["sum"]
    assert zlib.crc32(index.tobytes()) == about["relative_position_index"]["crc32"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mae-vit-b", 86_394_624),
        ("swin3d-t", 27_850_470),
        ("r2plus1d-18", 31_300_125),
        ("resnext3d-101", 47_521_216),
    ],
)
def test_parameters_without_classifier(name: str, count: int) -> None:
    with torch.device("meta"):
        encoder = build_encoder(name)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == count
