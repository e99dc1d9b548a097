"""An action, a schedule and a look become a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from escounts.synthetic.action_sampling import draw_action
from escounts.synthetic.actions import Action
from escounts.synthetic.backdrops import draw_backdrop
from escounts.synthetic.camera import draw_camera
from escounts.synthetic.clips import ClipBank
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import chance, log_uniform
from escounts.synthetic.cycles import TWO_SIDED
from escounts.synthetic.finish import draw_finish
from escounts.synthetic.footage import coded_track, passing_track
from escounts.synthetic.layers import (
    Act,
    Layers,
    Scene,
    clip_layers,
    figure_layers,
    mechanism_layers,
    sprite_layers,
)
from escounts.synthetic.motion import MotionBank
from escounts.synthetic.plan import Backdrop, Numbers, Plan
from escounts.synthetic.timeline import (
    Span,
    Timeline,
    clock_of,
    clock_without_repetitions,
    draw_timeline,
    frame_times,
)

NEGATIVES = ("pass", "wander", "frozen", "pan", "light")
"""Ways of having no repetitions; footage and motion capture have two more each."""
CLIP_NEGATIVES = ("once", "cuts")
MOTION_NEGATIVES = ("once", "walk")
STILL_CAMERA = GeneratorConfig(
    camera_still=1.0, camera_gentle=0.0, camera_strong=0.0, camera_fast=0.0,
    shake=0.0, pan=0.0, zoom=0.0, shot_change=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class Composer:
    """Where actions are performed: the recipe and the banks."""

    config: GeneratorConfig
    clips: ClipBank | None
    motion: MotionBank | None

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
        subframes = config.subframes if period < config.blur_below and chance(rng, config.blur) else 1
        times = frame_times(length, subframes, rng.uniform(*config.shutter))
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
        return self._shoot(rng, acts, whole, kind, subframes)

    def negative(self, rng: np.random.Generator, action: Action, length: int) -> Plan:
        """A video of `length` frames with no repetitions, of what the action is made of."""
        ways: tuple[str, ...] = NEGATIVES
        if action.source == "clips":
            ways += CLIP_NEGATIVES
            if self.clips is not None and len(self.clips.segments.coded):
                ways += ("coded",)
        elif action.source in ("motion", "exercise") and self.motion is not None:
            ways += MOTION_NEGATIVES
        weights = np.array([getattr(self.config, f"negative_{way}") for way in ways])
        way = str(rng.choice(ways, p=weights / weights.sum()))
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
        aspect = float(np.exp(rng.uniform(-0.3, 0.3))) if full else log_uniform(rng, *config.aspect)
        pan = True if negative == "pan" else None
        held = negative == "coded" and chance(rng, 0.85)
        lens = STILL_CAMERA if held else config
        camera = draw_camera(rng, lens, acts[0].clock.times, aspect=aspect, pan=pan, calm=full)
        scene = Scene(acts, camera, aspect, timeline.period, negative)
        layers = self._layers(rng, scene, full=full)
        backdrop = self._backdrop(rng, scene, layers)
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
            finish=draw_finish(
                rng,
                config,
                timeline.length,
                period=timeline.period,
                flicker=negative == "light",
                grain=negative == "frozen",
                coded=negative == "coded",
                pulse=self._pulse(rng, timeline.length, negative),
            ),
        )

    def _pulse(self, rng: np.random.Generator, length: int, negative: str) -> Numbers | None:
        """Frames of a coded still whose pulse is laid over the video; a frozen one often has it."""
        share = 0.5 if negative == "frozen" else self.config.pulse
        if not chance(rng, share) or negative == "coded" or self.clips is None or not len(self.clips.segments.coded):
            return None
        return coded_track(rng, self.clips, length).astype(np.int64)

    def _layers(self, rng: np.random.Generator, scene: Scene, *, full: bool) -> Layers:
        source = scene.action.source
        if source == "clips" and self.clips is not None:
            return clip_layers(rng, self.config, self.clips, scene, composite=not full)
        if source == "sprite" and self.clips is not None:
            return sprite_layers(rng, self.config, self.clips, scene)
        if source in ("motion", "exercise"):
            return figure_layers(rng, self.config, self.motion, scene)
        return mechanism_layers(rng, self.config, scene)

    def _backdrop(self, rng: np.random.Generator, scene: Scene, layers: Layers) -> Backdrop:
        lens, count = scene.camera.back, len(scene.times)
        hidden = layers.footage is not None and layers.footage.mask == 0
        filmed = layers.footage is not None or chance(rng, self.config.clip_background)
        if self.clips is None or hidden or not filmed:
            return Backdrop(lens, image=draw_backdrop(rng), ripple=layers.ripple)
        frames = passing_track(rng, self.clips, count)
        if chance(rng, self.config.background_still):
            frames = np.full(count, frames[0])
        return Backdrop(lens, frames=np.round(frames).astype(np.int64), ripple=layers.ripple)


def another_action(rng: np.random.Generator, composer: Composer, first: Action, length: int) -> Action | None:
    """An action to follow the first in the same video, or none where the recipe or the source says no."""
    if not chance(rng, composer.config.second_action) or first.source not in ("clips", "motion") or first.alternating:
        return None
    config = replace(composer.config, sprite_from_clip=0.0, alternate_footage=0.0, alternate_figures=0.0)
    return draw_action(rng, config, composer.clips, composer.motion, length // 2, source=first.source)


def _halves(action: Action, timeline: Timeline) -> tuple[Span, ...]:
    """The two sides of each cycle of an exercise that alternates by itself."""
    if action.source != "exercise" or action.name.split(":")[1] not in TWO_SIDED:
        return ()
    halves: list[Span] = []
    for start, end in timeline.spans:
        middle = 0.5 * (start + end)
        halves += [(start, middle), (middle, end)]
    return tuple(halves)
