"""Rivals and ablations on generated repetitions, many small runs side by side on one GPU.

    python benchmarks/generated_tables.py --out DIR [--minutes 8] [--workers 15] [--seeds 3] [--rivals] [--tiny]

Draws the set straight into tokens (no video decoder is needed), chooses each method's learning rate on validation
videos, then trains every row of the rivals' table and of Tables 3a to 3g, L, L', windows and sampling with the code
that `escounts table --data synthetic` runs. Every finished run is a JSON file under DIR/runs at once; called again
with the same DIR and --work it goes on. When the minutes are over no run is begun any more, and tables are printed of
what is there. --rivals: that table alone (without a GPU it takes many hours).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from escounts.atomic_files import write_text
from escounts.datasets.stores import OWN_EVERY
from escounts.evaluation.ablation_tables import ABLATIONS
from escounts.evaluation.generated_tables import FULL_EXPERIMENT, GeneratedBench, GeneratedExperiment
from escounts.evaluation.generated_tables import RATES as SAMPLED
from escounts.evaluation.prediction_files import digest_of
from escounts.evaluation.rendering import compare, interval
from escounts.evaluation.table_runner import Measured, Source, TableRunner
from escounts.evaluation.table_spec import Cells, EvalSpec, Table, TableRow
from escounts.evaluation.tables import TABLE_RIVALS
from escounts.metrics import mae, obo, obz, rmse
from escounts.training.batches import TokenCache
from escounts.training.recipes import Recipe

RATES = (1e-4, 3e-4, 1e-3)
"""Learning rates that every method tries."""
METHODS = {"repnet": Recipe(method="repnet"), "transrac": Recipe(method="transrac"), "density": Recipe(),
           "rate": Recipe(head="rate")}  # fmt: skip
MPS_FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
PROBE_STEPS, WARM_STEPS = 60, 20
SHARE = 0.6
EVALUATION = 9.0
"""Seconds that the evaluation of a run takes beside its training; of the rest, the share of time that is training by
the probe's pace: some rows are dearer than the reference."""
FEWEST, MOST = 200, 4000


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


def main() -> None:
    options = arguments()
    began = time.time()
    deadline = began + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        start_mps(options.work)
    experiment = tiny(FULL_EXPERIMENT) if options.tiny else FULL_EXPERIMENT
    every = (OWN_EVERY,) if options.rivals else SAMPLED
    bench = GeneratedBench(options.work, experiment, rates=every, device=device, workers=options.workers)
    say(began, f"{len(bench.dataset.videos)} videos drawn and encoded on {device}")
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.workers, start_worker, (options.work, experiment, every, device)) as pool:
        plan = planned(options, pool, deadline, began)
        experiment = with_steps(experiment, plan["steps"])
        rates = plan.get("rates") or chosen_rates(options, pool, experiment, deadline, began)
        tried = (Job(replace(recipe, lr=rate), 0, ()) for recipe in METHODS.values() for rate in RATES)
        known = {"rates": rates} if all(result(options.out, job) for job in tried) else {}
        write_text(options.out / "plan.json", json.dumps(plan | known, indent=1) + "\n")
        jobs = list(jobs_of(tables(rates, only_rivals=options.rivals), options.seeds))
        run(options, pool, experiment, jobs, deadline, began)
    report(options, bench, experiment, rates, (time.time() - began) / 60)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="results: one JSON file per run, tables")
    parser.add_argument("--work", type=Path, default=Path("/tmp/escounts-generated"), help="tokens and weights")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of every run (default: as many as the minutes allow)")
    parser.add_argument("--rivals", action="store_true", help="the rivals' table alone")
    parser.add_argument("--tiny", action="store_true", help="a few videos and steps: does it run at all?")
    return parser.parse_args()


def tiny(experiment: GeneratedExperiment) -> GeneratedExperiment:
    """The same at a size that a busy CPU gets through."""
    what = replace(experiment.what, train=12, valid=3, test=4, seconds=(8.0, 8.0), calm=True)
    scale = replace(experiment.scale, channels=16, heads=2, train=replace(experiment.scale.train, batch_size=4))
    return replace(experiment, what=what, scale=scale)


