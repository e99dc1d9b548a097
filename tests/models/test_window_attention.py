"""Windowed attention against the same thing written cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from escounts.models.window_attention import Size, WindowAttention, plan_windows, relative_index


def cell_by_cell(part: WindowAttention, x_THWC: Tensor) -> Tensor:
    """Every cell attends to the cells of its own window, found by division; no padding, rolling or masks."""
    size = x_THWC.shape[:3]
    cells = [(t, h, w) for t in range(size[0]) for h in range(size[1]) for w in range(size[2])]
    used = (part.window[0], *(min(s, w) for s, w in zip(size[1:], part.window[1:], strict=True)))
    shift = [0, 0, 0]
    if part.shifted:
        shift = [part.window[0] // 2]
        shift += [w // 2 if s > w else 0 for s, w in zip(size[1:], part.window[1:], strict=True)]

    def window_of(cell: tuple[int, int, int]) -> tuple[int, ...]:
        return tuple((c - s) // w for c, s, w in zip(cell, shift, used, strict=True))

    q, k, v = part.qkv(part.norm(x_THWC)).chunk(3, -1)
    span = [2 * w - 1 for w in part.window]
    out = torch.zeros_like(x_THWC)
    for here in cells:
        friends = [there for there in cells if window_of(there) == window_of(here)]
        rows = [
            ((here[0] - t + part.window[0] - 1) * span[1] + here[1] - h + part.window[1] - 1) * span[2]
            + (here[2] - w + part.window[2] - 1)
            for t, h, w in friends
        ]
        for head in range(part.heads):
            of = slice(head * 4, head * 4 + 4)
            keys = torch.stack([k[f][of] for f in friends])
            logits = keys @ q[here][of] / 2 + part.bias_table[rows, head]
            out[(*here, of)] = logits.softmax(0) @ torch.stack([v[f][of] for f in friends])
    return part.out(out)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((8, 4, 4), (4, 2, 2)),
        ((9, 5, 3), (4, 3, 3)),  # padding in time and height
        ((3, 3, 3), (4, 7, 7)),  # a map smaller than the window: space clipped
        ((1, 2, 2), (4, 2, 2)),
        ((7, 4, 5), (2, 4, 2)),
    ],
)
def test_equals_attention_cell_by_cell(size: Size, window: Size, shifted: bool) -> None:
    torch.manual_seed(0)
    part = WindowAttention(8, 2, window, shifted=shifted, bias=True)
    with torch.no_grad():
        part.bias_table.normal_()
        x = torch.randn(2, *size, 8)
        ours = part(x)
        for i in range(2):
            torch.testing.assert_close(ours[i], cell_by_cell(part, x[i]), atol=1e-5, rtol=1e-4)


def test_relative_index_by_hand() -> None:
    # Window (1, 1, 3): offsets -2..2 are rows 0..4 of the table.
    assert relative_index((1, 1, 3), (1, 1, 3)).tolist() == [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    # Clipped to two cells, true offsets stay; so does the corner of the full table, in one dimension.
    assert relative_index((1, 1, 3), (1, 1, 2)).tolist() == [[2, 1], [3, 2]]
    # In two dimensions the released corner reads the wrong offsets.
    true, released = (relative_index((1, 3, 3), (1, 2, 2), rule) for rule in ("true", "released"))
    assert true[0, 2] == 1 * 5 + 2 and released[0, 2] == 2 * 5 + 0


def test_full_index_is_the_released_buffer() -> None:
    """Sum and checksum of the published model's index, from the parity fixtures."""
    import zlib

    index = relative_index((4, 7, 7), (4, 7, 7))
    assert index.sum() == 22703856
    assert zlib.crc32(index.astype("<i8").tobytes()) == 3033575475


def test_plan_groups_windows_by_rule() -> None:
    device = torch.device("cpu")
    plan = plan_windows((128, 2, 2), (16, 2, 2), shifted=True, padding="masked", bias="true", device=device)
    assert [(g.start, g.stop, g.allowed_nn is None) for g in plan.groups] == [(0, 7, True), (7, 8, False)]
    paper = plan_windows((16, 14, 14), (4, 7, 7), shifted=True, padding="masked", bias="true", device=device)
    assert paper.shift == (2, 3, 3) and len(paper.groups) == 8
    assert paper.order is not None and sorted(paper.order.tolist()) == list(range(16))
    again = plan_windows((16, 14, 14), (4, 7, 7), shifted=True, padding="masked", bias="true", device=device)
    assert again is paper


def test_plan_made_in_inference_serves_training() -> None:
    plan_windows.cache_clear()
    part = WindowAttention(8, 2, (4, 2, 2), shifted=True, bias=True)
    with torch.inference_mode():
        part(torch.randn(1, 10, 2, 2, 8))
    part(torch.randn(1, 10, 2, 2, 8)).sum().backward()
    assert part.bias_table.grad is not None
    assert np.isfinite(part.bias_table.grad.numpy()).all()
