"""Where a step of training from pixels spends its time on one GPU, and whether a change kept pictures and losses.

    python benchmarks/pixel_training.py --out DIR [--before OTHER/pixels.json] [--steps 100] [--workers 12] [--quick]

Trains the default model on generated repetitions of drawn clips and drawn motion: no file is needed. Writes
pixels.json (all figures, a hash of every video of some batches, the losses of the first 50 steps), operators.txt
(what torch's profiler saw) and host.txt (what Python's saw of a render). --before compares hashes and losses with
those of an earlier run on the same machine.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import io
import json
import os
import pstats
import resource
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from escounts.nn.network import LITE, LITE_TINY, Network
from escounts.research.training.objective import Objective, RateObjectiveConfig
from escounts.research.training.optimisation import learning_rate, synthetic_recipe
from escounts.research.training.pixels import PixelConfig, PixelTask
from escounts.research.training.trainer import Trainer
from escounts.synthetic import ClipBank, Generator, GeneratorConfig, MotionBank
from escounts.synthetic.exercises import CYCLES, THERE_AND_BACK, exercise_poses

RECIPE = GeneratorConfig(dark=0.25, irregular=0.18, negative_once=12.0, squeeze=0.15, flash=0.1)
"""As a run of the shipped model had it: every part of the renderer is used."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    clips, motion = drawn_clips(8 if options.quick else 60), drawn_motion()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
    }
    tasks = Tasks(clips, motion, options)
    started = time.perf_counter()
    for name, part in (
        ("hashes", lambda: hashes(clips, motion, options)),
        ("plain_steps", lambda: steps_per_second(tasks, options, compiled=False)),
        ("compiled_steps", lambda: steps_per_second(tasks, options, compiled=True)),
        ("render", lambda: render_alone(tasks, options)),
        ("step_alone", lambda: step_alone(tasks, options)),
        ("captured", lambda: captured(tasks)),
        ("busy", lambda: busy(tasks, options)),
        ("probes", lambda: probes(options)),
    ):
        try:
            result[name] = part()
        except Exception:  # one part that fails must not cost the others their lent minute
            result[name] = traceback.format_exc()
        print(f"{time.perf_counter() - started:6.1f} s  {name}", flush=True)
        (options.out / "pixels.json").write_text(json.dumps(result, indent=1) + "\n")
    show(result)
    if options.before:
        compare(json.loads(options.before.read_text()), result)


