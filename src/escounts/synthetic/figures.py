"""Drawing a person: random body, clothes and viewpoint, from twenty joints; and what it holds, rides or swings."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.motion import Joints
from escounts.synthetic.plan import Canvas, Colour, draw_colour, draw_texture
from escounts.synthetic.timeline import Floats, chance, log_uniform

VISIBLE = 0.22
"""How far across the screen (2 wide) a motion should go to be worth counting."""
Texture = tuple[float, float, float]
PLAIN: Texture = (0.0, 0.0, 0.0)

# (joint, joint, radius, radius, part of the clothes), radii in body heights
LIMBS = (
    (0, 9, 0.078, 0.072, "shirt"), (9, 10, 0.072, 0.085, "shirt"), (10, 11, 0.088, 0.05, "shirt"),
    (14, 17, 0.042, 0.042, "shirt"), (1, 5, 0.066, 0.066, "trousers"),
    (1, 2, 0.058, 0.042, "trousers"), (2, 3, 0.042, 0.028, "shins"), (3, 4, 0.030, 0.024, "shoes"),
    (5, 6, 0.058, 0.042, "trousers"), (6, 7, 0.042, 0.028, "shins"), (7, 8, 0.030, 0.024, "shoes"),
    (14, 15, 0.036, 0.029, "sleeves"), (15, 16, 0.029, 0.022, "skin"), (16, 16, 0.027, 0.027, "skin"),
    (17, 18, 0.036, 0.029, "sleeves"), (18, 19, 0.029, 0.022, "skin"), (19, 19, 0.027, 0.027, "skin"),
    (11, 12, 0.030, 0.030, "skin"), (12, 13, 0.058, 0.052, "skin"),
)  # fmt: skip
SIDES = (5, 6, 7, 11, 12, 13), (8, 9, 10, 14, 15, 16)
"""Places in LIMBS of the left leg and arm, and of the right ones in the same order."""


@dataclass(frozen=True)
class Body:
    """Proportions and clothes of one performer."""

    build: float
    head: float
    limbs: tuple[float, float]
    """Factors on the lengths of arms and legs."""
    colours: dict[str, Colour]
    textures: dict[str, Texture]
    hair: Colour
    long_hair: bool
    far_shade: float
    """How much darker the far arm and leg are drawn: the light comes from the camera's side."""
    odd: dict[int, Colour]
    """Limbs, by their place in LIMBS, that have a colour of their own: one sleeve, one sock, a bandage."""


def draw_body(rng: np.random.Generator, config: GeneratorConfig) -> Body:
    """A random performer."""
    skin = colorsys.hsv_to_rgb(rng.uniform(0.03, 0.10), rng.uniform(0.25, 0.65), rng.uniform(0.3, 0.98))
    shirt, trousers, shoes = (draw_colour(rng, vivid=0.9) for _ in range(3))
    colours = {
        "skin": skin,
        "shirt": shirt,
        "trousers": trousers,
        "shoes": shoes,
        "sleeves": shirt if chance(rng, 0.65) else skin,
        "shins": trousers if chance(rng, 0.65) else skin,
    }
    cloth = {name: draw_texture(rng, 0.35) for name in ("shirt", "trousers")}
    textures = {name: PLAIN for name in colours} | cloth
    return Body(
        build=rng.uniform(0.75, 1.45),
        head=rng.uniform(0.9, 1.25),
        limbs=(rng.uniform(0.9, 1.1), rng.uniform(0.92, 1.08)),
        colours=colours,
        textures=textures,
        hair=draw_colour(rng, vivid=0.5) if chance(rng, 0.3) else (0.1, 0.07, 0.05),
        long_hair=chance(rng, 0.4),
        far_shade=rng.uniform(0.05, 0.6),
        odd={int(rng.choice(SIDES[int(rng.integers(2))])): draw_colour(rng)} if chance(rng, config.odd_limb) else {},
    )


def proportioned(body: Body, joints: Joints) -> Joints:
    """The pose with the body's own arm and leg lengths; feet keep to the floor."""
    shaped = joints.copy()
    arms, legs = body.limbs
    for upper, middle, end in ((14, 15, 16), (17, 18, 19)):
        shaped[:, middle] = joints[:, upper] + arms * (joints[:, middle] - joints[:, upper])
        shaped[:, end] = shaped[:, middle] + arms * (joints[:, end] - joints[:, middle])
    down = (1 - legs) * (joints[:, 0, 1] - np.minimum(joints[:, 3, 1], joints[:, 7, 1]))
    for chain in ((1, 2, 3, 4), (5, 6, 7, 8)):
        for before, after in pairwise(chain):
            shaped[:, after] = shaped[:, before] + legs * (joints[:, after] - joints[:, before])
    shaped[..., 1] -= down[:, None]
    return shaped


