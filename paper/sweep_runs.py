"""What `sweep.py` runs, in which order, and how its tables are printed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, stdev
from typing import Literal

import numpy as np

from escounts.research.evaluation.models import EvalSpec
from escounts.research.evaluation.report import score
from escounts.research.training.predictions import Prediction
from escounts.research.training.recipes import Recipe
from paper.entries import Cells, Table, TableRow
from paper.generated import GeneratedBench
from paper.real import TABLE_CLIPS, TABLE_SHOTS
from paper.rendering import Errors, SeedSpread, differences, interval, markdown_table, relative_errors
from paper.rivals import RivalRecipe
from paper.runs import Measured
from paper.tables import ABLATIONS, TABLES

RATES = (1e-4, 3e-4, 1e-3)
"""Learning rates that every method tries, for batches of BATCH videos; others are tried at rates that grow with the
root of the batch."""
BATCH = 24
METHODS = {"density": Recipe(), "rate": Recipe(head="rate"), "repnet": RivalRecipe(method="repnet"),
           "transrac": RivalRecipe(method="transrac")}  # fmt: skip
UNTRAINED = ("MAE", "OBO", "OBZ", "RMSE")
"""Columns of the rows that train nothing."""
COLUMNS = ("row", "seeds", "MAE [95 %]", "± seeds", "OBO", "OBZ", "RMSE", "M par.", "train s", "paper",
           "against reference")  # fmt: skip


ALL = {table.name: table for table in (TABLES["rivals"], TABLE_CLIPS, TABLE_SHOTS, *ABLATIONS)}
"""What can be run, the most telling first."""


@dataclass(frozen=True)
class Which:
    """What is run.

    Args:
        names: of tables; none: all that are of these videos.
        head: of tables that are not about the map; the rate head differs ten times less from seed to seed than the
            paper's density head does.
        lr: the learning rate of every run, chosen before; None: by trials.
        real: real clips, which are encoded at one rate, and on which the density head decides nothing.
    """

    seeds: int = 3
    names: tuple[str, ...] = ()
    head: Literal["density", "rate"] = "density"
    lr: float | None = None
    real: bool = False

    def wants(self, name: str) -> bool:
        """Whether a table is run."""
        own = name in (TABLE_CLIPS.name, TABLE_SHOTS.name)
        if own != self.real and (own or name == "sampling" or (name != "rivals" and ALL[name].about_map)):
            return False
        return not self.names or name in self.names


@dataclass(frozen=True)
class Job:
    """One run and how it is evaluated."""

    recipe: Recipe
    seed: int
    specs: tuple[EvalSpec, ...]


@dataclass(frozen=True)
class Outcome:
    """What a run found. rows: label of an evaluation → its predictions, without maps. parameters: in millions."""

    rows: Mapping[str, tuple[Prediction, ...]]
    val_mae: float | None
    train_seconds: float
    parameters: float


@dataclass
class Results:
    """What every run found, by recipe and seed. given_up: jobs that keep failing; nothing waits for them. sources:
    name of a video → where it is from, for intervals over sources."""

    sources: Mapping[str, str] = field(default_factory=dict)
    known: dict[tuple[Recipe, int], Outcome] = field(default_factory=dict)
    given_up: set[Job] = field(default_factory=set)

    def add(self, job: Job, outcome: Outcome) -> None:
        self.known[job.recipe, job.seed] = outcome

    def of(self, job: Job) -> Outcome | None:
        """What a job found, with all the evaluations that it wants."""
        found = self.known.get((job.recipe, job.seed))
        return found if found and all(spec.label in found.rows for spec in job.specs) else None

    def seeds_of(self, cells: Cells, seeds: int) -> dict[int, Outcome]:
        """Seed → what was found for the cells of a row."""
        assert cells.recipe is not None
        found = {seed: self.of(Job(cells.recipe, seed, (cells.spec,))) for seed in range(seeds)}
        return {seed: one for seed, one in found.items() if one is not None}


def method_of(recipe: Recipe) -> str:
    """Whose learning rate a run takes."""
    return recipe.method if isinstance(recipe, RivalRecipe) else recipe.head


def trials(batch: int, which: Which) -> list[Job]:
    """The runs that choose the learning rate of each method that is wanted, with the first seed."""
    if which.lr is not None:
        return []
    wanted = {method_of(recipe) for recipe in runs_of(tables({}, which))}
    rates = [float(f"{rate * (batch / BATCH) ** 0.5:.1e}") for rate in RATES]
    return [Job(replace(recipe, lr=rate), 0, (EvalSpec(),))
            for name, recipe in METHODS.items() if name in wanted for rate in rates]  # fmt: skip


def chosen_rates(
    results: Results, batch: int, which: Which
) -> tuple[dict[str, float], dict[str, dict[float, float]]]:
    """Each method's learning rate by the error on validation videos, once all were tried; and those errors."""
    if which.lr is not None:
        return dict.fromkeys(METHODS, which.lr), {}
    errors: dict[str, dict[float, float]] = {}
    waited_for = set()
    for job in trials(batch, which):
        found, method = results.of(job), method_of(job.recipe)
        if found is not None and found.val_mae is not None:
            assert job.recipe.lr is not None
            error = round(found.val_mae, 4) if math.isfinite(found.val_mae) else math.inf
            errors.setdefault(method, {})[job.recipe.lr] = error
        elif job not in results.given_up:
            waited_for.add(method)
    whole = {name: tried for name, tried in errors.items() if name not in waited_for}
    return {name: min(tried, key=tried.__getitem__) for name, tried in whole.items()}, errors


