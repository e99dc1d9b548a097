"""A scene's actions and clock become the layers that are drawn in front of the background."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from escounts.synthetic.actions import Action, may, pick_segment, progress, reaches
from escounts.synthetic.camera import compose, mirror, place
from escounts.synthetic.clips import ClipBank, Track, action_track, coded_track, passing_track, with_surroundings
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.exercises import exercise_poses
from escounts.synthetic.figures import BIKED, ROPED, draw_bike, draw_body, draw_figure, draw_rope, draw_view
from escounts.synthetic.mechanisms import MECHANISMS, RIPPLE, sprite_path
from escounts.synthetic.motion import Joints, MotionBank, action_poses, alternate, lead_poses, passing_poses, sway
from escounts.synthetic.plan import Array, Canvas, Footage, Ripple, Shapes
from escounts.synthetic.timeline import (
    AFTER,
    BEFORE,
    DURING,
    LEAD_STILL,
    Clock,
    Floats,
    chance,
    eased,
    log_uniform,
    seeded,
    smooth_noise,
)


@dataclass(frozen=True)
class Act:
    """One action with its own clock; it holds the stage from `start` (frames) until the next act."""

    action: Action
    clock: Clock
    start: float = 0.0


@dataclass(frozen=True)
class Scene:
    """One video to be staged: who does what when, and how it is filmed.

    back, front (F, 2, 3): screen to background, and to the performer's layer. period: frames a repetition takes,
    roughly. aspect: width / height of the scene. negative: which way of having no repetitions, or "".
    """

    acts: tuple[Act, ...]
    back: Array
    front: Array
    aspect: float
    period: float
    negative: str = ""

    @property
    def action(self) -> Action:
        """The first act's action."""
        return self.acts[0].action

    @property
    def times(self) -> Floats:
        """(F,) the drawn moments."""
        return self.acts[0].clock.times


Front = Footage | Shapes | Ripple
"""What is drawn in front, or how the background moves instead."""


def clip_layers(
    rng: np.random.Generator, config: GeneratorConfig, clips: ClipBank, scene: Scene, *, composite: bool
) -> Front:
    """Footage repeated, on the whole screen or as a composite before a background."""
    if scene.negative == "cuts":
        track = cut_track(rng, clips, scene.times)
    elif scene.negative == "coded":
        at = coded_track(rng, clips, len(scene.times))
        track = (at, at.copy(), np.zeros(len(at)))
    elif scene.negative == "once":
        at = passing_track(rng, clips, len(scene.times), moving=True)
        track = (at, at.copy(), np.zeros(len(at)))
    else:
        track = _track(rng, config, clips, scene.acts[0])
        for act in scene.acts[1:]:
            later = _track(rng, config, clips, act)
            on = scene.times >= act.start
            at, other, fade = (np.where(on, new, old) for new, old in zip(later, track, strict=True))
            track = at, other, fade
    clock = scene.acts[0].clock
    return place_footage(rng, track, scene.front, clock, composite=composite, period=scene.period)


def _track(rng: np.random.Generator, config: GeneratorConfig, clips: ClipBank, act: Act) -> Track:
    track = action_track(rng, config, clips, act.action, act.clock)
    if act.clock.position is not None:
        return track
    return with_surroundings(rng, clips, act.action, act.clock, track)


def cut_track(rng: np.random.Generator, bank: ClipBank, times: Floats) -> Track:
    """One shot after another, none of them repeating."""
    cuts = np.sort(rng.uniform(times.min(), times.max(), int(rng.integers(1, 6))))
    shot = np.searchsorted(cuts, times)
    at = np.zeros(len(times))
    for number in range(len(cuts) + 1):
        where = np.flatnonzero(shot == number)
        if len(where):
            at[where] = passing_track(rng, bank, len(where))
    return at, at.copy(), np.zeros(len(at))


