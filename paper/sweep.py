"""Rivals and ablations on generated repetitions or on real clips, many small runs side by side on one GPU.

    python -m paper.sweep --out DIR [--minutes 18] [--workers 12] [--seeds 3] [--steps 450] [--batch 96] [--tiny]
                          [--clips TABLE] [--tables rivals,3d,L] [--head rate] [--lr 6e-4] [--held-out 900]

Draws the set straight into tokens (no video decoder is needed), chooses each method's learning rate on validation
videos, then trains every row of the rivals' table with all seeds, and of Tables 3a to 3g, L, L', windows and sampling
seed by seed, with the code of `python -m paper table`. DIR/tables.md is written anew every two minutes. Called again
with the same --work, finished runs are not trained again. No run is begun that would not end within the minutes.
--tables: these alone, such as those whose rows had no time before. --clips: on the real clips of a table of sets (see
`paper/real.py`), with two tables more: what clips teach, and the paper's Table 4. Where NVIDIA's MPS is installed
(`nvidia-cuda-mps-control -d`), start it before: runs then share the GPU instead of taking turns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from escounts.research.datasets.stores import OWN_EVERY
from escounts.system.atomic_files import write_text
from paper.generated import FULL_EXPERIMENT, GeneratedBench, GeneratedExperiment
from paper.generated import RATES as SAMPLED
from paper.real import TABLE_CLIPS, RealBench, RealExperiment, keep_decoders, real_experiment
from paper.runs import DONE, Source, TableRunner
from paper.sweep_runs import ALL, Job, Outcome, Results, Which, chosen_rates, ready, report, tables, untrained_rows
from paper.tables import TABLES

REPORT_EVERY, PATIENCE = 120.0, 60.0
"""Seconds between reports; and over the minutes that the last runs are waited for."""
TRIES = 2
"""How often a run may fail."""


def main() -> None:
    options = arguments()
    began = time.time()
    experiment = experiment_of(options)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    which = which_of(options)
    every = SAMPLED if which.wants("sampling") else (OWN_EVERY,)
    options.out.mkdir(parents=True, exist_ok=True)
    bench = bench_of(options.work, experiment, rates=every, device=device, workers=options.workers)
    say(began, f"{len(bench.dataset.videos)} videos drawn and encoded on {device}")
    results = Results(bench.sources)
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.workers, start_worker, (options.work, experiment, every, device)) as pool:
        text = work_through(options, which, pool, bench, results, began)
    if which.wants(TABLE_CLIPS.name):
        rates, _ = chosen_rates(results, options.batch, which)
        table = next(table for table in tables(rates, which) if table.name == TABLE_CLIPS.name)
        errors = {run: outcome.val_mae for run, outcome in results.known.items() if outcome.val_mae is not None}
        keep_decoders(bench, table, errors, options.out / "kept")
    print(text, flush=True)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="tables, kept decoders")
    place = Path(tempfile.gettempdir()) / "escounts-generated"
    parser.add_argument("--work", type=Path, default=place, help="tokens and runs")
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=450, help="of every run")
    parser.add_argument("--batch", type=int, default=96, help="videos of a step")
    parser.add_argument("--clips", type=Path, help="a table of sets beside its clips, such as pool_labels.csv")
    parser.add_argument("--tables", type=table_names, default=(), help=f"some of {', '.join(ALL)} (default: all)")
    parser.add_argument("--lr", type=float, help="of every run (default: each method's is chosen by trials)")
    parser.add_argument("--held-out", type=int, help="test videos (default: 300; the first ones stay the same)")
    parser.add_argument(
        "--head", choices=["density", "rate"], default="density", help="of ablations that are not about the map"
    )
    parser.add_argument("--tiny", action="store_true", help="a few videos: does it run at all?")
    return parser.parse_args(given)


def table_names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in ALL]:
        raise argparse.ArgumentTypeError(f"no table {unknown[0]!r}; there are {', '.join(ALL)}")
    return names


def experiment_of(options: argparse.Namespace) -> GeneratedExperiment:
    """The videos and the size of the runs that are asked for."""
    experiment: GeneratedExperiment = real_experiment(options.clips) if options.clips else FULL_EXPERIMENT
    what, scale = experiment.what, experiment.scale
    if options.tiny:
        what = replace(what, train=12, valid=3, test=4, seconds=(8.0, 8.0), calm=True)
        scale = replace(scale, channels=16, heads=2)
    what = replace(what, test=options.held_out or what.test)
    warmup = min(100, options.steps // 10)
    train = replace(scale.train, steps=options.steps, batch_size=options.batch, warmup_steps=warmup)
    return replace(experiment, what=what, scale=replace(scale, train=train))


def which_of(options: argparse.Namespace) -> Which:
    return Which(options.seeds, options.tables, options.head, options.lr, bool(options.clips))


def bench_of(work: Path, experiment: GeneratedExperiment, **options: Any) -> GeneratedBench:
    """The videos with their tokens; in a worker they are there already."""
    kind: Any = RealBench if isinstance(experiment, RealExperiment) else GeneratedBench
    bench: GeneratedBench = kind(work, experiment, **options)
    return bench


# In a worker -------------------------------------------------------------------------------------------------------

_worker: dict[str, Any] = {}


def start_worker(work: Path, experiment: GeneratedExperiment, every: Sequence[int], device: str) -> None:
    """Open the videos; training tokens go to the device whole, as reading them piece by piece takes longer than
    training does."""
    torch.set_num_threads(1)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    try:
        bench = bench_of(work, experiment, rates=every, device=device)
        runner = bench.runner(TABLES["rivals"], seeds=(0,))
        runner.cache(bench.stores[OWN_EVERY]).preload(video.name for video in bench.dataset.split("train"))
        _worker["runner"] = runner
    except Exception as error:  # a pool starts workers anew for ever if one does not start
        _worker["broken"] = error


def end_with(parent: int) -> None:
    """End when the main process was killed: a second call would find this one's run folders in use."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def work_on(job: Job) -> Outcome | str:
    """Train and evaluate one run; what it found, or why there is nothing."""
    try:
        if "broken" in _worker:
            raise RuntimeError(f"the worker did not start: {_worker['broken']}")
        runner: TableRunner = _worker["runner"]
        source = runner.find_source(job.recipe, job.recipe.dataset)
        assert isinstance(source, Source), source
        folder = runner.trained(job.recipe, source, job.seed)
        found = {spec.label: runner.evaluated(folder, spec, source).rows for spec in job.specs}
        done = json.loads((folder / DONE).read_text())
        rows = {label: tuple(replace(row, density=()) for row in one) for label, one in found.items()}
        return Outcome(rows, done.get("val_mae"), done["train_seconds"], runner.value("M parameters", (), folder))
    except Exception as error:  # a run that fails must not end the others
        return f"{type(error).__name__}: {error}"


