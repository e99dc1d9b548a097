"""Staging: an action, a schedule and a look become the layers of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from escounts.data.synthetic.actions import Action, draw_pace, may, pick_segment, progress, reaches, recorded_action
from escounts.data.synthetic.backdrops import draw_backdrop
from escounts.data.synthetic.camera import Camera, compose, draw_camera, place, stretch
from escounts.data.synthetic.canvas import Canvas
from escounts.data.synthetic.clips import ClipBank
from escounts.data.synthetic.config import GeneratorConfig
from escounts.data.synthetic.curves import Floats, chance, log_uniform, seeded, smooth_noise
from escounts.data.synthetic.exercises import CYCLES, ONE_SIDED, THERE_AND_BACK, TWO_SIDED, exercise_poses
from escounts.data.synthetic.figures import draw_body, draw_figure, draw_view
from escounts.data.synthetic.finish import draw_finish
from escounts.data.synthetic.footage import action_track, cut_track, passing_track, stage_footage, with_surroundings
from escounts.data.synthetic.mechanisms import MECHANISMS, RIPPLE, sprite_path
from escounts.data.synthetic.motion import MotionBank
from escounts.data.synthetic.plan import Backdrop, Footage, Plan, Ripple, Shapes
from escounts.data.synthetic.poses import Joints, action_poses, alternate, lead_poses, passing_poses, sway
from escounts.data.synthetic.ropes import ROPED, draw_rope
from escounts.data.synthetic.timeline import (
    AFTER,
    BEFORE,
    DURING,
    Clock,
    Span,
    Timeline,
    clock_of,
    draw_period,
    draw_timeline,
    frame_times,
    stray_clock,
)


NEGATIVES = {"pass": 3.0, "wander": 5.0, "frozen": 1.0, "pan": 2.0, "light": 1.0}
"""Ways in which nothing repeats, and how likely each is beside the others."""


def draw_action(
    rng: np.random.Generator,
    config: GeneratorConfig,
    clips: ClipBank | None,
    motion: MotionBank | None,
    length: int,
) -> Action:
    """What is to be repeated, from one of the sources that are there."""
    shares = np.array(
        [config.clips if clips else 0.0, config.motion if motion else 0.0, config.procedural], dtype=float
    )
    if shares.sum() == 0:
        shares[2] = 1.0
    source = ("clips", "motion", "procedural")[int(rng.choice(3, p=shares / shares.sum()))]
    if source == "clips" and clips is not None:
        as_sprite = chance(rng, config.sprite_from_clip)
        alternating = chance(rng, config.alternate_sprites if as_sprite else config.alternate_footage)
        period = draw_period(rng, config, length, alternating=alternating)
        way = "loop" if as_sprite else None
        kind = "sprite" if as_sprite else "clips"
        return recorded_action(
            rng, config, clips.segments, source=kind, period=period, alternating=alternating, way=way
        )
    if source == "motion" and motion is not None:
        alternating = chance(rng, config.alternate_figures)
        period = draw_period(rng, config, length, alternating=alternating)
        way = "cycle" if chance(rng, 0.5) else "back"
        return recorded_action(
            rng, config, motion.segments, source="motion", period=period, alternating=alternating, way=way
        )
    return _procedural_action(rng, config, length)


def _procedural_action(rng: np.random.Generator, config: GeneratorConfig, length: int) -> Action:
    turn, ease, warp = draw_pace(rng, config)
    recipe = int(rng.integers(2**31))
    if chance(rng, config.exercise):
        name = str(rng.choice([*THERE_AND_BACK, *CYCLES]))
        alternating = may(rng, 0.6, name in ONE_SIDED)
        way = "back" if name in THERE_AND_BACK else "cycle"
        source = "exercise"
    else:
        # Things on paths are the richest family: they take the place of several mechanisms.
        name = str(rng.choice([*MECHANISMS, "sprite", "sprite", "sprite", RIPPLE, RIPPLE]))
        alternating, way, source = False, "cycle", "mechanism"
    period = draw_period(rng, config, length, alternating=alternating)
    full = f"{source}:{name}:{recipe}" + (":alternating" if alternating else "")
    return Action(source, full, way, period, recipe, alternating, turn, ease, warp)


@dataclass(frozen=True)
class Layers:
    """What is drawn in front, and what the background does."""

    footage: Footage | None = None
    shapes: Shapes | None = None
    ripple: Ripple | None = None


@dataclass(frozen=True)
class Stage:
    """Where actions are performed: the recipe and the banks."""

    config: GeneratorConfig
    clips: ClipBank | None
    motion: MotionBank | None

    def perform(self, rng: np.random.Generator, action: Action, length: int, *, single: bool = False) -> Plan:
        """A video of the action repeated, or done exactly once."""
        config = self.config
        tempo = action.period * float(np.exp(rng.uniform(-0.3, 0.3)))
        tempo = max(tempo, config.period[0] * (2 if action.alternating else 1))
        timeline = draw_timeline(
            rng, config, length, period=tempo, alternating=action.alternating, single=single
        )
        subframes = config.subframes if timeline.period < config.blur_below and chance(rng, config.blur) else 1
        times = frame_times(length, subframes, rng.uniform(*config.shutter))
        clock = clock_of(timeline, times)
        kind = f"{action.source}:{action.way}" + (":alternating" if action.alternating else "")
        kind = f"{kind}:single" if single else kind
        return self._shoot(rng, action, clock, timeline, kind, subframes)

    def negative(self, rng: np.random.Generator, length: int, *, action_rng: np.random.Generator) -> Plan:
        """A video in which nothing repeats."""
        action = draw_action(action_rng, self.config, self.clips, self.motion, length)
        ways = dict(NEGATIVES)
        if action.source == "clips":
            ways |= {"once": 5.0, "cuts": 1.5}
        elif action.source in ("motion", "exercise") and self.motion is not None:
            ways |= {"once": 5.0, "walk": 1.5}
        weights = np.array(list(ways.values()))
        way = str(rng.choice(list(ways), p=weights / weights.sum()))
        times = frame_times(length, 1, 1.0)
        timeline = Timeline(length, max(action.period, 8.0), ())
        clock = stray_clock(rng, times, way if way in ("pass", "wander") else "frozen")
        if action.way != "back" and clock.stray is not None:
            # Half of a cycle is no return; a whole one would be a repetition.
            clock = replace(clock, stray=0.5 * clock.stray)
        return self._shoot(rng, action, clock, timeline, f"negative:{way}", 1, negative=way)

    def _shoot(
        self,
        rng: np.random.Generator,
        action: Action,
        clock: Clock,
        timeline: Timeline,
        kind: str,
        subframes: int,
        negative: str = "",
    ) -> Plan:
        config = self.config
        figure = action.source in ("motion", "exercise")
        whole = action.source == "clips" and not chance(rng, config.composite)
        if whole:
            aspect = float(np.exp(rng.uniform(-0.3, 0.3)))
        else:
            aspect = log_uniform(rng, *config.aspect)
        camera = draw_camera(
            rng, config, clock.times, aspect=aspect, pan=True if negative == "pan" else None, calm=whole
        )
        if action.source == "clips":
            layers = self._clip_layers(rng, action, clock, camera, timeline, negative, composite=not whole)
        elif action.source == "sprite":
            layers = self._sprite_layers(rng, action, clock, camera)
        elif figure:
            layers = self._figure_layers(rng, action, clock, camera, timeline, negative, aspect)
        else:
            layers = _mechanism_layers(rng, action, clock, camera)
        backdrop = self._backdrop(rng, clock, camera, layers)
        finish = draw_finish(rng, config, timeline.length, flicker=negative == "light")
        return Plan(
            length=timeline.length,
            subframes=subframes,
            kind=kind,
            action=action.name,
            seed=int(rng.integers(2**62)),
            spans=timeline.spans,
            side_spans=timeline.sides or _halves(action, timeline),
            backdrop=backdrop,
            footage=layers.footage,
            shapes=layers.shapes,
            finish=finish,
        )

    def _backdrop(self, rng: np.random.Generator, clock: Clock, camera: Camera, layers: Layers) -> Backdrop:
        clips, count = self.clips, len(clock.times)
        covered = layers.footage is not None and layers.footage.mask == 0
        if clips is not None and not covered and (layers.footage is not None or chance(rng, self.config.clip_background)):
            frames = passing_track(rng, clips, count)
            if chance(rng, 0.6):
                frames = np.full(count, frames[0])
            return Backdrop(camera.back, frames=np.round(frames).astype(np.int64), ripple=layers.ripple)
        return Backdrop(camera.back, image=draw_backdrop(rng), ripple=layers.ripple)

    def _clip_layers(
        self,
        rng: np.random.Generator,
        action: Action,
        clock: Clock,
        camera: Camera,
        timeline: Timeline,
        negative: str,
        *,
        composite: bool,
    ) -> Layers:
        assert self.clips is not None
        if negative == "cuts":
            track = cut_track(rng, self.clips, clock.times)
        elif negative in ("once", "walk"):
            at = passing_track(rng, self.clips, len(clock.times), moving=True)
            track = (at, at.copy(), np.zeros(len(at)))
        else:
            track = action_track(rng, self.config, self.clips, action, clock)
            if clock.stray is None:
                track = with_surroundings(rng, self.clips, action, clock, track)
        footage = stage_footage(
            rng, self.config, track, camera, clock, composite=composite, period=timeline.period
        )
        return Layers(footage=footage)

    def _sprite_layers(self, rng: np.random.Generator, action: Action, clock: Clock, camera: Camera) -> Layers:
        """A piece of one clip frame on a periodic path."""
        assert self.clips is not None
        count = len(clock.times)
        phase = _approach(rng, clock, progress(action, clock))
        x, y, angle, grow = sprite_path(phase, seeded(action.recipe))
        clip, start, _ = action.segment
        frame = np.full(count, self.clips.offsets[clip] + start, dtype=np.int64)
        scale = log_uniform(rng, 0.1, 0.5)
        drift = smooth_noise(rng, clock.times, 3, 30.0) * rng.choice([0.0, 0.01, 0.05])
        shift = rng.uniform(-0.15, 0.15, 2)
        lens = compose(
            place(scale * grow, angle + drift[0], x + shift[0] + drift[1], y + shift[1] + drift[2], count),
            camera.front.astype(np.float64),
        )
        if clock.side.any():
            mirror = np.repeat(stretch(1.0, 1.0), count, 0)
            mirror[:, 0, 0] = np.where(clock.side == 1, -1.0, 1.0)
            lens = compose(mirror, lens)
        still = np.zeros(count, np.float32)
        return Layers(
            footage=Footage(lens.astype(np.float32), frame, still, frame, still, int(rng.integers(1, 3)))
        )

    def _figure_layers(
        self,
        rng: np.random.Generator,
        action: Action,
        clock: Clock,
        camera: Camera,
        timeline: Timeline,
        negative: str,
        aspect: float,
    ) -> Layers:
        config = self.config
        poses: Joints
        if self.motion is not None and negative in ("once", "walk", "cuts"):
            poses = passing_poses(rng, self.motion, clock.times, walk=negative == "walk")
        elif action.source == "motion":
            assert self.motion is not None
            poses = action_poses(rng, config, self.motion, action, clock)
            if clock.stray is None:
                poses = lead_poses(rng, self.motion, action, clock, poses)
        else:
            poses = _exercise(rng, config, action, clock)
            if clock.stray is None:
                led = self.motion is not None and chance(rng, 0.6)
                poses = _led_by_motion(rng, self.motion, clock, poses) if led else walked_in(rng, clock, poses)
        poses = sway(rng, clock, poses, timeline.period)
        during = (clock.stage == DURING) if clock.stray is None and (clock.stage == DURING).any() else slice(None)
        view = draw_view(
            rng, poses[during], upper_body=chance(rng, config.upper_body), times=clock.times, aspect=aspect
        )
        canvas = Canvas(len(clock.times))
        exercise = action.name.split(":")[1]
        roped = exercise in ROPED
        draw_figure(rng, canvas, draw_body(rng), poses, view, prop=may(rng, config.prop, not roped))
        if roped:
            draw_rope(rng, canvas, exercise, poses, view, progress(action, clock))
        return Layers(shapes=canvas.shapes(camera.front))


def _halves(action: Action, timeline: Timeline) -> tuple[Span, ...]:
    """The two sides of each cycle of an exercise that alternates by itself."""
    if action.source != "exercise" or action.name.split(":")[1] not in TWO_SIDED:
        return ()
    middles = [0.5 * (start + end) for start, end in timeline.spans]
    pairs = zip(timeline.spans, middles, strict=True)
    return tuple(half for (start, end), middle in pairs for half in ((start, middle), (middle, end)))


def _exercise(rng: np.random.Generator, config: GeneratorConfig, action: Action, clock: Clock) -> Joints:
    name = action.name.split(":")[1]
    along = progress(action, clock)
    if action.way == "back":
        along = along * reaches(rng, config, clock)
    poses = exercise_poses(name, along)
    if action.alternating:
        rest = exercise_poses(name, np.zeros(1))
        poses = alternate(poses, np.broadcast_to(rest, poses.shape), clock.side)
    return poses


def walked_in(rng: np.random.Generator, clock: Clock, poses: Joints, share: float = 0.6) -> Joints:
    """Before the first repetition the performer runs up, after the last one off, turning as they go."""
    for stage in (BEFORE, AFTER):
        where = clock.stage == stage
        if where.sum() < 4 or not chance(rng, share):
            continue
        border = clock.times[where].max() if stage == BEFORE else clock.times[where].min()
        away = np.abs(clock.times - border) * where
        steps = exercise_poses("run", (away / rng.uniform(9, 16)) % 1.0)
        way = rng.uniform(0, 2 * np.pi)
        far = np.maximum(away - 6, 0) * rng.uniform(0.02, 0.06)
        steps = steps + np.stack([far * np.cos(way), 0 * far, far * np.sin(way)], -1)[:, None]
        blend = np.clip(away / 8.0, 0, 1)
        blend = (blend * blend * (3 - 2 * blend))[:, None, None]
        poses = poses * (1 - blend) + steps * blend
    return poses


def _led_by_motion(rng: np.random.Generator, motion: MotionBank | None, clock: Clock, poses: Joints) -> Joints:
    """Before and after an exercise somebody moves as people do."""
    assert motion is not None
    segment = pick_segment(rng, motion.segments.back, 20.0)
    stand_in = Action("motion", "", "back", 20.0, 0, False, 0.5, 0.5, (0.0, 0.0), segment)
    return lead_poses(rng, motion, stand_in, clock, poses)


def _approach(rng: np.random.Generator, clock: Clock, phase: Floats) -> Floats:
    """Before and after the repetitions a mechanism stands still, or moves by less than a whole cycle."""
    if clock.stray is not None:
        return phase
    phase = phase.copy()
    for stage, sign in ((BEFORE, -1.0), (AFTER, 1.0)):
        where = np.flatnonzero(clock.stage == stage)
        if len(where) < 3 or not chance(rng, 0.4):
            continue
        part = np.linspace(1, 0, len(where)) if stage == BEFORE else np.linspace(0, 1, len(where))
        phase[where] = (sign * rng.uniform(0.05, 0.45) * part ** rng.uniform(0.7, 2.0)) % 1.0
    return phase


def _mechanism_layers(rng: np.random.Generator, action: Action, clock: Clock, camera: Camera) -> Layers:
    """A mechanism driven by the clock."""
    look = seeded(action.recipe)
    name = action.name.split(":")[1]
    phase = _approach(rng, clock, progress(action, clock))
    if name == RIPPLE:
        amount = look.uniform(0.05, 0.3) * np.sin(2 * np.pi * phase)
        way = look.uniform(0, 2 * np.pi)
        wave = look.normal(size=2) * 2.5
        bend = Ripple(
            amount=amount.astype(np.float32),
            direction=(float(np.cos(way)), float(np.sin(way))),
            wave=(float(wave[0]), float(wave[1]), float(look.uniform(0, 2 * np.pi))),
            disc=(float(look.uniform(-0.5, 0.5)), float(look.uniform(-0.5, 0.5)), float(look.uniform(0.2, 1.0))),
        )
        return Layers(ripple=bend)
    canvas = Canvas(len(phase))
    MECHANISMS[name](canvas, phase, look)
    return Layers(shapes=canvas.shapes(camera.front))
