"""csv: one row per repetition, for spreadsheets; a video without repetitions keeps one row with empty times."""

from __future__ import annotations

from pathlib import Path

from escounts.atomic_files import write_text
from escounts.csv_text import csv_text
from escounts.results import CountResult

COLUMNS = (
    *("video", "model", "count", "confidence", "unsure"),
    *("repetition", "start_s", "end_s", "score"),
    *("corrected", "machine_count"),
)


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """Header and rows, times in seconds."""
    unsure = "yes" if result.unsure else "no"
    confidence = f"{result.confidence:.4f}" if result.machine is None else ""
    about = (result.video, result.model, result.count, confidence, unsure)
    correction = ("no", "") if result.machine is None else ("yes", result.machine.count)
    rows: list[tuple[object, ...]] = []
    for index, repetition in enumerate(result.repetitions, 1):
        times = (f"{repetition.start:.3f}", f"{repetition.end:.3f}")
        score = "" if repetition.score is None else f"{repetition.score:.4f}"
        rows.append((*about, index, *times, score, *correction))
    if not result.repetitions:
        rows.append((*about, "", "", "", "", *correction))
    write_text(path, csv_text(COLUMNS, rows))
