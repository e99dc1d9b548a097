"""What `sweep.py` runs, how it keeps what was found, and how it prints it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np

from escounts.research.evaluation.models import EvalSpec
from escounts.research.evaluation.prediction_files import digest_of
from escounts.research.metrics import mae, obo, obz, rmse
from escounts.research.training.recipes import Recipe
from escounts.system.arrays import Array
from paper.ablations import ABLATIONS
from paper.entries import Cells, Table, TableRow
from paper.generated import GeneratedBench, GeneratedExperiment
from paper.real import TABLE_CLIPS, TABLE_SHOTS
from paper.rendering import SeedSpread, compare, interval
from paper.rivals import RivalRecipe
from paper.runs import Measured
from paper.tables import TABLE_RIVALS

RATES = (1e-4, 3e-4, 1e-3)
"""Learning rates that every method tries, for batches of BATCH videos; others are tried at rates that grow with the
root of the batch."""
BATCH = 24
METHODS = {"density": Recipe(), "rate": Recipe(head="rate"), "repnet": RivalRecipe(method="repnet"),
           "transrac": RivalRecipe(method="transrac")}  # fmt: skip
RUNS = "runs.jsonl"
UNTRAINED = ("MAE", "OBO", "OBZ", "RMSE")
"""Columns of the rows that train nothing."""


@dataclass(frozen=True)
class Which:
    """What is run. head: of ablations that are not about the map; the rate head differs ten times less from seed to
    seed than the paper's density head does. only: "rivals" alone, or "ablations" alone, of which those about the map
    are left out where the head is another. lr: the learning rate of every run, chosen before; None: by trials."""

    seeds: int = 3
    only: Literal["rivals", "ablations"] | None = None
    head: Literal["density", "rate"] = "density"
    lr: float | None = None
    real: bool = False

    def wants(self, table: Table) -> bool:
        """Whether a table is run."""
        if table is TABLE_RIVALS:
            return self.only != "ablations"
        if self.real and (table.about_map or table.name == "sampling"):
            return False  # the density head decides nothing with three seeds; clips are encoded at one rate
        return self.only is None or (self.only == "ablations" and (self.head == "density" or not table.about_map))


EVERYTHING = Which()


@dataclass(frozen=True)
class Job:
    """One run and how it is evaluated."""

    recipe: Recipe
    seed: int
    specs: tuple[EvalSpec, ...]

    @property
    def key(self) -> str:
        """Names its result."""
        return digest_of({"recipe": asdict(self.recipe), "seed": self.seed})

    @property
    def method(self) -> str:
        """Whose learning rate it takes."""
        return method_of(self.recipe)


def method_of(recipe: Recipe) -> str:
    return recipe.method if isinstance(recipe, RivalRecipe) else recipe.head


class Results:
    """Every run that is done, a line each in one file: whole or, where the machine was taken away, not there."""

    def __init__(self, out: Path) -> None:
        self.path = out / RUNS
        self.given_up: set[Job] = set()
        self._known: dict[str, dict[str, Any]] = {}
        text = self.path.read_text() if self.path.exists() else ""
        for line in text.splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            self._known[found["key"]] = found
        if text and not text.endswith("\n"):
            self._append("\n")

    def __len__(self) -> int:
        return len(self._known)

    def add(self, found: dict[str, Any]) -> None:
        """Keep what a run found, on the disk at once."""
        self._append(json.dumps(found) + "\n")
        self._known[found["key"]] = found

    def give_up(self, job: Job) -> None:
        """It fails whenever it is run; nothing waits for it any more in this call."""
        self.given_up.add(job)

    def of(self, job: Job) -> dict[str, Any] | None:
        """What a job found, with all the evaluations that it wants."""
        found = self._known.get(job.key)
        whole = found is not None and all(spec.label in found["counted"] for spec in job.specs)
        return found if whole else None

    def _append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def learning_rates(batch: int) -> tuple[float, ...]:
    """The rates that are tried with such batches, two digits each."""
    return tuple(float(f"{rate * (batch / BATCH) ** 0.5:.1e}") for rate in RATES)


def trials(batch: int, which: Which = EVERYTHING) -> list[Job]:
    """The runs that choose the learning rate of each method that is wanted, with the first seed."""
    if which.lr is not None:
        return []
    wanted = {method_of(recipe) for recipe in runs_of(tables({}, which))}
    return [Job(replace(recipe, lr=rate), 0, (EvalSpec(),))
            for name, recipe in METHODS.items() if name in wanted for rate in learning_rates(batch)]  # fmt: skip


def chosen_rates(
    results: Results, batch: int, which: Which = EVERYTHING
) -> tuple[dict[str, float], dict[str, dict[float, float]]]:
    """Each method's learning rate by the error on validation videos, once all were tried; and those errors."""
    if which.lr is not None:
        return dict.fromkeys(METHODS, which.lr), {}
    errors: dict[str, dict[float, float]] = {}
    waited_for = set()
    for job in trials(batch, which):
        found = results.of(job)
        if found is not None and found.get("val_mae") is not None:
            assert job.recipe.lr is not None
            error = float(found["val_mae"])
            errors.setdefault(job.method, {})[job.recipe.lr] = round(error, 4) if np.isfinite(error) else np.inf
        elif job not in results.given_up:
            waited_for.add(job.method)
    whole = {name: tried for name, tried in errors.items() if name not in waited_for}
    return {name: min(tried, key=lambda rate: tried[rate]) for name, tried in whole.items()}, errors


