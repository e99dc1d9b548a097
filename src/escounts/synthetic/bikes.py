"""The bike under a performer who pedals: cranks that turn with the feet, a frame and wheels that stand still."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from escounts.synthetic.canvas import Canvas, draw_colour
from escounts.synthetic.curves import Floats, chance
from escounts.synthetic.figures import View, project
from escounts.synthetic.poses import Joints

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
