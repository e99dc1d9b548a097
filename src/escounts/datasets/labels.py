"""A dataset's labels beside its tokens, so that training and evaluation need nothing but the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from escounts.atomic_files import write_bytes
from escounts.datasets.annotations import Dataset, Problem, VideoAnnotation
from escounts.errors import DataError

LABELS = "labels.json"


def save_labels(folder: Path, dataset: Dataset) -> None:
    """Write a dataset's labels into a store."""
    write_bytes(folder / LABELS, (json.dumps(asdict(dataset), sort_keys=True) + "\n").encode())


def load_labels(folder: Path) -> Dataset:
    """The labels that save_labels wrote."""
    try:
        values = json.loads((folder / LABELS).read_text())
        return Dataset(
            name=values["name"],
            videos=tuple(_video(video) for video in values["videos"]),
            rows=values["rows"],
            problems=tuple(Problem(**problem) for problem in values["problems"]),
            published=values["published"],
            video_folders=tuple(values["video_folders"]),
        )
    except FileNotFoundError:
        raise DataError(f"{folder} has no {LABELS}; encode the dataset again, what is there is kept") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / LABELS} cannot be read: {error}") from error


def _video(values: Mapping[str, Any]) -> VideoAnnotation:
    spans = tuple((float(start), float(end)) for start, end in values["spans"])
    return VideoAnnotation(**{**values, "spans": spans, "problems": tuple(values["problems"])})
