"""Cells that no spreadsheet takes for formulas, and back."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import escounts
from escounts.output.text import csv_rows, csv_text, guarded, unguarded


@pytest.mark.parametrize(
    "text", ["=1+1", "+a", "-b.mp4", "@c", "\tx", "\rx", "＝1", "|cmd", " =1", "\u3000＠a", "%x", "\n=1"]
)
def test_a_text_that_looks_like_a_formula_is_guarded_and_comes_back(text: str) -> None:
    assert (guarded(text), guarded(text, "./")) == (f"'{text}", f"./{text}")
    assert unguarded(guarded(text)) == unguarded(guarded(text, "./"), "./") == text


def test_everything_else_stays_as_it_is() -> None:
    assert [guarded(value) for value in ("plain", -1.5, 3, None)] == ["plain", "-1.5", "3", ""]
    assert unguarded("'quoted'") == "'quoted'"


def test_a_table_is_a_header_and_guarded_rows() -> None:
    text = csv_text(["name", "value"], [("=x, y", -0.25), ("b", None), ("\udcff", 1)])
    assert list(csv.reader(io.StringIO(text))) == [["name", "value"], ["'=x, y", "-0.25"], ["b", ""], ["\ufffd", "1"]]


CELLS = st.text(st.characters(codec="utf-8"), max_size=12) | st.text("=+-@|＝ \r\n\t'./,\";a", max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5))
def test_what_is_written_comes_back_and_is_no_formula(rows: list[tuple[str, str]]) -> None:
    text = csv_text(["file", "class"], rows, paths=["file"])
    read = list(csv_rows(text))
    assert [(unguarded(row["file"], "./"), unguarded(row["class"])) for row in read] == [(a, b) for a, b in rows]
    for row in read:
        for cell in row.values():
            assert not re.match(r"\s*[=+\-@|＝＋－＠]|[\t\r\n]", cell)


def test_there_is_no_other_writer_of_csv() -> None:
    """A cell is guarded where it is written; whoever writes a table by other means would have to think of it."""
    package = Path(escounts.__file__).parent
    others = [path for path in package.rglob("*.py") if path.name != "text.py"]
    assert len(others) > 90
    writing = [path.name for path in others if re.search(r"csv\.(writer|DictWriter)|to_csv\(", path.read_text())]
    assert writing == []
