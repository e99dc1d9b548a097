"""Rows moved by index, and batches of videos of different length without padding.

A packed batch is a batch of one: the videos' cells one after another, (1, T_1 + T_2 + …, H, W, C). Layers that see
one token at a time need not know; attention is told where each video begins and ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from escounts.models.device import to_device

IntArray = npt.NDArray[np.int64]


def on_device(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """An array as a tensor on a device."""
    return to_device(torch.from_numpy(np.ascontiguousarray(array)), device)


class _Moved(torch.autograd.Function):
    """y[i] = x[source[i]], 0 where empty. One to one, so the gradient is such a move, too: nothing is added up."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Tensor, empty: Tensor | None, back: Tensor, back_empty: Tensor | None
    ) -> Tensor:
        ctx.back = back, back_empty, source, empty
        moved = x.index_select(0, source)
        return moved if empty is None else moved.index_fill_(0, empty, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _Moved.apply(grad, *ctx.back), None, None, None, None  # type: ignore[no-untyped-call]


class RowMap(NamedTuple):
    """Rows of two tensors paired one to one; rows without a partner are filled with zeros or left behind.

    near_of_far: partner of every far row (0 where it has none); empty_far: far rows without one, None when all have.
    The other two are the same the other way round.
    """

    near_of_far: Tensor
    empty_far: Tensor | None
    far_of_near: Tensor
    empty_near: Tensor | None

    @classmethod
    def of(cls, near_of_far: IntArray, near_rows: int, device: torch.device) -> RowMap:
        """near_of_far: near row of every far row, -1 for none. Ordinary tensors even when made in inference mode."""
        paired = near_of_far >= 0
        far_of_near = np.full(near_rows, -1)
        far_of_near[near_of_far[paired]] = np.flatnonzero(paired)

        pieces: list[IntArray] = []
        for partner in (near_of_far, far_of_near):
            pieces += [partner.clip(0), np.flatnonzero(partner < 0)]
        with torch.inference_mode(False):
            # One copy for all four: to a GPU each costs the host a tenth of a millisecond and more.
            together = on_device(np.concatenate(pieces), device)
            near, empty_far, far, empty_near = torch.split(together, [len(piece) for piece in pieces])
            return cls(near, empty_far if len(empty_far) else None, far, empty_near if len(empty_near) else None)

    def far(self, x: Tensor) -> Tensor:
        """Near rows at their far places."""
        return _Moved.apply(x, *self)  # type: ignore[no-untyped-call, no-any-return]

    def near(self, x: Tensor) -> Tensor:
        """Far rows back at their near places."""
        there, here = self[:2], self[2:]
        return _Moved.apply(x, *here, *there)  # type: ignore[no-untyped-call, no-any-return]


class Packing(NamedTuple):
    """Where the videos of a packed batch lie. cells: of each video, tokens: of each (cells × places).

    starts: first token of each video and the end of the last, int32. padded: rows of the padded batch (near) and of
    the packed one (far), a row being a cell. shape: (B, T) of the padded batch.
    """

    cells: tuple[int, ...]
    tokens: tuple[int, ...]
    starts: Tensor
    padded: RowMap
    shape: tuple[int, int]

    @classmethod
    def of(cls, cells: tuple[int, ...], longest: int, places: int, device: torch.device) -> Packing:
        """cells: real cells of every video, the first of `longest`; places: tokens of a cell."""
        near = np.concatenate([video * longest + np.arange(n) for video, n in enumerate(cells)])
        starts = np.cumsum([0, *cells]).astype(np.int32) * np.int32(places)
        return cls(
            cells=cells,
            tokens=tuple(n * places for n in cells),
            starts=on_device(starts, device),
            padded=RowMap.of(near, len(cells) * longest, device),
            shape=(len(cells), longest),
        )

    def pack(self, x_BT: Tensor) -> Tensor:
        """(B, T, …) -> (1, cells of all, …)."""
        return self.padded.far(x_BT.flatten(0, 1))[None]

    def unpack(self, x_1T: Tensor) -> Tensor:
        """The inverse of `pack`; padding is 0."""
        return self.padded.near(x_1T[0]).view(*self.shape, *x_1T.shape[2:])


def real_cells(valid_BT: Tensor) -> tuple[int, ...]:
    """How many cells of every sample are real; they must come first. Waits for the device."""
    valid = valid_BT.cpu().numpy()
    counts = valid.sum(1)
    if (valid != (np.arange(valid.shape[1]) < counts[:, None])).any() or not counts.all():
        raise ValueError(
            "valid_BT must mark the first cells of every sample, at least one each; cut a sequence with gaps in two"
        )
    return tuple(counts.tolist())
