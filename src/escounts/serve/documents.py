"""A stored result as a person asked for it: by cycles or by sides, with borders moved, corrected, or as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escounts.output import Format
from escounts.output.json import from_dict, to_dict

if TYPE_CHECKING:
    from escounts.results import Unit


def chosen(document: dict[str, Any], unit: Unit | None) -> dict[str, Any]:
    """In the unit that a person chose to keep; of a model that gave none the number is doubled or halved."""
    return document if unit is None else to_dict(from_dict(document).in_unit(unit, assume=True))


def changed(document: dict[str, Any], unit: Unit | None, at: float | None) -> dict[str, Any]:
    """By cycles or by sides, as the model counted them, with all borders moved so that one lies at `at` seconds."""
    result = from_dict(document)
    result = result if unit is None else result.in_unit(unit)
    return to_dict(result if at is None else result.aligned(at=at))


def with_labels(document: dict[str, Any], spans: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """What a person said instead, with the model's count beside it."""
    return to_dict(from_dict(document).corrected(spans))


def written(document: dict[str, Any], kind: Format) -> bytes:
    """A file of a format that needs no video."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"result{kind.suffix}"
        kind.write(from_dict(document), path)
        return path.read_bytes()