def with_steps(experiment: GeneratedExperiment, steps: int) -> GeneratedExperiment:
    train = replace(experiment.scale.train, steps=steps, warmup_steps=min(100, steps // 10))
    return replace(experiment, scale=replace(experiment.scale, train=train))


def start_mps(work: Path) -> None:
    """NVIDIA's service that lets kernels of several processes run at once, where it is installed."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        print("no MPS: processes take turns on the GPU", flush=True)
        return
    for name in MPS_FOLDERS:
        os.environ[name] = str(work / name.lower())
        Path(os.environ[name]).mkdir(parents=True, exist_ok=True)
    control = ["nvidia-cuda-mps-control"]
    started = False
    try:
        # One that an earlier call left running is used as it is.
        started = subprocess.run([*control, "-d"], capture_output=True, check=False, timeout=20).returncode == 0
        one = "import torch; (torch.zeros(1, device='cuda') + 1).item()"
        subprocess.run([sys.executable, "-c", one], capture_output=True, check=True, timeout=60)
        print("MPS: started" if started else "MPS: was running", flush=True)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"MPS does not work here ({error}): processes take turns on the GPU", flush=True)
        if started:  # not one that others work with
            subprocess.Popen([*control], stdin=subprocess.PIPE, text=True).communicate("quit\n", timeout=20)
        for name in MPS_FOLDERS:
            os.environ.pop(name, None)


# In a worker -------------------------------------------------------------------------------------------------------

_worker: dict[str, Any] = {}


def start_worker(work: Path, experiment: GeneratedExperiment, every: Sequence[int], device: str) -> None:
    torch.set_num_threads(1)
    bench = _worker["bench"] = GeneratedBench(work, experiment, rates=every, device=device)
    # Tokens stay on the device from run to run; reading them piece by piece took longer than training.
    store = bench.stores[OWN_EVERY]
    cache = TokenCache(store, torch.device(device))
    cache.preload(video.name for video in bench.dataset.split("train"))
    _worker["caches"] = {store.path: cache}


def probe(experiment: GeneratedExperiment) -> float:
    """Seconds of a step of the reference while every worker does the same."""
    # The last report waits for the validation and is left out.
    runner = runner_of(with_steps(experiment, WARM_STEPS + PROBE_STEPS + 1), Path(f"probe-{os.getpid()}"))
    marks: list[tuple[int, float]] = []
    runner.report = lambda step, total, figures: marks.append((step, time.perf_counter()))
    source = runner.find_source(Recipe(), "repcount")
    assert isinstance(source, Source)
    runner.trained(Recipe(), source, 0)
    shutil.rmtree(runner.out)
    (first, began), (last, ended) = marks[0], marks[-2]
    return (ended - began) / (last - first)


def work_on(asked: tuple[GeneratedExperiment, Job, float]) -> dict[str, Any]:
    """Train and evaluate one run; what it found, or why there is nothing."""
    experiment, job, deadline = asked
    about = {"key": job.key, "recipe": job.recipe.changes, "seed": job.seed}
    if time.time() > deadline:
        return about | {"error": "the time was over"}
    try:
        runner = runner_of(experiment)
        source = runner.find_source(job.recipe, job.recipe.dataset)
        assert isinstance(source, Source), source
        folder = runner.trained(job.recipe, source, job.seed)
        found = {spec.label: runner.evaluated(folder, spec, source) for spec in job.specs}
        done = json.loads((folder / "done.json").read_text())
        weights = runner._value("M parameters", (), folder)
        rows = next(iter(found.values())).rows
        return about | {
            "truth": [row.count for row in rows],
            "counted": {label: [round(row.predicted, 4) for row in one.rows] for label, one in found.items()},
            "coverage": next(iter(found.values())).coverage.short,
            "val_mae": done.get("val_mae"),
            "train_seconds": done["train_seconds"],
            "million_parameters": weights,
        }
    except Exception as error:  # a run that fails must not end the others
        return about | {"error": f"{type(error).__name__}: {error}"}


def runner_of(experiment: GeneratedExperiment, below: Path = Path()) -> TableRunner:
    bench: GeneratedBench = _worker["bench"]
    bench.experiment = experiment
    runner = bench.runner(TABLE_RIVALS, seeds=(0,))
    runner.out = bench.out / below
    runner._caches = _worker["caches"]
    return runner


# In the main process -----------------------------------------------------------------------------------------------


def planned(options: argparse.Namespace, pool: Any, deadline: float, began: float) -> dict[str, Any]:
    """Steps of every run: as many as fit, measured while all workers train; kept, so that a second call agrees."""
    path = options.out / "plan.json"
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept
    if options.steps:
        return {"steps": options.steps, "seconds_per_step": None}
    experiment = tiny(FULL_EXPERIMENT) if options.tiny else FULL_EXPERIMENT
    seconds = max(pool.map(probe, [experiment] * options.workers, chunksize=1))
    runs = len(list(jobs_of(tables({}, only_rivals=options.rivals), options.seeds))) + len(METHODS) * (len(RATES) - 1)
    each = (deadline - time.time()) * options.workers / runs - EVALUATION
    fitting = SHARE * max(each, 0.0) / seconds
    steps = int(np.clip(fitting // 50 * 50, FEWEST, MOST))
    say(began, f"{1000 * seconds:.1f} ms per step in each of {options.workers} workers: {runs} runs of {steps} steps")
    return {"steps": steps, "seconds_per_step": seconds}


def chosen_rates(
    options: argparse.Namespace, pool: Any, experiment: GeneratedExperiment, deadline: float, began: float
) -> dict[str, float]:
    """Each method's learning rate, by the error on validation videos with the first seed."""
    jobs = [Job(replace(recipe, lr=rate), 0, (EvalSpec(),)) for recipe in METHODS.values() for rate in RATES]
    run(options, pool, experiment, jobs, deadline, began)
    rates = {}
    for name, recipe in METHODS.items():
        tried = {rate: result(options.out, Job(replace(recipe, lr=rate), 0, ())) for rate in RATES}
        errors = {rate: one["val_mae"] for rate, one in tried.items() if one and one.get("val_mae") is not None}
        rates[name] = min(errors, key=lambda rate: errors[rate]) if errors else RATES[1]
        say(began, f"{name}: validation MAE by learning rate {errors} → {rates[name]:g}")
    return rates


def tables(rates: dict[str, float], *, only_rivals: bool = False) -> list[Table]:
    """The tables with each method's learning rate in its recipes."""

    def rated(cells: Cells) -> Cells:
        if cells.recipe is None:
            return cells
        name = cells.recipe.method if cells.recipe.method != "escounts" else cells.recipe.head
        return replace(cells, recipe=replace(cells.recipe, lr=rates.get(name)))

    def changed(table: Table) -> Table:
        rows = tuple(TableRow(row.labels, tuple(map(rated, row.cells))) for row in table.rows)
        return replace(table, rows=rows)

    return [changed(table) for table in (TABLE_RIVALS, *(() if only_rivals else ABLATIONS))]


def jobs_of(made: Sequence[Table], seeds: int) -> Iterator[Job]:
    """Every run once, with all the evaluations that some row wants of it; a seed's before the next seed's."""
    specs: dict[Recipe, dict[EvalSpec, None]] = {}
    for table in made:
        for row in table.rows:
            for cells in row.cells:
                if cells.recipe is not None:
                    specs.setdefault(cells.recipe, {})[cells.spec] = None
    for seed in range(seeds):
        for recipe, wanted in specs.items():
            yield Job(recipe, seed, tuple(wanted))


def run(
    options: argparse.Namespace,
    pool: Any,
    experiment: GeneratedExperiment,
    jobs: Sequence[Job],
    deadline: float,
    began: float,
) -> None:
    """Give the jobs that have no result to the workers and write each result as it comes."""
    todo = [job for job in jobs if not covers(result(options.out, job), job)]
    say(began, f"{len(todo)} of {len(jobs)} runs to do")
    for done, found in enumerate(pool.imap_unordered(work_on, [(experiment, job, deadline) for job in todo]), 1):
        if "error" in found:
            say(began, f"{found['recipe']} seed {found['seed']}: {found['error']}")
            continue
        (options.out / "runs").mkdir(exist_ok=True)
        write_text(options.out / "runs" / f"{found['key']}.json", json.dumps(found) + "\n")
        if done % 10 == 0 or done == len(todo):
            say(began, f"{done}/{len(todo)} runs")


def result(out: Path, job: Job) -> dict[str, Any] | None:
    path = out / "runs" / f"{job.key}.json"
    return json.loads(path.read_text()) if path.exists() else None


def covers(found: dict[str, Any] | None, job: Job) -> bool:
    return found is not None and all(spec.label in found["counted"] for spec in job.specs)


def report(
    options: argparse.Namespace,
    bench: GeneratedBench,
    experiment: GeneratedExperiment,
    rates: dict[str, float],
    minutes: float,
) -> None:
    """Print every table with intervals and the paper's order, and write them."""
    what, train = experiment.what, experiment.scale.train
    lines = [
        f"{what.train} generated videos to train on, {what.test} held out, {train.steps} steps of {train.batch_size} "
        f"videos, up to {options.seeds} seeds; learning rates {rates}; {options.workers} runs side by side, "
        f"{minutes:.1f} minutes on {torch.cuda.get_device_name() if torch.cuda.is_available() else 'a CPU'}; "
        f"torch {torch.__version__}.",
        "",
    ]
    for table in tables(rates, only_rivals=options.rivals):
        lines += table_lines(options, table)
    lines += baseline_lines(bench)
    text = "\n".join(lines) + "\n"
    write_text(options.out / "tables.md", text)
    print(text)


def table_lines(options: argparse.Namespace, table: Table) -> list[str]:
    """One table: our MAE with its interval, OBO, seeds, the paper's MAE, and whether its order is confirmed."""
    heading = (
        "| row | seeds | MAE [95 %] | ± seeds | OBO | OBZ | RMSE | M par. | train s | paper | against reference |"
    )
    lines = [f"### {table.name}: {table.title}", "", heading, "|" + "---|" * 11]
    errors: dict[tuple[str, ...], np.ndarray] = {}
    reference = reference_of(table)
    rows = sorted((row for row in table.rows if row.cells[0].recipe), key=lambda row: row.labels != reference)
    paper = {row.labels: dict(zip(table.groups[0].columns, row.cells[0].published, strict=True)).get("MAE")
             for row in rows}  # fmt: skip
    for row in rows:
        cells = row.cells[0]
        assert cells.recipe is not None
        found = [result(options.out, Job(cells.recipe, seed, (cells.spec,))) for seed in range(options.seeds)]
        there = [one for one in found if one is not None and cells.spec.label in one["counted"]]
        label = " ".join(row.labels)
        if not there:
            lines.append(f"| {label} | 0 | not run | | | | | | | {paper[row.labels] or ''} | |")
            continue
        truth = np.array(there[0]["truth"], float)
        counted = [np.array(one["counted"][cells.spec.label]) for one in there]
        some = truth > 0
        errors[row.labels] = np.stack([np.abs(truth[some] - np.rint(c[some])) / truth[some] for c in counted])
        value, low, high = interval(errors[row.labels])
        spread = stdev([mae(truth, c) for c in counted]) if len(counted) > 1 else 0.0
        against = ""
        theirs = paper[row.labels]
        if row.labels == reference:
            against = "reference"
        elif reference in errors:
            by = None if theirs is None or paper[reference] is None else theirs - paper[reference]
            against = str(compare(errors[row.labels], errors[reference], paper=by))
            against = against if by is not None else against.split(":")[0]
        figures = [mean(metric(truth, c) for c in counted) for metric in (obo, obz, rmse)]
        lines.append(
            f"| {label} | {len(there)} | {value:.3f} [{low:.3f}, {high:.3f}] | {spread:.3f} | {figures[0]:.3f} | "
            f"{figures[1]:.3f} | {figures[2]:.2f} | {there[0]['million_parameters']:.2f} | "
            f"{mean(one['train_seconds'] for one in there):.0f} | {'' if theirs is None else theirs} | {against} |"
        )
    return [*lines, ""]


def reference_of(table: Table) -> tuple[str, ...]:
    """The labels of the paper's own setting."""
    plain = [row.labels for row in table.rows if row.cells[0].recipe is not None
             and not {name for name in row.cells[0].recipe.changes if name != "lr"}
             and row.cells[0].spec == EvalSpec()]  # fmt: skip
    return plain[0]


def baseline_lines(bench: GeneratedBench) -> list[str]:
    """The rows of the rivals' table that train nothing."""
    lines = [
        "### what trains nothing, on the same held-out videos",
        "",
        "| row | MAE | OBO | OBZ | RMSE |",
        "|---|---|---|---|---|",
    ]
    runner = bench.runner(TABLE_RIVALS, seeds=(0,))
    for row in TABLE_RIVALS.rows:
        if row.cells[0].model is not None:
            found = runner.measure(row.cells[0], ("MAE", "OBO", "OBZ", "RMSE"))
            if isinstance(found, Measured):
                values = " | ".join(f"{found.values[name][0]:.3f}" for name in ("MAE", "OBO", "OBZ", "RMSE"))
                lines.append(f"| {row.labels[0]} | {values} |")
    return lines


def say(began: float, text: str) -> None:
    print(f"{time.time() - began:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