def tables(rates: Mapping[str, float], which: Which) -> list[Table]:
    """The tables with each method's learning rate in its recipes, and the head that was asked for in ablations that
    are not about the map."""

    def changed(table: Table) -> Table:
        other = which.head if table is not TABLE_RIVALS and not table.about_map else None

        def rated(cells: Cells) -> Cells:
            if cells.recipe is None:
                return cells
            recipe = replace(cells.recipe, head=other or cells.recipe.head)
            return replace(cells, recipe=replace(recipe, lr=rates.get(method_of(recipe))))

        return replace(table, rows=tuple(TableRow(row.labels, tuple(map(rated, row.cells))) for row in table.rows))

    every = (TABLE_RIVALS, *((TABLE_CLIPS, TABLE_SHOTS) if which.real else ()), *ABLATIONS)
    return [changed(table) for table in every if which.wants(table)]


def runs_of(made: Sequence[Table]) -> dict[Recipe, dict[EvalSpec, None]]:
    """Every run of some tables, with all the evaluations that some row wants of it."""
    specs: dict[Recipe, dict[EvalSpec, None]] = {}
    for cells in (cells for table in made for row in table.rows for cells in row.cells):
        if cells.recipe is not None:
            specs.setdefault(cells.recipe, {})[cells.spec] = None
    return specs


def jobs_of(made: Sequence[Table], seeds: int) -> Iterator[Job]:
    """Every run once, the most telling first: rivals (and what clips teach) with every seed, then a seed of all
    ablations before the next seed; of those the reference, then what costs most in the paper, which is the likeliest
    to be told apart."""
    specs = runs_of(made)
    rivals = runs_of([table for table in made if table.name in (TABLE_RIVALS.name, TABLE_CLIPS.name)])
    others = (recipe for recipe in specs if recipe not in rivals)
    by_cost = sorted(others, key=lambda recipe: -paper_cost(recipe, made))
    for recipes in (rivals, by_cost):
        for seed in range(seeds):
            yield from (Job(recipe, seed, tuple(specs[recipe])) for recipe in recipes)


def paper_cost(recipe: Recipe, made: Sequence[Table]) -> float:
    """The most by which the paper's MAE of a run differs from the reference's in some table; of the reference inf."""
    found = [0.0]
    for table in made:
        reference = reference_of(table)
        rows = {row.labels: row.cells[0] for row in table.rows}
        of = {labels: paper_mae(table, labels) for labels, cells in rows.items() if cells.recipe == recipe}
        if reference in of:
            return math.inf
        theirs = paper_mae(table, reference)
        found += [abs(one - theirs) for one in of.values() if one is not None and theirs is not None]
    return max(found)


def paper_mae(table: Table, labels: tuple[str, ...]) -> float | None:
    """The published MAE of a row."""
    (row,) = (row for row in table.rows if row.labels == labels)
    return dict(zip(table.groups[0].columns, row.cells[0].published, strict=True)).get("MAE")


def untrained_rows(bench: GeneratedBench) -> dict[str, list[float]]:
    """The rows of the rivals' table that train nothing, on the same held-out videos."""
    runner = bench.runner(TABLE_RIVALS, seeds=(0,))
    rows = {}
    for row in TABLE_RIVALS.rows:
        if row.cells[0].model is not None:
            found = runner.measure(row.cells[0], UNTRAINED)
            if isinstance(found, Measured):
                rows[row.labels[0]] = [round(found.values[name][0], 3) for name in UNTRAINED]
    return rows


def report(
    results: Results,
    experiment: GeneratedExperiment,
    plan: Mapping[str, Any],
    which: Which,
    *,
    about: str,
) -> str:
    """Every table with intervals and the paper's order. about: machine, minutes, versions."""
    what, train = experiment.what, experiment.scale.train
    trained, held = plan.get("videos") or (what.train, what.test)
    rates, errors = chosen_rates(results, train.batch_size, which)
    steps = train.steps or 0
    chosen = f"{rates}, chosen by the error on validation videos {errors}" if errors else f"{which.lr}"
    lines = [
        f"{trained} {'real clips' if which.real else 'generated videos'} to train on, {held} held out, {steps} steps "
        f"of {train.batch_size} videos ({steps * train.batch_size / trained:.0f} epochs), up to {which.seeds} seeds; "
        f"learning rates {chosen}; {about}.",
        "",
    ]
    made = tables(rates, which)
    ablations = [table for table in made if table.name not in (TABLE_RIVALS.name, TABLE_CLIPS.name)]
    for table in made:
        spread = spread_of(results, ablations, table, which.seeds) if table in ablations else None
        lines += table_lines(results, table, which.seeds, spread)
    if "untrained" not in plan:
        return "\n".join(lines)
    lines += ["### what trains nothing, on the same held-out videos", "",
              f"| row | {' | '.join(UNTRAINED)} |", "|" + "---|" * (1 + len(UNTRAINED))]  # fmt: skip
    lines += [f"| {label} | {' | '.join(f'{v:.3f}' for v in values)} |"
              for label, values in plan["untrained"].items()]  # fmt: skip
    return "\n".join(lines) + "\n"


