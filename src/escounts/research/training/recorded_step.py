"""A training step that is recorded once and then replayed: a GPU's work without Python's word for each piece of it.

A step of the default model is some thousand launches of a few microseconds; one core that makes them keeps a large
GPU waiting. A recording (a CUDA graph) makes them all at once. It reads and writes the same memory every time, so a
batch is copied to where the recorded one lay; batches of each shape have a recording of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Losses = dict[str, Tensor]
UNRECORDED = 3
"""Steps of a shape that are taken as they are: kernels are chosen, compiled and planned in the first ones."""


class Recordable(Protocol):
    """A batch of tensors."""

    def tensors(self) -> list[Tensor]:
        """All that it holds."""
        ...

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Any:
        """The inverse of `tensors`."""
        ...


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    losses: Losses


class RecordedStep:
    """Losses and gradients of batches. step: computes them, sets the gradients that are there to zero in place and
    adds to them, draws no random number and asks the device nothing."""

    def __init__(self, step: Callable[[Any], Losses]) -> None:
        self._step = step
        self._seen: Counter[tuple[torch.Size, ...]] = Counter()
        self._recordings: dict[tuple[torch.Size, ...], _Recording] = {}
        self._pool: Any = None

    def __call__(self, batch: Recordable) -> Losses:
        tensors = batch.tensors()
        shapes = tuple(tensor.shape for tensor in tensors)
        self._seen[shapes] += 1
        if self._seen[shapes] <= UNRECORDED:
            return self._step(batch)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(type(batch), tensors)
        recording = self._recordings[shapes]
        for own, given in zip(recording.inputs, tensors, strict=True):
            own.copy_(given, non_blocking=True)
        recording.graph.replay()
        return {name: value.clone() for name, value in recording.losses.items()}

    def _record(self, kind: type[Recordable], tensors: Sequence[Tensor]) -> _Recording:
        inputs = [tensor.clone() for tensor in tensors]
        graph = torch.cuda.CUDAGraph()
        # Replayed one at a time, so all recordings share the memory of their intermediate results.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            losses = self._step(kind.of(inputs))
        self._pool = graph.pool()
        return _Recording(graph, inputs, losses)
