"""Windowed self-attention with shifted windows and relative position bias (eq. 5).

The map is padded to whole windows and, in shifted blocks, rolled by half a window. A window at the border
then holds cells that are padding or that come from the far side. Which cells may see which is the same for
whole groups of windows, so each group is one attention call with a mask the size of one window.

Two rules for padding:
- "masked": padded cells are never attended to. Time is never clipped, so a video's result does not depend on
  the length it is batched at; space is clipped to the grid, with the bias of the true offsets.
- "released": the published code's arithmetic. A window larger than the map is clipped to it in every
  dimension (and not shifted there), and padded cells take part.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Size = tuple[int, int, int]
PaddingRule = Literal["masked", "released"]
BiasRule = Literal["true", "released"]

FORBIDDEN = -30000.0
"""Added to a logit that must not count. Finite, so that a window of nothing but padding stays a number."""

MASK_VALUES_AT_ONCE = 1 << 24
"""Largest per-sample mask built at a time, in values; batches with padding run in chunks of this size."""


class WindowGroup(NamedTuple):
    """Windows start..stop (in plan order) that share one rule; allowed: None when all cells see all."""

    start: int
    stop: int
    allowed_nn: Tensor | None


class WindowPlan(NamedTuple):
    """How a map of one size is cut. order: window numbers sorted by group, None when already sorted."""

    padded: Size
    window: Size
    shift: Size
    order: Tensor | None
    inverse: Tensor | None
    groups: tuple[WindowGroup, ...]
    bias_index_nn: Tensor

    @property
    def windows(self) -> Size:
        """Number of windows along time, height, width."""
        t, h, w = (p // k for p, k in zip(self.padded, self.window, strict=True))
        return t, h, w


@lru_cache(maxsize=512)
def plan_windows(
    size: Size,
    window: Size,
    *,
    shifted: bool,
    padding: PaddingRule,
    bias: BiasRule,
    device: torch.device,
) -> WindowPlan:
    """The plan for a map of `size` (time, height, width) cells; cached, since videos share few sizes."""
    clipped = [min(s, w) for s, w in zip(size, window, strict=True)]
    shift = [w // 2 if shifted and s > w else 0 for s, w in zip(size, window, strict=True)]
    if padding == "masked":
        clipped[0] = window[0]
        shift[0] = window[0] // 2 if shifted else 0
    used: Size = (clipped[0], clipped[1], clipped[2])
    moved: Size = (shift[0], shift[1], shift[2])
    padded = tuple(-(-s // w) * w for s, w in zip(size, used, strict=True))
    labels = [
        _cell_labels(s, p, w, by, padding) for s, p, w, by in zip(size, padded, used, moved, strict=True)
    ]
    numbers: dict[bytes, list[int]] = {}
    rules: dict[bytes, npt.NDArray[np.bool_]] = {}
    for number, (t, h, w) in enumerate(product(*labels)):
        key = t.tobytes() + h.tobytes() + w.tobytes()
        numbers.setdefault(key, []).append(number)
        if key not in rules:
            rules[key] = _allowed(t, h, w)
    # Cached tensors must be ordinary ones: those made in inference mode cannot serve a later training step.
    with torch.inference_mode(False):
        order = [n for group in numbers.values() for n in group]
        in_order = order == sorted(order)
        stops = np.cumsum([len(group) for group in numbers.values()]).tolist()
        groups = tuple(
            WindowGroup(stop - len(numbers[key]), stop, None if rule.all() else _tensor(rule, device))
            for stop, (key, rule) in zip(stops, rules.items(), strict=True)
        )
        return WindowPlan(
            padded=(padded[0], padded[1], padded[2]),
            window=used,
            shift=moved,
            order=None if in_order else _tensor(np.array(order), device),
            inverse=None if in_order else _tensor(np.argsort(order), device),
            groups=groups,
            bias_index_nn=_tensor(relative_index(window, used, bias), device),
        )


def relative_index(window: Size, used: Size, rule: BiasRule = "true") -> npt.NDArray[np.int64]:
    """Row of the bias table (made for `window`) for every pair of cells of a `used` window, shape (n, n).

    "true" reads the offset of the two cells. "released" cuts the corner out of the full window's table, as
    the published code does, which mixes up offsets when the window is clipped in space.
    """
    base = used if rule == "true" else window
    cells = np.stack(np.meshgrid(*(np.arange(k) for k in base), indexing="ij")).reshape(3, -1)
    offset = cells[:, :, None] - cells[:, None, :] + np.array(window).reshape(3, 1, 1) - 1
    _, rows, columns = (2 * k - 1 for k in window)
    index: npt.NDArray[np.int64] = (offset[0] * rows + offset[1]) * columns + offset[2]
    n = int(np.prod(used))
    return index[:n, :n]


def _cell_labels(
    size: int, padded: int, window: int, shift: int, padding: PaddingRule
) -> list[npt.NDArray[np.int64]]:
    """Per window along one dimension: 0 ordinary, 1 rolled in from the far side, -1 padding to be masked."""
    source = (np.arange(padded) + shift) % padded
    label = (np.arange(padded) >= padded - shift).astype(np.int64)
    if padding == "masked":
        label[source >= size] = -1
    return list(label.reshape(-1, window))


def _allowed(
    t: npt.NDArray[np.int64], h: npt.NDArray[np.int64], w: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """May cell i of the window see cell j? Both from the same side in every dimension, and j not padding."""
    cells = np.stack(np.meshgrid(t, h, w, indexing="ij")).reshape(3, -1)
    same = np.logical_and.reduce(cells[:, :, None] == cells[:, None, :])
    real = np.logical_and.reduce(cells >= 0)
    if not real.any():
        return np.ones_like(same)
    # A padded cell's own result is thrown away: let it see all real cells, so that whole groups need no mask.
    allowed: npt.NDArray[np.bool_] = np.where(real[:, None], same, True) & real[None, :]
    return allowed


def _tensor(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


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
        offsets = (2 * window[0] - 1) * (2 * window[1] - 1) * (2 * window[2] - 1)
        self.bias_table = nn.Parameter(torch.empty(offsets, heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(self, x_BTHWC: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """x: a map of tokens; valid: True where a sample's time cell is real, None when all are."""
        size: Size = (x_BTHWC.shape[1], x_BTHWC.shape[2], x_BTHWC.shape[3])
        plan = plan_windows(
            size,
            self.window,
            shifted=self.shifted,
            padding=self.padding,
            bias=self.bias_rule,
            device=x_BTHWC.device,
        )
        # Padded after the norm, so that under the "released" rule a padded cell is the bias of qkv alone.
        cut = _cut(_roll(self.norm(x_BTHWC), plan), plan)
        qkv = self.qkv(cut).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        bias_1hnn = self.bias_table[plan.bias_index_nn].permute(2, 0, 1).unsqueeze(0).to(qkv.dtype)
        valid_KBn = None if valid_BT is None else self._valid_cells(valid_BT, plan, size)
        seen = [
            self._attend(qkv[:, group.start : group.stop], bias_1hnn, group, valid_KBn)
            for group in plan.groups
        ]
        seen_KBhnd = seen[0] if len(seen) == 1 else torch.cat(seen)
        joined = _join(self.out(seen_KBhnd.transpose(2, 3).flatten(3)), plan)
        return _unroll(joined, plan, size)

    def _attend(self, qkv: Tensor, bias_1hnn: Tensor, group: WindowGroup, valid_KBn: Tensor | None) -> Tensor:
        """One group of windows: qkv (3, K, B, h, n, d) -> (K, B, h, n, d)."""
        mask_1hnn = bias_1hnn
        if group.allowed_nn is not None:
            mask_1hnn = bias_1hnn.masked_fill(~group.allowed_nn, FORBIDDEN)
        if valid_KBn is None:
            q, k, v = qkv.flatten(1, 2)
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask_1hnn)
            return seen.view(qkv.shape[1:])
        valid_KBn = valid_KBn[group.start : group.stop]
        at_once = max(1, MASK_VALUES_AT_ONCE // (qkv.shape[2] * mask_1hnn.numel()))
        parts = []
        for some, real in zip(torch.split(qkv, at_once, dim=1), torch.split(valid_KBn, at_once), strict=True):
            q, k, v = some.flatten(1, 2)
            mask = mask_1hnn.masked_fill(~real.flatten(0, 1)[:, None, None, :], FORBIDDEN)
            parts.append(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).view(some.shape[1:]))
        return torch.cat(parts)

    def _valid_cells(self, valid_BT: Tensor, plan: WindowPlan, size: Size) -> Tensor:
        """valid per cell of every window in plan order, (K, B, n); under "released" padding takes part."""
        valid = valid_BT[:, :, None, None, None].expand(-1, -1, *size[1:], 1)
        filled = _roll(valid, plan, fill=self.padding == "released")
        return _cut(filled, plan).squeeze(-1)


