"""Tables as CSV: one writer for all of them, whose cells no spreadsheet takes for formulas, and one reader."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from escounts.system.atomic_files import printable

FORMULA = r"[\s\ufeff\u200b]*[=+\-@|%＝＋－＠｜％]|[\t\r\n]"
"""What a spreadsheet takes, or may be made to take, for the beginning of a formula."""


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], *, paths: Collection[str] = ()) -> str:
    """Header and rows; None is an empty cell, and every text is guarded. paths: columns whose guard is "./"."""
    guards = ["./" if name in paths else "'" for name in columns]
    lines = ([guarded(value, guard) for value, guard in zip(row, guards, strict=True)] for row in rows)
    return "".join(_line(cells) for cells in (columns, *lines))


def _line(cells: Sequence[object]) -> str:
    """One row. The csv module quotes only the line ends that it writes itself: with both, both are quoted."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()[:-2] + "\n"


def csv_rows(text: str, delimiter: str = ",") -> csv.DictReader[str]:
    """Rows by column name, whatever the lines end with; cells keep the line ends in them."""
    return csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)


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

    guard: what is put before a text that looks like one, or like one with a guard; "./" leaves a path the same path.
    """
    text = "" if value is None else printable(str(value))
    return f"{guard}{text}" if isinstance(value, str) and _looks(text, guard) else text


def unguarded(cell: str, guard: str = "'") -> str:
    """The text that `guarded` made a cell of."""
    return cell.removeprefix(guard) if cell.startswith(guard) and _looks(cell, guard) else cell


def _looks(text: str, guard: str) -> bool:
    return re.match(f"(?:{re.escape(guard)})*(?:{FORMULA})", text) is not None
