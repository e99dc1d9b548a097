"""The optimiser, its learning rate over time, and the averaged weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from escounts.training.config import TrainConfig


def build_optimiser(network: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices and kernels only, not on norms, biases and scales."""
    trained = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=device.type == "cuda")


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


def learning_rate(config: TrainConfig, *, step: int, epoch: int, progress: float) -> float:
    """Rate of this step. progress: share of the run that is done, 0..1."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    if config.schedule == "cosine":
        return config.lr * warm * (0.5 + 0.5 * math.cos(math.pi * min(1.0, progress)))
    return config.lr * warm * config.decay ** (epoch // config.decay_epochs)


class WeightAverage:
    """Exponential moving average of a network's weights (EMA); young averages forget faster."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.detach().clone() for name, value in network.state_dict().items()}

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Move the average towards the network's weights after optimiser step `step` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        state = network.state_dict()
        floats = [name for name, value in state.items() if value.dtype.is_floating_point]
        torch._foreach_lerp_([self.weights[n] for n in floats], [state[n] for n in floats], 1 - decay)
        for name in state.keys() - set(floats):
            self.weights[name].copy_(state[name])

    def swap(self, network: nn.Module) -> None:
        """Exchange the network's weights with the average (call twice to restore)."""
        current = {name: value.detach().clone() for name, value in network.state_dict().items()}
        network.load_state_dict(self.weights)
        self.weights = current
