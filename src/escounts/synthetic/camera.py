"""The camera: how the screen maps onto the scene, for the background and, by parallax, for the performer; and the
finish: what cameras, codecs and editors do to a drawn scene.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from escounts.synthetic.coded import squeeze_frames
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.plan import Array, Finish, Numbers
from escounts.synthetic.strokes import send
from escounts.synthetic.timeline import Floats, Ints, chance, log_uniform, smooth_noise


def place(scale: Floats | float, angle: Floats | float, x: Floats | float, y: Floats | float, count: int) -> Floats:
    """(F, 2, 3) maps the screen onto a thing that is shown `scale` large, turned by angle, centred at x, y."""
    scale, angle, x, y = (np.broadcast_to(np.asarray(value, float), (count,)) for value in (scale, angle, x, y))
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    turn = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], -2)
    shift = -(turn @ np.stack([x, y], -1)[..., None])
    return np.concatenate([turn, shift], -1)


def compose(outer: Floats, inner: Floats) -> Floats:
    """The affine map that applies inner first, then outer."""
    turn = outer[..., :2] @ inner[..., :2]
    shift = outer[..., :2] @ inner[..., 2:] + outer[..., 2:]
    return np.concatenate([turn, shift], -1)


def stretch(across: float, down: float) -> Floats:
    """(1, 2, 3) a constant scaling of both axes; negative mirrors."""
    return np.array([[[across, 0.0, 0.0], [0.0, down, 0.0]]])


def mirror(sides: Ints) -> Floats:
    """(F, 2, 3) left and right swapped where the side is 1."""
    turned = np.repeat(stretch(1.0, 1.0), len(sides), 0)
    turned[:, 0, 0] = np.where(sides == 1, -1.0, 1.0)
    return turned


STILL_CAMERA = GeneratorConfig(
    camera_still=1.0, camera_gentle=0.0, camera_strong=0.0, camera_fast=0.0,
    shake=0.0, pan=0.0, zoom=0.0, shot_change=0.0,
)  # fmt: skip


def draw_camera(
    rng: np.random.Generator,
    config: GeneratorConfig,
    times: Floats,
    *,
    aspect: float,
    pan: bool | None = None,
    calm: bool = False,
) -> tuple[Array, Array]:
    """A camera for the given moments: (F, 2, 3) screen to background, and screen to the performer's layer.

    aspect: the scene's width / height before it is squashed to a square.

    pan: force (or forbid) a pan in one direction. calm: for layers that fill the screen with one clip, where
    a strong camera would show its border too often.
    """
    count, length = len(times), float(times.max() - times.min()) + 1.0
    shares = np.array([config.camera_still, config.camera_gentle, config.camera_strong, config.camera_fast])
    kind = int(rng.choice(4, p=shares / shares.sum()))
    size = (0.0, 0.35, 1.0, 1.0)[kind] * (0.6 if calm else 1.0)
    pace = length * rng.uniform(0.4, 1.5) if kind < 3 else rng.uniform(6.0, 25.0)
    curve = smooth_noise(rng, times, 4, pace) * size
    track = curve * np.array([0.12, 0.10, 0.18, 0.18])[:, None]
    if chance(rng, config.zoom):
        track[0] += np.linspace(-1, 1, count) * rng.normal() * 0.35
    if chance(rng, config.shake):
        shake = smooth_noise(rng, times, 3, rng.uniform(1.2, 4.0)) * rng.uniform(0.003, 0.045)
        track[1:] += shake * np.array([0.6, 1.0, 1.0])[:, None]
    if chance(rng, config.pan) if pan is None else pan:
        way = rng.uniform(0, 2 * np.pi)
        speed = rng.uniform(0.3, 2.0) * (times - times.mean()) / length
        speed = speed + 0.1 * smooth_noise(rng, times, 1, 0.3 * length)[0]
        track[2:] += speed * np.array([np.cos(way), 0.5 * np.sin(way)])[:, None]
    if chance(rng, config.shot_change):
        after = times > rng.uniform(0.2, 0.8) * length
        track += after * rng.normal(size=(4, 1)) * np.array([0.25, 0.08, 0.2, 0.15])[:, None]
    base = [np.log(rng.uniform(0.85, 1.35)), 0.08 * rng.normal() if chance(rng, 0.5) else 0.0]
    follow = rng.uniform(0.15, 1.0) if not calm else 1.0  # parallax: what is nearer the camera
    front = track * follow
    front[2:] = 0.5 * np.tanh(front[2:] / 0.5)  # the performer stays in sight
    flip = -1.0 if chance(rng, 0.5) else 1.0
    root = np.sqrt(aspect)
    squash = stretch(flip * root, 1 / root)
    back = place(np.exp(base[0] + track[0]), base[1] + track[1], track[2], track[3], count)
    ahead = place(np.exp(base[0] + front[0]), base[1] + front[1], front[2], front[3], count)
    return (
        compose(back, np.broadcast_to(squash, back.shape)).astype(np.float32),
        compose(ahead, np.broadcast_to(squash, ahead.shape)).astype(np.float32),
    )


HOLD_LEAST = 3.0
"""New frames per repetition below which a held video would no longer show it."""


def draw_finish(
    rng: np.random.Generator,
    config: GeneratorConfig,
    length: int,
    *,
    period: float,
    flicker: bool = False,
    grain: bool = False,
    coded: bool = False,
    pulse: Numbers | None = None,
    squeeze: float = 0.0,
) -> Finish:
    """A finish for one video, whose repetitions take about `period` frames.

    flicker: force changing light, strong, for videos where nothing else happens; grain: mostly force noise, for those
    in which nothing happens at all. coded: the video has its codec's noise already. pulse, squeeze: see Finish.
    """
    level = np.exp(rng.uniform(-0.3, 0.3))
    gain = level * np.exp(rng.uniform(-0.125, 0.125, 3))
    contrast, offset = np.exp(rng.uniform(-0.4, 0.35)), rng.uniform(-25, 25)
    if chance(rng, config.dark):
        contrast, offset = contrast * rng.uniform(0.3, 0.75), offset - rng.uniform(20, 80)
    light = np.zeros(length, np.float32)
    times = np.arange(length, dtype=np.float64) + 0.5
    if flicker or chance(rng, config.flicker):
        size = rng.uniform(10, 45) if flicker else rng.uniform(2, 14)
        light += (size * smooth_noise(rng, times, 1, log_uniform(rng, 1.0, length))[0]).astype(np.float32)
    if coded:
        light *= 0
    boxes = [_letterbox(rng)] if chance(rng, 0.1) else []
    if chance(rng, 0.2):
        boxes.append(_caption(rng))
    return Finish(
        gain=(float(gain[0]), float(gain[1]), float(gain[2])),
        contrast=float(contrast),
        offset=float(offset),
        grey=chance(rng, 0.12),
        blur=chance(rng, 0.2),
        soft=float(rng.uniform(0.35, 0.8)) if chance(rng, 0.3) else 1.0,
        noise=float(rng.uniform(1.0, 12.0))
        if chance(rng, 0.05 if coded else 0.8 if grain else config.noise)
        else 0.0,
        flicker=light,
        boxes=np.concatenate(boxes) if boxes else np.zeros((0, 7), np.float32),
        pulse=np.zeros(0, np.int64) if pulse is None else pulse,
        squeeze=squeeze,
        shown=_held(rng, config, length, period),
    )


FLASH_GLOW = 0.15
"""Part of a flash that falls on the whole picture."""


def draw_flash(
    rng: np.random.Generator, config: GeneratorConfig, length: int, *, only_light: bool
) -> tuple[Numbers, tuple[float, float, float]] | None:
    """What a light in the picture adds in every frame, and its spot (see Finish); None for most videos.

    It is on and off for times that know no rhythm, and unsteady while it is on. only_light: nothing else happens.
    """
    if not chance(rng, 0.5 if only_light and config.flash else config.flash):
        return None
    pace, lit = log_uniform(rng, 1.0, 12.0), bool(chance(rng, 0.5))
    on = np.zeros(length, np.float32)
    at = 0.0
    while at < length:
        lasts = pace * log_uniform(rng, 0.3, 4.0) * (1.0 if lit else 1.5)
        on[round(at) : round(at + lasts)] = lit
        at, lit = at + max(1.0, lasts), not lit
    unsteady = 1 + 0.35 * smooth_noise(rng, np.arange(length, dtype=np.float64), 1, rng.uniform(1.0, 3.0))[0]
    flash: Numbers = (rng.uniform(40, 220) * on * np.clip(unsteady, 0.1, 2.0)).astype(np.float32)
    return flash, (rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), log_uniform(rng, 0.02, 0.3))


def _held(rng: np.random.Generator, config: GeneratorConfig, length: int, period: float) -> Numbers:
    """Which frame is shown when, for a source of fewer frames per second; empty where every frame is new."""
    rate = rng.uniform(0.3, 0.95)  # new frames per frame shown
    if not chance(rng, config.hold) or rate * period < HOLD_LEAST:
        return np.zeros(0, np.int64)
    begun = np.floor(np.arange(length) * rate + rng.random())
    shown: Numbers = np.searchsorted(begun, begun).astype(np.int64)
    return shown


def _letterbox(rng: np.random.Generator) -> Numbers:
    """Two bars of one dark or bright colour at opposite borders."""
    wide = rng.uniform(0.04, 0.2)
    shade = 0.0 if chance(rng, 0.8) else float(rng.uniform(0, 255))
    low, high = (0.0, 0.0, 1.0, wide), (0.0, 1 - wide, 1.0, 1.0)
    if chance(rng, 0.5):  # at the sides instead
        low, high = (0.0, 0.0, wide, 1.0), (1 - wide, 0.0, 1.0, 1.0)
    return np.array([[*edge, shade, shade, shade] for edge in (low, high)], np.float32)


def _caption(rng: np.random.Generator) -> Numbers:
    """A box, or a row of letter-like bars, that stays where it is."""
    left, top = rng.uniform(0, 0.8), rng.uniform(0, 0.9)
    colour = rng.uniform(0, 255, 3)
    if chance(rng, 0.5):
        return np.array(
            [[left, top, left + rng.uniform(0.05, 0.5), top + rng.uniform(0.03, 0.25), *colour]], np.float32
        )
    high, at, letters = rng.uniform(0.03, 0.08), left, []
    for _ in range(int(rng.integers(3, 9))):
        wide = rng.uniform(0.008, 0.03)
        letters.append([at, top, at + wide, top + high, *colour])
        at += wide + rng.uniform(0.008, 0.02)
    return np.array(letters, np.float32)


def finish_frames(
    finishes: Sequence[Finish], seeds: Sequence[int], view_BTCHW: Tensor, bank_NHWC: Tensor | None = None
) -> Tensor:
    """(B, T, 3, H, W) uint8 of drawn frames 0..255; noise comes from each video's own seed, pulses from the bank."""
    device, real = view_BTCHW.device, view_BTCHW.dtype
    length, height, width = view_BTCHW.shape[1], view_BTCHW.shape[3], view_BTCHW.shape[4]

    def column(values: Sequence[object]) -> Tensor:
        made = send(np.array(values, np.float32), device, real)
        return made.view(len(values), 1, -1, 1, 1)

    for index, finish in enumerate(finishes):
        if finish.soft < 1:
            small = (max(8, int(height * finish.soft)), max(8, int(width * finish.soft)))
            less_TCHW = F.interpolate(view_BTCHW[index], size=small, mode="bilinear", antialias=False)
            view_BTCHW[index] = F.interpolate(less_TCHW, size=(height, width), mode="bilinear")
        if finish.blur:
            view_BTCHW[index] = F.avg_pool2d(view_BTCHW[index], 3, 1, 1, count_include_pad=False)
    mean_B1C11 = view_BTCHW[:, :: max(1, length // 4)].float().mean((1, 3, 4), keepdim=True).to(real)
    flicker = np.stack([f.flicker if len(f.flicker) else np.zeros(length, np.float32) for f in finishes])
    light_BT111 = send(flicker, device, real)[:, :, None, None, None]
    level_B1C11 = mean_B1C11 * column([f.gain for f in finishes]) + column([f.offset for f in finishes])
    view_BTCHW = (view_BTCHW - mean_B1C11) * column([f.contrast for f in finishes]) + (level_B1C11 + light_BT111)
    for index, finish in enumerate(finishes):
        if len(finish.flash):
            across, down, reach = finish.spot
            x_W, y_H = ((torch.arange(n, device=device, dtype=real) + 0.5) / n for n in (width, height))
            far_HW = ((x_W - across).square()[None] + (y_H - down).square()[:, None]) / (2 * reach**2)
            glow_HW = FLASH_GLOW + (1 - FLASH_GLOW) * (-far_HW.clamp_max(20.0)).exp()
            view_BTCHW[index] += send(finish.flash, device, real)[:, None, None, None] * glow_HW
        if finish.grey:
            view_BTCHW[index] = view_BTCHW[index].mean(1, keepdim=True)
        if finish.noise > 0:
            source = torch.Generator(device).manual_seed(seeds[index])
            grain = torch.randn((length, 3, height, width), generator=source, device=device, dtype=real)
            view_BTCHW[index] += grain * finish.noise
        if len(finish.pulse) and bank_NHWC is not None:
            pictures_TCHW = bank_NHWC[send(finish.pulse, device)].permute(0, 3, 1, 2).to(real)
            change_TCHW = pictures_TCHW - pictures_TCHW[:1]
            view_BTCHW[index] += F.interpolate(change_TCHW, size=(height, width), mode="bilinear")
        for left, top, right, bottom, *colour in finish.boxes.tolist():
            rows = slice(int(top * height), max(int(bottom * height), int(top * height) + 1))
            columns = slice(int(left * width), max(int(right * width), int(left * width) + 1))
            paint = send(np.array(colour, np.float32), device, real)[None, :, None, None]
            view_BTCHW[index, :, :, rows, columns] = paint
    squeezed = [index for index, finish in enumerate(finishes) if finish.squeeze > 0]
    if squeezed:
        at = send(np.array(squeezed), device)
        steps = send(np.array([finishes[index].squeeze for index in squeezed], np.float32), device, real)
        view_BTCHW[at] = squeeze_frames(view_BTCHW[at], steps, seeds=[seeds[index] for index in squeezed])
    for index, finish in enumerate(finishes):
        if len(finish.shown):
            view_BTCHW[index] = view_BTCHW[index, send(finish.shown, device)]
    return view_BTCHW.round_().clamp_(0, 255).to(torch.uint8)