def tables(rates: Mapping[str, float], which: Which) -> list[Table]:
    """The tables that are wanted, with each method's learning rate in its recipes, and the head that was asked for
    where they are not about the map."""

    def changed(table: Table) -> Table:
        other = None if table.about_map else which.head

        def rated(cells: Cells) -> Cells:
            if cells.recipe is None:
                return cells
            recipe = replace(cells.recipe, head=other or cells.recipe.head)
            return replace(cells, recipe=replace(recipe, lr=rates.get(method_of(recipe))))

        return replace(table, rows=tuple(TableRow(row.labels, tuple(map(rated, row.cells))) for row in table.rows))

    return [changed(table) for name, table in ALL.items() if which.wants(name)]


def runs_of(made: Sequence[Table]) -> dict[Recipe, dict[EvalSpec, None]]:
    """Every run of some tables, with all the evaluations that some row wants of it."""
    specs: dict[Recipe, dict[EvalSpec, None]] = {}
    for cells in (cells for table in made for cells in table.cells):
        if cells.recipe is not None:
            specs.setdefault(cells.recipe, {})[cells.spec] = None
    return specs


def jobs_of(made: Sequence[Table], seeds: int) -> Iterator[Job]:
    """Every run once, the most telling first: rivals (and what clips teach) with every seed, then a seed of all
    ablations before the next seed; of those the reference, then what costs most in the paper, which is the likeliest
    to be told apart."""
    specs = runs_of(made)
    rivals = runs_of([table for table in made if not _is_ablation(table)])
    others = (recipe for recipe in specs if recipe not in rivals)
    by_cost = sorted(others, key=lambda recipe: -paper_cost(recipe, made))
    for recipes in (rivals, by_cost):
        for seed in range(seeds):
            yield from (Job(recipe, seed, tuple(specs[recipe])) for recipe in recipes)


def ready(results: Results, batch: int, which: Which) -> Iterator[Job]:
    """What can be run now, the most telling first: a method's rows wait for its learning rate, not for others'."""
    rates, _ = chosen_rates(results, batch, which)
    for job in (*trials(batch, which), *jobs_of(tables(rates, which), which.seeds)):
        if job.recipe.lr is not None and results.of(job) is None and job not in results.given_up:
            yield job


def paper_cost(recipe: Recipe, made: Sequence[Table]) -> float:
    """The most by which the paper's MAE of a run differs from the reference's in some table; of the reference inf."""
    found = [0.0]
    for table in made:
        of = [row.labels for row in table.rows if row.cells[0].recipe == recipe]
        if table.reference in of:
            return math.inf
        found += [abs(one) for one in map(table.published_difference, of) if one is not None]
    return max(found)


def untrained_rows(bench: GeneratedBench) -> list[list[str]]:
    """The rows of the rivals' table that train nothing, on the same held-out videos."""
    runner = bench.runner(TABLES["rivals"], seeds=(0,))
    rows = []
    for row in TABLES["rivals"].rows:
        if row.cells[0].model is not None:
            found = runner.measure(row.cells[0], UNTRAINED)
            if isinstance(found, Measured):
                rows.append([row.labels[0], *(f"{found.values[name][0]:.3f}" for name in UNTRAINED)])
    return rows


