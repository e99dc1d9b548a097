"""What is drawn: a Plan holds everything about one video as small numpy arrays, ready to pickle and render.

Screen coordinates run from -1 to 1, x to the right and y down. A lens (F, 2, 3) maps screen coordinates to a layer's
own coordinates at every drawn moment F = length · subframes. A Canvas collects strokes: one call per stroke, any
argument constant or changing over the drawn moments. `draw_backdrop` makes images to stand behind them.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from escounts.synthetic.timeline import Floats, Span, chance

Array = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Ripple:
    """A part of the backdrop that is bent to and fro: amount (F,) along `direction` in a soft disc."""

    amount: Array
    direction: tuple[float, float]
    wave: tuple[float, float, float]
    """Wave vector x, y and phase of the displacement."""
    disc: tuple[float, float, float]
    """Centre x, y and radius."""


@dataclass(frozen=True)
class Backdrop:
    """Behind everything: frames (F,) of the clip bank, or a drawn image (h, w, 3) uint8."""

    lens: Array
    frames: npt.NDArray[np.int64] | None = None
    image: npt.NDArray[np.uint8] | None = None
    ripple: Ripple | None = None


@dataclass(frozen=True)
class Footage:
    """Clip frames in front: between frame `first` and its successor by `part`, faded to `other` by `fade`.

    lens maps the screen onto the clip's -1..1 square. mask: 0 the whole screen, 1 an ellipse, 2 a rectangle.
    """

    lens: Array
    first: npt.NDArray[np.int64]
    part: Array
    other: npt.NDArray[np.int64]
    fade: Array
    mask: int = 0


@dataclass(frozen=True)
class Shapes:
    """Rounded and flat strokes, drawn in order over the rest.

    geometry (F, K, 7): x0, y0, x1, y1, radius at either end, opacity. order (F, K): which stroke is drawn
    when. paint (K, 8): red, green, blue 0..1; texture frequency along, across, strength; flat (1: square
    ends), hollow (width of the outline, 0 filled).
    """

    lens: Array
    geometry: Array
    paint: Array
    order: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finish:
    """What happens to the drawn frames. offset and noise in 0..255; flicker (length,) is added."""

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    contrast: float = 1.0
    offset: float = 0.0
    grey: bool = False
    blur: bool = False
    soft: float = 1.0
    """Part of the resolution that is left, 0..1."""
    noise: float = 0.0
    flicker: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    boxes: Array = field(default_factory=lambda: np.zeros((0, 7), np.float32))
    """(n, 7): left, top, right, bottom in 0..1, red, green, blue in 0..255."""
    pulse: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(length,) frames of a coded still in the bank whose change since the first is added; or empty."""
    squeeze: float = 0.0
    """Step of the quantiser that the frames go through, 0..255; 0: none."""
    flash: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    """(length,) what a light in the picture adds at its middle, 0..255; or empty."""
    spot: tuple[float, float, float] = (0.5, 0.5, 0.0)
    """Where that light is: across, down, and how far it reaches (one standard deviation), all in 0..1."""
    shown: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(length,) which drawn frame is shown at every time, where some are shown twice; or empty."""


@dataclass(frozen=True)
class Plan:
    """One video, fully decided.

    spans: every repetition (start, end) in frames, frame i covering i to i + 1; cut by the border they start
    below 0 or end above length. side_spans: the halves of an alternating motion. alternates: whether there are two
    sides, None where nobody knows. parts: of which motion each span is, where there may be several; else empty. kind:
    source and way, "negative:…" where there are no repetitions. action: shared
    by siblings only.
    """

    length: int
    subframes: int
    kind: str
    action: str
    seed: int
    spans: tuple[Span, ...]
    side_spans: tuple[Span, ...]
    alternates: bool | None
    backdrop: Backdrop
    footage: Footage | None
    shapes: Shapes | None
    finish: Finish
    sibling: int = -1
    parts: tuple[int, ...] = ()

    def reversed(self) -> Plan:
        """The same video backwards in time."""

        def mirrored(spans: tuple[Span, ...]) -> tuple[Span, ...]:
            return tuple((self.length - end, self.length - start) for start, end in spans[::-1])

        back, foot, shapes = self.backdrop, self.footage, self.shapes
        back = replace(
            back,
            lens=back.lens[::-1].copy(),
            frames=None if back.frames is None else back.frames[::-1].copy(),
            ripple=back.ripple and replace(back.ripple, amount=back.ripple.amount[::-1].copy()),
        )
        if foot is not None:
            tracks = ("lens", "first", "part", "other", "fade")
            foot = replace(foot, **{name: getattr(foot, name)[::-1].copy() for name in tracks})
        if shapes is not None:
            moving = ("lens", "geometry", "order")
            shapes = replace(shapes, **{name: getattr(shapes, name)[::-1].copy() for name in moving})
        return replace(
            self,
            spans=mirrored(self.spans),
            parts=self.parts[::-1],
            side_spans=mirrored(self.side_spans),
            backdrop=back,
            footage=foot,
            shapes=shapes,
        )


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


BACKDROP_SIZE = 112


def draw_backdrop(rng: np.random.Generator, *, floor: float | None = None) -> npt.NDArray[np.uint8]:
    """(112, 112, 3) uint8. floor: where a floor begins, 0 top .. 1 bottom; None leaves it to chance."""
    size = BACKDROP_SIZE
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

    def shapes(self, lens: Array) -> Shapes:
        """The layer, drawn from back to front."""
        depth = np.stack(self._depth, 1)
        return Shapes(
            lens=lens,
            geometry=np.stack(self._geometry, 1).astype(np.float32),
            paint=np.array(self._paint, np.float32),
            order=np.argsort(-depth, axis=1, kind="stable"),
        )
