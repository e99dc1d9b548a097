"""Trains what a table needs and is not there yet, tests it, and keeps every prediction.

A run's folder is named by its recipe, so tables share runs; a finished run is never trained again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from escounts.atomic_files import write_text
from escounts.datasets.annotations import Dataset, VideoAnnotation
from escounts.datasets.encoders import find_store, store_path
from escounts.datasets.labels import load_labels
from escounts.datasets.registry import dataset_entry
from escounts.datasets.tokens import TokenLayout, TokenStore
from escounts.errors import DataError
from escounts.evaluation.localisation import localise
from escounts.evaluation.shots import exemplars_for
from escounts.metrics import mae, obo, obz, rmse
from escounts.training.predictions import (
    Prediction,
    decoder_of,
    load_predictions,
    predict,
    save_predictions,
)
from escounts.training.recipes import Cells, Recipe, Test
from escounts.training.token_run import RunMetadata, TokenRun, load_trained, refuse_leakage, train_on_tokens
from escounts.training.trainer import Report

DONE = "done.json"


@dataclass(frozen=True)
class Source:
    """A dataset with its tokens. test: the split that its numbers are of."""

    dataset: Dataset
    store: TokenStore
    test: str


@dataclass(frozen=True)
class Unavailable:
    """Why something cannot be measured here."""

    reason: str


FindSource = Callable[[str, str, int], "Source | Unavailable"]
"""From (dataset, encoder, every) to its tokens."""
PlanRun = Callable[[Recipe, TokenLayout, int], TokenRun]
"""From (recipe, layout, seed) to the run that is trained."""
Measured = Mapping[str, Sequence[float]]
"""Column → its value for each seed."""


def stored_source(tokens: Path) -> FindSource:
    """Sources from a folder of token stores."""

    def find(dataset: str, encoder: str, every: int) -> Source | Unavailable:
        try:
            special = store_path(tokens, dataset, encoder, every)
            path = special if every != 4 else find_store(tokens, dataset, encoder)
            store = TokenStore(path)
        except DataError as error:
            return Unavailable(str(error))
        return Source(load_labels(path), store, dataset_entry(dataset).test)

    return find


class TableRunner:
    """Where tables are made: a folder of runs, a way to find tokens, a way to plan runs, some seeds."""

    def __init__(
        self,
        out: Path,
        find_source: FindSource,
        plan_run: PlanRun,
        *,
        seeds: Sequence[int] = (0,),
        device: torch.device | str = "cpu",
        report: Report | None = None,
    ) -> None:
        self.out = out
        self.find_source = find_source
        self.plan_run = plan_run
        self.seeds = tuple(seeds)
        self.device = torch.device(device)
        self.report = report

    def measure(self, cells: Cells, columns: Sequence[str]) -> Measured | Unavailable:
        """Our values for the cells of a row, one a seed; or why there are none."""
        assert cells.recipe is not None
        source = self.find_source(cells.recipe.dataset, cells.recipe.encoder, cells.recipe.every)
        if isinstance(source, Unavailable):
            return source
        found: dict[str, list[float]] = {column: [] for column in columns}
        for seed in self.seeds:
            folder = self.trained(cells.recipe, source, seed)
            rows = self.predictions(folder, cells.recipe, cells.test, source)
            if isinstance(rows, Unavailable):
                return rows
            for column in columns:
                found[column].append(self.value(column, rows, folder))
        return found

    def trained(self, recipe: Recipe, source: Source, seed: int) -> Path:
        """The folder of the run, trained if it is not."""
        run = self.plan_run(recipe, source.store.layout, seed)
        folder = self.out / "runs" / f"{source.dataset.name}-{run.digest}"
        if not (folder / DONE).exists():
            started = time.perf_counter()
            figures = train_on_tokens(
                run, source.dataset, source.store, folder, device=str(self.device), report=self.report
            )
            seconds = time.perf_counter() - started
            samples = run.train.batch_size * run.train.total_steps(1)
            figures |= {"train_seconds": seconds, "train_seconds_per_sample": seconds / samples}
            write_text(folder / DONE, json.dumps(figures, indent=1) + "\n")
        return folder

    def predictions(self, folder: Path, recipe: Recipe, test: Test, source: Source) -> list[Prediction] | Unavailable:
        """What the run says of the test videos, from disk when it was asked before."""
        if test.dataset is not None:
            other = self.find_source(test.dataset, recipe.encoder, recipe.every)
            if isinstance(other, Unavailable):
                return other
            source = other
        name = f"{source.dataset.name}-{source.test}-{test.shots}-{test.exemplars}-K{test.shifts}.csv"
        path = folder / "predictions" / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            save_predictions(path, self._predict(folder, test, source))
        return load_predictions(path)

    def _predict(self, folder: Path, test: Test, source: Source) -> list[Prediction]:
        about = RunMetadata.read(folder)
        videos = source.dataset.split(source.test)
        refuse_leakage(about, source.dataset.name, videos)
        source.store.require(about.layout)
        network = load_trained(folder, device=self.device)
        started = time.perf_counter()
        rows = evaluate_videos(
            network, source, videos, test, device=self.device, by_window=about.run.tokens.by_window
        )
        speed = {"test_seconds_per_sample": (time.perf_counter() - started) / max(len(rows), 1)}
        figures = json.loads((folder / DONE).read_text()) | speed
        write_text(folder / DONE, json.dumps(figures, indent=1) + "\n")
        return rows

    def value(self, column: str, rows: Sequence[Prediction], folder: Path) -> float:
        """One cell, recomputed from the predictions (or from what the run recorded of its speed)."""
        if column.startswith("θ=") or column == "average":
            found = localise([(row.peak_map(), row.spans) for row in rows])
            if column == "average":
                return 100 * found.average.value
            return 100 * found.at_threshold[found.thresholds.index(float(column.removeprefix("θ=")))]
        if column == "M parameters":
            decoder = decoder_of(load_trained(folder))
            return sum(p.numel() for p in decoder.parameters() if p.requires_grad) / 1e6
        if column in SPEEDS:
            return float(json.loads((folder / DONE).read_text())[SPEEDS[column]])
        truth = np.array([row.count for row in rows])
        counted = np.array([row.predicted for row in rows])
        return {"RMSE": rmse, "MAE": mae, "OBZ": obz, "OBO": obo}[column](truth, counted)


SPEEDS = {"train s/sample": "train_seconds_per_sample", "test s/sample": "test_seconds_per_sample"}


def evaluate_videos(
    network: nn.Module,
    source: Source,
    videos: Sequence[VideoAnnotation],
    test: Test,
    *,
    device: torch.device | str = "cpu",
    by_window: bool = False,
) -> list[Prediction]:
    """Count videos as a test says."""
    exemplars = None
    if test.shots:
        train = source.dataset.split("train")
        exemplars = exemplars_for(source.store, videos, train, shots=test.shots, kind=test.exemplars)
    return predict(
        network,
        source.store,
        videos,
        dataset=source.dataset.name,
        shifts=test.shifts,
        by_window=by_window,
        exemplars=exemplars,
        kind=test.exemplars,
        device=device,
    )
