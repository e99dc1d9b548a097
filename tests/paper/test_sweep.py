"""`python -m paper.sweep` on a lent machine: what comes first, what survives."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from escounts.research.evaluation.models import EvalSpec
from paper import sweep, sweep_runs
from paper.generated import FULL_EXPERIMENT


@pytest.fixture
def runs() -> ModuleType:
    return sweep_runs


@pytest.fixture
def script() -> ModuleType:
    return sweep


def found(job: Any, error: float, *, off: float = 0.0) -> dict[str, Any]:
    """What a run with such a validation error left; every video but the last counted `off` too high."""
    counted = {spec.label: [4 + off, 5 + off, 6.0] for spec in job.specs}
    return {"key": job.key, "recipe": {}, "seed": job.seed, "truth": [4, 5, 6], "counted": counted, "val_mae": error,
            "train_seconds": 1.0, "seconds": 1.0, "million_parameters": 1.0}  # fmt: skip


def asked(**options: Any) -> Namespace:
    return Namespace(
        **({"rivals": False, "ablations": False, "seeds": 3, "head": "density", "lr": None, "clips": None} | options)
    )


def test_a_line_that_was_cut_short_is_run_again_and_the_rest_is_kept(runs: ModuleType, tmp_path: Path) -> None:
    jobs = runs.trials(24)[:2]
    results = runs.Results(tmp_path)
    results.add(found(jobs[0], 0.5))
    results.path.write_text(results.path.read_text() + '{"key": "')
    again = runs.Results(tmp_path)
    again.add(found(jobs[1], 0.4))
    last = runs.Results(tmp_path)
    assert [last.of(job)["val_mae"] for job in jobs] == [0.5, 0.4]
    more = replace(jobs[0], specs=(EvalSpec(), EvalSpec(shifts=2)))
    assert last.of(more) is None, "an evaluation that is missing makes the run worth another look"


def test_rates_first_then_rivals_with_every_seed_then_ablations_seed_by_seed(
    runs: ModuleType, script: ModuleType, tmp_path: Path
) -> None:
    options, results = asked(), runs.Results(tmp_path)
    first = list(script.ready(options, results, 24))
    assert first == runs.trials(24), "without learning rates nothing else can be run"
    for job in runs.trials(24):
        if job.method == "density":
            results.add(found(job, 0.1 if job.recipe.lr == 3e-4 else 0.2))
    then = list(script.ready(options, results, 24))
    assert {job.method for job in then[:9]} == {"rate", "repnet", "transrac"}
    rows = then[9:]
    assert {job.method for job in rows} == {"density"} and {job.recipe.lr for job in rows} == {3e-4}
    plain = [job.seed for job in rows if not set(job.recipe.changes) - {"lr"}]
    assert plain == [0, 1, 2] and [job.seed for job in rows[:3]] == plain, "the reference comes with every seed"
    assert [job.seed for job in rows[3:]] == sorted(job.seed for job in rows[3:])
    keys = [job.key for job in rows]
    assert len(set(keys)) == len(keys) == 3 * len({job.recipe for job in rows}) > 90


def test_a_trial_that_keeps_failing_holds_up_nobody(runs: ModuleType, tmp_path: Path) -> None:
    results = runs.Results(tmp_path)
    tried = [job for job in runs.trials(96) if job.method == "repnet"]
    assert [job.recipe.lr for job in tried] == [2e-4, 6e-4, 2e-3], "twice the rates for four times the batch"
    for job in tried[:2]:
        results.add(found(job, float("nan") if job is tried[0] else 0.3))
    assert "repnet" not in runs.chosen_rates(results, 96)[0]
    results.give_up(tried[2])
    assert runs.chosen_rates(results, 96)[0] == {"repnet": 6e-4}, "not the one whose error is no number"


def test_a_few_seeds_do_not_decide_what_seeds_make(runs: ModuleType, tmp_path: Path) -> None:
    """An unlucky reference once made fifteen rows "contradicted": all were compared with the same three runs."""
    results = runs.Results(tmp_path)
    made = runs.tables({"density": 3e-4}, runs.Which())
    (shifts, table) = [table for table in made if table.name in ("3f", "L")]
    for job in runs.jobs_of([shifts, table], 3):
        unlucky = 0.5 * (job.seed + (job.recipe.cross_blocks == 2))
        results.add(found(job, 0.1, off=round(2 * unlucky)))
    spread = runs.spread_of(results, [shifts, table], table, 3)
    assert spread.freedom == 8 and spread.deviation > 0.1
    (decided,) = [line for line in runs.table_lines(results, table, 3, spread) if line.startswith("| 3 |")]
    assert "undecided" in decided and "-0.1" in decided
    assert "[+0.000, +0.000]" in runs.table_lines(results, shifts, 3, spread)[-2], "the same runs: seed by seed"
    assert any(line.startswith("| SA-only | 0 | not run") for line in runs.table_lines(results, made[1], 3))


def test_a_run_that_lacks_an_evaluation_is_left_out_of_pairs(runs: ModuleType, tmp_path: Path) -> None:
    """The trial of a learning rate is a run of the reference, with one evaluation until it is looked at again."""
    results = runs.Results(tmp_path)
    (shifts,) = [table for table in runs.tables({"density": 3e-4}, runs.Which()) if table.name == "3f"]
    for job in runs.jobs_of([shifts], 3):
        plain = not job.seed and EvalSpec() in job.specs
        results.add(found(replace(job, specs=(EvalSpec(),)) if plain else job, 0.1, off=2.0 * (job.seed == 1)))
    lines = runs.table_lines(results, shifts, 3)
    assert any("| 3 |" in line and line.endswith("| reference |") for line in lines)
    compared = [line for line in lines if "| 2 | 0." in line]
    assert compared and all("+0.000 [+0.000, +0.000]" in line for line in compared), "the same two seeds of both"


def test_ablations_of_the_other_head_have_its_reference(runs: ModuleType) -> None:
    made = runs.tables({"density": 1e-3, "rate": 2e-3}, runs.Which(head="rate"))
    heads = {table.name: {row.cells[0].recipe.head for row in table.rows if row.cells[0].recipe} for table in made}
    assert heads["L"] == heads["sampling"] == {"rate"} and heads["3e"] == heads["3g"] == {"density"}
    assert heads["rivals"] == {"density", "rate"}
    assert {row.cells[0].recipe.lr for table in made for row in table.rows if table.name == "3b"} == {2e-3}
    (rivals, depth) = [table for table in made if table.name in ("rivals", "L")]
    assert runs.reference_of(depth) == ("2",) and "density" in runs.reference_of(rivals)[0]


def test_the_plan_is_in_the_heading(runs: ModuleType, script: ModuleType, tmp_path: Path) -> None:
    experiment = script.planned_experiment(FULL_EXPERIMENT, {"steps": 1000, "batch": 48})
    text = runs.report(runs.Results(tmp_path), experiment, {"untrained": {"mean count": [1.0, 0.2, 0.1, 4.0]}},
                       runs.Which(only="rivals"), about="4 minutes")  # fmt: skip
    assert "1000 steps of 48 videos (20 epochs)" in text and "4 minutes" in text
    assert "| mean count | 1.000 | 0.200 | 0.100 | 4.000 |" in text


def test_ablations_of_the_rate_head_repeat_nothing_that_is_known(
    runs: ModuleType, script: ModuleType, tmp_path: Path
) -> None:
    """No rival, no trial of a rate that was chosen, nothing about the map; the evaluations of 3f share one run."""
    options = asked(ablations=True, head="rate", lr=6e-4)
    rows = list(script.ready(options, runs.Results(tmp_path), 96))
    assert {job.method for job in rows} == {"rate"} and {job.recipe.lr for job in rows} == {6e-4}
    assert len(rows) == len({job.key for job in rows}) == 3 * 26
    assert [job.seed for job in rows] == sorted(job.seed for job in rows), "a seed of every row before the next"
    changes = [job.recipe.changes for job in rows[:26]]
    assert changes[0] == {"head": "rate", "lr": 6e-4} and len(rows[0].specs) == 4, "the reference, with every K"
    assert [one["every"] for one in changes[1:3]] == [32, 16], "then what costs most in the paper"
    assert {name for one in changes for name in one}.isdisjoint({"sigma", "count_weight"})
    named = [table.name for table in runs.tables({}, script.which(options))]
    assert named == ["3a", "3b", "3c", "3d", "3f", "L", "Lprime", "windows", "sampling"]


def test_the_report_of_ablations_alone_has_their_spread(runs: ModuleType, tmp_path: Path) -> None:
    which, results = runs.Which(only="ablations", head="rate", lr=6e-4), runs.Results(tmp_path)
    for job in runs.jobs_of(runs.tables({"rate": 6e-4}, which), 3):
        results.add(found(job, 0.1, off=float((job.seed == 2) + 2 * job.recipe.self_attention_only)))
    text = runs.report(results, FULL_EXPERIMENT, {}, which, about="4 minutes")
    assert "learning rates 0.0006; 4 minutes" in text and "rivals" not in text and "trains nothing" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("| SA-only")]
    spread = runs.spread_of(results, runs.tables({"rate": 6e-4}, which), runs.tables({"rate": 6e-4}, which)[0], 3)
    assert spread.freedom == 2 * 26, "over every run, also those of the first table"
    assert "| 3 | 0.3" in row


def test_a_service_that_the_environment_names_is_used(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two trainings on one GPU share one MPS service; a second one would shut the first one's clients out."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "elsewhere")
    monkeypatch.setattr(script.shutil, "which", lambda name: pytest.fail("another service was looked for"))
    script.start_mps(tmp_path)
    assert "the service at elsewhere" in capsys.readouterr().out and not list(tmp_path.iterdir())
