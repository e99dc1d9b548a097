"""Training speed on one GPU, beside the paper's schedule written plainly, in one run.

    python benchmarks/training.py [--lengths lengths.json] [--out training.json] [--quick]
    python benchmarks/training.py --write-lengths lengths.json --annotations DIR

Both train the paper's decoder on stored tokens of RepCount-shaped lengths, from the same weights, on the same
videos in the same order. Plain: one video at a time, explicit softmax, float32, gradients summed over 8 videos.
Ours: the project's task and trainer as they are, videos batched by length and packed, fused attention, bf16.

Then, apart from the timed run, where a step's time goes: steps in which the device is waited for after every part,
the same with cuDNN's attention allowed, and three ways to attend in a batch of different lengths.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from escounts.nn.attention import attend
from escounts.nn.decoder import PAPER, Decoder
from escounts.nn.packing import Packing
from escounts.research.datasets.annotations import Dataset, VideoAnnotation
from escounts.research.datasets.tokens import TokenLayout, TokenStore, TokenWriter, VideoTokens
from escounts.research.training.objective import DensityObjectiveConfig, Objective
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.stored_tokens import StoredTokensConfig, StoredTokensTask
from escounts.research.training.trainer import KERNELS, Trainer

FPS, CELL_FRAMES = 30.0, 8
QUARTILES = (60, 315, 796, 1200, 2550)
"""Frames of the RepCount-A training videos at 0, 25, 50, 75 and 100 %; lengths are drawn between them when no
file of real lengths is given."""


def main() -> None:
    options = _options()
    if options.write_lengths:
        _write_lengths(options.annotations, options.write_lengths)
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    videos = 16 if options.quick else options.videos
    frames = _frames(options.lengths, videos)
    grid = (options.grid, options.grid)
    decoder = replace(PAPER, grid=grid) if device.type == "cuda" else replace(
        PAPER, grid=(2, 2), channels=64, latent_tokens=64, in_channels=64
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        store, dataset = _store(Path(folder) / "tokens", frames, decoder)
        result = compare(store, dataset, decoder, Path(folder), device, options)
    result["lengths"] = str(options.lengths.name if options.lengths else "drawn between the quartiles")
    _show(result)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def compare(
    store: TokenStore, dataset: Dataset, config: Any, folder: Path, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Both ways over the same steps, losses and speed."""
    steps, plain_steps = (16, 3) if options.quick else (options.steps, options.plain_steps)
    task = StoredTokensTask(store, dataset.split("train"), (), StoredTokensConfig(batch_size=8), device=device)
    _warm(task, steps)
    torch.manual_seed(0)
    first = Decoder(config).state_dict()
    plain = _plain(task, _decoder(config, first, device), plain_steps, device)
    ours = _ours(task, _decoder(config, first, device), steps, folder / "run", device)
    parts = _parts(task, _decoder(config, first, device), steps, folder / "parts", device)
    rate = _matrix_rate(device)
    flops = _flops_per_sample(task, _decoder(config, first, device), steps, device)
    pairs = np.array([plain["losses"], ours["losses"][:plain_steps]])
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "videos": len(store.entries),
        "mean_cells": float(np.mean([entry.cells for entry in store.entries.values()])),
        "plain_samples_per_second": plain["speed"],
        "ours_samples_per_second": ours["speed"],
        "times_faster": ours["speed"] / plain["speed"],
        "plain_peak_gb": plain["peak"],
        "ours_peak_gb": ours["peak"],
        "matrix_rate_tflops": rate / 1e12,
        "gflop_per_sample": flops / 1e9,
        "share_of_matrix_rate": flops * ours["speed"] / rate,
        "step_ms": 8e3 / ours["speed"],
        "parts_ms": parts,
        "attention_ms": _attention(task, steps),
        "loss_difference_mean": float(np.abs(pairs[0] - pairs[1]).mean() / pairs[0].mean()),
        "plain_losses": plain["losses"],
        "ours_losses": ours["losses"],
    }