def place_footage(
    rng: np.random.Generator,
    track: Track,
    front: Array,
    clock: Clock,
    *,
    composite: bool,
    period: float,
) -> Footage:
    """The layer that shows a track: the whole screen, or small before a background. front: see `draw_camera`."""
    at, other, fade = track
    count = len(at)
    smooth = chance(rng, 0.5)
    first = np.floor(at) if smooth else np.round(at)
    part = at - first if smooth else np.zeros(count)
    lens = front.astype(np.float64)
    mask = 0
    if composite:
        mask = int(rng.integers(1, 3))
        scale = log_uniform(rng, 0.2, 0.8)
        sway = smooth_noise(rng, clock.times, 4, max(period, 6.0)) * rng.choice([0.0, 0.01, 0.04])
        x, y = rng.uniform(-1, 1, 2) * (1 - scale) * 0.9
        lens = compose(place(scale * np.exp(sway[0]), sway[1], x + sway[2], y + sway[3], count), lens)
    if clock.side.any():
        lens = compose(mirror(clock.side), lens)
    return Footage(
        lens=lens.astype(np.float32),
        first=first.astype(np.int64),
        part=part.astype(np.float32),
        other=np.round(np.where(fade > 0, other, first)).astype(np.int64),
        fade=fade.astype(np.float32),
        mask=mask,
    )


def sprite_layers(rng: np.random.Generator, clips: ClipBank, scene: Scene) -> Front:
    """A piece of one clip frame on a periodic path, to either side in turn where sides alternate."""
    action, clock = scene.action, scene.acts[0].clock
    count = len(clock.times)
    phase = _approach(rng, clock, progress(action, clock))
    x, y, angle, grow = sprite_path(phase, seeded(action.recipe))
    flip = np.where(clock.side == 1, -1.0, 1.0)
    home = sprite_path(np.zeros(1), seeded(action.recipe))[0]
    x, angle = home + flip * (x - home), flip * angle
    frame = np.full(count, clips.offsets[action.segment[0]] + action.segment[1], dtype=np.int64)
    scale = log_uniform(rng, 0.1, 0.5)
    drift = smooth_noise(rng, clock.times, 3, 30.0) * rng.choice([0.0, 0.01, 0.05])
    shift = rng.uniform(-0.15, 0.15, 2)
    lens = compose(
        place(scale * grow, angle + drift[0], x + shift[0] + drift[1], y + shift[1] + drift[2], count),
        scene.front.astype(np.float64),
    )
    still = np.zeros(count, np.float32)
    turned = compose(mirror(clock.side), lens).astype(np.float32)
    return Footage(turned, frame, still, frame, still, int(rng.integers(1, 3)))


def figure_layers(
    rng: np.random.Generator, config: GeneratorConfig, motion: MotionBank | None, scene: Scene
) -> Front:
    """A drawn person who does what motion capture or a parametric exercise says."""
    action, clock = scene.action, scene.acts[0].clock
    if motion is not None and scene.negative in ("once", "walk"):
        poses = passing_poses(rng, motion, scene.times, walk=scene.negative == "walk")
    else:
        poses = _poses(rng, config, motion, scene.acts[0])
        for act in scene.acts[1:]:
            late = np.clip((scene.times - act.start) / 6.0 + 0.5, 0, 1)[:, None, None]
            poses = poses * (1 - late) + _poses(rng, config, motion, act) * late
    poses = sway(rng, config, clock, poses, scene.period)
    during = np.any([act.clock.stage == DURING for act in scene.acts], axis=0)
    during = during if during.any() and clock.position is None else np.ones(len(during), dtype=bool)
    view = draw_view(rng, poses[during], config=config, times=scene.times, aspect=scene.aspect)
    canvas = Canvas(len(scene.times))
    # Who passes by in a negative has neither rope nor bike.
    exercise = action.name.split(":")[1] if action.source == "exercise" and not scene.negative else ""
    roped = exercise in ROPED
    draw_figure(rng, canvas, draw_body(rng, config), poses, view, prop=may(rng, 0.3, not roped and exercise != BIKED))
    if roped:
        draw_rope(rng, canvas, exercise, poses, view, progress(action, clock))
    elif exercise == BIKED:
        draw_bike(rng, canvas, poses, view)
    return canvas.shapes(scene.front)


