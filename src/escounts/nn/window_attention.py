"""Windowed self-attention with shifted windows and relative position bias (eq. 5).

The map is padded to whole windows and, in shifted blocks, rolled by half a window. A window at the border
then holds cells that are padding or that come from the far side. Which cells may see which is the same for
whole groups of windows, of one video or of many, so each group is one attention call with a mask the size of one
window. (Training on a GPU, where calls cost more than memory, takes all windows of one size in one call, with a mask
for each.) Padding, rolling, cutting and grouping are one move of the tokens' rows, and one back.

Two rules for padding:
- "masked": padded cells are never attended to. Time is never clipped, so that a window always has the cells the
  bias was made for; space is clipped to the grid, with the bias of the true offsets.
- "released": the published code's arithmetic, and that of Video Swin. A window larger than the map is clipped to it
  in every dimension (and not shifted there), and padded cells take part.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from escounts.nn.device import as_layers_take_it, attention
from escounts.nn.packing import RowMap, on_device
from escounts.system.arrays import BoolArray, IntArray

Size = tuple[int, int, int]
PaddingRule = Literal["masked", "released"]
BiasRule = Literal["true", "released"]

FORBIDDEN = -30000.0
"""Added to a logit that must not count. Finite, so that a window of nothing but padding stays a number."""


MASKS_AT_ONCE = 2**27
"""Numbers in the masks of all windows of one call (256 MB in bf16); more, and each rule has a call of its own."""


SMALL_PLAN = 2**23
"""Bytes that the masks of a plan may take for it to be kept among many."""


class Rule(NamedTuple):
    """What windows of a group share. used: the window, clipped or not. labels: of its cells along time, height and
    width, as bytes (see `_cell_labels`)."""

    used: Size
    labels: tuple[bytes, bytes, bytes]


class WindowGroup(NamedTuple):
    """Neighbouring windows of a plan that one call serves. windows: K of them; cells: n of each.

    forbidden_K1nn: a mask for each window, or one for all (K = 1); None when all cells see all.
    """

    windows: int
    cells: int
    forbidden_K1nn: Tensor | None
    bias_index_nn: Tensor


class WindowPlan(NamedTuple):
    """How videos are cut. rows: tokens of all videos (source) and cells of all windows, group by group (target)."""

    rows: RowMap
    groups: tuple[WindowGroup, ...]


def plan_windows(
    lengths: tuple[int, ...], space: tuple[int, int], window: Size, *, device: torch.device, **rules: Any
) -> WindowPlan:
    """`make_plan`'s, kept: the last few, and on a GPU more of small ones, so that training on videos cut to any of a
    hundred lengths does not plan, and wait for the plan's way to the device, at every step."""
    cells = window[0] * min(space[0], window[1]) * min(space[1], window[2])
    small = device.type != "cpu" and sum(lengths) * space[0] * space[1] * cells <= SMALL_PLAN
    return (_small_plan if small else _large_plan)(lengths, space, window, device=device, **rules)


