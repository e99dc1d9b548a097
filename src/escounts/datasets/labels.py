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
"""Of stores that were made before divisions of one dataset shared them."""


def label_path(folder: Path, name: str) -> Path:
    """Where a store keeps the labels of the dataset of that name."""
    return folder / f"labels-{name}.json"


def save_labels(folder: Path, dataset: Dataset) -> None:
    """Write a dataset's labels into a store."""
    write_bytes(label_path(folder, dataset.name), (json.dumps(asdict(dataset), sort_keys=True) + "\n").encode())


def load_labels(folder: Path, name: str | None = None) -> Dataset:
    """The labels that save_labels wrote. name: of the dataset, needed where several share the store."""
    path = label_path(folder, name) if name else folder / LABELS
    if not path.exists():
        written = sorted(folder.glob(label_path(folder, "*").name))
        if not name and len(written) > 1:
            names = ", ".join(other.stem.removeprefix("labels-") for other in written)
            raise DataError(f"{folder} holds labels of several datasets ({names}); say which with --data")
        path = folder / LABELS if name or not written else written[0]
    try:
        values = json.loads(path.read_text())
        if name and values["name"] != name:
            raise DataError(f"{folder} has no labels of {name}; encode {name} into it, what is there is kept")
        return Dataset(
            name=values["name"],
            videos=tuple(_video(video) for video in values["videos"]),
            rows=values["rows"],
            problems=tuple(Problem(**problem) for problem in values["problems"]),
            published=values["published"],
            video_folders=tuple(values["video_folders"]),
        )
    except FileNotFoundError:
        raise DataError(f"{folder} has no {path.name}; encode the dataset again, what is there is kept") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _video(values: Mapping[str, Any]) -> VideoAnnotation:
    spans, marked = (
        tuple((float(start), float(end)) for start, end in values.get(name, ())) for name in ("spans", "marked")
    )
    return VideoAnnotation(**{**values, "spans": spans, "marked": marked, "problems": tuple(values["problems"])})
