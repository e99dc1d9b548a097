"""Trains what a table needs and is not there yet, evaluates it, and keeps every prediction.

A run's folder is named by everything that makes it what it is: tables share runs, a finished run is never trained
again, and no row shows another row's run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from escounts.errors import DataError, ModelError
from escounts.models.checkpoint import tensors_sha256
from escounts.research.datasets.annotations import Dataset
from escounts.research.datasets.registry import dataset_entry
from escounts.research.datasets.stores import encode_command, find_store, load_labels
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.research.evaluation.by_name import MODELS, ModelPlace, labels_of, open_model
from escounts.research.evaluation.evaluate import Evaluation, Progress, evaluate_model, labels_digest
from escounts.research.evaluation.models import EvalSpec, EvaluatedModel, TokenModel, TokenSource
from escounts.research.evaluation.prediction_files import Coverage, digest_of
from escounts.research.evaluation.report import localise
from escounts.research.metrics import mae, obo, obz, off_by, released_mae, rmse
from escounts.research.training.batches import TokenCache
from escounts.research.training.predictions import Prediction, head_of, true_counts
from escounts.research.training.recipes import Recipe
from escounts.research.training.run_folder import TRAINING, code_identity
from escounts.research.training.token_run import (
    RunMetadata,
    TokenRun,
    load_trained,
    refuse_leakage,
    steps_of,
    train_on_tokens,
)
from escounts.research.training.trainer import Report
from escounts.system.atomic_files import write_text
from escounts.system.config_codec import to_plain
from paper.entries import Cells, NamedModel, Table
from paper.released import ReleasedSpec, open_released

DONE = "done.json"
FASTER = {"× faster to train": ("train s/sample", 1.171), "× faster to test": ("test s/sample", 1.818)}
"""Against the published times of Context on one V100."""
SPEEDS = {"train s/sample": "train_seconds_per_sample", "test s/sample": "test_seconds_per_sample"}


@dataclass(frozen=True)
class Source:
    """A dataset with its tokens. test: the split that its numbers are of."""

    dataset: Dataset
    store: TokenStore
    test: str


@dataclass(frozen=True)
class Unavailable:
    """Why something cannot be measured here; command: what would make it."""

    reason: str
    command: str = ""


FindSource = Callable[[Recipe, str], "Source | Unavailable"]
"""From (recipe, dataset) to the tokens of that dataset by the recipe's encoder, sampled as it says."""
PlanRun = Callable[[Recipe, TokenLayout, int], TokenRun]
"""From (recipe, layout, seed) to the run that is trained."""
FindModel = Callable[[NamedModel, EvalSpec], "tuple[EvaluatedModel, Dataset, str] | Unavailable"]
"""From a model's name and an evaluation to the model, the dataset's labels and the split."""


@dataclass(frozen=True)
class Measured:
    """values: column → its value for each seed. coverage: of every seed the same. rows: predictions of each seed.
    training: how long and on which tokens, of how many seeds; empty for a model that trains nothing."""

    values: Mapping[str, Sequence[float]]
    coverage: Coverage
    rows: tuple[tuple[Prediction, ...], ...]
    training: str = ""


def stored_source(tokens: Path) -> FindSource:
    """Sources from a folder of token stores."""

    def find(recipe: Recipe, dataset: str) -> Source | Unavailable:
        try:
            path = find_store(tokens, dataset, recipe.encoder, recipe.every)
            return Source(load_labels(path, dataset), TokenStore(path), dataset_entry(dataset).test)
        except DataError as error:
            what, _, command = str(error).partition("; make them with: ")
            return Unavailable(what, command)

    return find


def stored_model(
    tokens: Path | None, roots: Mapping[str, Path], *, table: str, device: str = "cpu"
) -> Callable[[NamedModel, EvalSpec], tuple[EvaluatedModel, Dataset, str] | Unavailable]:
    """Models that are there on datasets whose folders are given, or whose tokens are stored. table: whose row it is,
    for the command that makes it."""

    def find(name: NamedModel, spec: EvalSpec) -> tuple[EvaluatedModel, Dataset, str] | Unavailable:
        assert spec.dataset is not None
        data, root = spec.dataset, roots.get(spec.dataset)
        command = "" if root else f"python -m paper table {table} --root {data}=FOLDER"
        try:
            labels, split = labels_of(data, root, tokens), dataset_entry(data).test
            place = ModelPlace(labels, root, tokens, device=device)
            opener = open_released if isinstance(spec, ReleasedSpec) else open_model
            return opener(name, place, split=split), labels, split
        except (DataError, ModelError) as error:
            return Unavailable(" ".join(str(error).split()), command)

    return find