def _poses(rng: np.random.Generator, config: GeneratorConfig, motion: MotionBank | None, act: Act) -> Joints:
    action, clock = act.action, act.clock
    if action.source == "motion":
        assert motion is not None
        poses = action_poses(rng, config, motion, action, clock)
        return poses if clock.position is not None else lead_poses(rng, motion, action, clock, poses)
    poses = exercise_track(rng, config, action, clock)
    if clock.position is not None:
        return poses
    if motion is not None and chance(rng, 0.6):
        # Before and after an exercise somebody moves as people do.
        segment = pick_segment(rng, motion.segments.back, 20.0)
        stand_in = Action("motion", "", "back", 20.0, 0, False, 0.5, 0.5, (0.0, 0.0), segment)
        return lead_poses(rng, motion, stand_in, clock, poses)
    return walked_in(rng, clock, poses)


def exercise_track(rng: np.random.Generator, config: GeneratorConfig, action: Action, clock: Clock) -> Joints:
    """(F, 20, 3) a parametric exercise driven by the clock."""
    name = action.name.split(":")[1]
    along = progress(action, clock)
    if action.way == "back":
        along = along * reaches(rng, config, clock)
    poses = exercise_poses(name, along)
    if action.alternating:
        rest = exercise_poses(name, np.zeros(1))
        poses = alternate(poses, np.broadcast_to(rest, poses.shape), clock.side)
    return poses


def walked_in(rng: np.random.Generator, clock: Clock, poses: Joints) -> Joints:
    """Before the first repetition the performer may run up, after the last one off."""
    for stage in (BEFORE, AFTER):
        where = clock.stage == stage
        if where.sum() < 4 or chance(rng, LEAD_STILL):
            continue
        away = clock.away(stage) * where
        steps = exercise_poses("run", (away / rng.uniform(9, 16)) % 1.0)
        way = rng.uniform(0, 2 * np.pi)
        far = np.maximum(away - 6, 0) * rng.uniform(0.02, 0.06)
        steps = steps + np.stack([far * np.cos(way), 0 * far, far * np.sin(way)], -1)[:, None]
        blend = eased(np.clip(away / 8.0, 0, 1))[:, None, None]
        poses = poses * (1 - blend) + steps * blend
    return poses


def mechanism_layers(rng: np.random.Generator, scene: Scene) -> Front:
    """A mechanism, or a ripple in the background, driven by the clock."""
    action, clock = scene.action, scene.acts[0].clock
    look = seeded(action.recipe)
    name = action.name.split(":")[1]
    phase = _approach(rng, clock, progress(action, clock))
    if name == RIPPLE:
        return _ripple(look, phase)
    canvas = Canvas(len(phase))
    MECHANISMS[name](canvas, phase, look)
    return canvas.shapes(scene.front)


def _ripple(look: np.random.Generator, phase: Floats) -> Ripple:
    amount = look.uniform(0.05, 0.3) * np.sin(2 * np.pi * phase)
    way = look.uniform(0, 2 * np.pi)
    wave = look.normal(size=2) * 2.5
    return Ripple(
        amount=amount.astype(np.float32),
        direction=(float(np.cos(way)), float(np.sin(way))),
        wave=(float(wave[0]), float(wave[1]), float(look.uniform(0, 2 * np.pi))),
        disc=(float(look.uniform(-0.5, 0.5)), float(look.uniform(-0.5, 0.5)), float(look.uniform(0.2, 1.0))),
    )


def _approach(rng: np.random.Generator, clock: Clock, phase: Floats) -> Floats:
    """Before and after the repetitions a thing stands still, or moves by less than a whole cycle."""
    if clock.position is not None:
        return phase
    phase = phase.copy()
    for stage, sign in ((BEFORE, -1.0), (AFTER, 1.0)):
        where = np.flatnonzero(clock.stage == stage)
        if len(where) < 3 or not chance(rng, 0.4):
            continue
        part = np.linspace(1, 0, len(where)) if stage == BEFORE else np.linspace(0, 1, len(where))
        phase[where] = (sign * rng.uniform(0.05, 0.45) * part ** rng.uniform(0.7, 2.0)) % 1.0
    return phase
