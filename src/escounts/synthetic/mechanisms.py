"""Mechanisms and patterns drawn with nothing but code: machines, ropes, wheels, things on periodic paths.

Each takes the canvas, the phase (F,) of its cycle in 0..1 and a generator that decides its looks and sizes.
Cyclic ones come back to where they were at phase 1; the others are driven there and back by a 0 → 1 → 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from escounts.synthetic.plan import Canvas, draw_colour, draw_texture
from escounts.synthetic.timeline import Floats, chance, ring

Mechanism = Callable[[Canvas, Floats, np.random.Generator], None]


def _centre(rng: np.random.Generator, room: float = 0.35) -> tuple[float, float]:
    x, y = rng.uniform(-room, room, 2)
    return float(x), float(y)


def piston(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A crank turns and pushes a block along a cylinder."""
    x, y = _centre(rng, 0.2)
    crank, rod = rng.uniform(0.1, 0.22), rng.uniform(0.35, 0.6)
    cos, sin = ring(phase)
    pin_x, pin_y = x - 0.35 + crank * cos, y + crank * sin
    block = pin_x + np.sqrt(rod**2 - (crank * sin) ** 2)
    metal, paint = draw_colour(rng, vivid=0.3), draw_colour(rng, vivid=0.9)
    canvas.stroke((x + rod - 0.6, y), (x + rod, y), 0.16, colour=draw_colour(rng, vivid=0.3), flat=True, hollow=0.02)
    canvas.dot((x - 0.35, y), crank + 0.05, colour=draw_colour(rng), texture=draw_texture(rng))
    canvas.stroke((pin_x, pin_y), (block, y), 0.035, colour=metal)
    canvas.stroke((block - 0.07, y), (block + 0.07, y), 0.13, colour=paint, flat=True, texture=draw_texture(rng))
    canvas.dot((pin_x, pin_y), 0.045, colour=paint)


