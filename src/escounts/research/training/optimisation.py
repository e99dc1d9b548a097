"""How a run trains: one frozen dataclass, written beside every run; the optimiser, its learning rate over time, and
the averaged weights.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from escounts.nn.device import Precision
from escounts.system.atomic_files import write_text
from escounts.system.config_codec import to_plain

Schedule = Literal["steps", "cosine"]


@dataclass(frozen=True)
class TrainConfig:
    """The defaults are the paper's recipe (section 4.1).

    steps: length of the run in optimiser steps; None means epochs × the task's steps per epoch.
    schedule "steps": × decay every decay_epochs epochs; "cosine": to zero at the end, after the warm-up.
    ema: decay of the averaged weights per step, or None. clip: largest gradient norm.
    compile: let torch.compile fuse the trained encoder's frame stage, and replay recorded steps (a GPU that trains
    for minutes; batches must come in few shapes).
    """

    epochs: int = 300
    steps: int | None = None
    batch_size: int = 8
    lr: float = 5e-5
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: Schedule = "steps"
    decay: float = 0.8
    decay_epochs: int = 60
    warmup_steps: int = 0
    clip: float = 1.0
    ema: float | None = None
    precision: Precision = "auto"
    compile: bool = False
    seed: int = 0
    log_every: int = 20
    validate_every: int = 500
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        if self.schedule not in ("steps", "cosine"):
            raise ValueError(f"schedule is {self.schedule!r}; it takes 'steps' or 'cosine'")
        for name in ("batch_size", "log_every", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it takes a whole number from 1")
        for name in ("lr", "weight_decay", "decay", "warmup_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it takes a number from 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {self.betas}; it takes two numbers from 0, below 1")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema is {self.ema}; it takes None or a value between 0 and 1")

    def total_steps(self, steps_per_epoch: int) -> int:
        """Optimiser steps of the whole run."""
        return self.steps if self.steps is not None else self.epochs * steps_per_epoch

    def save(self, path: Path) -> None:
        """Write the config as JSON."""
        write_text(path, json.dumps(to_plain(self), indent=2) + "\n")


def build_optimiser(network: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices and kernels only, not on norms, biases and scales."""
    trained = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = device.type == "cuda"  # on a CPU it rounds otherwise than the loop that earlier runs were trained with
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)


def step_if_finite(optimiser: torch.optim.AdamW, norm: Tensor) -> None:
    """One optimiser step, left out when the gradients' norm (a scalar on their device) is not finite.

    The fused optimiser is told on the device, as torch's own loss scaling tells it: nobody waits for the answer.
    """
    if not all(group["fused"] for group in optimiser.param_groups):
        if torch.isfinite(norm):
            optimiser.step()
        return
    optimiser.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
    try:
        optimiser.step()
    finally:
        del optimiser.found_inf  # type: ignore[attr-defined]


def learning_rate(config: TrainConfig, *, step: int, total: int, epoch: int) -> float:
    """Rate of this step (from 0) of `total`."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    if config.schedule == "cosine":
        return config.lr * warm * (0.5 + 0.5 * math.cos(math.pi * (step / total)))
    return config.lr * warm * config.decay ** (epoch // config.decay_epochs)


class WeightAverage:
    """Exponential moving average of a network's weights (EMA); young averages forget faster."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.trained = network.state_dict()
        """The weights themselves, asked for once: to list them takes longer than to average them."""
        self.weights = {name: value.detach().clone() for name, value in self.trained.items()}
        self._floats = [name for name, value in self.trained.items() if value.dtype.is_floating_point]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the network's weights after optimiser step `step` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averaged, trained = ([part[name] for name in self._floats] for part in (self.weights, self.trained))
        torch._foreach_lerp_(averaged, trained, 1 - decay)
        for name in self.trained.keys() - set(self._floats):
            self.weights[name].copy_(self.trained[name])

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the network's weights with the average (call twice to restore)."""
        for name, trained in self.trained.items():
            current = trained.clone()
            trained.copy_(self.weights[name])
            self.weights[name] = current