def make_plan(
    lengths: tuple[int, ...],
    space: tuple[int, int],
    window: Size,
    *,
    shifted: bool,
    padding: PaddingRule,
    bias: BiasRule,
    device: torch.device,
    merge_masks: bool = False,
) -> WindowPlan:
    """The plan for videos of so many time cells, one after another, each of space (height, width) tokens a cell.

    merge_masks: a group is all windows of one size, not all of one rule.
    """
    grouped: dict[Rule, list[IntArray]] = {}
    begin = 0
    for length in lengths:
        size = (length, *space)
        for rule, cells_Kn in cut_video(size, window, shifted=shifted, padding=padding).items():
            grouped.setdefault(rule, []).append(np.where(cells_Kn < 0, -1, cells_Kn + begin).ravel())
        begin += length * space[0] * space[1]
    calls: dict[Size | Rule, list[Rule]] = {}
    for rule in grouped:
        calls.setdefault(rule.used if merge_masks else rule, []).append(rule)
    groups = []
    for rules in calls.values():
        used, cells = rules[0].used, int(np.prod(rules[0].used))
        windows = [sum(map(len, grouped[rule])) // cells for rule in rules]
        bias_index_nn = _bias_index(window, used, bias, device)
        groups.append(WindowGroup(sum(windows), cells, _masks(rules, windows, device), bias_index_nn))
    token_of_cell = np.concatenate([part for rules in calls.values() for rule in rules for part in grouped[rule]])
    return WindowPlan(RowMap.of(token_of_cell, begin, device), tuple(groups))


_large_plan, _small_plan = lru_cache(maxsize=16)(make_plan), lru_cache(maxsize=256)(make_plan)


@lru_cache(maxsize=256)
def cut_video(size: Size, window: Size, *, shifted: bool, padding: PaddingRule) -> dict[Rule, IntArray]:
    """Windows of a map of `size` (time, height, width) cells by their rule: numbers of their cells in the map, -1
    for padding, (windows, cells)."""
    used = [min(s, w) for s, w in zip(size, window, strict=True)]
    shift = [w // 2 if shifted and s > w else 0 for s, w in zip(size, window, strict=True)]
    if padding == "masked":
        used[0] = window[0]
        shift[0] = window[0] // 2 if shifted else 0
    windows = [-(-s // w) for s, w in zip(size, used, strict=True)]
    padded = [k * w for k, w in zip(windows, used, strict=True)]
    number = np.full(padded, -1)
    number[: size[0], : size[1], : size[2]] = np.arange(np.prod(size)).reshape(size)
    number = np.roll(number, [-by for by in shift], axis=(0, 1, 2))
    blocks = number.reshape(windows[0], used[0], windows[1], used[1], windows[2], used[2])
    cells_THWn = blocks.transpose(0, 2, 4, 1, 3, 5).reshape(*windows, -1)
    along = [
        _places_by_labels(_cell_labels(s, p, w, by, padding))
        for s, p, w, by in zip(size, padded, used, shift, strict=True)
    ]
    clipped: Size = (used[0], used[1], used[2])
    return {
        Rule(clipped, (t, h, w)): cells_THWn[np.ix_(at_t, at_h, at_w)].reshape(-1, cells_THWn.shape[-1])
        for t, at_t in along[0].items()
        for h, at_h in along[1].items()
        for w, at_w in along[2].items()
    }


def relative_index(window: Size, used: Size, rule: BiasRule = "true") -> IntArray:
    """Row of the bias table (made for `window`) for every pair of cells of a `used` window, shape (n, n).

    "true" reads the offset of the two cells. "released" cuts the corner out of the full window's table, as
    the published code does, which mixes up offsets when the window is clipped in space.
    """
    base = used if rule == "true" else window
    cells = np.stack(np.meshgrid(*(np.arange(k) for k in base), indexing="ij")).reshape(3, -1)
    offset = cells[:, :, None] - cells[:, None, :] + np.array(window).reshape(3, 1, 1) - 1
    _, rows, columns = (2 * k - 1 for k in window)
    index: IntArray = (offset[0] * rows + offset[1]) * columns + offset[2]
    n = int(np.prod(used))
    return index[:n, :n]


def _cell_labels(size: int, padded: int, window: int, shift: int, padding: PaddingRule) -> list[IntArray]:
    """Per window along one dimension: 0 ordinary, 1 rolled in from the far side, -1 padding to be masked."""
    source = (np.arange(padded) + shift) % padded
    label = (np.arange(padded) >= padded - shift).astype(np.int64)
    if padding == "masked":
        label[source >= size] = -1
    return list(label.reshape(-1, window))


@lru_cache(maxsize=512)
def _allowed(rule: Rule) -> BoolArray:
    """May cell i of the window see cell j? Both from the same side in every dimension, and j not padding."""
    labels = (np.frombuffer(label, np.int64) for label in rule.labels)
    cells = np.stack(np.meshgrid(*labels, indexing="ij")).reshape(3, -1)
    same = np.logical_and.reduce(cells[:, :, None] == cells[:, None, :])
    real = np.logical_and.reduce(cells >= 0)
    if not real.any():
        return np.ones_like(same)
    # A padded cell's own result is thrown away: let it see all real cells, so that whole groups need no mask.
    allowed: BoolArray = np.where(real[:, None], same, True) & real[None, :]
    return allowed


def _places_by_labels(labels: list[IntArray]) -> dict[bytes, list[int]]:
    """Numbers of the windows along one dimension that have the same labels."""
    places: dict[bytes, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label.tobytes(), []).append(place)
    return places


def _masks(rules: list[Rule], windows: list[int], device: torch.device) -> Tensor | None:
    """forbidden_K1nn of so many windows of each rule, one after another."""
    if all(_allowed(rule).all() for rule in rules):
        return None
    # Cached tensors must be ordinary ones: those made in inference mode cannot serve a later training step.
    with torch.inference_mode(False):
        if len(rules) == 1:
            return _forbidden(rules[0], device)
        which_K = on_device(np.repeat(np.arange(len(rules)), windows), device)
        return torch.cat([_forbidden(rule, device) for rule in rules])[which_K]


@lru_cache(maxsize=512)
def _forbidden(rule: Rule, device: torch.device) -> Tensor:
    """May cell i not see cell j, (1, 1, n, n)?"""
    return on_device(~_allowed(rule)[None, None], device)


@lru_cache(maxsize=64)
def _bias_index(window: Size, used: Size, rule: BiasRule, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return on_device(relative_index(window, used, rule), device)


class _Masked(torch.autograd.Function):
    """The bias of every window, FORBIDDEN where it may not look. There nothing is seen and the gradient is 0 as it
    is: backward need not mask it again, which would be one more pass over all windows' biases."""

    @staticmethod
    def forward(ctx: Any, bias_1hnn: Tensor, forbidden_K1nn: Tensor) -> Tensor:
        return torch.where(forbidden_K1nn, FORBIDDEN, bias_1hnn)

    @staticmethod
    def backward(ctx: Any, grad_Khnn: Tensor) -> tuple[Tensor, None]:
        return grad_Khnn.sum(0, keepdim=True), None


def new_bias_table(window: Size, heads: int) -> nn.Parameter:
    """A row for each offset between two cells of a window."""
    table = nn.Parameter(torch.empty(int(np.prod([2 * side - 1 for side in window])), heads))
    nn.init.trunc_normal_(table, std=0.02)
    return table


class WindowAttention(nn.Module):
    """Self-attention inside windows; returns the increment, no residual. Shapes: n cells of a window."""

    def __init__(
        self,
        channels: int,
        heads: int,
        window: Size,
        *,
        shifted: bool,
        bias: bool,
        padding: PaddingRule = "masked",
        bias_rule: BiasRule = "true",
    ) -> None:
        super().__init__()
        self.heads, self.window, self.shifted = heads, window, shifted
        self.padding: PaddingRule = padding
        self.bias_rule: BiasRule = bias_rule
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels, bias=bias)
        self.out = nn.Linear(channels, channels)
        self.bias_table = new_bias_table(window, heads)

    def forward(self, x_BTHWC: Tensor, lengths: tuple[int, ...] | None = None) -> Tensor:
        """x: maps of tokens. lengths: time cells of videos that lie one after another in a batch of one (`Packing`);
        None when every sample is one video."""
        # Normalised before it is padded: under the "released" rule a padded cell is the bias of qkv alone.
        return attend_in_windows(
            self.norm(x_BTHWC),
            self.qkv,
            self.out,
            self.bias_table,
            self.window,
            shifted=self.shifted,
            padding=self.padding,
            bias=self.bias_rule,
            lengths=lengths,
        )


def attend_in_windows(
    x_BTHWC: Tensor,
    qkv: nn.Module,
    out: nn.Module,
    bias_table: Tensor,
    window: Size,
    *,
    shifted: bool,
    padding: PaddingRule,
    bias: BiasRule,
    lengths: tuple[int, ...] | None = None,
) -> Tensor:
    """Normalised tokens -> the increment. qkv, out: linear layers; bias_table: (offsets, heads)."""
    batch, time, height, width, _ = x_BTHWC.shape
    heads = bias_table.shape[1]
    plan = plan_windows(
        lengths or (time,) * batch,
        (height, width),
        window,
        shifted=shifted,
        padding=padding,
        bias=bias,
        device=x_BTHWC.device,
        merge_masks=x_BTHWC.is_cuda and torch.is_grad_enabled() and _masks_are_cheap(x_BTHWC, window, heads),
    )
    cells_RC = plan.rows.to_target(as_layers_take_it(x_BTHWC).flatten(0, 3))
    rows = torch.split(qkv(cells_RC), [group.windows * group.cells for group in plan.groups])
    # By cells of a window: videos differ in time alone, and so do windows.
    alike = {group.cells: group for group in plan.groups}
    biases = {cells: _bias(bias_table, group, rows[0].dtype) for cells, group in alike.items()}
    seen = [_attend(part, biases[group.cells], group) for group, part in zip(plan.groups, rows, strict=True)]
    seen_RC = seen[0] if len(seen) == 1 else torch.cat(seen)
    found: Tensor = out(plan.rows.to_source(seen_RC))
    return found.view(x_BTHWC.shape)


def _masks_are_cheap(x_BTHWC: Tensor, window: Size, heads: int) -> bool:
    """Is a mask for every window small, and such as fused kernels take without padding it?"""
    space = [min(size, most) for size, most in zip(x_BTHWC.shape[2:4], window[1:], strict=True)]
    cells = window[0] * space[0] * space[1]
    rows = x_BTHWC.numel() // x_BTHWC.shape[-1]
    return cells % 8 == 0 and rows * cells * heads <= MASKS_AT_ONCE


def _bias(bias_table: Tensor, group: WindowGroup, dtype: torch.dtype) -> Tensor:
    """(1, heads, n, n). In one piece, or no fused kernel takes it and torch quietly falls back on softmax."""
    # Not bias_table[index]: to add up its gradient torch sorts the index, in a dozen launches.
    bias_nnh = bias_table.index_select(0, group.bias_index_nn.flatten()).view(group.cells, group.cells, -1)
    return bias_nnh.permute(2, 0, 1)[None].to(dtype).contiguous()


def _attend(qkv_RC: Tensor, bias_1hnn: Tensor, group: WindowGroup) -> Tensor:
    """One group of windows: rows of 3C channels -> rows of C."""
    bias_Khnn = bias_1hnn
    if group.forbidden_K1nn is not None:
        bias_Khnn = _Masked.apply(bias_1hnn, group.forbidden_K1nn)  # type: ignore[no-untyped-call]
    shape = (group.windows, group.cells, bias_1hnn.shape[1], -1)
    q_Khnd, k_Khnd, v_Khnd = (part.view(shape).transpose(1, 2) for part in qkv_RC.chunk(3, dim=-1))
    seen_Khnd = attention(q_Khnd, k_Khnd, v_Khnd, bias_Khnn)
    return seen_Khnd.transpose(1, 2).flatten(2).flatten(0, 1)
