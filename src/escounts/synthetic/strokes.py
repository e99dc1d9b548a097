"""Strokes: rounded cones, flat bars and outlines, evaluated as signed distances at every pixel.

On a CUDA device with Triton all strokes of a pixel are drawn in one pass, with the same arithmetic: stroke by stroke
every pixel is read and written some twenty times a stroke.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from escounts.synthetic.plan import Array, Numbers, Shapes

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # the CPU build of torch comes without it
    triton = None

CPU_BLOCK = 8
"""Moments drawn together on the CPU: few, so that the window a stroke touches stays small."""
PIXELS = 1024
"""That a program of the CUDA kernel draws."""
SHORT = 4e-3
"""Length below which a stroke's direction is lost in half precision."""
SCALE = 8.0
"""Keeps squared distances within half precision."""


def send(array: Numbers, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The array on the device, without waiting for what the device is busy with."""
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
    return tensor if dtype is None else tensor.to(dtype)


def draw_strokes(shapes: Sequence[Shapes], view_FCHW: Tensor) -> None:
    """Draw every video's strokes onto its part of the view, in place, 0..255."""
    geometry_FK7, paint_FK8 = _stack(shapes)
    lens_F23 = np.concatenate([layer.lens for layer in shapes])
    on_cpu = view_FCHW.device.type == "cpu"
    if not on_cpu and triton is not None:
        _draw_fused(geometry_FK7, paint_FK8, lens_F23, view_FCHW)
        return
    step = CPU_BLOCK if on_cpu else len(geometry_FK7)
    for begin in range(0, len(geometry_FK7), step):
        block = slice(begin, begin + step)
        _draw_block(geometry_FK7[block], paint_FK8[block], lens_F23[block], view_FCHW[block])


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


def _draw_fused(geometry_FK7: Numbers, paint_FK8: Numbers, lens_F23: Numbers, view_FCHW: Tensor) -> None:
    """Draw the strokes of all moments in one pass over the pixels of a CUDA device."""
    device = view_FCHW.device
    axes_FK32 = send(_axes(geometry_FK7, lens_F23), device)
    sharp_F = send(_sharpness(lens_F23, *view_FCHW.shape[2:]), device)
    moments, _, height, width = view_FCHW.shape
    _draw_pixels[(moments, -(-height * width // PIXELS))](
        view_FCHW, axes_FK32, send(geometry_FK7, device), send(paint_FK8, device), sharp_F,
        geometry_FK7.shape[1], height, width, BLOCK=PIXELS,
    )  # fmt: skip


def _sharpness(lens_F23: Numbers, height: int, width: int) -> Array:
    """(F,) -1 / width of a pixel in the layer's coordinates: the slope of a soft edge."""
    pixel = np.sqrt(np.abs(np.linalg.det(lens_F23[:, :, :2]))) * 2 / np.sqrt(height * width)
    slope: Array = (-1 / pixel).astype(np.float32)
    return slope


def _draw_block(geometry_FK7: Numbers, paint_FK8: Numbers, lens_F23: Numbers, view_FCHW: Tensor) -> None:
    """Draw the strokes of some moments; only the pixels that a stroke can reach are touched."""
    device, real = view_FCHW.device, view_FCHW.dtype
    height, width = view_FCHW.shape[2:]
    textured, flat, hollow = (np.max(paint_FK8[..., channel], axis=0) > 0 for channel in (5, 6, 7))
    visible = np.max(geometry_FK7[..., 6], axis=0) > 0
    fading = np.max((geometry_FK7[..., 6] > 0) & (geometry_FK7[..., 6] < 1), axis=0)
    # Padding in one video beside a stroke in another is told apart by its opacity as well.
    fading |= np.max(geometry_FK7[..., 6] <= 0, axis=0)
    axes_FK32 = send(_axes(geometry_FK7, lens_F23), device)
    column_W = ((torch.arange(width, device=device) + 0.5) * 2 / width - 1)[None, None, :]
    row_H = ((torch.arange(height, device=device) + 0.5) * 2 / height - 1)[None, :, None]
    sharp_F11 = send(_sharpness(lens_F23, height, width), device, real)[:, None, None]
    values_FK7 = send(geometry_FK7, device, real)
    paint = send(paint_FK8, device, real)
    windows = _windows(geometry_FK7, paint_FK8, lens_F23, height, width)
    for k in np.flatnonzero(visible):
        left, top, right, bottom = (int(edge) for edge in windows[k])
        if left >= right or top >= bottom:
            continue
        rows, columns = slice(top, bottom), slice(left, right)
        # Both coordinates are affine in the pixel: a row and a column, added once, say where every pixel is.
        across, down, shift = axes_FK32[:, k, :, :, None, None].unbind(1)
        along_FHW, aside_FHW = (
            (across[:, axis] * column_W[..., columns]).to(real)
            + (down[:, axis] * row_H[:, rows] + shift[:, axis]).to(real)
            for axis in range(2)
        )
        _stroke(
            along_FHW,
            aside_FHW,
            values_FK7[:, k, :, None, None],
            paint[:, k, :, None, None],
            sharp_F11,
            view_FCHW[:, :, rows, columns],
            flat=bool(flat[k]),
            hollow=bool(hollow[k]),
            textured=bool(textured[k]),
            fading=bool(fading[k]),
        )


def _axes(geometry_FK7: Numbers, lens_F23: Numbers) -> Array:
    """(F, K, 3, 2) by how much along (in lengths) and aside grow with screen x, with screen y; and their start."""
    start, end = geometry_FK7[..., :2].astype(np.float64), geometry_FK7[..., 2:4].astype(np.float64)
    length = np.maximum(np.linalg.norm(end - start, axis=-1, keepdims=True), 0.5 * SHORT)
    way = (end - start) / length
    frame = np.stack([way / length, np.stack([-way[..., 1], way[..., 0]], -1)], -2)
    matrix = np.repeat(lens_F23[:, None].astype(np.float64), geometry_FK7.shape[1], 1)
    matrix[..., 2] -= start
    return (frame @ matrix).swapaxes(-1, -2).astype(np.float32)


def _stroke(
    along_FHW: Tensor,
    aside_FHW: Tensor,
    values_F7: Tensor,
    paint_F8: Tensor,
    sharp_F11: Tensor,
    view_FCHW: Tensor,
    *,
    flat: bool,
    hollow: bool,
    textured: bool,
    fading: bool,
) -> None:
    """Lay one stroke a moment over the view: few passes over the pixels, for that is what it costs.

    along 0..1 from end to end, aside in layer units; sharp: -1 / width of a pixel.
    """
    x0, y0, x1, y1, r0, r1, opacity = values_F7.unbind(1)
    frequency, across, strength, is_flat, outline = paint_F8[:, 3:].unbind(1)
    length = ((x1 - x0).square() + (y1 - y0).square()).sqrt().clamp_min(0.5 * SHORT)
    part_FHW = along_FHW.clamp(0, 1)
    minus_radius_FHW = torch.addcmul(-r0, r0 - r1, part_FHW)
    # Distances are scaled up inside the root: half precision loses squares of small numbers.
    root_FHW = (along_FHW - part_FHW).mul_(SCALE * length).square_()
    root_FHW = root_FHW.addcmul_(aside_FHW, aside_FHW, value=SCALE * SCALE).sqrt_()
    far_FHW = torch.add(minus_radius_FHW, root_FHW, alpha=1 / SCALE)
    if flat:
        beyond_FHW = ((along_FHW - 0.5).abs_() - 0.5).mul_(length)
        bar_FHW = torch.maximum(beyond_FHW, aside_FHW.abs() + minus_radius_FHW)
        far_FHW = torch.where(is_flat > 0, bar_FHW, far_FHW)
    # Rounded by light from the front: the rim is darker than the middle.
    depth_FHW = root_FHW.div_(minus_radius_FHW.clamp_max_(-0.01))
    light_FHW = torch.addcmul(depth_FHW.new_full((), 1.06), depth_FHW, depth_FHW, value=-0.35 / SCALE**2)
    light_FHW.clamp_min_(0.71)
    if hollow:
        far_FHW = torch.where(outline > 0, far_FHW.abs() - outline, far_FHW)
        light_FHW = torch.where(outline > 0, 1.0, light_FHW)
    if textured:
        stripes_FHW = torch.sin(along_FHW * (frequency * length) + across * aside_FHW)
        light_FHW = torch.addcmul(light_FHW, strength, stripes_FHW)
    cover_FHW = torch.addcmul(far_FHW.new_full((), 0.5), far_FHW, sharp_F11).clamp_(0, 1)
    if fading:
        cover_FHW.mul_(opacity)
    view_FCHW.mul_((1 - cover_FHW)[:, None])
    view_FCHW.addcmul_(cover_FHW.mul_(light_FHW)[:, None], paint_F8[:, :3] * 255)


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


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _draw_pixels(  # type: ignore[no-untyped-def]
        view, axes, geometry, paint, sharp, strokes, height, width, BLOCK: tl.constexpr
    ):
        moment = tl.program_id(0)
        pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = pixel < height * width
        x = ((pixel % width).to(tl.float32) + 0.5) * 2 / width - 1
        y = ((pixel // width).to(tl.float32) + 0.5) * 2 / height - 1
        place = view + moment.to(tl.int64) * 3 * height * width + pixel
        red = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        green = tl.load(place + height * width, mask=inside, other=0.0).to(tl.float32)
        blue = tl.load(place + 2 * height * width, mask=inside, other=0.0).to(tl.float32)
        edge = tl.load(sharp + moment)
        for k in range(strokes):
            row = moment * strokes + k
            g = geometry + row * 7
            opacity = tl.load(g + 6)
            if opacity > 0:
                a = axes + row * 6
                p = paint + row * 8
                along = tl.load(a) * x + tl.load(a + 2) * y + tl.load(a + 4)
                aside = tl.load(a + 1) * x + tl.load(a + 3) * y + tl.load(a + 5)
                dx = tl.load(g + 2) - tl.load(g)
                dy = tl.load(g + 3) - tl.load(g + 1)
                length = tl.maximum(tl.sqrt(dx * dx + dy * dy), 0.002)
                part = tl.minimum(tl.maximum(along, 0.0), 1.0)
                r0 = tl.load(g + 4)
                radius = r0 + (tl.load(g + 5) - r0) * part
                beyond = (along - part) * length
                root = tl.sqrt(beyond * beyond + aside * aside)
                far = root - radius
                bar = tl.maximum((tl.abs(along - 0.5) - 0.5) * length, tl.abs(aside) - radius)
                far = tl.where(tl.load(p + 6) > 0, bar, far)
                depth = root / tl.maximum(radius, 0.01)
                light = tl.maximum(1.06 - 0.35 * depth * depth, 0.71)
                outline = tl.load(p + 7)
                far = tl.where(outline > 0, tl.abs(far) - outline, far)
                light = tl.where(outline > 0, 1.0, light)
                stripes = tl.sin(along * (tl.load(p + 3) * length) + tl.load(p + 4) * aside)
                light = light + tl.load(p + 5) * stripes
                cover = tl.minimum(tl.maximum(0.5 + far * edge, 0.0), 1.0) * opacity
                shade = cover * light * 255
                red = red * (1 - cover) + shade * tl.load(p)
                green = green * (1 - cover) + shade * tl.load(p + 1)
                blue = blue * (1 - cover) + shade * tl.load(p + 2)
        kind = view.dtype.element_ty
        tl.store(place, red.to(kind), mask=inside)
        tl.store(place + height * width, green.to(kind), mask=inside)
        tl.store(place + 2 * height * width, blue.to(kind), mask=inside)