def _roll(x_BTHWC: Tensor, plan: WindowPlan, *, fill: bool | float = 0.0) -> Tensor:
    """Pad at the far ends to whole windows, then roll back by the shift."""
    missing = [p - s for p, s in zip(plan.padded, x_BTHWC.shape[1:4], strict=True)]
    if any(missing):
        x_BTHWC = F.pad(x_BTHWC, (0, 0, 0, missing[2], 0, missing[1], 0, missing[0]), value=float(fill))
    if any(plan.shift):
        x_BTHWC = x_BTHWC.roll([-s for s in plan.shift], dims=(1, 2, 3))
    return x_BTHWC


def _unroll(x_BTHWC: Tensor, plan: WindowPlan, size: Size) -> Tensor:
    """Undo `_roll`."""
    if any(plan.shift):
        x_BTHWC = x_BTHWC.roll(plan.shift, dims=(1, 2, 3))
    return x_BTHWC[:, : size[0], : size[1], : size[2]]


def _cut(x_BTHWC: Tensor, plan: WindowPlan) -> Tensor:
    """(B, T, H, W, C) -> (K windows in plan order, B, n cells, C)."""
    (nt, nh, nw), (t, h, w) = plan.windows, plan.window
    batch, channels = x_BTHWC.shape[0], x_BTHWC.shape[-1]
    x = x_BTHWC.reshape(batch, nt, t, nh, h, nw, w, channels).permute(1, 3, 5, 0, 2, 4, 6, 7)
    x_KBnC = x.reshape(nt * nh * nw, batch, t * h * w, channels)
    return x_KBnC if plan.order is None else x_KBnC[plan.order]


def _join(x_KBnC: Tensor, plan: WindowPlan) -> Tensor:
    """Undo `_cut`."""
    if plan.inverse is not None:
        x_KBnC = x_KBnC[plan.inverse]
    (nt, nh, nw), (t, h, w) = plan.windows, plan.window
    batch, channels = x_KBnC.shape[1], x_KBnC.shape[-1]
    x = x_KBnC.view(nt, nh, nw, batch, t, h, w, channels).permute(3, 0, 4, 1, 5, 2, 6, 7)
    return x.reshape(batch, nt * t, nh * h, nw * w, channels)
