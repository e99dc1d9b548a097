"""The camera: how the screen maps onto the scene, for the background and, by parallax, for the performer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import Floats, chance, smooth_noise
from escounts.synthetic.plan import Array


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


@dataclass(frozen=True)
class Camera:
    """back, front (F, 2, 3): screen to background, screen to the performer's layer."""

    back: Array
    front: Array


def draw_camera(
    rng: np.random.Generator,
    config: GeneratorConfig,
    times: Floats,
    *,
    aspect: float,
    pan: bool | None = None,
    calm: bool = False,
) -> Camera:
    """A camera for the given moments. aspect: the scene's width / height before it is squashed to a square.

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
        shake = smooth_noise(rng, times, 3, rng.uniform(1.2, 4.0)) * rng.uniform(*config.shake_size)
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
    follow = rng.uniform(*config.parallax) if not calm else 1.0
    front = track * follow
    front[2:] = 0.5 * np.tanh(front[2:] / 0.5)  # the performer stays in sight
    flip = -1.0 if chance(rng, 0.5) else 1.0
    root = np.sqrt(aspect)
    squash = stretch(flip * root, 1 / root)
    back = place(np.exp(base[0] + track[0]), base[1] + track[1], track[2], track[3], count)
    ahead = place(np.exp(base[0] + front[0]), base[1] + front[1], front[2], front[3], count)
    return Camera(
        compose(back, np.broadcast_to(squash, back.shape)).astype(np.float32),
        compose(ahead, np.broadcast_to(squash, ahead.shape)).astype(np.float32),
    )
