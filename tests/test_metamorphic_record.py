"""A stopped run of benchmarks/metamorphic.py goes on only with the weights and the code that it began with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("needs a checkout: a package has no benchmarks", allow_module_level=True)


def test_counts_of_other_weights_or_other_code_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from metamorphic import Record, code_of  # type: ignore[import-not-found]

    path = tmp_path / "m.json"
    assert Record.of(path, "lite", "w1", "c1").get("clip a", lambda: 7) == 7
    assert Record.of(path, "lite", "w1", "c1").counts == {"clip a": 7}
    assert Record.of(path, "lite", "w2", "c1").counts == {} and "other weights" in capsys.readouterr().out
    assert Record.of(path, "lite", "w1", "c2").counts == {} and "other code" in capsys.readouterr().out
    assert code_of() == code_of() and code_of()[-17] == "-"
    monkeypatch.setattr("metamorphic.code_identity", lambda places: "another")
    assert code_of().startswith("another-")
    assert "metamorphic" in sys.modules
