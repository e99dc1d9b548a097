"""Collecting strokes: one call a stroke, any argument constant or changing over the drawn moments."""

from __future__ import annotations

import colorsys

import numpy as np

from escounts.synthetic.curves import Floats, chance
from escounts.synthetic.plan import Array, Shapes

Value = Floats | float
Colour = tuple[float, float, float]


def draw_colour(rng: np.random.Generator, *, vivid: float = 0.6) -> Colour:
    """A colour 0..1; vivid: its largest saturation."""
    return colorsys.hsv_to_rgb(rng.random(), rng.uniform(0, vivid), rng.uniform(0.15, 1.0))


def draw_texture(rng: np.random.Generator, share: float = 0.6) -> tuple[float, float, float]:
    """Stripe frequencies along and across in radians per unit, and their strength; often none."""
    if not chance(rng, share):
        return 0.0, 0.0, 0.0
    along, across = rng.uniform(0, 60, 2) * (rng.random(2) < 0.7)
    return float(along), float(across), float(rng.uniform(0.1, 0.5))


class Canvas:
    """Strokes of F moments, in layer coordinates (-1..1 is the screen under a plain lens)."""

    def __init__(self, moments: int):
        self.moments = moments
        self._geometry: list[Floats] = []
        self._paint: list[list[float]] = []
        self._depth: list[Floats] = []

    def stroke(
        self,
        start: tuple[Value, Value],
        end: tuple[Value, Value],
        radius: Value,
        end_radius: Value | None = None,
        *,
        colour: Colour,
        texture: tuple[float, float, float] = (0.0, 0.0, 0.0),
        opacity: Value = 1.0,
        flat: bool = False,
        hollow: float = 0.0,
        depth: Value = 0.0,
    ) -> None:
        """Add a stroke. hollow: width of the outline, 0 filled. depth: strokes of larger depth lie behind."""
        values = (*start, *end, radius, radius if end_radius is None else end_radius, opacity)
        columns = [np.broadcast_to(np.asarray(value, np.float64), (self.moments,)) for value in values]
        self._geometry.append(np.stack(columns, -1))
        self._paint.append([*colour, *texture, float(flat), hollow])
        self._depth.append(np.broadcast_to(np.asarray(depth, np.float64), (self.moments,)))

    def dot(self, centre: tuple[Value, Value], radius: Value, **options: object) -> None:
        """A disc, or a ring where hollow."""
        self.stroke(centre, centre, radius, **options)  # type: ignore[arg-type]

    @property
    def strokes(self) -> int:
        """How many there are."""
        return len(self._paint)

    def shapes(self, lens: Array) -> Shapes:
        """The layer, drawn from back to front."""
        depth = np.stack(self._depth, 1)
        return Shapes(
            lens=lens,
            geometry=np.stack(self._geometry, 1).astype(np.float32),
            paint=np.array(self._paint, np.float32),
            order=np.argsort(-depth, axis=1, kind="stable"),
        )
