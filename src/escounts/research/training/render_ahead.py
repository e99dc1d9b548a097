"""Batches that are drawn while the GPU trains on the ones before: by a thread beside training, or by processes.

A thread shares Python's one lock with training, which then waits for it as often as for the GPU. Processes draw plans
and pixels by themselves, each with the clips on the GPU, and hand over frames through memory that both can reach.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from escounts.synthetic.actions import forked_pool

Key = tuple[int, int, int]
"""Step, rank, world: what a batch is a function of."""
AHEAD = 2
"""Batches that a process has drawn or begun before they are asked for."""


class Frames(Protocol):
    """A batch whose frames and other tensors can be moved."""

    frames_BTCHW: Tensor

    def tensors(self) -> list[Tensor]:
        """All that the batch holds on its device."""
        ...


Drawn = TypeVar("Drawn", bound=Frames)


class RenderThread:
    """Draws the next batch on a stream of its own."""

    def __init__(self, build: Callable[[int, int, int], Any], device: torch.device) -> None:
        self._build = build
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[Key, Future[Any]] | None = None

    def batch(self, step: int, rank: int, world: int) -> Any:
        """The batch of a step; the following step's is begun."""
        key = (step, rank, world)
        if self._next is None or self._next[0] != key:
            self._next = key, self._thread.submit(self._render, *key)
        batch = self._next[1].result()
        following = (step + 1, rank, world)
        self._next = following, self._thread.submit(self._render, *following)
        # The allocator must not hand this memory to the rendering stream while training still reads it.
        training = torch.cuda.current_stream(self._stream.device)
        for tensor in batch.tensors():
            tensor.record_stream(training)
        return batch

    def _render(self, step: int, rank: int, world: int) -> Any:
        with torch.cuda.stream(self._stream):
            batch = self._build(step, rank, world)
        self._stream.synchronize()
        return batch


class RenderProcesses:
    """Draws batches in processes that are forked before this one uses the GPU.

    build: (step, rank, world) → the frames (uint8, on the device) and the rest, on the CPU. join: the frames on the
    device and the rest → the batch. largest: bytes of a batch's frames.
    """

    def __init__(
        self,
        build: Callable[[int, int, int], tuple[Tensor, Any]],
        join: Callable[[Tensor, Any], Any],
        *,
        device: torch.device,
        processes: int,
        largest: int,
    ) -> None:
        self._join, self._device = join, device
        self._slots = [np.frombuffer(mmap.mmap(-1, largest), np.uint8) for _ in range(processes * AHEAD + 1)]
        self._free = deque(range(len(self._slots)))
        self._pending: dict[Key, tuple[int, Future[Any]]] = {}
        self._pinned = False
        self._stream: torch.cuda.Stream | None = None
        self._depth = processes * AHEAD
        global _build, _shared
        _build, _shared = build, self._slots
        self._pool = forked_pool(processes, _begin)
        self._pool.submit(int).result()  # forks them now

    def batch(self, step: int, rank: int, world: int) -> Any:
        """The batch of a step; those that follow are begun."""
        if not self._pinned:
            self._pinned = _pin(self._slots, self._device)
        for later in range(step, step + self._depth):
            key = (later, rank, world)
            if key not in self._pending and self._free:
                slot = self._free.popleft()
                self._pending[key] = slot, self._pool.submit(_render_into, slot, *key)
        slot, future = self._pending.pop((step, rank, world))
        shape, rest = future.result()
        frames = torch.from_numpy(self._slots[slot][: int(np.prod(shape))].reshape(shape))
        batch = self._move(frames, rest)
        self._free.append(slot)
        return batch

    def _move(self, frames: Tensor, rest: Any) -> Any:
        """The batch on the device; training, which goes on there meanwhile, is not waited for."""
        if self._device.type != "cuda":
            return self._join(frames.clone(), rest)
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        training = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            batch = self._join(frames.to(self._device, non_blocking=True), rest)
        self._stream.synchronize()
        for tensor in batch.tensors():
            tensor.record_stream(training)
        return batch


_build: Callable[[int, int, int], tuple[Tensor, Any]]
_shared: list[Any]
_worker_pinned = False


def _begin() -> None:
    torch.set_num_threads(1)


def _render_into(slot: int, step: int, rank: int, world: int) -> tuple[tuple[int, ...], Any]:
    """Draw a batch; its frames go into a slot, the rest comes back."""
    global _worker_pinned
    frames, rest = _build(step, rank, world)
    if not _worker_pinned:
        _worker_pinned = _pin(_shared, frames.device)
    torch.from_numpy(_shared[slot][: frames.numel()]).view(frames.shape).copy_(frames)
    return tuple(frames.shape), rest


def _pin(slots: list[Any], device: torch.device) -> bool:
    """Let the GPU read and write the slots directly; True, so that it is done once."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        for slot in slots:
            torch.cuda.cudart().cudaHostRegister(slot.ctypes.data, slot.nbytes, 0)  # type: ignore[no-untyped-call]
    return True
