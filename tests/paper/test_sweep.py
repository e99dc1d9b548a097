"""`python -m paper.sweep` on a lent machine: what comes first, what failed, what its tables say."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from escounts.research.evaluation.models import EvalSpec
from escounts.research.training.predictions import Prediction
from escounts.research.training.recipes import Recipe
from paper import sweep
from paper.generated import FULL_EXPERIMENT
from paper.sweep_runs import (
    Job,
    Outcome,
    Results,
    Which,
    chosen_rates,
    jobs_of,
    method_of,
    ready,
    report,
    spread_of,
    table_text,
    tables,
    trials,
)

ABLATIONS = ("3a", "3b", "3c", "3d", "3f", "L", "Lprime", "windows", "sampling")
"""Those that are not about the map."""


def found(job: Job, error: float, *, off: float = 0.0) -> Outcome:
    """What a run with such a validation error left; every video but the last counted `off` too high."""

    def row(count: int, off: float) -> Prediction:
        return Prediction("d", "test", f"{count}.mp4", "a", count, count + off, 1.0, 1.0, 0.0, 1.0, (), ())

    rows = (row(4, off), row(5, off), row(6, 0.0))
    return Outcome({spec.label: rows for spec in job.specs}, error, 1.0, 1.0)


def bench(**counts: int) -> Any:
    """Generated videos, as the heading of a report names them."""
    dataset = SimpleNamespace(split=lambda name: range(counts.get(name, 0)))
    return SimpleNamespace(dataset=dataset, experiment=FULL_EXPERIMENT)


def test_rates_first_then_rivals_with_every_seed_then_ablations_seed_by_seed() -> None:
    which, results = Which(), Results()
    assert list(ready(results, 24, which)) == trials(24, which), "without learning rates nothing else can be run"
    for job in trials(24, which):
        if method_of(job.recipe) == "density":
            results.add(job, found(job, 0.1 if job.recipe.lr == 3e-4 else 0.2))
    then = list(ready(results, 24, which))
    assert {method_of(job.recipe) for job in then[:9]} == {"rate", "repnet", "transrac"}
    rows = then[9:]
    assert {method_of(job.recipe) for job in rows} == {"density"} and {job.recipe.lr for job in rows} == {3e-4}
    plain = [job.seed for job in rows if not set(job.recipe.changes) - {"lr"}]
    assert plain == [0, 1, 2] and [job.seed for job in rows[:3]] == plain, "the reference comes with every seed"
    assert [job.seed for job in rows[3:]] == sorted(job.seed for job in rows[3:])
    runs = [(job.recipe, job.seed) for job in rows]
    assert len(set(runs)) == len(runs) == 3 * len({job.recipe for job in rows}) > 90


def test_a_run_that_lacks_an_evaluation_is_looked_at_again() -> None:
    job = trials(24, Which())[0]
    results = Results()
    results.add(job, found(job, 0.5))
    assert results.of(job) and results.of(replace(job, specs=(EvalSpec(), EvalSpec(shifts=2)))) is None


def test_a_trial_that_keeps_failing_holds_up_nobody() -> None:
    results, which = Results(), Which()
    tried = [job for job in trials(96, which) if method_of(job.recipe) == "repnet"]
    assert [job.recipe.lr for job in tried] == [2e-4, 6e-4, 2e-3], "twice the rates for four times the batch"
    for job in tried[:2]:
        results.add(job, found(job, float("nan") if job is tried[0] else 0.3))
    assert "repnet" not in chosen_rates(results, 96, which)[0]
    results.given_up.add(tried[2])
    assert chosen_rates(results, 96, which)[0] == {"repnet": 6e-4}, "not the one whose error is no number"


def test_a_few_seeds_do_not_decide_what_seeds_make() -> None:
    """An unlucky reference once made fifteen rows "contradicted": all were compared with the same three runs."""
    results = Results()
    made = tables({"density": 3e-4}, Which())
    (shifts, table) = [table for table in made if table.name in ("3f", "L")]
    for job in jobs_of([shifts, table], 3):
        unlucky = 0.5 * (job.seed + (job.recipe.cross_blocks == 2))
        results.add(job, found(job, 0.1, off=round(2 * unlucky)))
    spread = spread_of(results, [shifts, table], table, 3)
    assert spread is not None and spread.freedom == 8 and spread.deviation > 0.1
    (decided,) = [line for line in table_text(results, table, 3, spread).splitlines() if line.startswith("| 3 |")]
    assert "undecided" in decided and "-0.1" in decided
    assert "[+0.000, +0.000]" in table_text(results, shifts, 3, spread).splitlines()[-1], (
        "the same runs: seed by seed"
    )
    assert "| SA-only | 0 | not run" in table_text(results, made[1], 3)


def test_a_run_that_lacks_an_evaluation_is_left_out_of_pairs() -> None:
    """The trial of a learning rate is a run of the reference, with one evaluation until it is looked at again."""
    results = Results()
    (shifts,) = [table for table in tables({"density": 3e-4}, Which()) if table.name == "3f"]
    for job in jobs_of([shifts], 3):
        plain = not job.seed and EvalSpec() in job.specs
        results.add(job, found(replace(job, specs=(EvalSpec(),)) if plain else job, 0.1, off=2.0 * (job.seed == 1)))
    lines = table_text(results, shifts, 3).splitlines()
    assert any("| 3 |" in line and line.endswith("| reference |") for line in lines)
    compared = [line for line in lines if "| 2 | 0." in line]
    assert compared and all("+0.000 [+0.000, +0.000]" in line for line in compared), "the same two seeds of both"


def test_ablations_of_the_other_head_have_its_reference() -> None:
    made = tables({"density": 1e-3, "rate": 2e-3}, Which(head="rate"))
    heads = {table.name: {row.cells[0].recipe.head for row in table.rows if row.cells[0].recipe} for table in made}
    assert heads["L"] == heads["sampling"] == {"rate"} and heads["3e"] == heads["3g"] == {"density"}
    assert heads["rivals"] == {"density", "rate"}
    rates = [cells.recipe and cells.recipe.lr for table in made if table.name == "3b" for row in table.rows
             for cells in row.cells]  # fmt: skip
    assert set(rates) == {2e-3}
    (rivals, depth) = [table for table in made if table.name in ("rivals", "L")]
    assert depth.reference == ("2",) and rivals.reference and "density" in rivals.reference[0]


def test_the_plan_is_in_the_heading() -> None:
    options = sweep.arguments(["--out", "x", "--steps", "1000", "--batch", "48"])
    planned = bench(train=2400, test=300)
    planned.experiment = sweep.experiment_of(options)
    untrained = [["mean count", "1.000", "0.200", "0.100", "4.000"]]
    text = report(Results(), planned, Which(names=("rivals",)), about="4 minutes", untrained=untrained)
    assert "1000 steps of 48 videos (20 epochs)" in text and "4 minutes" in text
    assert "| mean count | 1.000 | 0.200 | 0.100 | 4.000 |" in text


def test_ablations_of_the_rate_head_repeat_nothing_that_is_known() -> None:
    """No rival, no trial of a rate that was chosen, nothing about the map; the evaluations of 3f share one run."""
    asked = ["--tables", ",".join(ABLATIONS), "--head", "rate", "--lr", "6e-4"]
    which = sweep.which_of(sweep.arguments(["--out", "x", *asked]))
    rows = list(ready(Results(), 96, which))
    assert {method_of(job.recipe) for job in rows} == {"rate"} and {job.recipe.lr for job in rows} == {6e-4}
    assert len(rows) == len({(job.recipe, job.seed) for job in rows}) == 3 * 26
    assert [job.seed for job in rows] == sorted(job.seed for job in rows), "a seed of every row before the next"
    changes = [job.recipe.changes for job in rows[:26]]
    assert changes[0] == {"head": "rate", "lr": 6e-4} and len(rows[0].specs) == 4, "the reference, with every K"
    assert [one["every"] for one in changes[1:3]] == [32, 16], "then what costs most in the paper"
    assert {name for one in changes for name in one}.isdisjoint({"sigma", "count_weight"})
    named = [table.name for table in tables({}, which)]
    assert named == list(ABLATIONS)


def test_rows_that_had_no_time_are_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """On real clips: no rival, no trial, nothing that is of generated videos alone; a wrong name lists the tables."""
    asked = ["--clips", "pool_labels.csv", "--tables", "3d,L,clips,sampling", "--head", "rate", "--lr", "3.5e-4"]
    which = sweep.which_of(sweep.arguments(["--out", "x", *asked]))
    assert [table.name for table in tables({}, which)] == ["clips", "3d", "L"]
    rows = list(ready(Results(), 32, which))
    assert len(rows) == 3 * (5 + 5 + 3) and {job.recipe.lr for job in rows} == {3.5e-4}, "the reference is shared"
    assert {name for job in rows for name in job.recipe.changes} >= {"other_video", "cross_blocks", "dataset"}
    assert not sweep.which_of(sweep.arguments(["--out", "x", "--tables", "clips"])).wants("clips"), "without clips"
    with pytest.raises(SystemExit):
        sweep.arguments(["--out", "x", "--tables", "3d,3z"])
    assert "no table '3z'; there are rivals, clips, 4, 3a" in capsys.readouterr().err


def test_the_report_of_ablations_alone_has_their_spread() -> None:
    which, results = Which(names=ABLATIONS, head="rate", lr=6e-4), Results()
    made = tables({"rate": 6e-4}, which)
    for job in jobs_of(made, 3):
        results.add(job, found(job, 0.1, off=float((job.seed == 2) + 2 * job.recipe.self_attention_only)))
    text = report(results, bench(train=2400), which, about="4 minutes", untrained=[])
    assert "learning rates 0.0006; 4 minutes" in text and "rivals" not in text and "trains nothing" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("| SA-only")]
    spread = spread_of(results, made, made[0], 3)
    assert spread is not None and spread.freedom == 2 * 26, "over every run, also those of the first table"
    assert "| 3 | 0.3" in row


def test_a_run_that_fails_is_told_and_ends_nothing() -> None:
    sweep._worker["broken"] = ValueError("no tokens")
    try:
        assert sweep.work_on(Job(Recipe(), 0, ())) == "RuntimeError: the worker did not start: no tokens"
    finally:
        sweep._worker.clear()
