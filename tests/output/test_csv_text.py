"""Cells that no spreadsheet takes for formulas, and back."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

import escounts
from escounts.output.csv_text import csv_text, guarded, unguarded


@pytest.mark.parametrize("text", ["=1+1", "+a", "-b.mp4", "@c", "\tx", "\rx"])
def test_a_text_that_looks_like_a_formula_is_guarded_and_comes_back(text: str) -> None:
    assert (guarded(text), guarded(text, "./")) == (f"'{text}", f"./{text}")
    assert unguarded(guarded(text)) == unguarded(guarded(text, "./"), "./") == text


def test_everything_else_stays_as_it_is() -> None:
    assert [guarded(value) for value in ("plain", -1.5, 3, None)] == ["plain", "-1.5", "3", ""]
    assert unguarded("'quoted'") == "'quoted'"


def test_a_table_is_a_header_and_guarded_rows() -> None:
    text = csv_text(["name", "value"], [("=x, y", -0.25), ("b", None), ("\udcff", 1)])
    assert list(csv.reader(io.StringIO(text))) == [["name", "value"], ["'=x, y", "-0.25"], ["b", ""], ["\ufffd", "1"]]


def test_there_is_no_other_writer_of_csv() -> None:
    """A cell is guarded where it is written; whoever writes a table by other means would have to think of it."""
    package = Path(escounts.__file__).parent
    others = [path for path in package.rglob("*.py") if path.name != "csv_text.py"]
    assert len(others) > 100
    writing = [path.name for path in others if re.search(r"csv\.(writer|DictWriter)|to_csv\(", path.read_text())]
    assert writing == []
