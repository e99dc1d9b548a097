"""Windowed attention against the same thing written cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from escounts.nn import window_attention
from escounts.nn.window_attention import (
    PaddingRule,
    Size,
    WindowAttention,
    WindowPlan,
    plan_windows,
    relative_index,
)


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
    return part.out(out)  # type: ignore[no-any-return]


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


CPU = torch.device("cpu")


def test_plan_groups_windows_by_rule() -> None:
    plan = plan_windows((128,), (2, 2), (16, 2, 2), shifted=True, padding="masked", bias="true", device=CPU)
    assert [(g.windows, g.cells, g.forbidden_K1nn is None) for g in plan.groups] == [(7, 64, True), (1, 64, False)]
    # Windows of one rule are one group, whichever video they are of: only the last one of each needs a mask.
    two = plan_windows((128, 64), (2, 2), (16, 2, 2), shifted=True, padding="masked", bias="true", device=CPU)
    assert [(g.windows, g.forbidden_K1nn is None) for g in two.groups] == [(10, True), (2, False)]
    paper = plan_windows((16,), (14, 14), (4, 7, 7), shifted=True, padding="masked", bias="true", device=CPU)
    assert len(paper.groups) == 8 and sum(g.windows for g in paper.groups) == 16
    again = plan_windows((16,), (14, 14), (4, 7, 7), shifted=True, padding="masked", bias="true", device=CPU)
    assert again is paper


@pytest.mark.parametrize("merge_masks", [False, True])
@pytest.mark.parametrize("padding", ["masked", "released"])
@pytest.mark.parametrize("shifted", [False, True])
@given(
    lengths=st.lists(st.integers(1, 11), min_size=1, max_size=3),
    space=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
)
@settings(max_examples=20, deadline=None)
def test_plan_puts_every_token_in_one_cell(
    shifted: bool, padding: PaddingRule, merge_masks: bool, lengths: list[int], space: tuple[int, int], window: Size
) -> None:
    plan = plan_windows(
        tuple(lengths),
        space,
        window,
        shifted=shifted,
        padding=padding,
        bias="true",
        device=CPU,
        merge_masks=merge_masks,
    )
    tokens = sum(lengths) * space[0] * space[1]
    number = torch.arange(1.0, tokens + 1)
    cells = plan.rows.to_target(number)
    assert len(cells) == sum(g.windows * g.cells for g in plan.groups)
    assert sorted(cells[cells > 0].tolist()) == number.tolist()
    assert torch.equal(plan.rows.to_source(cells), number)


@pytest.mark.parametrize("padding", ["masked", "released"])
@pytest.mark.parametrize("shifted", [False, True])
def test_videos_one_after_another_are_as_if_alone(shifted: bool, padding: PaddingRule) -> None:
    torch.manual_seed(0)
    part = WindowAttention(8, 2, (4, 3, 3), shifted=shifted, bias=True, padding=padding)
    lengths = (5, 2, 8, 1)  # under "released" windows of 4, 2 and 1 cells in time
    videos = [torch.randn(1, length, 4, 5, 8) for length in lengths]
    with torch.no_grad():
        together = part(torch.cat(videos, dim=1), lengths)
        alone = torch.cat([part(video) for video in videos], dim=1)
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("padding", ["masked", "released"])
@pytest.mark.parametrize("shifted", [False, True])
def test_merged_masks_give_what_one_call_per_rule_gives(
    shifted: bool, padding: PaddingRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As training on a GPU takes them: all windows of one size in one call, each with its mask."""
    torch.manual_seed(0)
    part = WindowAttention(8, 2, (4, 3, 3), shifted=shifted, bias=True, padding=padding)
    x = torch.randn(1, 16, 4, 5, 8, requires_grad=True)
    results, calls = [], []
    for few in (False, True):
        plans: list[WindowPlan] = []

        def planned(*args: Any, few: bool = few, plans: list[WindowPlan] = plans, **options: Any) -> WindowPlan:
            plans.append(plan_windows(*args, **{**options, "merge_masks": few}))
            return plans[-1]

        monkeypatch.setattr(window_attention, "plan_windows", planned)
        out = part(x, (5, 2, 8, 1))
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *part.parameters()])])
        calls.append(len(plans[0].groups))
    assert calls[1] == (1 if padding == "masked" else 3)  # "released": windows of 4, 2 and 1 cells in time
    assert calls[0] > calls[1] or (padding == "released" and not shifted)  # which has no masks
    for many, once in zip(*results, strict=True):
        torch.testing.assert_close(once, many, atol=1e-5, rtol=1e-4)


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    part = WindowAttention(4, 2, (2, 2, 2), shifted=True, bias=True).double()
    x = torch.randn(1, 4, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: part(x, (3, 1)), x)


@pytest.mark.parametrize("padding", ["masked", "released"])
def test_a_bad_video_spoils_no_other(padding: PaddingRule) -> None:
    """Padded cells hold zeros, not what lies at some place of the batch."""
    part = WindowAttention(8, 2, (4, 2, 2), shifted=True, bias=True, padding=padding)
    x = torch.randn(2, 5, 3, 3, 8)
    x[0] = torch.nan
    out = part(x)
    assert out[0].isnan().all() and out[1].isfinite().all()


def test_autocast_stays_close_and_moves_half_the_bytes() -> None:
    torch.manual_seed(0)
    part = WindowAttention(8, 2, (4, 2, 2), shifted=True, bias=True)
    x = torch.randn(2, 6, 3, 3, 8)
    moved = []
    part.qkv.register_forward_pre_hook(lambda _, inputs: moved.append(inputs[0].dtype))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rough = part(x)
    assert moved == [torch.bfloat16]
    with torch.no_grad():
        torch.testing.assert_close(rough.float(), part(x), atol=0.05, rtol=0.05)


def test_plan_made_in_inference_serves_training() -> None:
    window_attention._large_plan.cache_clear()
    part = WindowAttention(8, 2, (4, 2, 2), shifted=True, bias=True)
    with torch.inference_mode():
        part(torch.randn(1, 10, 2, 2, 8))
    part(torch.randn(1, 10, 2, 2, 8)).sum().backward()
    assert part.bias_table.grad is not None
    assert np.isfinite(part.bias_table.grad.numpy()).all()


@pytest.mark.parametrize("shifted", [False, True])
def test_masks_lie_as_fused_kernels_take_them(monkeypatch: pytest.MonkeyPatch, shifted: bool) -> None:
    """A bias whose last dimension is not in one piece is refused by every fused kernel on a GPU."""
    strides = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def watched(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor) -> Tensor:
        strides.append(attn_mask.stride(-1))
        return fused(q, k, v, attn_mask=attn_mask)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    layer = WindowAttention(8, 2, (4, 3, 3), shifted=shifted, bias=True)
    layer(torch.randn(1, 9, 3, 3, 8))
    assert strides and set(strides) == {1}


def test_small_plans_on_a_device_are_kept_over_a_hundred_lengths() -> None:
    """Training cuts videos to any length: the host would plan, and upload, at every step."""
    device = torch.device("meta")  # stands for a GPU

    def plan(length: int, batch: int) -> WindowPlan:
        lengths = (length,) * batch
        return plan_windows(lengths, (2, 2), (16, 7, 7), shifted=True, padding="masked", bias="true", device=device)

    first = [plan(length, 2) for length in range(60, 160)]
    assert all(plan(length, 2) is known for length, known in zip(range(60, 160), first, strict=True))
    large = [plan(length, 400) for length in range(140, 160)]
    assert plan(140, 400) is not large[0] and plan(159, 400) is large[-1]
