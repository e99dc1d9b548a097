"""Ropes in a performer's hands: a skipping rope that turns, battle ropes with waves that run along them."""

from __future__ import annotations

import numpy as np

from escounts.synthetic.canvas import Canvas, draw_colour
from escounts.synthetic.curves import Floats
from escounts.synthetic.figures import View, project
from escounts.synthetic.poses import Joints

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
