"""Batches that are drawn, plans and pixels, by processes beside training.

Each process has the clips on the GPU and hands over frames through memory that both can reach. A thread would share
Python's one lock with training, which then waits for it as often as for the GPU.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from torch import Tensor

from escounts.synthetic.actions import forked_pool

Key = tuple[int, int, int]
"""Step, rank, world: what a batch is a function of."""
Build = Callable[[int, int, int], list[Tensor]]
AHEAD = 2
"""Batches that a process has drawn or begun before they are asked for."""


class RenderProcesses:
    """Draws batches in processes that are forked before this one uses the GPU.

    build: (step, rank, world) → the frames (uint8, on the device) and the batch's other tensors, on the CPU.
    largest: bytes of a batch's frames.
    """

    def __init__(
        self,
        build: Build,
        *,
        device: torch.device,
        processes: int,
        largest: int,
    ) -> None:
        self._device = device
        self._slots = [np.frombuffer(mmap.mmap(-1, largest), np.uint8) for _ in range(processes * AHEAD + 1)]
        self._free = deque(range(len(self._slots)))
        self._pending: dict[Key, tuple[int, Future[tuple[tuple[int, ...], list[Tensor]]]]] = {}
        self._copies: torch.cuda.Stream | None = None
        self._depth = processes * AHEAD
        global _build, _shared
        _build, _shared = build, self._slots
        self._pool = forked_pool(processes, _begin)
        self._pool.submit(int).result()  # forks them now

    def batch(self, step: int, rank: int, world: int) -> list[Tensor]:
        """A step's batch on the device, frames first; those that follow are begun."""
        for later in range(step, step + self._depth):
            key = (later, rank, world)
            if key not in self._pending and self._free:
                slot = self._free.popleft()
                self._pending[key] = slot, self._pool.submit(_render_into, slot, *key)
        slot, future = self._pending.pop((step, rank, world))
        shape, rest = future.result()
        frames = torch.from_numpy(self._slots[slot][: int(np.prod(shape))].reshape(shape))
        batch = self._on_device([frames, *rest])
        self._free.append(slot)
        return batch

    def _on_device(self, tensors: list[Tensor]) -> list[Tensor]:
        """Copies on the device; training, which goes on there meanwhile, is not waited for."""
        if self._device.type != "cuda":
            return [tensor.clone() for tensor in tensors]
        if self._copies is None:
            _pin(self._slots, self._device)
            self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._copies):
            moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
        self._copies.synchronize()  # what they were copied from may change now
        for tensor in moved:
            tensor.record_stream(torch.cuda.current_stream(self._device))
        return moved


_build: Build
_shared: list[Any]
_worker_pinned = False


def _begin() -> None:
    torch.set_num_threads(1)


def _render_into(slot: int, step: int, rank: int, world: int) -> tuple[tuple[int, ...], list[Tensor]]:
    """Draw a batch; its frames go into a slot, the rest comes back."""
    global _worker_pinned
    frames, *rest = _build(step, rank, world)
    if not _worker_pinned:
        _pin(_shared, frames.device)
        _worker_pinned = True
    torch.from_numpy(_shared[slot][: frames.numel()]).view(frames.shape).copy_(frames)
    return tuple(frames.shape), rest


def _pin(slots: list[Any], device: torch.device) -> None:
    """Let the GPU read and write the slots directly."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        for slot in slots:
            torch.cuda.cudart().cudaHostRegister(slot.ctypes.data, slot.nbytes, 0)  # type: ignore[no-untyped-call]
