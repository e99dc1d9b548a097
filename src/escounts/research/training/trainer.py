"""The one trainer, in plain PyTorch: stored tokens with a frozen encoder, or pixels with a trained one.

A task is a pure function of (seed, step), so a run that is killed and resumed equals the uninterrupted one:
the state is weights, optimiser, averaged weights, step and random state.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from escounts.nn.device import precision
from escounts.nn.heads import HeadOutput
from escounts.research.training.objective import ObjectiveConfig, Target, loss_terms
from escounts.research.training.optimisation import (
    TrainConfig,
    WeightAverage,
    build_optimiser,
    learning_rate,
    step_if_finite,
)
from escounts.research.training.recorded_step import RecordedStep
from escounts.research.training.run_folder import RunFolder

Batch = Any
Report = Callable[[int, int, dict[str, float]], None]
"""Called with (step, steps in all, latest figures)."""

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels that training uses: not cuDNN's, which torch prefers on Hopper and which plans anew, on the
host, for every shape it has not seen. Videos of every length are new shapes at every step."""


class Task(Protocol):
    """What is trained on."""

    steps_per_epoch: int

    def batch(self, step: int, rank: int, world: int) -> Batch:
        """The share of global step `step` that process `rank` of `world` trains on."""
        ...

    def forward(self, network: nn.Module, batch: Batch) -> tuple[HeadOutput, Target]:
        """Run the network on a batch; what it says and what it should have said."""
        ...

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Figures on held-out videos; "mae" chooses the best checkpoint."""
        ...


class TrainingStep(nn.Module):
    """Network and objective in one forward, so that DistributedDataParallel can wrap it."""

    def __init__(self, network: nn.Module, task: Task, objective: ObjectiveConfig) -> None:
        super().__init__()
        self.network = network
        self.task = task
        self.objective = objective

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return loss_terms(self.objective, *self.task.forward(self.network, batch))


class Trainer:
    """Trains a network on a task and leaves last and best checkpoints in a run folder.

    save(path, network, figures): writes a loadable checkpoint (models/checkpoint.py); given by the caller,
    which knows the network's config and provenance.
    """

    def __init__(
        self,
        config: TrainConfig,
        network: nn.Module,
        task: Task,
        objective: ObjectiveConfig,
        out: Path,
        *,
        save: Callable[[Path, nn.Module, dict[str, float]], None],
        device: torch.device | str = "cpu",
        report: Report | None = None,
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.network = network.to(self.device)
        self.task = task
        self.save = save
        self.out = out
        self.report = report
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.total = config.total_steps(task.steps_per_epoch)
        self.weights = list(self.network.parameters())
        self.optimiser = build_optimiser(network, config, self.device)
        self.average = WeightAverage(network, config.ema) if config.ema else None
        self.step = 0
        self.best = float("inf")
        self.elapsed = 0.0
        step_module: nn.Module = TrainingStep(network, task, objective)
        if self.world > 1:
            step_module = nn.parallel.DistributedDataParallel(step_module, find_unused_parameters=True)
        self.training_step = step_module
        self.recorded = config.compile and self.device.type == "cuda" and self.world == 1
        self.losses_of = RecordedStep(self.gradients) if self.recorded else self.gradients

    def fit(self) -> dict[str, float]:
        """Train from the folder's last state to the end; returns the last validation's figures."""
        folder = RunFolder(self.out)
        with folder if self.rank == 0 else nullcontext():
            self._restore(folder)
            if self.rank == 0:
                self.config.save(self.out / "config.json")
                folder.forget_after(self.step)
            started = time.monotonic() - self.elapsed
            figures: dict[str, float] = {}
            while self.step < self.total:
                losses = self._train_step()
                self.elapsed = time.monotonic() - started
                figures = self._after_step(folder, losses) or figures
        return figures

    def _train_step(self) -> dict[str, Tensor]:
        epoch = self.step // self.task.steps_per_epoch
        rate = learning_rate(self.config, step=self.step, total=self.total, epoch=epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        # Drawn anew for each step, so that a resumed run sees the same dropout and noise.
        torch.manual_seed((self.config.seed * 1_000_003 + self.step) * 1009 + self.rank)
        losses = self.losses_of(self.task.batch(self.step, self.rank, self.world))
        norm = self.update()
        self.step += 1
        return losses | {"gradient_norm": norm, "lr": torch.tensor(rate)}

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Forward and backward: the losses of a batch, their gradients in the weights. Waits for no device."""
        if not self.network.training:  # asking costs nothing, telling every module a millisecond
            self.network.train()
        with self._arithmetic():
            losses: dict[str, Tensor] = self.training_step(batch)
        self.optimiser.zero_grad(set_to_none=not self.recorded)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        return {name: value.detach() for name, value in losses.items()}

    def update(self) -> Tensor:
        """Clip and step; the gradient norm before clipping. Weights stay as they are when it is not finite."""
        norm = nn.utils.clip_grad_norm_(self.weights, self.config.clip).detach()
        step_if_finite(self.optimiser, norm)  # one bad batch must not end a long run
        if self.average:
            self.average.update(self.step)
        return norm

    def _after_step(self, folder: RunFolder, losses: dict[str, Tensor]) -> dict[str, float]:
        figures: dict[str, float] = {}
        config = self.config
        due = self.step == self.total or self.step % config.validate_every == 0
        if due or self.step % config.log_every == 0:
            figures = self._over_all(losses)
            figures["seconds"] = round(self.elapsed, 2)
        if due:
            validation = self._validate()
            figures |= {f"val_{name}": value for name, value in validation.items()}
        if self.rank == 0:
            if figures:
                folder.log(self.step, figures)
                if self.report:
                    self.report(self.step, self.total, figures)
            if due or self.step % config.checkpoint_every == 0:
                folder.save_state(self._state())
        return figures

    def _over_all(self, figures: dict[str, Tensor]) -> dict[str, float]:
        """Figures as numbers, averaged over the processes: those of the global batch."""
        values = torch.stack([value.detach().float().to(self.device) for value in figures.values()])
        if self.world > 1:
            dist.all_reduce(values)
            values /= self.world
        return dict(zip(figures, values.tolist(), strict=True))

    def _validate(self) -> dict[str, float]:
        """Validate with the averaged weights where there are any; keep the best and the last checkpoint."""
        if self.average:
            self.average.swap()
        self.network.eval()
        with torch.no_grad(), self._arithmetic():
            figures = self.task.validate(self.network)
        if self.rank == 0:
            self.save(self.out / "last.safetensors", self.network, figures)
            if "mae" in figures and figures["mae"] <= self.best:  # of two alike, the later has learnt more
                self.best = figures["mae"]
                self.save(self.out / "best.safetensors", self.network, figures)
        if self.average:
            self.average.swap()
        return figures

    @contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """Precision and attention kernels of the network's passes."""
        with precision(self.device, self.config.precision), sdpa_kernel(KERNELS):
            yield

    def _state(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": self.average.weights if self.average else None,
            "step": self.step,
            "best": self.best,
            "elapsed": self.elapsed,
        }

    def _restore(self, folder: RunFolder) -> None:
        state = folder.load_state()
        if state is None:
            return
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.average and state["average"] is not None:
            self.average.weights = {k: v.to(self.device) for k, v in state["average"].items()}
        self.step, self.best, self.elapsed = state["step"], state["best"], state["elapsed"]


def device_of_process(device: str) -> torch.device:
    """The device that this process trains on: under torchrun each has a GPU of its own."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    own = several and device.startswith("cuda")
    return torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if own else device)


def start_distributed(device: torch.device) -> None:
    """Join the process group that torchrun describes, if any."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
