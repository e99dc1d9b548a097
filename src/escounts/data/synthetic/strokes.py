"""Strokes: rounded cones, flat bars and outlines, evaluated as signed distances at every pixel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from escounts.data.synthetic.plan import Numbers, Shapes

CPU_BLOCK = 8
"""Moments drawn together on the CPU: few, so that the window a stroke touches stays small."""
SHORT = 4e-3
"""Length below which a stroke's direction is lost in half precision."""


def draw_strokes(shapes: Sequence[Shapes], view_FCHW: Tensor) -> None:
    """Draw every video's strokes onto its part of the view, in place, 0..255."""
    geometry_FK7, paint_FK8 = _stack(shapes)
    lens_F23 = np.concatenate([layer.lens for layer in shapes])
    if view_FCHW.device.type != "cpu":
        _draw_block(geometry_FK7, paint_FK8, lens_F23, view_FCHW, windowed=False)
        return
    for begin in range(0, len(geometry_FK7), CPU_BLOCK):
        block = slice(begin, begin + CPU_BLOCK)
        _draw_block(geometry_FK7[block], paint_FK8[block], lens_F23[block], view_FCHW[block], windowed=True)


def _stack(shapes: Sequence[Shapes]) -> tuple[Numbers, Numbers]:
    """Geometry and paint of all videos in drawing order, padded with invisible strokes to one number."""
    most = max(layer.order.shape[1] for layer in shapes)
    geometry, paint = [], []
    for layer in shapes:
        strokes = layer.order.shape[1]
        pad = ((0, 0), (0, most - strokes), (0, 0))
        ordered = np.take_along_axis(layer.geometry, layer.order[..., None], 1)
        # A disc is a stroke without a length; a direction it must have all the same.
        short = np.hypot(ordered[..., 2] - ordered[..., 0], ordered[..., 3] - ordered[..., 1]) < SHORT
        ordered[..., 2] = np.where(short, ordered[..., 0] + SHORT, ordered[..., 2])
        geometry.append(np.pad(ordered, pad))
        paint.append(np.pad(layer.paint[layer.order], pad))
    return np.concatenate(geometry).astype(np.float32), np.concatenate(paint).astype(np.float32)


def _draw_block(
    geometry_FK7: Numbers,
    paint_FK8: Numbers,
    lens_F23: Numbers,
    view_FCHW: Tensor,
    *,
    windowed: bool,
) -> None:
    device, real = view_FCHW.device, view_FCHW.dtype
    moments, _, height, width = view_FCHW.shape
    lens = torch.from_numpy(np.ascontiguousarray(lens_F23)).to(device)
    grid_FHW2 = F.affine_grid(lens, [moments, 3, height, width], align_corners=False).to(real)
    # How wide a pixel is in the layer's coordinates: the width of a soft edge.
    pixel = np.sqrt(np.abs(np.linalg.det(lens_F23[:, :, :2]))) * 2 / np.sqrt(height * width)
    edge_F11 = torch.from_numpy(pixel.astype(np.float32)).to(device, real)[:, None, None]
    values_FK7 = torch.from_numpy(geometry_FK7).to(device, real)
    paint = torch.from_numpy(paint_FK8).to(device, real)
    textured, flat, hollow = (np.max(paint_FK8[..., channel], axis=0) > 0 for channel in (5, 6, 7))
    visible = np.max(geometry_FK7[..., 6], axis=0) > 0
    windows = _windows(geometry_FK7, paint_FK8, lens_F23, height, width) if windowed else None
    for k in range(geometry_FK7.shape[1]):
        if not visible[k]:
            continue
        rows, columns = slice(0, height), slice(0, width)
        if windows is not None:
            left, top, right, bottom = (int(edge) for edge in windows[k])
            if left >= right or top >= bottom:
                continue
            rows, columns = slice(top, bottom), slice(left, right)
        _stroke(
            grid_FHW2[:, rows, columns],
            values_FK7[:, k, :, None, None],
            paint[:, k, :, None, None],
            edge_F11,
            view_FCHW[:, :, rows, columns],
            flat=bool(flat[k]),
            hollow=bool(hollow[k]),
            textured=bool(textured[k]),
        )