def wheel(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A wheel with one marked spoke turns once a repetition; the others differ in colour, so it is one turn."""
    x, y = _centre(rng)
    radius, sense = rng.uniform(0.2, 0.6), float(rng.choice([-1, 1]))
    canvas.dot((x, y), radius, colour=draw_colour(rng), hollow=float(rng.uniform(0.02, 0.07)))
    for spoke in range(int(rng.integers(1, 6))):
        cos, sin = ring(sense * phase, spoke * rng.uniform(0.13, 0.2))
        canvas.stroke(
            (x, y),
            (x + radius * cos, y + radius * sin),
            rng.uniform(0.02, 0.07),
            0.02,
            colour=draw_colour(rng, vivid=1.0),
        )
    canvas.dot((x, y), 0.07, colour=draw_colour(rng))


def pendulum(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A bob on a string, to and fro once a repetition."""
    x, y = float(rng.uniform(-0.3, 0.3)), float(rng.uniform(-0.9, -0.4))
    length, swing = rng.uniform(0.5, 1.1), rng.uniform(0.25, 0.9)
    angle = swing * np.cos(2 * np.pi * phase)
    bob = (x + length * np.sin(angle), y + length * np.cos(angle))
    canvas.stroke((x, y), bob, 0.012, colour=draw_colour(rng))
    canvas.dot(bob, rng.uniform(0.06, 0.18), colour=draw_colour(rng, vivid=1.0), texture=draw_texture(rng))


def gears(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """Two wheels whose teeth all differ in colour, so that one turn is one repetition."""
    x, y = _centre(rng, 0.15)
    radius, teeth = rng.uniform(0.2, 0.32), int(rng.integers(5, 8))
    for side, sense in ((-1, 1.0), (1, -1.0)):
        centre, colour = (x + side * radius * 1.08, y), draw_colour(rng, vivid=0.7)
        canvas.dot(centre, radius * 0.8, colour=colour)
        for tooth in range(teeth):
            cos, sin = ring(sense * phase, tooth / teeth + (0.5 / teeth if side > 0 else 0))
            canvas.stroke(
                centre, (centre[0] + radius * cos, centre[1] + radius * sin), 0.05, 0.04, flat=True,
                colour=draw_colour(rng, vivid=1.0),
            )  # fmt: skip


def wiper(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """One or two blades sweep over the screen and back."""
    along = 0.5 - 0.5 * np.cos(2 * np.pi * phase)
    sweep, length = rng.uniform(0.8, 2.2), rng.uniform(0.6, 1.2)
    colour = draw_colour(rng, vivid=0.4)
    for x in (-0.45, 0.35)[: int(rng.integers(1, 3))]:
        angle = -np.pi / 2 - sweep / 2 + sweep * along
        tip = (x + length * np.cos(angle), 0.75 + length * np.sin(angle))
        canvas.stroke((x, 0.75), tip, 0.03, 0.02, colour=colour)


def conveyor(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """Equal boxes pass by, one per repetition."""
    y, gap, high = rng.uniform(-0.3, 0.6), rng.uniform(0.35, 0.8), rng.uniform(0.08, 0.2)
    colour, texture = draw_colour(rng, vivid=0.9), draw_texture(rng, 0.8)
    wide = gap * rng.uniform(0.15, 0.35)
    canvas.stroke(
        (-1.8, y + high + 0.04), (1.8, y + high + 0.04), 0.04, colour=draw_colour(rng, vivid=0.2), flat=True
    )
    for box in range(-4, 5):
        x = (box + phase) * gap
        canvas.stroke((x - wide, y), (x + wide, y), high, colour=colour, texture=texture, flat=True)


def rope(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """Waves run along a rope that is held at one end, as in battle ropes."""
    knots, waves, high = 13, rng.uniform(0.6, 2.5), rng.uniform(0.06, 0.22)
    slope, y = rng.normal() * 0.25, rng.uniform(-0.3, 0.4)
    colour, thick = draw_colour(rng, vivid=0.6), rng.uniform(0.015, 0.05)
    for strand in range(int(rng.integers(1, 3))):
        at = np.linspace(-1.1, 1.1, knots)
        decay = np.linspace(1.0, rng.uniform(0.2, 0.9), knots)
        shift = 0.5 * strand
        heights = [
            y
            + 0.25 * strand
            + slope * x
            + high * fade * np.sin(2 * np.pi * (phase + shift - waves * (x + 1.1) / 2.2))
            for x, fade in zip(at, decay, strict=True)
        ]
        for knot in range(knots - 1):
            canvas.stroke((at[knot], heights[knot]), (at[knot + 1], heights[knot + 1]), thick, colour=colour)


def jump_rope(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A rope turns round a body that hops over it."""
    x, size = float(rng.uniform(-0.3, 0.3)), rng.uniform(0.5, 0.9)
    cos, sin = ring(phase)
    hop = 0.14 * size * np.maximum(cos, 0)
    body, colour = draw_colour(rng, vivid=0.9), draw_colour(rng, vivid=0.9)
    canvas.stroke(
        (x, 0.35 * size - hop),
        (x, -0.3 * size - hop),
        0.12 * size,
        0.15 * size,
        colour=body,
        texture=draw_texture(rng),
    )
    canvas.dot((x, -0.6 * size - hop), 0.12 * size, colour=draw_colour(rng))
    for side in (-1, 1):
        canvas.stroke(
            (x + side * 0.08 * size, 0.35 * size - hop),
            (x + side * 0.1 * size, 0.75 * size - hop),
            0.05 * size,
            colour=body,
        )
    angles = np.linspace(0, np.pi, 8)
    for first, last in pairwise(angles):
        ends = [(x - 0.4 * size * np.cos(angle), 0.85 * size * np.sin(angle) * cos) for angle in (first, last)]
        canvas.stroke(ends[0], ends[1], 0.014, colour=colour, depth=np.where(sin > 0, 1.0, -1.0))


def blink(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """Lamps that pulse once a repetition, some of them the other way round."""
    sharp = rng.uniform(1, 6)
    for _ in range(int(rng.integers(1, 8))):
        wave = 0.5 + 0.5 * np.tanh(
            sharp * np.sin(2 * np.pi * (phase + (0.5 if chance(rng, 0.3) else 0.0)))
        ) / np.tanh(sharp)
        grow = rng.uniform(0, 0.6) if chance(rng, 0.5) else 0.0
        canvas.dot(
            _centre(rng, 0.8), rng.uniform(0.05, 0.3) * (1 + grow * wave), colour=draw_colour(rng, vivid=1.0),
            opacity=0.1 + 0.9 * wave, texture=draw_texture(rng),
        )  # fmt: skip


def ball(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A ball bounces off the floor, squashed where it hits it."""
    x, floor, high = rng.uniform(-0.6, 0.6), rng.uniform(0.2, 0.8), rng.uniform(0.3, 1.1)
    radius = rng.uniform(0.06, 0.2)
    y = floor - radius - high * 4 * phase * (1 - phase)
    flat = 0.5 * radius * np.exp(-(((phase - np.round(phase)) / 0.08) ** 2))
    canvas.stroke((-1.8, floor + 0.05), (1.8, floor + 0.05), 0.05, colour=draw_colour(rng, vivid=0.4), flat=True)
    canvas.stroke((x - flat, y + 0.5 * flat), (x + flat, y + 0.5 * flat), radius - 0.4 * flat,
                  colour=draw_colour(rng, vivid=1.0), texture=draw_texture(rng, 0.8))  # fmt: skip


def wings(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A body flaps two wings, or closes two blades."""
    x, y = _centre(rng)
    length, swing, mean = rng.uniform(0.25, 0.7), rng.uniform(0.3, 1.1), rng.uniform(-0.4, 0.4)
    angle = mean + swing * np.cos(2 * np.pi * phase)
    colour, texture = draw_colour(rng, vivid=0.9), draw_texture(rng)
    for side in (-1, 1):
        tip = (x + side * length * np.cos(angle), y + length * np.sin(angle))
        canvas.stroke((x, y), tip, 0.09, 0.04, colour=colour, texture=texture)
    canvas.stroke((x, y - 0.15), (x, y + 0.15), 0.1, 0.06, colour=draw_colour(rng, vivid=0.9))


def drum(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A stick falls on a drum and rises."""
    x, y = _centre(rng, 0.3)
    lift, length = rng.uniform(0.3, 1.1), rng.uniform(0.4, 0.9)
    angle = lift * np.abs(np.sin(np.pi * phase)) ** rng.uniform(0.5, 1.5)
    canvas.stroke((x - 0.25, y + 0.25), (x + 0.15, y + 0.25), 0.18, colour=draw_colour(rng, vivid=0.9), flat=True)
    grip = (x + 0.15 + 0.6 * length, y)
    tip = (grip[0] - length * np.cos(angle), grip[1] - length * np.sin(angle))
    canvas.stroke(grip, tip, 0.02, 0.04, colour=draw_colour(rng))


def worm(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A chain of beads that wriggles."""
    x, y = _centre(rng, 0.2)
    count, waves, high = int(rng.integers(5, 12)), rng.uniform(0.3, 1.2), rng.uniform(0.08, 0.3)
    way, colour = rng.uniform(0, 2 * np.pi), draw_colour(rng, vivid=1.0)
    for bead in range(count):
        along = (bead / (count - 1) - 0.5) * rng.uniform(0.8, 1.2)
        out = high * np.sin(2 * np.pi * (phase - waves * bead / count))
        canvas.dot(
            (x + along * np.cos(way) - out * np.sin(way), y + along * np.sin(way) + out * np.cos(way)),
            0.05 + 0.05 * np.sin(np.pi * (bead + 1) / (count + 1)), colour=colour, texture=draw_texture(rng, 0.3),
        )  # fmt: skip


def sprite(canvas: Canvas, phase: Floats, rng: np.random.Generator) -> None:
    """A thing of a few strokes on a line, an ellipse, a swing, a spin, a pulse or a mix of them."""
    x, y, angle, scale = sprite_path(phase, rng)
    size = float(np.exp(rng.uniform(np.log(0.09), np.log(0.4))))
    for _ in range(int(rng.integers(1, 5))):
        ends = rng.normal(size=(2, 2)) * 0.5
        cos, sin = np.cos(angle) * size * scale, np.sin(angle) * size * scale
        start, end = ((x + cos * a - sin * b, y + sin * a + cos * b) for a, b in ends)
        canvas.stroke(
            start, end, rng.uniform(0.15, 0.5) * size * scale, rng.uniform(0.1, 0.5) * size * scale,
            colour=draw_colour(rng, vivid=1.0), texture=draw_texture(rng, 0.7), flat=chance(rng, 0.3),
        )  # fmt: skip


def sprite_path(phase: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Centre x, y, angle and size factor of a thing on a periodic path, each (F,)."""
    cos, sin = ring(phase)
    turn = 2 * np.pi * phase
    along, aside, angle, scale = (np.zeros(len(phase)) for _ in range(4))
    kind = rng.choice(["line", "ellipse", "swing", "spin", "pulse", "bounce"])
    if kind == "line":
        along = 0.5 - 0.5 * cos
    elif kind == "ellipse":
        along, aside = cos - 1, sin * rng.uniform(0.3, 1)
    elif kind == "swing":
        angle = rng.uniform(0.3, 1.5) * sin
    elif kind == "spin":
        angle = turn * rng.choice([-1, 1])
    elif kind == "pulse":
        scale = rng.uniform(0.2, 0.9) * (0.5 - 0.5 * cos)
    else:
        along = np.abs(np.sin(np.pi * phase))
    if kind in ("swing", "spin", "pulse") and chance(rng, 0.5):
        along = 0.5 - 0.5 * cos
    if chance(rng, 0.35):
        aside = aside + rng.normal() * 0.3 * np.sin(2 * turn)
    reach, way = rng.uniform(0.12, 0.6), rng.uniform(0, 2 * np.pi)
    x, y = _centre(rng, 0.5)
    return (
        x + reach * (np.cos(way) * along - np.sin(way) * aside),
        y + reach * (np.sin(way) * along + np.cos(way) * aside),
        angle,
        1 + scale,
    )


MECHANISMS: Mapping[str, Mechanism] = {
    "sprite": sprite, "piston": piston, "wheel": wheel, "pendulum": pendulum, "gears": gears, "wiper": wiper,
    "conveyor": conveyor, "rope": rope, "jump-rope": jump_rope, "blink": blink, "ball": ball, "wings": wings,
    "drum": drum, "worm": worm,
}  # fmt: skip

RIPPLE = "ripple"
"""The one pattern that bends the background instead of drawing strokes."""