# In the main process -----------------------------------------------------------------------------------------------


def work_through(
    options: argparse.Namespace, which: Which, pool: Any, bench: GeneratedBench, results: Results, began: float
) -> str:
    """Give the workers whatever can be run next, and write the tables of what is there; their last text."""
    deadline = began + 60 * options.minutes
    untrained = untrained_rows(bench) if which.wants("rivals") else []
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    running: dict[Job, tuple[float, Any]] = {}
    tries: Counter[Job] = Counter()
    longest = reported = 0.0
    most = options.workers

    def keep() -> str:
        minutes = (time.time() - began) / 60
        about = f"{minutes:.1f} minutes, {options.workers} runs side by side on {machine}; torch {torch.__version__}"
        text = report(results, bench, which, about=about, untrained=untrained)
        write_text(options.out / "tables.md", text)
        return text

    while True:
        for job in ready(results, options.batch, which):
            if len(running) >= most or time.time() + longest > deadline:
                break
            if job not in running:
                running[job] = time.time(), pool.apply_async(work_on, (job,))
        done = [job for job, (_, answer) in running.items() if answer.ready()]
        if not running or time.time() > deadline + PATIENCE:
            break
        for job in done:
            since, answer = running.pop(job)
            found = answer.get()
            if isinstance(found, Outcome):
                results.add(job, found)
                longest = max(longest, time.time() - since)
                text = f"{time.time() - since:.0f} s, validation MAE {found.val_mae}"
            elif found.startswith("OutOfMemoryError") and running:
                most, text = len(running), f"{found}; from now on {len(running)} run side by side"
            else:
                tries[job] += 1
                text = found
                if tries[job] == TRIES:
                    results.given_up.add(job)
            say(began, f"{len(results.known)} runs; {job.recipe.changes} seed {job.seed}: {text}")
        if time.time() - reported > REPORT_EVERY:
            keep()
            reported = time.time()
        if not done:
            time.sleep(0.2)
    say(began, f"{len(results.known)} runs done, {len(running)} given up")
    return keep()


def say(began: float, text: str) -> None:
    print(f"{time.time() - began:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
