"""The sample video: a figure that stands, does eight squats of uneven length and depth, and stands again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from escounts.synthetic.backdrops import draw_backdrop
from escounts.synthetic.camera import stretch
from escounts.synthetic.canvas import Canvas
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import Floats, smooth_noise, there_and_back
from escounts.synthetic.exercises import exercise_poses
from escounts.synthetic.figures import View, draw_body, draw_figure
from escounts.synthetic.plan import Backdrop, Finish, Plan
from escounts.synthetic.timeline import Span

RATE = 24.0
"""Frames a second."""
SIZE = (240, 320)
"""Height and width in pixels."""
STAND_BEFORE, STAND_AFTER = 1.8, 1.6
"""Seconds of standing around the repetitions."""


CLOTHES = {
    "skin": (0.80, 0.58, 0.45),
    "shirt": (0.86, 0.37, 0.16),
    "sleeves": (0.86, 0.37, 0.16),
    "trousers": (0.15, 0.22, 0.36),
    "shins": (0.15, 0.22, 0.36),
    "shoes": (0.95, 0.95, 0.92),
}


def sample_plan(*, repetitions: int = 8, seed: int = 0) -> Plan:
    """The sample, decided but not drawn; its spans are the true repetitions, in frames at RATE."""
    rng = np.random.default_rng(seed)
    lengths = rng.uniform(1.45, 2.15, repetitions)
    pauses = rng.uniform(0.0, 0.25, repetitions)
    starts = STAND_BEFORE + np.concatenate([[0.0], np.cumsum(lengths + pauses)[:-1]])
    seconds = float(starts[-1] + lengths[-1]) + STAND_AFTER
    spans = tuple((start * RATE, (start + length) * RATE) for start, length in zip(starts, lengths, strict=True))
    frames = round(seconds * RATE)
    times = np.arange(frames, dtype=np.float64) + 0.5
    poses = exercise_poses("squat", _depth(times, spans, rng.uniform(0.85, 1.0, repetitions)))
    poses = poses + 0.006 * np.moveaxis(smooth_noise(rng, times, 3, 18.0), 0, -1)[:, None, :]
    canvas = Canvas(frames)
    view = View(azimuth=-0.75, elevation=0.12, size=1.28, x=0.0, y=0.68, middle=(0.0, 0.0, -0.05))
    body = replace(
        draw_body(rng, GeneratorConfig(odd_limb=0.0)), build=1.0, head=1.05, limbs=(1.0, 1.0), colours=CLOTHES,
        hair=(0.13, 0.09, 0.07),
    )  # fmt: skip
    draw_figure(rng, canvas, body, poses, view, prop=False)
    aspect = math.sqrt(SIZE[1] / SIZE[0])
    screen = np.repeat(stretch(1.0, 1.0), frames, axis=0).astype(np.float32)
    layer = np.repeat(stretch(aspect, 1 / aspect), frames, axis=0).astype(np.float32)
    return Plan(
        length=frames,
        subframes=1,
        kind="exercise:back",
        action="exercise:squat",
        seed=seed,
        spans=spans,
        side_spans=(),
        backdrop=Backdrop(screen, image=draw_backdrop(np.random.default_rng(seed + 3), floor=0.76)),
        footage=None,
        shapes=canvas.shapes(layer),
        finish=Finish(noise=2.0, flicker=np.zeros(frames, np.float32)),
    )


def _depth(times: Floats, spans: tuple[Span, ...], reach: Floats) -> Floats:
    """How deep the squat is at each time, 0 standing to 1."""
    along = np.zeros(len(times))
    for (start, end), deepest in zip(spans, reach, strict=True):
        inside = (times >= start) & (times < end)
        along[inside] = deepest * there_and_back((times[inside] - start) / (end - start), 0.48, 1.0)
    return along
