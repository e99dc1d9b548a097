"""What each speed trick of training earns: the trainer with it and without it, by turns, in one run.

    python benchmarks/speed_tricks.py [--out speed_tricks.json] [--rounds 6] [--steps 40]

The figure they serve is samples per second of training the paper's decoder on stored tokens (benchmarks/training.py).
All variants train from the same weights on the same batches; every round runs each of them once, in another order.
A trick stays in the code when the run without it is 5 % slower.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from training import _decoder, _frames, _store, _wait, _warm

from escounts.nn import packing
from escounts.nn.decoder import PAPER, Decoder
from escounts.nn.window_attention import WindowAttention
from escounts.research.training.objective import DensityObjectiveConfig, Objective
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.stored_tokens import StoredTokensConfig, StoredTokensTask
from escounts.research.training.trainer import Trainer

Variant = Callable[[], Any]
"""A context in which a trick is off."""


def with_one_call_per_sample() -> Any:
    return mock.patch.object(packing, "packed_kernel", lambda device: None)


def with_one_grouping() -> Any:
    return mock.patch.object(WindowAttention, "_masks_are_cheap", lambda self, x: False)


VARIANTS: dict[str, Variant] = {
    "as it is": nullcontext,
    "one attention call per sample": with_one_call_per_sample,
    "windows grouped by rule only (no merge_masks)": with_one_grouping,
}


def main() -> None:
    options = _options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    decoder = replace(PAPER, grid=(6, 6)) if on_gpu else replace(
        PAPER, grid=(2, 2), channels=64, latent_tokens=64, in_channels=64
    )  # fmt: skip
    names = list(VARIANTS)
    with tempfile.TemporaryDirectory() as folder:
        store, dataset = _store(Path(folder) / "tokens", _frames(None, options.videos), decoder)
        task = StoredTokensTask(store, dataset.split("train"), (), StoredTokensConfig(batch_size=8), device=device)
        speeds = measure(task, decoder, Path(folder), names, options.rounds, options.steps, device)
    result = {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "rounds": options.rounds,
        "steps": options.steps,
        "samples_per_second": speeds,
    }
    show(result)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def measure(
    task: StoredTokensTask,
    config: Any,
    folder: Path,
    names: list[str],
    rounds: int,
    steps: int,
    device: torch.device,
) -> dict[str, list[float]]:
    """Samples per second of every variant, one figure per round. The first round warms up and is not counted."""
    _warm(task, (rounds + 1) * steps)
    torch.manual_seed(0)
    first = Decoder(config).state_dict()
    trainers = {name: _trainer(task, _decoder(config, first, device), folder / str(i), device)
                for i, name in enumerate(names)}  # fmt: skip
    speeds: dict[str, list[float]] = {name: [] for name in names}
    order = np.random.default_rng(0)
    for turn in range(rounds + 1):
        for index in order.permutation(len(names)):
            name = names[index]
            with VARIANTS[name]():
                speed = _speed(trainers[name], range(turn * steps, (turn + 1) * steps), device)
            if turn:
                speeds[name].append(speed)
    return speeds


def _trainer(task: StoredTokensTask, decoder: Decoder, out: Path, device: torch.device) -> Trainer:
    train, objective = TrainConfig(steps=10**9), Objective(DensityObjectiveConfig())
    return Trainer(train, decoder, task, objective, out, save=lambda *_: None, device=device)


def _speed(trainer: Trainer, steps: range, device: torch.device) -> float:
    _wait(device)
    started = time.perf_counter()
    for step in steps:
        trainer.gradients(trainer.task.batch(step, 0, 1))
        trainer.update()
    _wait(device)
    return 8 * len(steps) / (time.perf_counter() - started)


def show(result: dict[str, Any]) -> None:
    print(f"{result['device']}, torch {result['torch']}; {result['rounds']} rounds of {result['steps']} steps each")
    speeds = result["samples_per_second"]
    base = np.array(speeds["as it is"])
    print(f"{'':52s} {'samples/s':>10s} {'ms/step':>8s} {'slower by':>10s}  (lowest to highest round)")
    for name, values in speeds.items():
        slower = 100 * (base / np.array(values) - 1)
        middle = float(np.median(values))
        print(f"{name:52s} {middle:10.1f} {8e3 / middle:8.1f} {np.median(slower):9.1f} %  "
              f"({slower.min():.1f} to {slower.max():.1f})")  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    parser.add_argument("--videos", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=40)
    return parser.parse_args()


if __name__ == "__main__":
    main()
