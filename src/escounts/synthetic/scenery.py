"""What stands around a performer: drawn backgrounds, a bike, ropes.

Backgrounds are gradients, blotches, rooms with a floor, walls with things on them. The bike's cranks turn with the
feet, its frame and wheels stand still. A skipping rope turns; battle ropes have waves that run along them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from escounts.synthetic.curves import Floats, chance
from escounts.synthetic.figures import View, project
from escounts.synthetic.motion import Joints
from escounts.synthetic.plan import Canvas, draw_colour

BACKDROP_SIZE = 112


def draw_backdrop(
    rng: np.random.Generator, *, floor: float | None = None, size: int = BACKDROP_SIZE
) -> npt.NDArray[np.uint8]:
    """(size, size, 3) uint8. floor: where a floor begins, 0 top .. 1 bottom; None leaves it to chance."""
    rows, columns = np.mgrid[0:size, 0:size] / (size - 1.0)
    top, bottom = (np.array(draw_colour(rng, vivid=0.5)) for _ in range(2))
    way = rng.uniform(0, 2 * np.pi)
    slope = np.clip(0.5 + (columns - 0.5) * np.cos(way) + (rows - 0.5) * np.sin(way), 0, 1)[..., None]
    image = top * (1 - slope) + (0.6 * top + 0.4 * bottom) * slope
    image = image + rng.uniform(0, 0.14) * _blotches(rng, 6, size) + rng.uniform(0, 0.07) * _blotches(rng, 28, size)
    for _ in range(int(rng.integers(0, 7)) if chance(rng, 0.7) else 0):  # windows, shelves, pictures
        _rectangle(rng, image)
    if floor is None and chance(rng, 0.6):
        floor = float(rng.uniform(0.5, 0.9))
    if floor is not None and floor < 0.97:
        _floor(rng, image, rows, columns, floor)
    if chance(rng, 0.15):  # wallpaper
        stripes = np.sin((columns * np.cos(way) + rows * np.sin(way)) * rng.uniform(20, 120))
        image += rng.uniform(0.02, 0.15) * stripes[..., None]
    image = image + rng.normal(size=image.shape) * rng.uniform(0, 0.03)
    picture: npt.NDArray[np.uint8] = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    return picture


def _blotches(rng: np.random.Generator, cells: int, size: int) -> Floats:
    """(size, size, 3) smooth noise of about unit spread with features size / cells large."""
    # Mostly brightness: real walls and gardens are not rainbows.
    grid = rng.normal(size=(cells + 1, cells + 1, 1)) + 0.3 * rng.normal(size=(cells + 1, cells + 1, 3))
    at = np.linspace(0, cells - 1e-6, size)
    left = at.astype(np.int64)
    part = (at - left)[:, None, None]
    wide = grid[left] * (1 - part) + grid[left + 1] * part
    part = (at - left)[None, :, None]
    return wide[:, left] * (1 - part) + wide[:, left + 1] * part


def _rectangle(rng: np.random.Generator, image: Floats) -> None:
    size = len(image)
    left, top = (rng.random(2) * 0.95 * size).astype(int)
    wide, high = (rng.uniform(0.04, 0.5, 2) * size).astype(int) + 1
    cut = image[top : top + high, left : left + wide]
    cut[:] = 0.25 * cut + 0.75 * np.array(draw_colour(rng, vivid=0.6))
    if chance(rng, 0.4):
        cut[:: int(rng.integers(3, 9))] *= 0.7


def _floor(rng: np.random.Generator, image: Floats, rows: Floats, columns: Floats, floor: float) -> None:
    """A floor in perspective, tiled or plain."""
    below = rows > floor
    colour = np.array(draw_colour(rng, vivid=0.45))
    near = np.clip((rows - floor) / (1.02 - floor), 0, 1)
    shade = (0.65 + 0.35 * near)[..., None] * colour
    if chance(rng, 0.5):
        away = 1 / (near + 0.08)
        tile = rng.uniform(1.5, 5)
        lines = np.sign(np.sin(away * tile)) * np.sign(np.sin((columns - rng.uniform(0, 1)) * away * tile * 3))
        shade = shade + rng.uniform(0.02, 0.12) * lines[..., None] * near[..., None]
    image[below] = shade[below] + 0.3 * (image[below] - image.mean((0, 1)))


BIKED = "pedal"
"""The exercise that is done on a bike."""


def draw_bike(rng: np.random.Generator, canvas: Canvas, joints: Joints, view: View) -> None:
    """Add the bike, or only its cranks: a trainer seen close has little else."""
    count = len(joints)
    hub = 0.5 * (joints[:, 3] + joints[:, 7]).mean(0)
    colour, thin = draw_colour(rng, vivid=0.9), rng.uniform(0.008, 0.016) * view.size

    def line(first: Floats, last: Floats) -> None:
        ends = np.broadcast_to(np.stack([first, last], -2), (count, 2, 3))
        x, y, depth = project(view, ends)
        canvas.stroke((x[:, 0], y[:, 0]), (x[:, 1], y[:, 1]), thin, colour=colour, depth=depth.mean(1))

    for side, foot in ((0.04, 3), (-0.04, 7)):
        axle = np.broadcast_to(hub + np.array([side, 0.0, 0.0]), (count, 3))
        line(axle, joints[:, foot] + np.array([0.0, -0.03, 0.03]))
    if chance(rng, 0.3):
        return
    saddle, bar = joints[:, 0].mean(0) + np.array([0, -0.09, 0]), joints[:, (16, 19)].mean((0, 1))
    head = np.array([0.0, 0.62 * bar[1] + 0.38 * hub[1], bar[2] - 0.03])
    for first, last in ((hub, saddle), (hub, head), (saddle, head), (head, bar)):
        line(first, last)
    if chance(rng, 0.7):
        radius = rng.uniform(0.13, 0.18)
        for far in (-0.28, 0.38):
            centre = np.array([0.0, hub[1] - 0.02, hub[2] + far])
            rim = np.linspace(0, 2 * np.pi, 9)
            points = centre + radius * np.stack([0 * rim, np.sin(rim), np.cos(rim)], -1)
            for first, last in pairwise(points):
                line(first, last)


ROPED = ("rope-jump", "battle-rope")
"""Exercises that are done with a rope."""


def draw_rope(
    rng: np.random.Generator, canvas: Canvas, exercise: str, joints: Joints, view: View, phase: Floats
) -> None:
    """Add the rope of an exercise in ROPED. phase (F,): that of the exercise, 0..1."""
    colour, thick = draw_colour(rng, vivid=0.8), rng.uniform(0.008, 0.022) * view.size
    if exercise == "rope-jump":
        strands = [_turning(joints, phase)]
    else:
        strands = [_waving(joints[:, 16], phase), _waving(joints[:, 19], phase + 0.5)]
    for points in strands:
        x, y, depth = project(view, points)
        for first in range(points.shape[1] - 1):
            canvas.stroke(
                (x[:, first], y[:, first]), (x[:, first + 1], y[:, first + 1]), thick, colour=colour,
                depth=depth[:, first : first + 2].mean(1),
            )  # fmt: skip


def _turning(joints: Joints, phase: Floats, knots: int = 9) -> Joints:
    """(F, knots, 3) from hand to hand; under the feet at phase 0.5, when they are off the floor."""
    part = np.linspace(0, 1, knots)[None, :, None]
    line = joints[:, 16:17] * (1 - part) + joints[:, 19:20] * part
    turn = 2 * np.pi * phase
    way = np.stack([np.zeros_like(turn), np.cos(turn), np.sin(turn)], -1)[:, None]
    bow: Joints = line + 0.52 * np.sin(np.pi * part) ** 0.6 * way
    return bow


def _waving(hand: Floats, phase: Floats, knots: int = 8) -> Joints:
    """(F, knots, 3) from a hand to an anchor on the floor, with a wave that fades on its way."""
    part = np.linspace(0, 1, knots)[None, :]
    anchor = np.array([0.0, 0.03, 1.4])
    line = hand[:, None] * (1 - part[..., None]) + anchor * part[..., None]
    line[..., 1] += 0.13 * np.sin(np.pi * part) * np.sin(2 * np.pi * (phase[:, None] - 1.5 * part))
    line[..., 1] -= 0.12 * np.sin(np.pi * part)
    return line
