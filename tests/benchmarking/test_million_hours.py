"""`docs/million-hours.md` says what its script prints, from figures that other pages have."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "million-hours.md").read_text(encoding="utf-8")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("million_hours")


def test_the_page_has_what_the_script_prints(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main()
    table, gpus = capsys.readouterr().out.strip().split("\n\n")
    assert table in PAGE
    for hours in re.findall(r"[\d,]+(?= with)", gpus):
        assert f"{hours} GPU-hours" in PAGE


def test_costs_are_those_of_the_model_card(script: ModuleType) -> None:
    card = " ".join((ROOT / "docs" / "models" / "lite.md").read_text(encoding="utf-8").split())
    slow, fast = script.SLOW_MOTION, script.FAST_MOTION
    assert f"processor seconds in bf16 and {slow} in float32" in card
    assert re.search(rf"where motion is fast [\d.]+ and {fast},", card)
    assert pytest.approx((slow + fast) / 2 / 60) == script.COST
    assert f"{slow} processor seconds a minute of slow motion, {fast} of fast motion" in " ".join(PAGE.split())


def test_the_gpus_rates_are_those_of_the_page_on_speed(script: ModuleType) -> None:
    speed = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    with_engines, without = (script.HOURS / hours for hours in script.gpu_hours())
    assert f"{with_engines:.0f} × real time" in speed and f"processor alone it is {without:.0f} ×" in speed
    assert f"{with_engines:.0f} times real time" in PAGE