def report(results: Results, bench: GeneratedBench, which: Which, *, about: str, untrained: list[list[str]]) -> str:
    """Every table with intervals and the paper's order. about: machine, minutes, versions."""
    train = bench.experiment.scale.train
    trained, held = (len(bench.dataset.split(split)) for split in ("train", "test"))
    rates, errors = chosen_rates(results, train.batch_size, which)
    steps = train.steps or 0
    chosen = f"{rates}, chosen by the error on validation videos {errors}" if errors else f"{which.lr}"
    heading = (
        f"{trained} {'real clips' if which.real else 'generated videos'} to train on, {held} held out, {steps} steps "
        f"of {train.batch_size} videos ({steps * train.batch_size / trained:.0f} epochs), up to {which.seeds} seeds; "
        f"learning rates {chosen}; {about}."
    )
    made = tables(rates, which)
    parts = [table_text(results, table, which.seeds, spread_of(results, made, table, which.seeds)) for table in made]
    if untrained:
        parts.append("### what trains nothing, on the same held-out videos\n\n"
                     + markdown_table(("row", *UNTRAINED), untrained))  # fmt: skip
    return "\n\n".join([heading, *parts]) + "\n"


def spread_of(results: Results, made: Sequence[Table], table: Table, seeds: int) -> SeedSpread | None:
    """How MAE differs from seed to seed among all ablations of the head that an ablation is about; None for another
    table, whose rows are of several kinds."""
    if not _is_ablation(table):
        return None
    head = next(iter(table.recipes)).head
    rows = []
    for recipe in runs_of([other for other in made if _is_ablation(other)]):
        found = results.seeds_of(Cells((), recipe), seeds) if recipe.head == head else {}
        if found:
            rows.append(relative_errors([one.rows[EvalSpec().label] for one in found.values()]))
    return SeedSpread.over(rows)


def table_text(results: Results, table: Table, seeds: int, spread: SeedSpread | None = None) -> str:
    """One table: our MAE with its interval, OBO, seeds, the paper's MAE, and whether its order is confirmed. spread:
    from seed to seed where rows are of one kind; None: each row has its own."""
    rows = sorted((row for row in table.rows if row.cells[0].recipe), key=lambda row: row.labels != table.reference)
    found = {row.labels: results.seeds_of(row.cells[0], seeds) for row in rows}
    counted = {
        row.labels: {seed: one.rows[row.cells[0].spec.label] for seed, one in found[row.labels].items()}
        for row in rows
    }
    errors: dict[tuple[str, ...], dict[int, Errors]] = {
        labels: {seed: relative_errors([videos])[0] for seed, videos in one.items()}
        for labels, one in counted.items()
        if one and all(one.values())
    }
    sources = None
    if results.sources and errors:
        videos = next(iter(counted[next(iter(errors))].values()))
        sources = [results.sources.get(video.name, video.name) for video in videos if video.count > 0]
    apart = differences(table, errors, spread=spread, sources=sources)
    lines = []
    for labels in counted:
        theirs = table.published_mae(labels)
        label, paper = " ".join(labels), "" if theirs is None else str(theirs)
        if labels not in errors:
            lines.append([label, "0", "not run", *[""] * 6, paper, ""])
            continue
        value, low, high = interval(np.stack(list(errors[labels].values())), spread, sources)
        groups = [score("", videos) for videos in counted[labels].values()]
        deviation = stdev(group.mae for group in groups) if len(groups) > 1 else 0.0
        against = "reference" if labels == table.reference else str(apart.get(labels, ""))
        if table.published_difference(labels) is None:
            against = against.split(":")[0]
        runs = list(found[labels].values())
        figures = (f"{mean(group.obo for group in groups):.3f}", f"{mean(group.obz for group in groups):.3f}",
                   f"{mean(group.rmse for group in groups):.2f}", f"{runs[0].parameters:.2f}",
                   f"{mean(run.train_seconds for run in runs):.0f}")  # fmt: skip
        error = f"{value:.3f} [{low:.3f}, {high:.3f}]"
        lines.append([label, str(len(groups)), error, f"{deviation:.3f}", *figures, paper, against])
    return f"### {table.name}: {table.title}\n\n{markdown_table(COLUMNS, lines)}"


def _is_ablation(table: Table) -> bool:
    return table.name not in (TABLES["rivals"].name, TABLE_CLIPS.name)
