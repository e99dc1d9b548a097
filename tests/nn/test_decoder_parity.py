"""The decoder in its compat configuration gives the released code's numbers (copied into tests/golden)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filling import filled, input_tensor
from torch import Tensor, nn

from escounts.models.conversion import released_key
from escounts.nn.attention import pool_grid, time_position
from escounts.nn.decoder import RELEASED, Decoder

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FACTS = json.loads((GOLDEN / "official_decoder.json").read_text())
ARRAYS = np.load(GOLDEN / "official_decoder.npz")
TOLERANCE = 5e-6
CONFIGS = {
    "vitb_6x6": RELEASED,
    "vitb_14x14": replace(RELEASED, grid=(14, 14)),
    "resnext_3x3": replace(RELEASED, grid=(3, 3), in_channels=2048),
}
EXEMPLAR_SHAPE = {"vitb_6x6": (8, 14, 14), "resnext_3x3": (4, 7, 7)}
TAPS = {
    "decoder_embed": "embed",
    "decoder_blocks.0": "cross.0",
    "decoder_blocks.1": "cross.1",
    "decoder_norm": "middle_norm",
    "decode_heads.0": "windows.0",
    "decode_heads.1": "windows.1",
    "decode_heads.2": "windows.2",
    "map": "head.linear",
}


def released_state(variant: str, rule: str) -> dict[str, Tensor]:
    """The state dict of the released code, filled by rule, index buffers left out as zeros."""
    rows = {row["name"]: row for row in FACTS["keys_vitb_6x6"]}
    rows.update({row["name"]: row for row in FACTS.get(f"keys_{variant}_differences", [])})
    state = {}
    for name, row in rows.items():
        shape = tuple(row["shape"])
        if row["kind"] == "buffer":
            state[name] = torch.zeros(shape, dtype=torch.int64)
            continue
        state[name] = filled(name, shape, rule)
        expected = row[rule]
        np.testing.assert_allclose(state[name].flatten()[:3], expected["first3"], rtol=1e-6)
        assert state[name].double().sum().item() == pytest.approx(expected["sum"], abs=1e-6)
    return state


@lru_cache(maxsize=1)
def decoder(variant: str, rule: str) -> Decoder:
    """Our decoder with the released weights, every key accounted for."""
    model = Decoder(CONFIGS[variant]).eval()
    expected = model.state_dict()
    state = {}
    for name, value in released_state(variant, rule).items():
        ours = released_key(name)
        if ours is not None:
            state[ours] = value.reshape(expected[ours].shape)
    model.load_state_dict(state, strict=True)
    return model


def run(case: dict[str, Any], model: Decoder) -> Tensor:
    t, h, w = case["T"], case["h"], case["w"]
    channels = model.config.in_channels
    given, dtype = case["input"], next(model.parameters()).dtype
    tokens = input_tensor("input", (t * h * w * channels,), case["rule"], given["scale"]).to(dtype)
    exemplars = None
    if case["shots"]:
        shape = (1, case["shots"], *EXEMPLAR_SHAPE[case["variant"]], channels)
        exemplars = input_tensor("exemplar", shape, case["rule"], case["exemplar"]["scale"]).to(dtype)
    with torch.inference_mode():
        return 100 * model(tokens.view(1, t, h, w, channels), exemplars).density_BT[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", FACTS["cases"], ids=lambda case: case["name"])
def test_density_equals_the_released_codes(case: dict[str, Any]) -> None:
    model = decoder(case["variant"], case["rule"])
    np.testing.assert_allclose(run(case, model), ARRAYS[case["output_key"]], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", [case for case in FACTS["cases"] if "taps" in case], ids=lambda case: case["name"])
def test_every_stage_equals_the_released_codes(case: dict[str, Any]) -> None:
    """In float64: in float32 each side rounds by up to 1.1e-5 in its own way, and ours differs between processors."""
    model = decoder(case["variant"], case["rule"])
    taps: dict[str, Tensor] = {}
    try:
        with tapped(model.double(), taps):
            run(case, model)
    finally:
        model.float()
    for name in case["taps"]:
        rows = 7 if name == "map" else 37
        expected = ARRAYS[f"{case['name']}/tap/{name}"]
        np.testing.assert_allclose(taps[name][::rows, ::61], expected, atol=2e-5, rtol=0, err_msg=name)


class tapped:
    """Collects the first output of every tapped module, as (tokens, channels)."""

    def __init__(self, model: nn.Module, taps: dict[str, Tensor]) -> None:
        self.handles = []
        for name, ours in TAPS.items():

            def keep(_module: nn.Module, _given: Any, output: Tensor, name: str = name) -> None:
                taps.setdefault(name, output.reshape(-1, output.shape[-1]))

            self.handles.append(model.get_submodule(ours).register_forward_hook(keep))

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()


def test_time_position() -> None:
    ours = time_position(torch.arange(20), 512)
    np.testing.assert_allclose(ours[::3, ::31], ARRAYS["temporal_position/T20"], atol=2e-6)


@pytest.mark.parametrize(("name", "size", "grid"), [("pool/14to6", 14, 6), ("pool/7to3", 7, 3)])
def test_pooling(name: str, size: int, grid: int) -> None:
    given = input_tensor("input", (3, 2, size, size), "mix", 1.0)
    ours = pool_grid(given.permute(0, 2, 3, 1)[None], (grid, grid))[0].permute(0, 3, 1, 2)
    np.testing.assert_allclose(ours, ARRAYS[name], atol=1e-6)
