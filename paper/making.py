"""Tables from start to file: on the paper's datasets or on generated videos, estimated before they are made."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from escounts.research.evaluation.evaluate import Progress
from escounts.research.evaluation.report import by_action
from escounts.research.training.recipes import Recipe
from escounts.research.training.token_run import steps_of, train_on_tokens
from escounts.research.training.trainer import Report
from escounts.system.atomic_files import write_text
from paper.entries import Table
from paper.generated import (
    FULL_EXPERIMENT,
    QUICK_EXPERIMENT,
    GeneratedBench,
    one_thread,
)
from paper.rendering import FilledTable, fill
from paper.runs import Source, TableRunner, Unavailable, stored_model, stored_source

PROBE_STEPS = 8
"""Steps of one run that an estimate is made from, after as many to warm up."""
RUN_BYTES = 4
"""Copies of a run's weights that its folder keeps: last, best, and the optimiser's two."""


class TableMaker:
    """Makes tables into one folder; what is there already is kept."""

    def __init__(
        self,
        out: Path,
        *,
        tokens: Path = Path("tokens"),
        roots: Mapping[str, Path] | None = None,
        synthetic: Literal["quick", "full"] | None = None,
        seeds: Sequence[int] = (0,),
        epochs: int | None = None,
        limit_videos: int | None = None,
        device: str = "cpu",
        report: Report | None = None,
        progress: Progress | None = None,
    ) -> None:
        """tokens: folder of token stores. roots: dataset → folder of its videos. synthetic: generated videos
        instead, at one of two sizes. epochs: of every run, None for the paper's."""
        self.out, self.device = out, device
        self.synthetic = synthetic
        self.single_thread = synthetic == "quick" and device == "cpu"
        self.bench: GeneratedBench | None = None
        self._options: dict[str, Any] = {"seeds": tuple(seeds), "limit_videos": limit_videos}
        self._options |= {"report": report, "progress": progress}
        self._tokens, self._roots, self._epochs = tokens, dict(roots or {}), epochs

    def runner(self, table: Table) -> TableRunner:
        """What fills one table."""
        if self.synthetic is not None:
            return self._bench().runner(table, **self._options)
        return TableRunner(
            self.out,
            stored_source(self._tokens),
            lambda recipe, layout, seed: recipe.paper_run(layout, seed, epochs=self._epochs),
            find_model=stored_model(self._tokens, self._roots, table=table.name, device=self.device),
            device=self.device,
            **self._options,
        )

    def estimate(self, tables: Sequence[Table]) -> tuple[int, int, str] | None:
        """Runs to train, steps of all, and what they take on this machine, for a person; None when there is nothing
        to train. Runs a few steps of the first run."""
        with one_thread(self.single_thread):
            found: dict[Path, tuple[TableRunner, Recipe, Source, int]] = {}
            for table in tables:
                runner = self.runner(table)
                for folder, recipe, source, seed in runner.missing(table):
                    found.setdefault(folder, (runner, recipe, source, seed))
            if not found:
                return None
            steps = 0
            for runner, recipe, source, seed in found.values():
                steps += steps_of(runner.plan_run(recipe, source.store.layout, seed), source.dataset, source.store)
            per_step, weights = _probe(*next(iter(found.values())))
        self.out.mkdir(parents=True, exist_ok=True)
        hours, minutes = divmod(round(steps * per_step / 60), 60)
        long = f"{hours} h {minutes} min" if hours else f"{max(minutes, 1)} min"
        size, free = len(found) * RUN_BYTES * weights, shutil.disk_usage(self.out).free
        text = (
            f"{len(found)} runs to train, {steps} steps: about {long} on this machine (measured on the first), "
            f"{size / 1e9:.2f} GB of disk, {free / 1e9:.0f} GB free"
        )
        return len(found), steps, text

    def nothing_to_train(self, tables: Sequence[Table]) -> str:
        """Why there is no estimate: which commands would make what rows lack, and how many runs each has; or that all
        is trained."""
        lacking: dict[str, dict[Recipe, None]] = {}
        for table in tables:
            runner = self.runner(table)
            for recipe in table.recipes:
                found = runner.find_source(recipe, recipe.dataset)
                if isinstance(found, Unavailable):
                    lacking.setdefault(found.command or found.reason, {})[recipe] = None
        if not lacking:
            return "nothing to train: every run is there"
        lines = [f"  {command}  (runs: {len(recipes)})" for command, recipes in lacking.items()]
        return "\n".join(["nothing to train: rows that are not trained yet lack tokens; make them with", *lines])

    def make(self, table: Table) -> tuple[FilledTable, Path]:
        """The table, filled and written as Markdown and CSV; the Markdown file."""
        self.out.mkdir(parents=True, exist_ok=True)
        with one_thread(self.single_thread):
            if self.synthetic is not None:
                filled = self._bench().fill(table, **self._options)
            else:
                filled = fill(table, self.runner(table))
        if table.name == "text":
            filled = replace(filled, notes=(*filled.notes, *class_notes(filled)))
        stem = table.name if self.synthetic is None else f"{table.name}-synthetic"
        path = self.out / f"{stem}.md"
        write_text(path, filled.markdown())
        write_text(path.with_suffix(".csv"), filled.csv())
        return filled, path

    def _bench(self) -> GeneratedBench:
        if self.bench is None:
            experiment = QUICK_EXPERIMENT if self.synthetic == "quick" else FULL_EXPERIMENT
            with one_thread(self.single_thread):
                self.bench = GeneratedBench(self.out, experiment, device=self.device)
        return self.bench


def class_notes(filled: FilledTable) -> list[str]:
    """Our best and worst classes by OBZ, beside what the paper's text says of its own."""
    notes = []
    for row in filled.rows:
        for found in (found for found in row.measured if found is not None):
            groups = sorted(by_action([video for rows in found.rows for video in rows]), key=lambda group: -group.obz)
            best, worst = (", ".join(f"{g.name} {g.obz:.3f}" for g in part) for part in (groups[:2], groups[-2:]))
            notes.append(f"{row.labels[0]}: best classes by OBZ {best}; worst {worst}")
    return notes


def _probe(runner: TableRunner, recipe: Recipe, source: Source, seed: int) -> tuple[float, int]:
    """Seconds of a step of a run, measured over a few after a few; bytes of its weights."""
    run = runner.plan_run(recipe, source.store.layout, seed)
    marks: list[tuple[int, float]] = []
    few = max(1, min(PROBE_STEPS, steps_of(run, source.dataset, source.store) // 2))  # no longer than the run itself
    short = replace(run.train, steps=2 * few, log_every=few, validate_every=10**9, checkpoint_every=10**9)
    with TemporaryDirectory() as folder:
        train_on_tokens(
            replace(run, train=short),
            replace(source.dataset, rows={**source.dataset.rows, "valid": 0}),
            source.store,
            Path(folder),
            device=str(runner.device),
            report=lambda step, total, figures: marks.append((step, time.perf_counter())),
        )
        weights = (Path(folder) / "last.safetensors").stat().st_size
    (first, began), (last, ended) = marks[0], marks[-1]
    return (ended - began) / max(last - first, 1), weights
