"""Rivals and ablations on generated repetitions or on real clips, many small runs side by side on one GPU.

    python -m paper.sweep --out DIR [--minutes 18] [--workers 12] [--seeds 3] [--tiny] [--clips TABLE]
                                           [--rivals | --ablations] [--head rate] [--lr 6e-4] [--held-out 900]
    python -m paper.sweep --out DIR --report

Draws the set straight into tokens (no video decoder is needed), measures how many steps of which batch fit into the
minutes, chooses each method's learning rate on validation videos, then trains every row of the rivals' table with all
seeds, and of Tables 3a to 3g, L, L', windows and sampling seed by seed, with the code of `python -m paper table`. DIR
gets four small files: plan.json, runs.jsonl (a line for every run, at once), tables.md (anew every two minutes) and
what was printed. Called again with the same DIR and --work it goes on. No run is begun that
would not end within the minutes. --rivals: that table alone; --ablations: all but that one, with --head rate also
without 3e and 3g, which are about the map. --clips: on the real clips of a table of sets (see `paper/real.py`), with
two tables more: what clips teach, and the paper's Table 4. --report: only print the tables of a DIR.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from escounts.research.datasets.stores import OWN_EVERY
from escounts.research.training.batches import TokenCache
from escounts.research.training.recipes import Recipe
from escounts.system.atomic_files import write_text
from paper.generated import FULL_EXPERIMENT, GeneratedBench, GeneratedExperiment
from paper.generated import RATES as SAMPLED
from paper.real import TABLE_CLIPS, RealBench, RealExperiment, keep_decoders, real_experiment
from paper.runs import Source, TableRunner
from paper.sweep_runs import RATES, Job, Results, Which, chosen_rates, jobs_of, report, tables, trials, untrained_rows
from paper.tables import TABLE_RIVALS

MPS_FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
BATCHES, TINY_BATCHES = (24, 48, 96), (2, 4)
"""Videos of a step that are tried. A small network takes hardly longer over more of them; the one is taken that moves
the weights furthest in a given time, if a step may be as long as the root of its batch is large."""
PROBE_STEPS, WARM_STEPS = 40, 20
SHARE = 0.85
"""Of the workers' time that is planned: some rows are dearer than the reference, and the last runs end one by one."""
OVERHEAD = 6.0
"""Seconds of a run besides its steps: building, validation, evaluation, files."""
ROOM = 0.8
"""Of a worker's memory that the reference may take; some rows take more, and one that does not fit is lost."""
COST = {"repnet": 0.6, "transrac": 0.5}
"""A step of these, in steps of the reference."""
FEWEST, MOST = 200, 4000
REPORT_EVERY, PATIENCE = 120.0, 60.0
"""Seconds between reports; and over the minutes that the last runs are waited for."""
TRIES = 2
"""How often a run may fail."""


def main() -> None:
    options = arguments()
    experiment: GeneratedExperiment = real_experiment(options.clips) if options.clips else FULL_EXPERIMENT
    if options.tiny:
        experiment = tiny(experiment)
    if options.held_out:
        experiment = replace(experiment, what=replace(experiment.what, test=options.held_out))
    if options.report:
        plan = json.loads((options.out / "plan.json").read_text())
        print(text_of(options, Results(options.out), planned_experiment(experiment, plan), plan))
        return
    began = time.time()
    deadline = began + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        start_mps(options.work)
    every = (OWN_EVERY,) if options.rivals or options.clips else SAMPLED
    bench = bench_of(options.work, experiment, rates=every, device=device, workers=options.workers)
    say(began, f"{len(bench.dataset.videos)} videos drawn and encoded on {device}")
    context = multiprocessing.get_context("spawn")
    told = (options.work, experiment, every, device, options.memory / options.workers)
    with context.Pool(options.workers, start_worker, told) as pool:
        plan = planned(options, pool, experiment, deadline, began)
        if options.clips:
            plan["videos"] = [len(bench.dataset.split(part)) for part in ("train", "test")]
        if "untrained" not in plan and not options.ablations:
            plan["untrained"] = untrained_rows(bench)
        experiment = planned_experiment(experiment, plan)
        work_through(options, pool, experiment, plan, deadline, began)
    if options.clips:
        bench.experiment = experiment
        results, wanted = Results(options.out), which(options)
        rates, _ = chosen_rates(results, plan["batch"], wanted)
        for table in tables(rates, wanted):
            if table.name == TABLE_CLIPS.name:
                keep_decoders(
                    bench, table, lambda recipe, seed: error_of(results, recipe, seed), options.out / "kept"
                )
    print((options.out / "tables.md").read_text(), flush=True)


