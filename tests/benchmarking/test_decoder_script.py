"""`benchmarks/decoder.py` once printed bf16 as 3,506 % of the rate of a processor that has no units for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "decoder.py"


@pytest.fixture
def script() -> Any:
    spec = importlib.util.spec_from_file_location("decoder_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bf16_without_units_is_no_share_of_anything(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "bf16_speedup", lambda device: 1 / 7)
    row = script.measure("ours-bf16", 6, 1, "cpu", tmp_path / "density.pt")
    assert "share" not in row
    assert script.cell(row) == "left out: a product in bf16 takes 7.0 times as long as in float32 here"


def test_the_speed_of_bf16_is_measured(script: Any) -> None:
    assert 0 < script.bf16_speedup(torch.device("cpu"), side=64) < 100