def _stroke(
    grid_FHW2: Tensor,
    values_F7: Tensor,
    paint_F8: Tensor,
    edge_F11: Tensor,
    view_FCHW: Tensor,
    *,
    flat: bool,
    hollow: bool,
    textured: bool,
) -> None:
    """Lay one stroke a moment over the view."""
    x0, y0, x1, y1, r0, r1, opacity = values_F7.unbind(1)
    red, green, blue, along, across, strength, is_flat, outline = paint_F8.unbind(1)
    dx, dy = x1 - x0, y1 - y0
    length = (dx * dx + dy * dy).sqrt().clamp_min(1e-3)
    dx, dy = dx / length, dy / length
    x_FHW, y_FHW = grid_FHW2[..., 0] - x0, grid_FHW2[..., 1] - y0
    u_FHW = x_FHW * dx + y_FHW * dy
    v_FHW = y_FHW * dx - x_FHW * dy
    part_FHW = (u_FHW / length).clamp(0, 1)
    radius_FHW = r0 + (r1 - r0) * part_FHW
    beyond_FHW = u_FHW - part_FHW * length
    # Distances are scaled up inside the root: half precision loses squares of small numbers.
    far_FHW = ((8 * beyond_FHW).square_().add_((8 * v_FHW).square_())).sqrt_().mul_(0.125).sub_(radius_FHW)
    if flat:
        bar_FHW = torch.maximum((u_FHW - 0.5 * length).abs() - 0.5 * length, v_FHW.abs() - radius_FHW)
        far_FHW = torch.where(is_flat > 0, bar_FHW, far_FHW)
    if hollow:
        far_FHW = torch.where(outline > 0, far_FHW.abs() - outline, far_FHW)
    cover_FHW = (0.5 - far_FHW / edge_F11).clamp_(0, 1).mul_(opacity)
    # Rounded by light from above on the left: dark rim, one side brighter.
    depth_FHW = (1 + far_FHW / radius_FHW.clamp_min(0.01)).clamp_(0, 1)
    light_FHW = 1.06 - 0.35 * depth_FHW * depth_FHW
    if textured:
        light_FHW = light_FHW + strength * torch.sin(along * u_FHW + across * v_FHW)
    for channel, colour in enumerate((red, green, blue)):
        canvas_FHW = view_FCHW[:, channel]
        canvas_FHW.add_(cover_FHW * (light_FHW * (colour * 255) - canvas_FHW))


def _windows(
    geometry_FK7: Numbers,
    paint_FK8: Numbers,
    lens_F23: Numbers,
    height: int,
    width: int,
) -> Numbers:
    """(K, 4) left, top, right, bottom in pixels of what a stroke can touch in all moments of the block."""
    back = np.linalg.inv(lens_F23[:, :, :2].astype(np.float64))
    ends = geometry_FK7[..., :4].reshape(*geometry_FK7.shape[:2], 2, 2).astype(np.float64)
    ends = (ends - lens_F23[:, None, None, :, 2]) @ back.transpose(0, 2, 1)[:, None]
    reach = geometry_FK7[..., 4:6].max(-1) + paint_FK8[..., 7]
    reach = reach[..., None] * np.linalg.norm(back, axis=2)[:, None] + 0.04
    shown = geometry_FK7[..., 6] > 0
    low = np.where(shown[..., None], ends.min(2) - reach, 9.0).min(0)
    high = np.where(shown[..., None], ends.max(2) + reach, -9.0).max(0)
    span = np.array([width, height])
    first = np.clip(np.floor((low + 1) / 2 * span), 0, span)
    last = np.clip(np.ceil((high + 1) / 2 * span), 0, span)
    return np.concatenate([first, last], 1)