def error_of(results: Results, recipe: Recipe, seed: int) -> float | None:
    found = results.of(Job(recipe, seed, ()))
    return None if found is None else found["val_mae"]


def bench_of(work: Path, experiment: GeneratedExperiment, **options: Any) -> GeneratedBench:
    """The videos with their tokens; in a worker they are there already."""
    kind: Any = RealBench if isinstance(experiment, RealExperiment) else GeneratedBench
    bench: GeneratedBench = kind(work, experiment, **options)
    return bench


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="plan, results run by run, tables")
    place = Path(tempfile.gettempdir()) / "escounts-generated"
    parser.add_argument("--work", type=Path, default=place, help="tokens and weights")
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--memory", type=float, default=0.6, help="share of the GPU's memory for all workers")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of every run (default: as many as the minutes allow)")
    parser.add_argument("--batch", type=int, help="videos of a step (default: measured)")
    parser.add_argument("--clips", type=Path, help="a table of sets beside its clips, such as pool_labels.csv")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--rivals", action="store_true", help="the rivals' table alone")
    only.add_argument("--ablations", action="store_true", help="the ablations alone, of the head that is asked for")
    parser.add_argument("--lr", type=float, help="of every run (default: each method's is chosen by trials)")
    parser.add_argument("--held-out", type=int, help="test videos (default: 300; the first ones stay the same)")
    parser.add_argument(
        "--head", choices=["density", "rate"], default="density", help="of ablations that are not about the map"
    )
    parser.add_argument("--tiny", action="store_true", help="a few videos and steps: does it run at all?")
    parser.add_argument("--report", action="store_true", help="run nothing; print the tables of what is there")
    return parser.parse_args()


def tiny(experiment: GeneratedExperiment) -> GeneratedExperiment:
    """The same at a size that a busy CPU gets through."""
    what = replace(experiment.what, train=12, valid=3, test=4, seconds=(8.0, 8.0), calm=True)
    scale = replace(experiment.scale, channels=16, heads=2)
    return replace(experiment, what=what, scale=scale)


def planned_experiment(experiment: GeneratedExperiment, plan: dict[str, Any]) -> GeneratedExperiment:
    return sized(experiment, plan["steps"], plan["batch"])


