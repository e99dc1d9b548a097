"""`i3d` gives the numbers that the published package's own jax code gives, stage by stage."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import public_files
import pytest
import torch
from filling import sequence
from golden_encoders import GOLDEN
from torch import Tensor

from escounts.errors import ModelError
from escounts.models import store
from escounts.models.checkpoint import load_encoder, strict_load
from escounts.models.conversion import convert
from escounts.nn.encoders.i3d import STAGES, I3d
from escounts.nn.encoders.registry import build_encoder

CASES = json.loads((GOLDEN / "i3d.json").read_text())["cases"]
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Deterministic weights in the public file's form, converted."""
    name, tensors, _, _ = convert(public_files.i3d_ckpt(tmp_path_factory.mktemp("i3d")))
    assert name == "i3d"
    return tensors


def filled_encoder(tensors: dict[str, Tensor], **options: Any) -> I3d:
    encoder = I3d(**options).eval()
    strict_load(encoder, tensors)
    return encoder


def frames(shape: list[int]) -> Tensor:
    values = sequence("input", math.prod(shape), "mix").astype(np.float32).reshape(shape)
    return torch.from_numpy(values).permute(0, 1, 4, 2, 3)


def check_stages(encoder: I3d, case: dict[str, Any]) -> None:
    taps: dict[str, Tensor] = {}
    stage = encoder._stage

    def kept(name: str, *rest: Any) -> Tensor:
        taps[name] = stage(name, *rest).permute(0, 2, 3, 4, 1)
        return taps[name].permute(0, 4, 1, 2, 3)

    encoder._stage = kept  # type: ignore[method-assign, assignment]
    with torch.inference_mode():
        if "Logits" in case["stages"]:
            taps["Logits"] = encoder.classify(frames(case["shape"]))
        else:
            encoder(frames(case["shape"]))
    for name, expected in case["stages"].items():
        assert list(taps[name].shape) == expected["shape"], name
        flat = taps[name].double().reshape(-1).numpy()
        sampled = flat[:: max(1, flat.size // 6)][:6]
        scale = max(1.0, expected["std"])
        np.testing.assert_allclose(sampled, expected["slice"], atol=TOLERANCE * scale, err_msg=name)
        np.testing.assert_allclose([flat.mean(), flat.std()], [expected["mean"], expected["std"]], atol=TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if case["weights"] == "mix"], ids=lambda case: case["shape"])
def test_every_stage_equals_the_published_code(case: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    check_stages(filled_encoder(tensors, stage="Mixed_5c", frames_per_cell=None), case)


@pytest.mark.parametrize("case", [case for case in CASES if case["weights"] != "mix"], ids=lambda case: case["shape"])
def test_the_published_weights_equal_the_published_code(case: dict[str, Any]) -> None:
    kept = store.find("i3d")
    if kept is None:
        pytest.skip("the published weights are not in the store; `escounts weights add i3d` fetches them")
    strict_load(encoder := I3d(stage="Mixed_5c", frames_per_cell=None).eval(), load_encoder(kept.path).state_dict())
    check_stages(encoder, case)


@pytest.mark.parametrize(
    ("options", "cells", "grid", "channels"),
    [
        ({"stage": "Mixed_3c"}, 8, 8, 480),
        ({"stage": "Mixed_4f", "frames_per_cell": None}, 4, 4, 832),
        ({}, 8, 4, 832),
        ({"stage": "Mixed_5c", "frames_per_cell": None}, 2, 2, 1024),
    ],
)
def test_spec_says_what_comes_out(options: dict[str, Any], cells: int, grid: int, channels: int) -> None:
    encoder = build_encoder("i3d", frames=16, size=64, **options).eval()
    with torch.inference_mode():
        tokens = encoder(frames([2, 16, 64, 64, 3]))
    assert tokens.shape == (2, cells, grid, grid, channels)
    assert (encoder.spec.cells, encoder.spec.grid, encoder.spec.channels) == (cells, (grid, grid), channels)


def test_windows_of_any_length_and_batches(tensors: dict[str, Tensor]) -> None:
    encoder = filled_encoder(tensors, stage="Mixed_3c", size=32)
    clip = frames([3, 21, 32, 32, 3])
    with torch.inference_mode():
        together = encoder(clip)
        assert together.shape == (3, 11, 4, 4, 480)
        for row in range(3):
            torch.testing.assert_close(encoder(clip[row : row + 1])[0], together[row], atol=1e-5, rtol=1e-5)


def test_bf16_is_float32_but_for_rounding(tensors: dict[str, Tensor]) -> None:
    encoder = filled_encoder(tensors, size=32)
    clip = frames([1, 16, 32, 32, 3])
    with torch.inference_mode():
        exact = encoder(clip)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = encoder(clip).float()
    assert 0 < (rounded - exact).norm() / exact.norm() < 0.02


def test_a_stage_that_is_none_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match=f"'Mixed_6a'; it takes {STAGES[0]}"):
        I3d(stage="Mixed_6a")


def test_a_public_file_with_half_a_norm_is_refused(tmp_path: Path) -> None:
    path = public_files.i3d_ckpt(tmp_path)
    variables = pickle.loads(path.read_bytes())
    del variables["batch_stats"]["Mixed_4b"]["Branch_1/Conv3d_0b_3x3"]
    path.write_bytes(pickle.dumps(variables))
    with pytest.raises(ModelError, match=r"missing: Mixed_4b.branch1.bias; unexpected: params/Mixed_4b/Branch_1"):
        convert(path)
