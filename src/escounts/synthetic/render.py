"""Plans to pixels, in torch: any device, any size; half precision on CUDA, float32 on the CPU.

Legend: B videos, F drawn moments (length · sub-frames), T frames, H W pixels, K strokes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from escounts.synthetic.camera import finish_frames
from escounts.synthetic.plan import Numbers, Plan, Shapes
from escounts.synthetic.strokes import draw_strokes, send
from escounts.synthetic.timeline import Span


@dataclass
class GeneratedBatch:
    """Rendered videos and what is true of them.

    frames_BTCHW: uint8 RGB on the device. spans: every repetition (start, end) in frames of each video.
    side_spans: the halves of alternating motions, else empty. alternates: whether there are two sides, None where
    nobody knows. actions: siblings share it. sibling_B: index of another video of the same action, or -1. kinds:
    source and way, "negative:…" where there are no repetitions. parts: of which motion each span is, or empty.
    """

    frames_BTCHW: Tensor
    spans: list[list[Span]]
    side_spans: list[list[Span]]
    alternates: list[bool | None]
    actions: list[str]
    sibling_B: Tensor
    kinds: list[str]
    parts: list[tuple[int, ...]] = field(default_factory=list)


@torch.no_grad()
def render(
    plans: Sequence[Plan],
    *,
    device: torch.device | str,
    size: int | tuple[int, int] = 128,
    bank_NHWC: Tensor | None = None,
    moments: int = 4096,
) -> GeneratedBatch:
    """Draw the plans, all of one length.

    size: pixels, or (height, width). bank_NHWC: the clips' frames, uint8, on the device; needed where a plan
    shows footage. moments: how many are drawn at once, which bounds the memory.
    """
    if len({plan.length for plan in plans}) != 1:
        raise ValueError(f"plans have lengths {sorted({plan.length for plan in plans})}, expected one length")
    height, width = (size, size) if isinstance(size, int) else size
    device = torch.device(device)
    frames_BTCHW = torch.empty((len(plans), plans[0].length, 3, height, width), dtype=torch.uint8, device=device)
    # Videos with the same layers are drawn together, so that nobody pays for a layer it does not have.
    groups: dict[tuple[int, bool, bool], list[int]] = {}
    for index, plan in enumerate(plans):
        key = (plan.subframes, plan.footage is not None, plan.shapes is not None)
        groups.setdefault(key, []).append(index)
    for (subframes, _, _), members in groups.items():
        step = max(1, moments // (plans[0].length * subframes))
        for begin in range(0, len(members), step):
            chosen = members[begin : begin + step]
            drawn = _draw([plans[i] for i in chosen], device, height, width, bank_NHWC)
            frames_BTCHW[send(np.array(chosen), device)] = drawn
    return GeneratedBatch(
        frames_BTCHW=frames_BTCHW,
        spans=[list(plan.spans) for plan in plans],
        side_spans=[list(plan.side_spans) for plan in plans],
        alternates=[plan.alternates for plan in plans],
        actions=[plan.action for plan in plans],
        sibling_B=torch.tensor([plan.sibling for plan in plans], dtype=torch.long),
        kinds=[plan.kind for plan in plans],
        parts=[plan.parts for plan in plans],
    )


def _draw(plans: list[Plan], device: torch.device, height: int, width: int, bank_NHWC: Tensor | None) -> Tensor:
    """(B, T, 3, H, W) uint8 of plans that have the same layers."""
    real = torch.float16 if device.type == "cuda" else torch.float32
    videos, length, subframes = len(plans), plans[0].length, plans[0].subframes
    view_FCHW = _backdrop(plans, device, real, height, width, bank_NHWC)
    if plans[0].footage is not None:
        view_FCHW = _footage(plans, view_FCHW, bank_NHWC)
    if plans[0].shapes is not None:
        shapes: list[Shapes] = [plan.shapes for plan in plans if plan.shapes is not None]
        draw_strokes(shapes, view_FCHW)
    if subframes > 1:
        view_FCHW = view_FCHW.view(videos * length, subframes, 3, height, width).mean(1)
    view_BTCHW = view_FCHW.view(videos, length, 3, height, width)
    return finish_frames([plan.finish for plan in plans], [plan.seed for plan in plans], view_BTCHW, bank_NHWC)


def lens_grid(lens: Numbers, like_FCHW: Tensor) -> Tensor:
    """(F, H, W, 2) layer coordinates of every pixel, in the precision of `like`."""
    lens_F23 = send(lens.astype(np.float32), like_FCHW.device)
    shape = (lens_F23.shape[0], 3, like_FCHW.shape[2], like_FCHW.shape[3])
    return F.affine_grid(lens_F23, list(shape), align_corners=False).to(like_FCHW.dtype)


def _look_up(bank_NHWC: Tensor | None, index: Numbers, real: torch.dtype) -> Tensor:
    """(F, 3, h, w) frames of the bank."""
    if bank_NHWC is None:
        raise ValueError("a plan shows clip frames, but no clip bank was given: make the Generator with clips=")
    index_F = send(index.clip(0, bank_NHWC.shape[0] - 1), bank_NHWC.device)
    return bank_NHWC[index_F].permute(0, 3, 1, 2).to(real)


def _backdrop(
    plans: list[Plan],
    device: torch.device,
    real: torch.dtype,
    height: int,
    width: int,
    bank_NHWC: Tensor | None,
) -> Tensor:
    """(F, 3, H, W) the backgrounds, 0..255."""
    views = []
    for plan in plans:
        back = plan.backdrop
        count = plan.length * plan.subframes
        like_FCHW = torch.empty((count, 3, height, width), dtype=real, device=device)
        grid_FHW2 = lens_grid(back.lens, like_FCHW)
        if back.ripple is not None:
            bend = back.ripple
            (kx, ky, shift), (cx, cy, radius) = bend.wave, bend.disc
            x_FHW, y_FHW = grid_FHW2.unbind(-1)
            push_FHW = torch.exp(-((x_FHW - cx) ** 2 + (y_FHW - cy) ** 2) / (radius * radius))
            push_FHW = push_FHW * torch.cos(kx * x_FHW + ky * y_FHW + shift)
            push_FHW = push_FHW * send(bend.amount, device, real)[:, None, None]
            grid_FHW2 = grid_FHW2 + torch.stack([push_FHW * bend.direction[0], push_FHW * bend.direction[1]], -1)
        if back.image is not None:
            image_1CHW = send(back.image, device, real).permute(2, 0, 1)[None]
            picture_FCHW = image_1CHW.expand(count, -1, -1, -1)
        elif back.frames is not None and (back.frames == back.frames[0]).all():
            picture_FCHW = _look_up(bank_NHWC, back.frames[:1], real).expand(count, -1, -1, -1)
        elif back.frames is not None:
            picture_FCHW = _look_up(bank_NHWC, back.frames, real)
        else:
            raise ValueError(f"the backdrop of {plan.kind} has neither an image nor clip frames")
        views.append(_sample(picture_FCHW, grid_FHW2))
    return torch.cat(views)


def _sample(picture_FCHW: Tensor, grid_FHW2: Tensor) -> Tensor:
    return F.grid_sample(picture_FCHW, grid_FHW2, mode="bilinear", padding_mode="reflection", align_corners=False)


def _footage(plans: list[Plan], view_FCHW: Tensor, bank_NHWC: Tensor | None) -> Tensor:
    """The view with clip frames laid over it."""
    layers = [plan.footage for plan in plans if plan.footage is not None]
    real, device = view_FCHW.dtype, view_FCHW.device

    def column(values: list[Numbers]) -> Tensor:
        return send(np.concatenate(values), device, real)[:, None, None, None]

    first = np.concatenate([layer.first for layer in layers])
    picture_FCHW = _look_up(bank_NHWC, first, real)
    picture_FCHW = torch.lerp(
        picture_FCHW, _look_up(bank_NHWC, first + 1, real), column([layer.part for layer in layers])
    )
    other = np.concatenate([layer.other for layer in layers])
    fading = np.flatnonzero(other != first)
    if len(fading):
        fade_F = column([layer.fade for layer in layers])
        at_F = send(fading, device)
        picture_FCHW[at_F] = torch.lerp(picture_FCHW[at_F], _look_up(bank_NHWC, other[fading], real), fade_F[at_F])
    grid_FHW2 = lens_grid(np.concatenate([layer.lens for layer in layers]), view_FCHW)
    shown_FCHW = _sample(picture_FCHW, grid_FHW2)
    masks = np.concatenate([np.full(len(layer.first), layer.mask) for layer in layers])
    if not masks.any():
        return shown_FCHW
    mask_F = send(masks, device)[:, None, None]
    ellipse_FHW = torch.sigmoid(12 * (1 - (grid_FHW2**2).sum(-1)).clamp(-3, 3))
    square_FHW = torch.sigmoid(25 * (1 - grid_FHW2.abs().amax(-1)).clamp(-1, 1))
    cover_FHW = torch.where(mask_F == 1, ellipse_FHW, torch.where(mask_F == 2, square_FHW, 1.0))
    return torch.lerp(view_FCHW, shown_FCHW, cover_FHW[:, None].to(real))
