"""Rows moved by index, and batches of videos of different length without padding.

A packed batch is a batch of one: the videos' cells one after another, (1, T_1 + T_2 + …, H, W, C). Layers that see
one token at a time need not know; attention is told where each video begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from escounts.nn.device import to_device
from escounts.system.arrays import IntArray

PackedKernel = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int, int], Tensor]
"""q_Nhd, k_Mhd, v_Mhd, starts of both, longest of both -> (N, h, d)."""


def on_device(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """An array as a tensor on a device."""
    return to_device(torch.from_numpy(np.ascontiguousarray(array)), device)


def _moved(x: Tensor, source: Tensor, empty: Tensor | None) -> Tensor:
    """y[i] = x[source[i]], 0 where empty."""
    moved = x.index_select(0, source)
    return moved if empty is None else moved.index_fill_(0, empty, 0)


class _Moved(torch.autograd.Function):
    """A move of rows, one to one: its gradient is such a move, too, and nothing is added up."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Tensor, empty: Tensor | None, back: Tensor, back_empty: Tensor | None
    ) -> Tensor:
        ctx.back, ctx.back_empty = back, back_empty
        return _moved(x, source, empty)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _moved(grad, ctx.back, ctx.back_empty), None, None, None, None


class RowMap(NamedTuple):
    """Rows of a source and a target tensor, paired one to one; a target row without a partner is 0.

    source_of_target: partner of every target row (0 where it has none); empty_targets: target rows without one, None
    when all have. The other two are the same the other way round.
    """

    source_of_target: Tensor
    empty_targets: Tensor | None
    target_of_source: Tensor
    empty_sources: Tensor | None

    @classmethod
    def of(cls, source_of_target: IntArray, sources: int, device: torch.device) -> RowMap:
        """source_of_target: source row of every target row, -1 for none; sources: how many source rows there are.

        The tensors are ordinary ones even when made in inference mode.
        """
        paired = source_of_target >= 0
        target_of_source = np.full(sources, -1)
        target_of_source[source_of_target[paired]] = np.flatnonzero(paired)

        parts: list[IntArray] = []
        for partner in (source_of_target, target_of_source):
            parts += [partner.clip(0), np.flatnonzero(partner < 0)]
        with torch.inference_mode(False):
            # One copy for all four: to a GPU each costs the host a tenth of a millisecond and more.
            together = on_device(np.concatenate(parts), device)
            source, empty_targets, target, empty_sources = torch.split(together, [len(part) for part in parts])
            return cls(
                source,
                empty_targets if len(empty_targets) else None,
                target,
                empty_sources if len(empty_sources) else None,
            )

    def to_target(self, x: Tensor) -> Tensor:
        """Source rows at their places in the target."""
        return _Moved.apply(x, *self)  # type: ignore[no-untyped-call, no-any-return]

    def to_source(self, x: Tensor) -> Tensor:
        """Target rows back at their places in the source."""
        there, here = self[:2], self[2:]
        return _Moved.apply(x, *here, *there)  # type: ignore[no-untyped-call, no-any-return]


class Packing(NamedTuple):
    """Where the videos of a packed batch lie. cells: of each video, tokens: of each (cells × places).

    most: tokens of the longest. starts: first token of each video and the end of the last, int32. padded: rows of the
    padded batch (source) and of the packed one (target), a row being a cell. shape: (B, T) of the padded batch.
    kernel: the one call that attends in all videos at once, where torch and the device have it.
    """

    cells: tuple[int, ...]
    tokens: tuple[int, ...]
    most: int
    starts: Tensor
    padded: RowMap
    shape: tuple[int, int]
    kernel: PackedKernel | None

    @classmethod
    def of(cls, cells: tuple[int, ...], longest: int, places: int, device: torch.device) -> Packing:
        """cells: real cells of every video, the first of `longest`; places: tokens of a cell."""
        source = np.concatenate([video * longest + np.arange(n) for video, n in enumerate(cells)])
        starts = np.cumsum([0, *cells]).astype(np.int32) * np.int32(places)
        return cls(
            cells=cells,
            tokens=tuple(n * places for n in cells),
            most=max(cells) * places,
            starts=on_device(starts, device),
            padded=RowMap.of(source, len(cells) * longest, device),
            shape=(len(cells), longest),
            kernel=packed_kernel(device),
        )

    def pack(self, x_BT: Tensor) -> Tensor:
        """(B, T, …) -> (1, cells of all, …)."""
        return self.padded.to_target(x_BT.flatten(0, 1))[None]

    def unpack(self, x_1T: Tensor) -> Tensor:
        """The inverse of `pack`; padding is 0."""
        return self.padded.to_source(x_1T[0]).view(*self.shape, *x_1T.shape[2:])


@lru_cache(maxsize=16)
def packed_kernel(device: torch.device) -> PackedKernel | None:
    """Attention in segments in one call: on NVIDIA GPUs from Ampere on."""
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - 2.4 s: it loads torch's compiler

    return varlen_attn  # type: ignore[return-value]


def real_cells(valid_BT: Tensor) -> tuple[int, ...]:
    """How many cells of every sample are real; they must come first. Waits for the device."""
    valid = valid_BT.cpu().numpy()
    counts = valid.sum(1)
    if (valid != (np.arange(valid.shape[1]) < counts[:, None])).any() or not counts.all():
        raise ValueError(
            "valid_BT must mark the first cells of every sample, at least one each; cut a sequence with gaps in two"
        )
    return tuple(counts.tolist())