def drawn_clips(number: int, frames: int = 96, size: int = 144) -> ClipBank:
    """Textures with soft balls that circle, swing or pass; made by numpy alone, so that no renderer decides them."""
    rows, columns = np.mgrid[0:size, 0:size].astype(np.float32) / size
    clips = []
    for index in range(number):
        rng = np.random.default_rng((7, index))
        coarse = np.kron(rng.uniform(20, 220, (9, 9, 3)), np.ones((16, 16, 1)))
        texture = np.clip(coarse + rng.normal(0, 8, coarse.shape), 0, 255).astype(np.float32)
        turn = np.arange(frames) / rng.uniform(8, 40) * 2 * np.pi
        way = [np.arange(frames) / frames - 0.5, 0.3 * np.sin(turn), 0.25 * np.cos(turn)]
        colour, reach = rng.uniform(0, 255, 3).astype(np.float32), rng.uniform(0.02, 0.15)
        x, y = 0.5 + way[index % 3], 0.5 + way[(index // 3) % 3]
        far = (columns - x[:, None, None]) ** 2 + (rows - y[:, None, None]) ** 2
        cover = np.exp(-far / (2 * reach**2)).astype(np.float32)[..., None]
        clips.append((texture * (1 - cover) + colour * cover).astype(np.uint8))
    offsets = [frames * index for index in range(number + 1)]
    return ClipBank(np.concatenate(clips), offsets, [f"drawn/{index}" for index in range(number)])


def drawn_motion(frames: int = 90) -> MotionBank:
    """Every parametric exercise at two tempi, with a walk over the floor."""
    tracks, names = [], []
    for tempo in (14.0, 27.0):
        for name in (*THERE_AND_BACK, *CYCLES):
            phase = np.arange(frames) / tempo
            along = phase % 1.0 if name in CYCLES else 0.5 - 0.5 * np.cos(2 * np.pi * phase)
            track = exercise_poses(name, along)
            track[:, :, 2] += 0.004 * np.arange(frames)[:, None]
            tracks.append(track)
            names.append("walk" if name == "run" else name)
    offsets = [frames * index for index in range(len(tracks) + 1)]
    return MotionBank(np.concatenate(tracks).astype(np.float32), offsets, [str(n) for n in range(len(names))], names)


class Tasks:
    """The training task, begun anew, with worker processes that were forked before the GPU was used."""

    def __init__(self, clips: ClipBank, motion: MotionBank, options: argparse.Namespace) -> None:
        generator = Generator(RECIPE, clips=clips, motion=motion, seed=1)
        config = PixelConfig(lengths=(16, 32)) if options.quick else PixelConfig()
        self.task = PixelTask(
            generator, generator, batch_size=2 if options.quick else 24, seed=1, device=DEVICE, config=config,
            workers=options.workers, size=64 if options.quick else 128,
        )  # fmt: skip


def trainer_of(task: PixelTask, *, compiled: bool = False) -> Trainer:
    torch.manual_seed(1)
    network = Network(LITE_TINY if task.size == 64 else LITE)
    if DEVICE.type == "cuda":
        network.encoder.to(memory_format=torch.channels_last)
    if compiled and DEVICE.type == "cuda":
        network.encoder.compile_frame_stage()
    config = synthetic_recipe(steps=1000, warmup_steps=20)
    out = Path(tempfile.mkdtemp())
    return Trainer(config, network, task, Objective(RateObjectiveConfig()), out, save=lambda *_: None, device=DEVICE)


def run(trainer: Trainer, steps: range) -> list[Tensor]:
    """Train as the trainer's loop does; the losses, still on the device."""
    losses = []
    for step in steps:
        rate = learning_rate(trainer.config, step=step, epoch=0, progress=step / 1000)
        for group in trainer.optimiser.param_groups:
            group["lr"] = rate
        torch.manual_seed(step)
        losses.append(trainer.gradients(trainer.task.batch(step, 0, 1))["loss"].detach().clone())
        trainer.update()
        trainer.step += 1
    return losses


def steps_per_second(tasks: Tasks, options: argparse.Namespace, *, compiled: bool) -> dict[str, Any]:
    """Steps a second after the first 50, with all that a step needs; the losses of the first 50."""
    trainer = trainer_of(tasks.task, compiled=compiled)
    first = 3 if options.quick else 50
    began = time.perf_counter()
    losses = torch.stack(run(trainer, range(first))).tolist()
    first_seconds = time.perf_counter() - began
    steps = 3 if options.quick else options.steps
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    began = time.perf_counter()
    # One read at the end: nothing else waits for the device.
    float(run(trainer, range(first, first + steps))[-1])
    seconds = time.perf_counter() - began
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "steps_per_second": steps / seconds,
        "first_seconds": first_seconds,
        "own_processor_share": (own.ru_utime + own.ru_stime - usage[0].ru_utime - usage[0].ru_stime) / seconds,
        "load": os.getloadavg()[0],
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if DEVICE.type == "cuda" else 0.0,
        "losses": losses,
    }


def render_alone(tasks: Tasks, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a batch: drawing plans in this process, building a batch of drawn plans; what Python does."""
    task = tasks.task
    steps = range(2 if options.quick else 10)
    began = time.perf_counter()
    plans = [task.generator.plans(*task._request(5000 + step, 0, 1)) for step in steps]
    planning = time.perf_counter() - began
    kinds: dict[str, list[float]] = {"issuing": [], "until done": []}
    pixels: list[float] = []

    def build(step: int) -> None:
        rng = np.random.default_rng(step)
        _wait()
        began = time.perf_counter()
        task._make(task.generator, plans[step], rng, shots=None)
        kinds["issuing"].append(time.perf_counter() - began)
        _wait()
        kinds["until done"].append(time.perf_counter() - began)
        began = time.perf_counter()
        task.generator.render(plans[step], device=DEVICE)
        _wait()
        pixels.append(time.perf_counter() - began)

    for _ in range(2):  # the second time everything is compiled and chosen
        for values in (*kinds.values(), pixels):
            values.clear()
        for step in steps:
            build(step)
    recorder = cProfile.Profile()
    recorder.enable()
    for step in steps:
        task._make(task.generator, plans[step], np.random.default_rng(step), shots=None)
        _wait()
    recorder.disable()
    text = io.StringIO()
    for order in ("tottime", "cumtime"):
        pstats.Stats(recorder, stream=text).sort_stats(order).print_stats(45)
    (options.out / "host.txt").write_text(text.getvalue())
    return {
        "planning_ms": 1e3 * planning / len(steps),
        **{f"batch_{name}_ms": 1e3 * float(np.mean(values)) for name, values in kinds.items()},
        "pixels_until_done_ms": 1e3 * float(np.mean(pixels)),
        "videos": float(np.mean([len(each) for each in plans])),
    }


def step_alone(tasks: Tasks, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of forward and backward, and of the update, of batches that are there; by length."""
    task = tasks.task
    batches = {}
    for step in range(200):
        length = task._request(step, 0, 1)[2]
        if length not in batches:
            batches[length] = task._build(step, 0, 1)
    times: dict[str, Any] = {}
    for compiled in (False, True):
        trainer = trainer_of(task, compiled=compiled)
        for length, batch in sorted(batches.items()):
            parts: dict[str, list[float]] = {"issuing": [], "gradients": [], "update issuing": [], "update": []}
            for _ in range(3 if options.quick else 8):
                _wait()
                began = time.perf_counter()
                trainer.gradients(batch)
                parts["issuing"].append(time.perf_counter() - began)
                _wait()
                parts["gradients"].append(time.perf_counter() - began)
                began = time.perf_counter()
                trainer.update()
                parts["update issuing"].append(time.perf_counter() - began)
                _wait()
                parts["update"].append(time.perf_counter() - began)
            name = f"{length} frames, {'compiled' if compiled else 'plain'}"
            times[name] = {part: 1e3 * float(np.median(values[2:])) for part, values in parts.items()}
    return times


def busy(tasks: Tasks, options: argparse.Namespace) -> dict[str, Any]:
    """What the GPU does in some steps of the loop: share of the time a kernel runs, launches, top kernels."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if DEVICE.type == "cuda" else [])
    figures: dict[str, Any] = {}
    texts = []
    number = 2 if options.quick else 4
    loops: dict[str, Callable[[], Any]] = {}
    for compiled in (False, True):
        trainer = trainer_of(tasks.task, compiled=compiled)
        run(trainer, range(4))
        name = "compiled" if compiled else "plain"
        loops[f"{name} loop"] = lambda trainer=trainer: run(trainer, range(4, 4 + number))
        batch = tasks.task._build(3, 0, 1)
        loops[f"{name} step alone"] = lambda trainer=trainer, batch=batch: [
            (trainer.gradients(batch), trainer.update()) for _ in range(number)
        ]
    loops["render alone"] = lambda: [tasks.task._build(100 + step, 0, 1) for step in range(number)]
    for name, loop in loops.items():
        _wait()
        with profile(activities=activities) as profiler:
            began = time.perf_counter()
            loop()
            _wait()
            seconds = time.perf_counter() - began
        seen = profiler.events()
        events = [event for event in seen if event.device_type == DeviceType.CUDA]
        spans = sorted((event.time_range.start, event.time_range.end) for event in events)
        figures[name] = {
            "ms_profiled": 1e3 * seconds / number,
            "launches": len(events) / number,
            "kernel_ms": sum(end - start for start, end in spans) / 1e3 / number,
            "busy_ms": _union(spans) / 1e3 / number,
            "copies": sum("Memcpy" in event.name for event in events) / number,
            "operators": sum(event.name.startswith("aten::") for event in seen) / number,
        }
        for key in ["self_cuda_time_total"] * (DEVICE.type == "cuda") + ["self_cpu_time_total"]:
            table = profiler.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=90)
            texts.append(f"==== {name}, {number} steps, by {key}\n{table}")
    (options.out / "operators.txt").write_text("\n".join(texts))
    return figures


def captured(tasks: Tasks) -> dict[str, Any]:
    """Milliseconds of forward and backward replayed from a CUDA graph, or why they cannot be captured."""
    found: dict[str, Any] = {}
    if DEVICE.type != "cuda":
        return found
    for compiled in (True, False):
        trainer = trainer_of(tasks.task, compiled=compiled)
        batch = tasks.task._build(3, 0, 1)
        name = "compiled" if compiled else "plain"
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    trainer.gradients(batch)
            torch.cuda.current_stream().wait_stream(side)
            _wait()
            trainer.optimiser.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                losses = trainer.gradients(batch)
            graph.replay()
            eager = float(trainer_of(tasks.task, compiled=compiled).gradients(batch)["loss"])
            found[f"{name}, loss replayed and eager"] = [float(losses["loss"]), eager]
            _wait()
            began = time.perf_counter()
            for _ in range(10):
                graph.replay()
            issued = time.perf_counter() - began
            _wait()
            found[f"{name}, replay"] = {"issuing": 100 * issued, "ms": 100 * (time.perf_counter() - began)}
        except Exception:  # what cannot be captured is the answer
            found[f"{name}, not captured"] = traceback.format_exc()
    return found


def _union(spans: list[tuple[float, float]]) -> float:
    total, until = 0.0, 0.0
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def hashes(clips: ClipBank, motion: MotionBank, options: argparse.Namespace) -> dict[str, str]:
    """A hash of every video of batches of every length, of several seeds and recipes."""
    recipes = {
        "own": GeneratorConfig(),
        "run": RECIPE,
        "all": GeneratorConfig(squeeze=0.5, flash=0.5, blur=1.0, hold=0.5, soft=0.6, overlay=0.6),
    }
    found = {}
    for name, recipe in recipes.items():
        for seed in range(1 if options.quick else 3):
            generator = Generator(recipe, clips=clips, motion=motion, seed=seed)
            for index, (videos, length) in enumerate([(4, 16)] if options.quick else SIZES):
                plans = generator.plans(index, videos, length)
                with torch.autocast(DEVICE.type, enabled=False):
                    batch = generator.render(plans, device=DEVICE)
                for row, frames in enumerate(batch.frames_BTCHW.cpu().numpy()):
                    digest = hashlib.sha256(frames.tobytes()).hexdigest()[:16]
                    found[f"{name} {seed} {length} {row} {plans[row].kind}"] = digest
    return found


SIZES = ((24, 128), (48, 64), (64, 48))


def probes(options: argparse.Namespace) -> dict[str, Any]:
    """Whether operators on many videos give each video the bytes it has alone."""
    found: dict[str, Any] = {}
    torch.manual_seed(0)
    moments = 96 if options.quick else 3072
    lens = (torch.eye(2, 3, device=DEVICE) + 0.3 * torch.randn(moments, 2, 3, device=DEVICE)).contiguous()
    at = ((torch.arange(128, device=DEVICE) + 0.5) * 2 / 128 - 1).float()
    gx, gy = at[None, None, :, None], at[None, :, None, None]
    mx, my, shift = (lens[:, None, None, :, k] for k in range(3))
    gx_all, my_all = gx.expand(1, 128, 128, 1), my.expand(-1, 128, 128, -1)
    gy_all = gy.expand(1, 128, 128, 1)
    for tf32 in (True, False):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        shape = [3, 128, 128]
        whole = F.affine_grid(lens, [moments, *shape], align_corners=False)
        grids = {
            f"pieces of {piece}": torch.cat(
                [F.affine_grid(part, [len(part), *shape], align_corners=False) for part in lens.split(piece)]
            )
            for piece in (48, 64, 96, 128, 384)
        }
        grids["x, y, shift, each rounded"] = mx * gx + my * gy + shift
        grids["fused, y before x"] = torch.addcmul(torch.addcmul(shift, my, gy_all), mx, gx_all)
        grids["fused, x before y"] = torch.addcmul(torch.addcmul(shift, mx, gx_all), my, gy_all)
        grids["fused y on x, shift last"] = torch.addcmul(mx * gx, my_all, gy_all) + shift
        for name, grid in grids.items():
            found[f"affine_grid, tf32 {tf32}, {name}"] = {
                "same": bool(torch.equal(whole, grid)),
                "same as half": bool(torch.equal(whole.half(), grid.half())),
                "largest difference": float((whole - grid).abs().max()),
            }
    torch.backends.cuda.matmul.allow_tf32 = True
    real = torch.float16 if DEVICE.type == "cuda" else torch.float32
    pictures = torch.randint(0, 256, (8, 64, 3, 128, 128), device=DEVICE).to(real)
    blocks = pictures.view(8 * 8, 8, 3, 16, 8, 16, 8)[:, 0]
    basis = torch.randn(8, 8, device=DEVICE).to(real)
    whole = torch.einsum("ij,gchjwk,lk->gchiwl", basis, blocks, basis)
    parts = torch.cat([torch.einsum("ij,gchjwk,lk->gchiwl", basis, c, basis) for c in blocks.split(8)])
    found["einsum of blocks, 8 groups at once or 64"] = bool(torch.equal(whole, parts))
    means = pictures[:, ::16].float().mean((1, 3, 4), keepdim=True)
    alone = torch.cat([p[:, ::16].float().mean((1, 3, 4), keepdim=True) for p in pictures.split(1)])
    found["mean of a video among 8 or alone"] = bool(torch.equal(means, alone))
    soft = torch.cat([F.avg_pool2d(p, 3, 1, 1, count_include_pad=False) for p in pictures])
    found["avg_pool2d of 8 videos or of each"] = bool(
        torch.equal(soft, F.avg_pool2d(pictures.flatten(0, 1), 3, 1, 1, count_include_pad=False))
    )
    return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Print whether videos and losses stayed what they were."""
    same = [name for name, digest in before["hashes"].items() if after["hashes"].get(name) == digest]
    print(f"\nvideos with the same bytes as before: {len(same)} of {len(before['hashes'])}")
    for name in [name for name in before["hashes"] if name not in same][:20]:
        print("  differs:", name)
    for name in ("plain_steps", "compiled_steps"):
        one, other = (np.array(each[name]["losses"]) for each in (before, after))
        print(f"{name}: losses of {len(one)} steps differ by {np.abs(one - other).mean() / one.mean():.2%} on "
              f"average, {np.abs(one / other - 1).max():.2%} at most; {before[name]['steps_per_second']:.1f} -> "
              f"{after[name]['steps_per_second']:.1f} steps a second")  # fmt: skip


def show(result: dict[str, Any]) -> None:
    for name, part in result.items():
        if isinstance(part, dict):
            print(f"\n{name}")
            for key, value in list(part.items())[: 6 if name == "hashes" else None]:
                if key != "losses":
                    print(f"  {key:50s} {_short(value)}")
        else:
            print(name, part)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_short(each)}" for name, each in value.items())
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for pixels.json, operators.txt, host.txt")
    parser.add_argument("--before", type=Path, help="pixels.json of an earlier run on the same machine")
    parser.add_argument("--steps", type=int, default=50, help="timed steps, each way")
    parser.add_argument("--workers", type=int, default=12, help="processes that draw plans")
    parser.add_argument("--quick", action="store_true", help="a minute on a CPU: shows that it runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
