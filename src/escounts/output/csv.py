"""csv: one row per repetition, for spreadsheets; a video without repetitions keeps one row with empty times."""

from __future__ import annotations

from pathlib import Path

from escounts.atomic_files import write_text
from escounts.csv_text import csv_text
from escounts.results import CountResult, Repetition


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """Header and rows, times in seconds."""
    rows = [_row(result, number, repetition) for number, repetition in enumerate(result.repetitions, 1)]
    rows = rows or [_row(result, None, None)]
    write_text(path, csv_text(list(rows[0]), (list(row.values()) for row in rows)))


def _row(result: CountResult, number: int | None, repetition: Repetition | None) -> dict[str, object]:
    """Column → value; None is an empty cell. repetition: the number-th, None where there are none."""
    machine = result.machine  # what the model had said, where a person has corrected it
    score = None if repetition is None else repetition.score
    return {
        "video": result.video,
        "model": result.model,
        "count": result.count,
        "confidence": None if machine else f"{result.confidence:.4f}",
        "unsure": "yes" if result.unsure else "no",
        "repetition": number,
        "start_s": repetition and f"{repetition.start:.3f}",
        "end_s": repetition and f"{repetition.end:.3f}",
        "score": None if score is None else f"{score:.4f}",
        "corrected": "yes" if machine else "no",
        "machine_count": machine and machine.count,
    }