def sized(experiment: GeneratedExperiment, steps: int, batch: int) -> GeneratedExperiment:
    train = replace(experiment.scale.train, steps=steps, batch_size=batch, warmup_steps=min(100, steps // 10))
    return replace(experiment, scale=replace(experiment.scale, train=train))


def start_mps(work: Path) -> None:
    """NVIDIA's service that lets kernels of several processes run at once, where it is installed. One that the
    environment names is used as it is."""
    if MPS_FOLDERS[0] in os.environ:
        print(f"MPS: the service at {os.environ[MPS_FOLDERS[0]]}", flush=True)
        return
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


def start_worker(work: Path, experiment: GeneratedExperiment, every: Sequence[int], device: str, room: float) -> None:
    """room: share of the device's memory that this worker may take."""
    torch.set_num_threads(1)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    _worker["room"] = room
    try:
        if device == "cuda":
            torch.cuda.set_per_process_memory_fraction(room)
        _worker["bench"] = bench_of(work, experiment, rates=every, device=device)
        _worker["caches"] = {}
        with_tokens(OWN_EVERY)
    except Exception as error:  # a pool starts workers anew for ever if one does not start
        _worker["broken"] = error


def end_with(parent: int) -> None:
    """End when the main process was killed: a second call would find this one's run folders in use."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def with_tokens(every: int) -> None:
    """Tokens stay on the device from run to run; reading them piece by piece took longer than training."""
    if "broken" in _worker:
        raise RuntimeError(f"the worker did not start: {_worker['broken']}")
    bench: GeneratedBench = _worker["bench"]
    kept = {bench.stores[own].path for own in (OWN_EVERY, every)}
    caches = _worker["caches"] = {path: cache for path, cache in _worker["caches"].items() if path in kept}
    store = bench.stores[every]
    if store.path not in caches:
        caches[store.path] = TokenCache(store, torch.device(bench.device))
        caches[store.path].preload(video.name for video in bench.dataset.split("train"))


def probe(asked: GeneratedExperiment) -> tuple[float, float]:
    """Seconds of a step of the reference while every worker does the same, and the share of its memory it takes."""
    with_tokens(OWN_EVERY)
    runner = runner_of(asked, Path(f"probe-{os.getpid()}"))
    marks: list[tuple[int, float]] = []
    runner.report = lambda step, total, figures: marks.append((step, time.perf_counter()))
    source = runner.find_source(Recipe(), "repcount")
    assert isinstance(source, Source)
    try:
        runner.trained(Recipe(), source, 0)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return float("inf"), float("inf")
    finally:
        shutil.rmtree(runner.out, ignore_errors=True)
    # The last report waits for the validation and is left out.
    (first, began), (last, ended) = marks[0], marks[-2]
    full = 0.0
    if torch.cuda.is_available():
        full = torch.cuda.max_memory_allocated() / (_worker["room"] * torch.cuda.mem_get_info()[1])
    return (ended - began) / (last - first), full


def work_on(experiment: GeneratedExperiment, job: Job) -> dict[str, Any]:
    """Train and evaluate one run; what it found, or why there is nothing."""
    about = {"key": job.key, "recipe": job.recipe.changes, "seed": job.seed}
    began = time.perf_counter()
    try:
        with_tokens(job.recipe.every)
        runner = runner_of(experiment)
        source = runner.find_source(job.recipe, job.recipe.dataset)
        assert isinstance(source, Source), source
        folder = runner.trained(job.recipe, source, job.seed)
        found = {spec.label: runner.evaluated(folder, spec, source) for spec in job.specs}
        done = json.loads((folder / "done.json").read_text())
        rows = next(iter(found.values())).rows
        return about | {
            "truth": [row.count for row in rows],
            "sources": [_worker["bench"].sources.get(row.name, row.name) for row in rows],
            "counted": {label: [round(row.predicted, 4) for row in one.rows] for label, one in found.items()},
            "coverage": next(iter(found.values())).coverage.short,
            "val_mae": done.get("val_mae"),
            "train_seconds": done["train_seconds"],
            "seconds": round(time.perf_counter() - began, 2),
            "million_parameters": runner._value("M parameters", (), folder),
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


def planned(
    options: argparse.Namespace, pool: Any, experiment: GeneratedExperiment, deadline: float, began: float
) -> dict[str, Any]:
    """Steps and batch of every run: what fits, measured while all workers train; kept: a second call must agree."""
    path = options.out / "plan.json"
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept
    sizes = (options.batch,) if options.batch else TINY_BATCHES if options.tiny else BATCHES
    if options.steps:
        return {"steps": options.steps, "batch": sizes[0], "minutes": 0.0}
    seconds: dict[int, float] = {}
    for batch in sizes:
        one = sized(experiment, WARM_STEPS + PROBE_STEPS + 1, batch)
        found = pool.map(probe, [one] * options.workers, chunksize=1)
        seconds[batch], full = (max(values) for values in zip(*found, strict=True))
        say(began, f"{1000 * seconds[batch]:.1f} ms for a step of {batch} videos while {options.workers} work, "
                   f"{100 * full:.0f} % of a worker's memory")  # fmt: skip
        if full > ROOM:
            del seconds[batch]
            break
    batch = min(seconds, key=lambda size: seconds[size] / size**0.5)
    jobs = list(jobs_of(tables({}, which(options)), options.seeds))
    more = trials(batch, which(options))[:: len(RATES)] * (
        len(RATES) - 1
    )  # of each method's trials one is a row's own run
    costs = sum(COST.get(job.method, 1.0) for job in (*jobs, *more))
    time_left = SHARE * (deadline - time.time()) * options.workers - OVERHEAD * len((*jobs, *more))
    fitting = max(time_left, 0.0) / (costs * seconds[batch])
    steps = int(np.clip(fitting // 50 * 50, FEWEST, MOST))
    say(began, f"{len((*jobs, *more))} runs of {steps} steps of {batch} videos")
    return {"steps": steps, "batch": batch, "seconds_per_step": seconds, "minutes": 0.0}


def work_through(
    options: argparse.Namespace,
    pool: Any,
    experiment: GeneratedExperiment,
    plan: dict[str, Any],
    deadline: float,
    began: float,
) -> None:
    """Give the workers whatever can be run next, and keep every result as it comes."""
    results, before = Results(options.out), plan["minutes"]
    running: list[tuple[Job, Any]] = []
    tries: Counter[tuple[str, int]] = Counter()
    took: list[float] = []
    reported = 0.0

    def keep() -> None:
        plan["minutes"] = round(before + (time.time() - began) / 60, 2)
        write_text(options.out / "plan.json", json.dumps(plan, indent=1) + "\n")
        write_text(options.out / "tables.md", text_of(options, results, experiment, plan))

    keep()
    while True:
        for job in ready(options, results, plan["batch"]):
            if len(running) >= options.workers or time.time() + max(took, default=0.0) > deadline:
                break
            if job not in (other for other, _ in running):
                running.append((job, pool.apply_async(work_on, (experiment, job))))
        done = [(job, answer) for job, answer in running if answer.ready()]
        if not running or time.time() > deadline + PATIENCE:
            break
        for job, answer in done:
            found = answer.get()
            if "error" in found:
                say(began, f"{found['recipe']} seed {job.seed}: {found['error']}")
                tries[job.key, len(job.specs)] += 1
                if tries[job.key, len(job.specs)] == TRIES:
                    results.give_up(job)
                continue
            results.add(found)
            took.append(found["seconds"])
            say(began, f"{len(results)} runs; {found['recipe']} seed {job.seed}: {found['seconds']:.0f} s, "
                       f"validation MAE {found['val_mae']}")  # fmt: skip
        running = [one for one in running if one not in done]
        if time.time() - reported > REPORT_EVERY:
            keep()
            reported = time.time()
        if not done:
            time.sleep(0.2)
    say(began, f"{len(results)} runs done, {len(running)} given up")
    keep()


def ready(options: argparse.Namespace, results: Results, batch: int) -> Iterator[Job]:
    """What can be run now, the most telling first: a method's rows wait for its learning rate, not for others'."""
    wanted = which(options)
    rates, _ = chosen_rates(results, batch, wanted)
    for job in (*trials(batch, wanted), *jobs_of(tables(rates, wanted), options.seeds)):
        if job.recipe.lr is not None and results.of(job) is None and job not in results.given_up:
            yield job


def text_of(
    options: argparse.Namespace, results: Results, experiment: GeneratedExperiment, plan: dict[str, Any]
) -> str:
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    plan.setdefault("machine", f"{options.workers} runs side by side on {machine}; torch {torch.__version__}")
    about = f"{plan['minutes']:.1f} minutes, {plan['machine']}"
    return report(results, experiment, plan, which(options), about=about)


def which(options: argparse.Namespace) -> Which:
    only: Literal["rivals", "ablations"] | None = "rivals" if options.rivals else None
    return Which(
        options.seeds, "ablations" if options.ablations else only, options.head, options.lr, bool(options.clips)
    )


def say(began: float, text: str) -> None:
    print(f"{time.time() - began:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