@dataclass(frozen=True)
class View:
    """From where a performer is seen: angles in radians, size in screens per body height."""

    azimuth: Floats | float
    elevation: float
    size: float
    x: float
    y: float
    middle: tuple[float, float, float]


def draw_view(
    rng: np.random.Generator, joints: Joints, *, config: GeneratorConfig, times: Floats, aspect: float
) -> View:
    """A viewpoint from which the motion is in the picture and large enough to be seen.

    joints: the poses that must be in the picture. aspect: the scene's width / height.
    """
    best: tuple[float, View] | None = None
    for _ in range(4):
        view, visible = _try_view(rng, joints, config=config, times=times, aspect=aspect)
        if best is None or visible > best[0]:
            best = visible, view
        if visible > VISIBLE:
            break
    assert best is not None
    return best[1]


def _try_view(
    rng: np.random.Generator, joints: Joints, *, config: GeneratorConfig, times: Floats, aspect: float
) -> tuple[View, float]:
    """A random viewpoint, and how far across the screen the busiest joint moves."""
    turn = rng.normal() * 0.5 if chance(rng, config.turning) else 0.0
    start = rng.uniform(0, 2 * np.pi)
    elevation = float(np.clip(rng.normal(0.12, 0.18), -0.25, 0.8))
    x, y, _ = project(View(start, elevation, 1.0, 0.0, 0.0, (0.0, 0.0, 0.0)), joints)
    left, right = np.quantile(x, (0.01, 0.99))
    top, bottom = np.quantile(y, (0.01, 0.99))
    spread = np.hypot(np.ptp(x, axis=0), np.ptp(y, axis=0))
    # Joints 1 to 8 are the legs: nobody films the upper body of somebody who pedals.
    if chance(rng, config.upper_body) and spread[9:].max() > 0.6 * spread[1:9].max():
        bottom = top + 0.55 * (bottom - top)
    half = np.sqrt(aspect), 1 / np.sqrt(aspect)
    fit = min(2 * half[0] / max(right - left, 0.3), 2 * half[1] / max(bottom - top, 0.3))
    size = log_uniform(rng, 0.3, 0.95) * fit
    slack = [max(0.0, half[0] - 0.5 * size * (right - left)), max(0.0, half[1] - 0.5 * size * (bottom - top))]
    azimuth = start + turn * (times - times.mean()) / (np.ptp(times) + 1)
    view = View(
        azimuth, elevation, size,
        float(rng.uniform(-0.8, 0.8) * slack[0] - 0.5 * size * (left + right)),
        float(rng.uniform(-0.4, 0.8) * slack[1] - 0.5 * size * (top + bottom)),
        (0.0, 0.0, 0.0),
    )  # fmt: skip
    return view, float(size * spread.max())


def project(view: View, points: Floats) -> tuple[Floats, Floats, Floats]:
    """Points (F, n, 3) to x right, y down and depth (larger is further), each (F, n)."""
    moved = points - np.array(view.middle)
    azimuth = np.broadcast_to(np.asarray(view.azimuth), (len(points),))[:, None]
    cos, sin = np.cos(azimuth), np.sin(azimuth)
    x = cos * moved[..., 0] + sin * moved[..., 2]
    towards = -sin * moved[..., 0] + cos * moved[..., 2]
    up = np.cos(view.elevation) * moved[..., 1] - np.sin(view.elevation) * towards
    towards = np.sin(view.elevation) * moved[..., 1] + np.cos(view.elevation) * towards
    # A mild perspective: what is nearer is larger.
    near = view.size / (1 - 0.18 * np.clip(towards, -2.0, 2.0))
    return near * x + view.x, view.y - near * up, -towards


