"""Drawn backgrounds: gradients, blotches, rooms with a floor, walls with things on them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from escounts.synthetic.canvas import draw_colour
from escounts.synthetic.curves import Floats, chance

SIZE = 112


def draw_backdrop(rng: np.random.Generator, *, floor: float | None = None, size: int = SIZE) -> npt.NDArray[np.uint8]:
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