def spread_of(results: Results, ablations: Sequence[Table], table: Table, seeds: int) -> SeedSpread | None:
    """How MAE differs from seed to seed among all ablations of the head that a table is about."""
    head = next(cells.recipe.head for row in table.rows for cells in row.cells if cells.recipe is not None)
    rows = []
    for recipe in (recipe for recipe in runs_of(ablations) if recipe.head == head):
        found = [results.of(Job(recipe, seed, (EvalSpec(),))) for seed in range(seeds)]
        errors = [relative(one, EvalSpec()) for one in found if one is not None]
        rows += [np.stack(errors)] if errors else []
    return SeedSpread.over(rows)


def sources_of(found: Mapping[str, Any]) -> list[str] | None:
    """Where each video that `relative` has a term of is from."""
    given = found.get("sources")
    return given and [source for source, truth in zip(given, found["truth"], strict=True) if truth > 0]


def relative(found: Mapping[str, Any], spec: EvalSpec) -> Array:
    """The terms of MAE of a run's evaluation; videos whose true count is 0 are left out."""
    truth, counted = np.array(found["truth"], float), np.rint(found["counted"][spec.label])
    some = truth > 0
    errors: Array = np.abs(truth[some] - counted[some]) / truth[some]
    return errors


def table_lines(results: Results, table: Table, seeds: int, spread: SeedSpread | None = None) -> list[str]:
    """One table: our MAE with its interval, OBO, seeds, the paper's MAE, and whether its order is confirmed. spread:
    from seed to seed where rows are of one kind; None: each row has its own."""
    heading = (
        "| row | seeds | MAE [95 %] | ± seeds | OBO | OBZ | RMSE | M par. | train s | paper | against reference |"
    )
    lines = [f"### {table.name}: {table.title}", "", heading, "|" + "---|" * 11]
    errors: dict[tuple[str, ...], dict[int, Array]] = {}
    reference = reference_of(table)
    rows = sorted((row for row in table.rows if row.cells[0].recipe), key=lambda row: row.labels != reference)
    runs = {row.labels: row.cells[0].recipe for row in rows}
    paper = {row.labels: paper_mae(table, row.labels) for row in rows}
    for row in rows:
        cells = row.cells[0]
        assert cells.recipe is not None
        found = {seed: results.of(Job(cells.recipe, seed, (cells.spec,))) for seed in range(seeds)}
        there = {seed: one for seed, one in found.items() if one is not None and one["counted"][cells.spec.label]}
        label, theirs = " ".join(row.labels), paper[row.labels]
        if not there:
            lines.append(f"| {label} | 0 | not run | | | | | | | {theirs or ''} | |")
            continue
        truth = np.array(next(iter(there.values()))["truth"], float)
        counted = {seed: np.array(one["counted"][cells.spec.label]) for seed, one in there.items()}
        mine = errors[row.labels] = {seed: relative(one, cells.spec) for seed, one in there.items()}
        sources = sources_of(next(iter(there.values())))
        value, low, high = interval(np.stack(list(mine.values())), spread, sources)
        apart = stdev([mae(truth, c) for c in counted.values()]) if len(counted) > 1 else 0.0
        against = "reference" if row.labels == reference else ""
        if not against and errors.get(reference):
            known = paper[reference]
            by = None if theirs is None or known is None else theirs - known
            both = sorted(mine.keys() & errors[reference].keys())  # a run may lack an evaluation yet
            paired = cells.recipe == runs[reference] and bool(both)
            ours, other = (
                np.stack([one[seed] for seed in (both if paired else one)]) for one in (mine, errors[reference])
            )
            against = str(compare(ours, other, paper=by, spread=spread, paired=paired, sources_V=sources))
            against = against if by is not None else against.split(":")[0]
        figures = [mean(metric(truth, c) for c in counted.values()) for metric in (obo, obz, rmse)]
        first = next(iter(there.values()))
        lines.append(
            f"| {label} | {len(there)} | {value:.3f} [{low:.3f}, {high:.3f}] | {apart:.3f} | {figures[0]:.3f} | "
            f"{figures[1]:.3f} | {figures[2]:.2f} | {first['million_parameters']:.2f} | "
            f"{mean(one['train_seconds'] for one in there.values()):.0f} | {'' if theirs is None else theirs} | "
            f"{against} |"
        )
    return [*lines, ""]


def reference_of(table: Table) -> tuple[str, ...]:
    """The labels of the paper's own setting, with the paper's head where rows differ in it."""
    found = [(row.cells[0].recipe, row.labels) for row in table.rows if row.cells[0].spec == EvalSpec()]
    plain = [(one.head, labels) for one, labels in found if one and not set(one.changes) - {"lr", "head"}]
    return min(plain)[1]
