"""Tables as CSV: one writer for all of them, whose cells no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from escounts.system.atomic_files import printable

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Header and rows; None is an empty cell, and every text is guarded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([guarded(value) for value in row] for row in rows)
    return text.getvalue()


@contextmanager
def cells_of_any_length() -> Iterator[None]:
    """For tables that we wrote ourselves: the density map of a long video is more than csv reads by default."""
    usual = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(usual)


def guarded(value: object, guard: str = "'") -> str:
    """A cell that no spreadsheet takes for a formula, and that UTF-8 can hold. Numbers stay as they are.

    guard: what is put before a text that looks like one; "./" leaves a path the same path.
    """
    text = "" if value is None else printable(str(value))
    return f"{guard}{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def unguarded(cell: str, guard: str = "'") -> str:
    """The text that `guarded` made a cell of."""
    return cell.removeprefix(guard) if cell.startswith(tuple(guard + mark for mark in FORMULA)) else cell
