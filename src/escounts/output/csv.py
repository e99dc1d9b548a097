"""csv: one row per repetition, for spreadsheets; a video without repetitions keeps one row with empty times."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from escounts.atomic_files import write_text
from escounts.output.text import printable
from escounts.results import CountResult

COLUMNS = (
    *("video", "model", "count", "confidence", "unsure"),
    *("repetition", "start_s", "end_s", "score"),
    *("corrected", "machine_count"),
)


def guarded(value: object) -> str:
    """A cell that no spreadsheet takes for a formula, and that UTF-8 can hold."""
    text = "" if value is None else printable(str(value))
    return f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """Header and rows, times in seconds."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    unsure = "yes" if result.unsure else "no"
    confidence = f"{result.confidence:.4f}" if result.machine is None else ""
    about = (guarded(result.video), guarded(result.model), result.count, confidence, unsure)
    correction = ("no", "") if result.machine is None else ("yes", result.machine.count)
    for index, repetition in enumerate(result.repetitions, 1):
        times = (f"{repetition.start:.3f}", f"{repetition.end:.3f}")
        score = "" if repetition.score is None else f"{repetition.score:.4f}"
        rows.writerow((*about, index, *times, score, *correction))
    if not result.repetitions:
        rows.writerow((*about, "", "", "", "", *correction))
    write_text(path, text.getvalue())