def run_identity(run: TokenRun, source: Source) -> dict[str, Any]:
    """Everything that makes a run what it is: recipe and seed, tokens and their layout, labels, code."""
    learnt = [video for video in source.dataset.videos if video.split in ("train", "valid")]
    entries = source.store.entries
    return {
        "dataset": source.dataset.name,
        "run": to_plain(run),
        "layout": asdict(source.store.layout),
        "labels": labels_digest(learnt),
        "tokens": digest_of({v.name: entries[v.name].sha256 for v in learnt if v.name in entries}),
        "code": code_identity(TRAINING),
    }


class TableRunner:
    """Where tables are made: a folder of runs, a way to find tokens, a way to plan runs, some seeds."""

    def __init__(
        self,
        out: Path,
        find_source: FindSource,
        plan_run: PlanRun,
        *,
        find_model: FindModel,
        seeds: Sequence[int] = (0,),
        limit_videos: int | None = None,
        device: torch.device | str = "cpu",
        report: Report | None = None,
        progress: Progress | None = None,
    ) -> None:
        """report: of trainings, step by step; progress: of evaluations, video by video."""
        self.out = out
        self.find_source = find_source
        self.plan_run = plan_run
        self.find_model = find_model
        self.seeds = tuple(seeds)
        self.limit_videos = limit_videos
        self.device = torch.device(device)
        self.report = report
        self.progress = progress
        self._caches: dict[Path, TokenCache] = {}

    def measure(self, cells: Cells, columns: Sequence[str]) -> Measured | Unavailable:
        """Our values for the cells of a row, one per seed; or why there are none."""
        found = self._seeds(cells) if cells.recipe else self._named(cells)
        if isinstance(found, Unavailable):
            return found
        if not all(evaluation.rows for evaluation, _ in found):
            return Unavailable(found[0][0].coverage.text(shown=2))
        values = {
            column: [self.value(column, evaluation.rows, folder) for evaluation, folder in found]
            for column in columns
        }
        rows = tuple(evaluation.rows for evaluation, _ in found)
        return Measured(values, found[0][0].coverage, rows, self.training(cells.recipe) if cells.recipe else "")

    def training(self, recipe: Recipe) -> str:
        """`300 epochs, 6×6 tokens, 1 seed`: a short run must not look like a full one."""
        source = self.find_source(recipe, recipe.dataset)
        assert isinstance(source, Source)  # it was measured
        layout = source.store.layout
        train = self.plan_run(recipe, layout, self.seeds[0]).train
        long = f"{train.epochs} epochs" if train.steps is None else f"{train.steps} steps"
        seeds = f"{len(self.seeds)} seed" + "s" * (len(self.seeds) > 1)
        return f"{long}, {layout.grid[0]}×{layout.grid[1]} tokens, {seeds}"

    def missing(self, table: Table) -> Iterator[tuple[Path, Recipe, Source, int]]:
        """Every run that a table needs and that is not trained yet: its folder, recipe, tokens and seed."""
        for seed in self.seeds:
            for recipe in table.recipes:
                source = self.find_source(recipe, recipe.dataset)
                if isinstance(source, Source):
                    folder = self.folder(recipe, source, seed)
                    if not (folder / DONE).exists():
                        yield folder, recipe, source, seed

    def folder(self, recipe: Recipe, source: Source, seed: int) -> Path:
        """Where a run lies, by everything that makes it what it is."""
        run = self.plan_run(recipe, source.store.layout, seed)
        return self.out / "runs" / f"{source.dataset.name}-{digest_of(run_identity(run, source))}"

    def trained(self, recipe: Recipe, source: Source, seed: int) -> Path:
        """The folder of the run, trained if it is not."""
        folder = self.folder(recipe, source, seed)
        if not (folder / DONE).exists():
            run = self.plan_run(recipe, source.store.layout, seed)
            started = time.perf_counter()
            figures = train_on_tokens(
                run,
                source.dataset,
                source.store,
                folder,
                device=str(self.device),
                report=self.report,
                cache=self.cache(source.store),
            )
            seconds = time.perf_counter() - started
            samples = run.train.batch_size * steps_of(run, source.dataset, source.store)
            done: dict[str, Any] = figures | {
                "train_seconds": seconds,
                "train_samples": samples,
                "train_seconds_per_sample": seconds / samples,
                "recipe": recipe.changes,
                "seed": seed,
            }
            write_text(folder / DONE, json.dumps(done, indent=1) + "\n")
        return folder

    def _seeds(self, cells: Cells) -> list[tuple[Evaluation, Path]] | Unavailable:
        assert cells.recipe is not None
        source, tested = (self.find_source(cells.recipe, name) for name in (cells.recipe.dataset, cells.dataset))
        if isinstance(source, Unavailable):
            return source
        if isinstance(tested, Unavailable):
            return tested
        held, shifts = len(tested.store.layout.offsets), cells.spec.shifts
        if shifts > held:
            return Unavailable(
                f"K = {shifts} needs tokens at as many offsets, and {tested.store.path.name} has {held}",
                f"{encode_command(cells.dataset, cells.recipe.encoder, cells.recipe.every)} --tokens NEW",
            )
        folders = [self.trained(cells.recipe, source, seed) for seed in self.seeds]
        return [(self.evaluated(folder, cells.spec, tested), folder) for folder in folders]

    def evaluated(self, folder: Path, spec: EvalSpec, source: Source) -> Evaluation:
        """What a run says of the test videos; counted anew where videos, labels or arithmetic changed."""
        about = RunMetadata.read(folder)
        refuse_leakage(about, source.dataset.name, source.dataset.split(source.test))
        source.store.require(about.layout)
        network = load_trained(folder, device=self.device)
        model = TokenModel(
            folder.name,
            network,
            TokenSource(source.dataset, source.store.layout, store=source.store),
            identity={"weights": tensors_sha256(network.state_dict()), "layout": asdict(source.store.layout)},
            by_window=about.run.tokens.by_window,
            device=self.device,
            coming=source.dataset.split(source.test)[: self.limit_videos],
        )
        started, done = time.perf_counter(), json.loads((folder / DONE).read_text())
        found = self._evaluation(model, source.dataset, spec, folder / "predictions", source.test, name="ours")
        if "test_seconds_per_sample" not in done:
            done["test_seconds_per_sample"] = (time.perf_counter() - started) / max(len(found.rows), 1)
            write_text(folder / DONE, json.dumps(done, indent=1) + "\n")
        return found

    def _named(self, cells: Cells) -> list[tuple[Evaluation, Path]] | Unavailable:
        """A model that is there; it has one value, not one per seed."""
        assert cells.model is not None
        found = self.find_model(cells.model, cells.spec)
        if isinstance(found, Unavailable):
            return found
        model, labels, split = found
        folder = self.out / MODELS / cells.model
        return [(self._evaluation(model, labels, cells.spec, folder, split, name=cells.model), folder)]

    def _evaluation(
        self, model: EvaluatedModel, labels: Dataset, spec: EvalSpec, folder: Path, split: str, *, name: str
    ) -> Evaluation:
        """Its progress says which model counts the videos: a table has several, and each may take hours."""
        tell, limit = self.progress, self.limit_videos
        progress = tell and (lambda done, total, video: tell(done, total, f"{name}: {video}"))
        (found,) = evaluate_model(model, labels, [spec], folder, split=split, limit_videos=limit, progress=progress)
        return found

    def cache(self, store: TokenStore) -> TokenCache:
        """Tokens near the device, kept from one run to the next."""
        if store.path not in self._caches:
            self._caches[store.path] = TokenCache(store, self.device)
        return self._caches[store.path]

    def value(self, column: str, rows: Sequence[Prediction], folder: Path) -> float:
        """One cell, recomputed from the predictions (or from what the run recorded of its speed)."""
        if column.startswith("θ=") or column == "average":
            at_threshold, average = localise([(row.peak_map(), row.spans) for row in rows])
            return 100 * (average.value if column == "average" else at_threshold[float(column.removeprefix("θ="))])
        if column == "M parameters":
            return parameters(folder) / 1e6
        if column in SPEEDS or column == "train s":
            done = folder / DONE
            name = SPEEDS.get(column, "train_seconds")
            return float(json.loads(done.read_text())[name]) if done.exists() else float("nan")
        truth, counted = true_counts(rows), np.array([row.predicted for row in rows])
        if column in FASTER:
            name, published = FASTER[column]
            return published / self.value(name, rows, folder)
        if column == "MAE" and rows[0].released_truth is not None:
            return released_mae(truth, counted)
        if column == "% within ±3":
            return 100 * off_by(truth, counted, 3)
        return {"RMSE": rmse, "MAE": mae, "OBZ": obz, "OBO": obo}[column](truth, counted)


def parameters(folder: Path) -> int:
    """Trained parameters of a run's head; 0 for a method that trains nothing."""
    if not (folder / DONE).exists():
        return 0
    return sum(weight.numel() for weight in head_of(load_trained(folder)).parameters() if weight.requires_grad)