def _ours(task: StoredTokensTask, decoder: Decoder, steps: int, out: Path, device: torch.device) -> dict[str, Any]:
    """The trainer as it is; the first steps, in which kernels are chosen, are not timed."""
    losses: list[float] = []
    times: list[tuple[int, float]] = []

    def report(step: int, total: int, figures: dict[str, float]) -> None:
        losses.append(figures["loss"])
        times.append((step, time.perf_counter()))

    train = TrainConfig(steps=steps, log_every=1, validate_every=10**9, checkpoint_every=10**9, clip=1e9)
    objective = Objective(DensityObjectiveConfig())
    trainer = Trainer(train, decoder, task, objective, out, save=lambda *_: None, device=device, report=report)
    _reset_peak(device)
    untimed = max(steps // 4, 1)
    trainer.fit(stop_at=untimed)
    first_losses = list(losses)
    times.clear()
    # As often as by default: a log waits for the device.
    trainer.config = replace(train, log_every=min(TrainConfig().log_every, max(1, (steps - untimed) // 3)))
    trainer.fit(resume=False)
    (start, began), (end, ended) = times[0], times[-1]
    return {"speed": 8 * (end - start) / (ended - began), "peak": _peak(device), "losses": first_losses}


def _parts(
    task: StoredTokensTask, decoder: Decoder, first: int, out: Path, device: torch.device, counted: int = 12
) -> dict[str, float]:
    """Milliseconds of a step's parts, each waited for; "issuing": the host's share of forward and backward.

    Steps are those after the timed ones: mostly new mixtures of lengths.
    """
    train, objective = TrainConfig(steps=10**9), Objective(DensityObjectiveConfig())
    trainer = Trainer(train, decoder, task, objective, out, save=lambda *_: None, device=device)
    spent: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        done = work()
        issued = time.perf_counter() - started
        _wait(device)
        spent.setdefault(name, []).append(time.perf_counter() - started)
        spent.setdefault(f"{name}, issuing", []).append(issued)
        return done

    def run(prefix: str, steps: range) -> None:
        for step in steps:
            batch = timed(f"{prefix}batch", lambda step=step: task.batch(step, 0, 1))
            timed(f"{prefix}forward and backward", lambda batch=batch: trainer.gradients(batch))
            timed(f"{prefix}optimiser", trainer.update)

    warm = 4
    run("warm-up: ", range(first, first + warm))
    run("", range(first + warm, first + warm + counted))
    if device.type == "cuda":
        KERNELS.insert(0, SDPBackend.CUDNN_ATTENTION)
        try:
            run("cuDNN allowed: ", range(first + warm + counted, first + warm + 2 * counted))
        finally:
            KERNELS.remove(SDPBackend.CUDNN_ATTENTION)
    wanted = {name: times for name, times in spent.items() if not name.startswith("warm-up")}
    return {name: 1e3 * float(np.mean(times)) for name, times in wanted.items()}


def _attention(task: StoredTokensTask, step: int, heads: int = 8, width: int = 64) -> dict[str, float]:
    """Milliseconds of one self-attention over a batch of different lengths, forward and backward, in three ways."""
    device = task.device
    batch = next(b for b in map(task.read, range(step, step + 99)) if b.valid_BT is not None)
    cells, (longest, *grid) = batch.lengths, batch.tokens_BTHWC.shape[1:4]
    packing = Packing.of(cells, longest, grid[0] * grid[1], device)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = (1, sum(packing.tokens), 3, heads, width)
    qkv = torch.randn(shape, device=device, dtype=kind, requires_grad=True)
    most = max(packing.tokens)
    padded = torch.randn(len(cells), *[most, *shape[2:]], device=device, dtype=kind, requires_grad=True)
    valid = (torch.arange(most) < torch.tensor(packing.tokens)[:, None])[:, None, None].to(device)

    def masked() -> Tensor:
        return F.scaled_dot_product_attention(*padded.permute(2, 0, 3, 1, 4), attn_mask=valid)

    def packed() -> Tensor:
        return attend(*qkv.permute(2, 0, 3, 1, 4), packing)

    def one_by_one() -> Tensor:
        return attend(*qkv.permute(2, 0, 3, 1, 4), packing._replace(kernel=None))

    ways: dict[str, Callable[[], Tensor]] = {"one call a sample": one_by_one, "one call, key mask": masked}
    if packing.kernel is not None:
        ways["one call, packed"] = packed
    times = {}
    for name, way in ways.items():
        try:
            with sdpa_kernel(KERNELS):
                times[name] = _milliseconds(lambda way=way: way().sum().backward(), device)
        except RuntimeError as error:
            print(f"attention, {name}: not measured ({str(error).splitlines()[0]})", file=sys.stderr)
    return times


def _milliseconds(work: Callable[[], Any], device: torch.device, times: int = 10) -> float:
    for _ in range(3):
        work()
    _wait(device)
    started = time.perf_counter()
    for _ in range(times):
        work()
    _wait(device)
    return 1e3 * (time.perf_counter() - started) / times


def _plain(task: StoredTokensTask, decoder: Decoder, steps: int, device: torch.device) -> dict[str, Any]:
    """One video at a time, as the paper and its released code train."""
    objective = Objective(DensityObjectiveConfig())
    optimiser = torch.optim.AdamW(decoder.parameters(), lr=5e-5, weight_decay=0.05)
    losses = []
    _reset_peak(device)
    with explicit_softmax():
        _plain_step(task, decoder, objective, 0, device)
        optimiser.zero_grad()
        _wait(device)
        started = time.perf_counter()
        for step in range(steps):
            losses.append(_plain_step(task, decoder, objective, step, device))
            optimiser.step()
            optimiser.zero_grad()
        _wait(device)
    return {"speed": 8 * steps / (time.perf_counter() - started), "peak": _peak(device), "losses": losses}


def _plain_step(
    task: StoredTokensTask, decoder: Decoder, objective: Objective, step: int, device: torch.device
) -> float:
    total = 0.0
    for place in range(8):
        batch = task.read(step, place, 8).to(device)
        loss = objective(*task.forward(decoder, batch))["loss"] / 8
        loss.backward()
        total += loss.item()
    return total


@contextmanager
def explicit_softmax() -> Iterator[None]:
    """Attention as it is written in the paper: the whole matrix of weights, softmax, product."""
    fused = F.scaled_dot_product_attention

    def plain(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **_: Any) -> Tensor:
        weights = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if attn_mask is not None:
            weights = weights.masked_fill(~attn_mask, -1e30) if attn_mask.dtype == torch.bool else weights + attn_mask
        return weights.softmax(-1) @ v

    F.scaled_dot_product_attention = plain  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = fused


def _decoder(config: Any, weights: dict[str, Tensor], device: torch.device) -> Decoder:
    decoder = Decoder(config)
    decoder.load_state_dict(weights)
    return decoder.to(device)


def _warm(task: StoredTokensTask, steps: int) -> None:
    """Every token that will be used is read once: both ways then train from memory."""
    for step in range(steps):
        task.read(step)


def _flops_per_sample(task: StoredTokensTask, decoder: Decoder, steps: int, device: torch.device) -> float:
    """Floating-point operations of forward and backward that the videos need, padding not counted."""
    total = 0
    sampled = range(min(steps, 6))
    for step in sampled:
        for place in range(0, 8, 4):
            batch = task.read(step, place, 8).to(device)
            with FlopCounterMode(display=False) as counter:
                task.forward(decoder, batch)[0].density_BT.sum().backward()
            total += counter.get_total_flops()
    return total / (2 * len(sampled))


def _matrix_rate(device: torch.device, size: int = 8192) -> float:
    """Operations a second of a large matrix product in the precision that training uses."""
    if device.type == "cpu":
        size = 512
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    return 2 * size**3 / (_milliseconds(lambda: a @ b, device, times=20) / 1e3)


def _store(folder: Path, frames: list[int], config: Any) -> tuple[TokenStore, Dataset]:
    """Random tokens with a wave in them, one file a video, in the released code's shape."""
    layout = TokenLayout(
        encoder="mae-vit-b", identity="random", channels=config.in_channels, grid=config.grid,
        exemplar_grid=(14, 14) if config.in_channels == 768 else config.grid, exemplar_cells=8, window_cells=8,
        every=4, fps=None, frames_per_cell=2, offsets=(0,), exemplars=2,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    noise = torch.Generator().manual_seed(0)
    videos = []
    with TokenWriter(folder, layout) as writer:
        for index, length in enumerate(frames):
            cells = -(-length // CELL_FRAMES)
            duration = cells * CELL_FRAMES / FPS
            count = max(1, int(duration / rng.uniform(1.0, 4.0)))
            edges = np.linspace(0, duration, count + 1).tolist()
            spans = tuple(pairwise(edges))
            phase = torch.linspace(0, 2 * np.pi * count, cells)[:, None, None, None]
            tokens = torch.randn(cells, *layout.grid, layout.channels, generator=noise) + torch.sin(phase)
            shots = torch.randn(2, 8, *layout.exemplar_grid, layout.channels, generator=noise)
            video = VideoAnnotation(f"v{index}", f"v{index}", f"a{index % 8}", count, spans, FPS, duration, "train")
            two = np.array((spans * 2)[:2])
            step = layout.step(FPS)
            writer.write(VideoTokens(video.name, {0: tokens.half()}, shots.half(), two, step, duration))
            videos.append(video)
        store = writer.finish()
    return store, Dataset("lengths", tuple(videos), {"train": len(videos)})


def _frames(path: Path | None, videos: int) -> list[int]:
    rng = np.random.default_rng(0)
    if path is None:
        return np.interp(rng.random(videos), np.linspace(0, 1, len(QUARTILES)), QUARTILES).astype(int).tolist()
    lengths = json.loads(path.read_text())
    return rng.choice(lengths, min(videos, len(lengths)), replace=False).tolist()


def _write_lengths(annotations: Path, out: Path) -> None:
    from escounts.research.datasets.timed import load_repcount

    videos = load_repcount(annotations).split("train")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([round((v.duration or 0) * (v.fps or FPS)) for v in videos]) + "\n")


def _show(result: dict[str, Any]) -> None:
    print(f"{result['device']}, torch {result['torch']}; {result['videos']} videos, "
          f"{result['mean_cells']:.0f} cells on average ({result['lengths']})")  # fmt: skip
    print(f"{'':24s} {'plain':>10s} {'ours':>10s}")
    for title, name in (("samples a second", "samples_per_second"), ("peak memory, GB", "peak_gb")):
        print(f"{title:24s} {result['plain_' + name]:10.1f} {result['ours_' + name]:10.1f}")
    print(f"times faster             {result['times_faster']:.1f}")
    print(f"share of the matrix rate {100 * result['share_of_matrix_rate']:.1f} % of "
          f"{result['matrix_rate_tflops']:.0f} TFLOP/s, {result['gflop_per_sample']:.0f} GFLOP a sample")  # fmt: skip
    print(f"a step of 8 videos       {result['step_ms']:.1f} ms; its parts, each waited for:")
    ways = {f"attention, {name}": value for name, value in result["attention_ms"].items()}
    for name, value in (result["parts_ms"] | ways).items():
        print(f"  {name:46s} {value:8.1f} ms")
    print(f"loss difference          {100 * result['loss_difference_mean']:.2f} % on average over the same steps")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=Path, help="JSON list of video lengths in raw frames")
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    parser.add_argument("--videos", type=int, default=80)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plain-steps", type=int, default=10)
    parser.add_argument("--grid", type=int, default=6, help="tokens are pooled to this, as the released code does")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write-lengths", type=Path)
    parser.add_argument("--annotations", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