def draw_figure(
    rng: np.random.Generator, canvas: Canvas, body: Body, joints: Joints, view: View, *, prop: bool
) -> None:
    """Add the performer, a shadow and perhaps a prop to the canvas."""
    joints = proportioned(body, joints)
    x, y, depth = project(view, joints)
    size = view.size
    if chance(rng, 0.6):
        floor = joints.copy()
        floor[..., 1] = np.quantile(joints[:, (3, 4, 7, 8), 1], 0.05) - 0.03
        sx, sy, _ = project(view, floor)
        wide = 0.5 * np.ptp(sx[:, (3, 7, 0, 16, 19)], axis=1) * 0.6
        centre, level = sx[:, 0], sy[:, 0]
        canvas.stroke(
            (centre - wide, level), (centre + wide, level), 0.05 * size, colour=(0.0, 0.0, 0.0),
            opacity=rng.uniform(0.2, 0.5), depth=50.0,
        )  # fmt: skip
    for index, (first, last, start, end, part) in enumerate(LIMBS):
        thick = size * body.build if part not in ("skin",) else size * (0.6 + 0.4 * body.build)
        thick = size * body.head if last == 13 else thick
        canvas.stroke(
            (x[:, first], y[:, first]), (x[:, last], y[:, last]), start * thick, end * thick,
            colour=_limb_colour(body, index, depth), texture=body.textures[part],
            depth=0.5 * (depth[:, first] + depth[:, last]) - 0.05 * (last in (13, 16, 19)),
        )  # fmt: skip
    # The face looks forward: the hair covers the back of the head.
    across, up = joints[:, 14] - joints[:, 17], joints[:, 13] - joints[:, 12]
    ahead = np.cross(across, up)
    ahead /= np.linalg.norm(ahead, axis=1, keepdims=True) + 1e-6
    back = np.stack([joints[:, 13] - 0.025 * ahead, joints[:, 12 if body.long_hair else 13] - 0.045 * ahead], 1)
    hx, hy, hd = project(view, back)
    radius = 0.058 * size * body.head
    canvas.stroke(
        (hx[:, 0], hy[:, 0]), (hx[:, 1], hy[:, 1]), radius, 0.8 * radius, colour=body.hair,
        depth=hd.mean(1) - 0.04,
    )  # fmt: skip
    if prop:
        _prop(rng, canvas, joints, view)


def _limb_colour(body: Body, index: int, depth: Floats) -> Colour:
    """A limb's paint; the arm and leg that are mostly on the far side are darker. depth: (F, 20) of the joints."""
    first, last, _, _, part = LIMBS[index]
    colour = body.odd.get(index, body.colours[part])
    for own, other in (SIDES, SIDES[::-1]):
        if index in own:
            twin = LIMBS[other[own.index(index)]]
            behind = float((depth[:, (first, last)] - depth[:, twin[:2]]).mean())
            shade = 1 - body.far_shade * float(np.clip(behind / 0.1, 0, 1))
            colour = (shade * colour[0], shade * colour[1], shade * colour[2])
    return colour


def _prop(rng: np.random.Generator, canvas: Canvas, joints: Joints, view: View) -> None:
    """Something in the hands: a bar, dumbbells, a ball; or a bench to stand by."""
    x, y, depth = project(view, joints)
    colour, size = draw_colour(rng, vivid=0.9), view.size
    kind = rng.choice(["bar", "dumbbells", "ball", "bench"])
    left, right = (x[:, 16], y[:, 16]), (x[:, 19], y[:, 19])
    if kind == "bar":
        hands = joints[:, 16] - joints[:, 19]
        hands /= np.linalg.norm(hands, axis=1, keepdims=True) + 1e-6
        reach = rng.uniform(0.1, 0.35)
        ends = np.stack([joints[:, 16] + reach * hands, joints[:, 19] - reach * hands], 1)
        ex, ey, ed = project(view, ends)
        canvas.stroke(
            (ex[:, 0], ey[:, 0]), (ex[:, 1], ey[:, 1]), 0.012 * size, colour=(0.6, 0.6, 0.62), depth=ed.mean(1) - 0.1
        )
        plate = rng.uniform(0.04, 0.13) * size
        for end in range(2):
            canvas.dot((ex[:, end], ey[:, end]), plate, colour=colour, depth=ed[:, end] - 0.1)
    elif kind == "dumbbells":
        for (hx, hy), joint in ((left, 16), (right, 19)):
            wide = rng.uniform(0.04, 0.09) * size
            canvas.stroke((hx - wide, hy), (hx + wide, hy), 0.028 * size, colour=colour, depth=depth[:, joint] - 0.1)
    elif kind == "ball":
        canvas.dot(
            (0.5 * (left[0] + right[0]), 0.5 * (left[1] + right[1])), rng.uniform(0.06, 0.14) * size,
            colour=colour, texture=draw_texture(rng), depth=np.minimum(depth[:, 16], depth[:, 19]) - 0.1,
        )  # fmt: skip
    else:
        spot = np.array([rng.normal() * 0.4, rng.uniform(0.05, 0.3), rng.normal() * 0.4])
        half = np.array([0.25, 0.0, 0.0])
        ends = np.stack([spot - half, spot + half])
        bx, by, bd = project(view, np.broadcast_to(ends, (len(joints), 2, 3)))
        canvas.stroke(
            (bx[:, 0], by[:, 0]), (bx[:, 1], by[:, 1]), 0.05 * size, colour=colour, flat=True, depth=bd.mean(1)
        )


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
