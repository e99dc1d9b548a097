"""An action is drawn from the sources that are there; an action, a schedule and a look become a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from escounts.synthetic.actions import Action, draw_pace, may, pick_segment, recorded_action
from escounts.synthetic.camera import STILL_CAMERA, draw_camera, draw_finish, draw_flash
from escounts.synthetic.clips import ClipBank, coded_track, passing_track
from escounts.synthetic.coded import draw_squeeze
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.exercises import CYCLES, ONE_SIDED, THERE_AND_BACK, TWO_SIDED
from escounts.synthetic.layers import (
    Act,
    Front,
    Scene,
    clip_layers,
    figure_layers,
    mechanism_layers,
    sprite_layers,
)
from escounts.synthetic.mechanisms import MECHANISMS, RIPPLE
from escounts.synthetic.motion import MotionBank, is_two_sided, one_sidedness
from escounts.synthetic.plan import Backdrop, Footage, Numbers, Plan, Ripple, Shapes, draw_backdrop
from escounts.synthetic.timeline import (
    Timeline,
    chance,
    clock_of,
    clock_without_repetitions,
    draw_period,
    draw_timeline,
    frame_times,
    halves,
    log_uniform,
    seeded,
)

SOURCES = ("clips", "motion", "procedural")
ONE_SIDED_ENOUGH = 0.9
"""Motion capture alternates only where it differs this much from its mirror image (0 none, 2 opposite)."""
BLUR_BELOW = 9.0
"""Frames a repetition takes, below which a video may be drawn with sub-frames."""


def _motion_action(rng: np.random.Generator, config: GeneratorConfig, motion: MotionBank, length: int) -> Action:
    """A stretch of motion capture; to either side in turn only if the sides can be told apart."""
    alternating = chance(rng, config.alternate_figures)
    period = draw_period(rng, config, length, alternating=alternating)
    way = "cycle" if chance(rng, 0.5) else "back"
    for _ in range(8 if alternating else 0):
        action = recorded_action(rng, motion.segments, source="motion", period=period, alternating=True)
        if one_sidedness(motion, action.segment) > ONE_SIDED_ENOUGH:
            return action
    return recorded_action(rng, motion.segments, source="motion", period=period, alternating=False, way=way)


def _clip_action(rng: np.random.Generator, config: GeneratorConfig, clips: ClipBank, length: int) -> Action:
    sprite = chance(rng, config.sprite_from_clip)
    alternating = chance(rng, config.alternate_sprites if sprite else config.alternate_footage)
    filmed = not sprite and len(clips.segments.filmed) > 0 and chance(rng, config.filmed)
    alternating = alternating and not filmed
    period = draw_period(rng, config, length, alternating=alternating)
    if filmed:
        segment = pick_segment(rng, clips.segments.filmed, period)
        name = f"clips:filmed:{segment[0]}"
        return Action("clips", name, "filmed", period, int(rng.integers(2**31)), False, 0.5, 0.5, (0.0, 0.0), segment)
    if not sprite:
        return recorded_action(rng, clips.segments, source="clips", period=period, alternating=alternating)
    # Only one frame of the clip is needed: the path makes the cycle, not the footage.
    first = int(rng.integers(clips.filmed))
    clip = int(np.searchsorted(clips.offsets, first, side="right")) - 1
    turn, ease, warp = draw_pace(rng)
    recipe = int(rng.integers(2**31))
    name = f"sprite:{first}:{recipe}" + (":alternating" if alternating else "")
    segment = (clip, first - int(clips.offsets[clip]), 1)
    return Action("sprite", name, "cycle", period, recipe, alternating, turn, ease, warp, segment)


def _procedural_action(rng: np.random.Generator, config: GeneratorConfig, length: int) -> Action:
    turn, ease, warp = draw_pace(rng)
    recipe = int(rng.integers(2**31))
    if chance(rng, config.exercise):
        others = [*THERE_AND_BACK, *(name for name in CYCLES if name not in TWO_SIDED)]
        name = str(rng.choice(TWO_SIDED if chance(rng, config.two_sided) else others))
        alternating = may(rng, config.alternate_exercises, name in ONE_SIDED)
        way = "back" if name in THERE_AND_BACK else "cycle"
        source = "exercise"
    else:
        # Things on paths are the richest family: they take the place of several mechanisms.
        name = str(rng.choice([*MECHANISMS, "sprite", "sprite", "sprite", RIPPLE, RIPPLE]))
        alternating, way, source = False, "cycle", "mechanism"
    period = draw_period(rng, config, length, alternating=alternating)
    full = f"{source}:{name}:{recipe}" + (":alternating" if alternating else "")
    return Action(source, full, way, period, recipe, alternating, turn, ease, warp)


NEGATIVES = {"pass": 3.0, "wander": 7.0, "frozen": 2.0, "pan": 2.0}
"""Ways of having no repetitions, and how likely each is beside the others: the motion is played once, one way; it
goes to and fro without a rhythm; nothing moves; the camera pans over a still scene. Recipes weigh two more."""
CUTS, CODED, WALK = 1.5, 6.0, 1.5
"""The same of one shot after another and of a still picture that pulses as codecs make it (clips), and of somebody
who walks through the picture (motion capture)."""


@dataclass(frozen=True)
class Composer:
    """Where actions are performed: the recipe and the banks."""

    config: GeneratorConfig
    clips: ClipBank | None
    motion: MotionBank | None

    def draw_action(self, rng: np.random.Generator, length: int, source: str | None = None) -> Action:
        """What is to be repeated in a video of `length` frames. source: one of SOURCES, or drawn by their shares."""
        config = self.config
        shares = np.array(
            [config.clips if self.clips else 0.0, config.motion if self.motion else 0.0, config.procedural]
        )
        if shares.sum() == 0:
            shares[2] = 1.0
        source = source or SOURCES[int(rng.choice(3, p=shares / shares.sum()))]
        if source == "clips" and self.clips is not None:
            return _clip_action(rng, config, self.clips, length)
        if source == "motion" and self.motion is not None:
            return _motion_action(rng, config, self.motion, length)
        return _procedural_action(rng, config, length)

    def draw_second(self, rng: np.random.Generator, first: Action, length: int) -> Action | None:
        """An action to follow the first in the same video, or none where the recipe or the source says no."""
        if not chance(rng, self.config.second_action) or first.source not in ("clips", "motion") or first.alternating:
            return None
        plain = replace(self.config, sprite_from_clip=0.0, alternate_footage=0.0, alternate_figures=0.0)
        return replace(self, config=plain).draw_action(rng, length // 2, first.source)

    def perform(
        self,
        rng: np.random.Generator,
        action: Action,
        length: int,
        *,
        single: bool = False,
        second: Action | None = None,
    ) -> Plan:
        """A video of `length` frames of the action repeated, or done exactly once.

        second: another action of the same source that is repeated after the first; both count.
        """
        config = self.config
        kind = f"{action.source}:{action.way}" + (":alternating" if action.alternating else "")
        if second is None:
            timelines = [self._timeline(rng, action, length, single=single)]
            starts = [0.0]
            kind += ":single" if single else ""
        else:
            cut = int(rng.uniform(0.35, 0.65) * length)
            later = self._timeline(rng, second, length - cut, whole=True).shifted(cut)
            timelines, starts = [self._timeline(rng, action, cut, whole=True), later], [0.0, float(cut)]
            kind += ":two"
        period = min(timeline.period for timeline in timelines)
        subframes = config.subframes if period < BLUR_BELOW and chance(rng, config.blur) else 1
        times = frame_times(length, subframes, rng.uniform(0.3, 1.0))
        actions = (action, second) if second is not None else (action,)
        acts = tuple(
            Act(done, clock_of(timeline, times), start)
            for done, timeline, start in zip(actions, timelines, starts, strict=True)
        )
        whole = Timeline(
            length,
            period,
            tuple(span for timeline in timelines for span in timeline.spans),
            tuple(side for timeline in timelines for side in timeline.sides),
        )
        plan = self._shoot(rng, acts, whole, kind, subframes)
        if second is None:
            return plan
        return replace(plan, parts=tuple(part for part, one in enumerate(timelines) for _ in one.spans))

    def negative(self, rng: np.random.Generator, action: Action, length: int) -> Plan:
        """A video of `length` frames with no repetitions, of what the action is made of."""
        ways = {**NEGATIVES, "light": self.config.negative_light}
        if action.source == "clips":
            ways |= {"once": self.config.negative_once, "cuts": CUTS}
            if self.clips is not None and len(self.clips.segments.coded):
                ways["coded"] = CODED
        elif action.source in ("motion", "exercise") and self.motion is not None:
            ways |= {"once": self.config.negative_once, "walk": WALK}
        weights = np.array(list(ways.values()))
        way = str(rng.choice(list(ways), p=weights / weights.sum()))
        clock = clock_without_repetitions(
            rng, frame_times(length, 1, 1.0), way if way in ("pass", "wander") else "frozen"
        )
        if action.way != "back" and clock.position is not None:
            # Half of a cycle is not a return; a whole one would be a repetition.
            clock = replace(clock, position=0.5 * clock.position)
        nothing = Timeline(length, max(action.period, 8.0), ())
        return self._shoot(rng, (Act(action, clock),), nothing, f"negative:{way}", 1, negative=way)

    def _timeline(
        self, rng: np.random.Generator, action: Action, length: int, *, single: bool = False, whole: bool = False
    ) -> Timeline:
        """A schedule for the action. whole: no repetition is cut by the borders."""
        config = replace(self.config, cut_inside=0.0) if whole else self.config
        fastest = config.period[0] * (2 if action.alternating else 1)
        tempo = max(action.period * float(np.exp(rng.uniform(-0.3, 0.3))), fastest)
        tempo = min(tempo, max(fastest, 0.8 * length))
        return draw_timeline(rng, config, length, period=tempo, alternating=action.alternating, single=single)

    def _shoot(
        self,
        rng: np.random.Generator,
        acts: tuple[Act, ...],
        timeline: Timeline,
        kind: str,
        subframes: int,
        negative: str = "",
    ) -> Plan:
        config, action = self.config, acts[0].action
        full = action.source == "clips" and (not chance(rng, config.composite) or negative == "coded")
        # The bank's frames are squashed already: full-screen footage is bent only a little more.
        aspect = float(np.exp(rng.uniform(-0.3, 0.3))) if full else log_uniform(rng, 9 / 16, 16 / 9)
        pan = True if negative == "pan" else None
        held = negative == "coded" and chance(rng, 0.85)
        lens = STILL_CAMERA if held else config
        back, front = draw_camera(rng, lens, acts[0].clock.times, aspect=aspect, pan=pan, calm=full)
        scene = Scene(acts, back, front, aspect, timeline.period, negative)
        said = {self._alternates(act.action) for act in acts}  # of two actions one may, and the other not
        alternates = False if negative else said.pop() if len(said) == 1 else None
        shown = self._front(rng, scene, full=full)
        backdrop = self._backdrop(rng, scene, shown)
        seed = int(rng.integers(2**62))
        finish = draw_finish(
            rng,
            config,
            timeline.length,
            period=timeline.period,
            flicker=negative == "light",
            grain=negative == "frozen",
            coded=negative == "coded",
            pulse=self._pulse(rng, timeline.length, negative),
            squeeze=0.0 if negative == "coded" else draw_squeeze(seeded(seed), config),
        )
        flash = draw_flash(seeded(seed, 1), config, timeline.length, only_light=negative == "light")
        if flash is not None and negative != "coded":
            finish = replace(finish, flash=flash[0], spot=flash[1])
        return Plan(
            length=timeline.length,
            subframes=subframes,
            kind=kind,
            action=action.name,
            seed=seed,
            spans=timeline.spans,
            side_spans=timeline.sides or (halves(timeline.spans) if alternates else ()),
            alternates=alternates,
            backdrop=backdrop,
            footage=shown if isinstance(shown, Footage) else None,
            shapes=shown if isinstance(shown, Shapes) else None,
            finish=finish,
        )

    def _alternates(self, action: Action) -> bool | None:
        """Whether a repetition has two sides; nobody knows of a natural cycle of footage, or of what was filmed."""
        if action.alternating:
            return True
        if action.source == "exercise":
            return action.name.split(":")[1] in TWO_SIDED
        if action.source == "motion" and action.way == "cycle" and self.motion is not None:
            return is_two_sided(self.motion, action.segment)
        return None if action.source == "clips" and action.way in ("cycle", "filmed") else False

    def _pulse(self, rng: np.random.Generator, length: int, negative: str) -> Numbers | None:
        """Frames of a coded still whose pulse is laid over the video; a frozen one often has it."""
        share = 0.5 if negative == "frozen" else 0.2
        if not chance(rng, share) or negative == "coded" or self.clips is None or not len(self.clips.segments.coded):
            return None
        return coded_track(rng, self.clips, length).astype(np.int64)

    def _front(self, rng: np.random.Generator, scene: Scene, *, full: bool) -> Front:
        source = scene.action.source
        if source == "clips" and self.clips is not None:
            return clip_layers(rng, self.config, self.clips, scene, composite=not full)
        if source == "sprite" and self.clips is not None:
            return sprite_layers(rng, self.clips, scene)
        if source in ("motion", "exercise"):
            return figure_layers(rng, self.config, self.motion, scene)
        return mechanism_layers(rng, scene)

    def _backdrop(self, rng: np.random.Generator, scene: Scene, front: Front) -> Backdrop:
        lens, count = scene.back, len(scene.times)
        ripple = front if isinstance(front, Ripple) else None
        hidden = isinstance(front, Footage) and front.mask == 0
        filmed = isinstance(front, Footage) or chance(rng, self.config.clip_background)
        if self.clips is None or hidden or not filmed:
            return Backdrop(lens, image=draw_backdrop(rng), ripple=ripple)
        frames = passing_track(rng, self.clips, count)
        if chance(rng, 0.5):
            frames = np.full(count, frames[0])
        return Backdrop(lens, frames=np.round(frames).astype(np.int64), ripple=ripple)
