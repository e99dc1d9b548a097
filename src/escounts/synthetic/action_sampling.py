"""Drawing the action that is to be repeated, from the sources that are there."""

from __future__ import annotations

import numpy as np

from escounts.synthetic.actions import Action, draw_pace, may, recorded_action
from escounts.synthetic.clips import ClipBank
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import chance
from escounts.synthetic.cycles import CYCLES, TWO_SIDED
from escounts.synthetic.exercises import ONE_SIDED, THERE_AND_BACK
from escounts.synthetic.mechanisms import MECHANISMS, RIPPLE
from escounts.synthetic.motion import MotionBank
from escounts.synthetic.poses import one_sidedness
from escounts.synthetic.timeline import draw_period

SOURCES = ("clips", "motion", "procedural")


def draw_action(
    rng: np.random.Generator,
    config: GeneratorConfig,
    clips: ClipBank | None,
    motion: MotionBank | None,
    length: int,
    source: str | None = None,
) -> Action:
    """What is to be repeated in a video of `length` frames. source: one of SOURCES, or drawn by their shares."""
    shares = np.array([config.clips if clips else 0.0, config.motion if motion else 0.0, config.procedural])
    if shares.sum() == 0:
        shares[2] = 1.0
    source = source or SOURCES[int(rng.choice(3, p=shares / shares.sum()))]
    if source == "clips" and clips is not None:
        return _clip_action(rng, config, clips, length)
    if source == "motion" and motion is not None:
        return _motion_action(rng, config, motion, length)
    return _procedural_action(rng, config, length)


def _motion_action(rng: np.random.Generator, config: GeneratorConfig, motion: MotionBank, length: int) -> Action:
    """A stretch of motion capture; to either side in turn only if the sides can be told apart."""
    alternating = chance(rng, config.alternate_figures)
    period = draw_period(rng, config, length, alternating=alternating)
    way = "cycle" if chance(rng, config.figure_cycle) else "back"
    for _ in range(8 if alternating else 0):
        action = recorded_action(rng, config, motion.segments, source="motion", period=period, alternating=True)
        if one_sidedness(motion, action.segment) > config.one_sided:
            return action
    return recorded_action(rng, config, motion.segments, source="motion", period=period, alternating=False, way=way)


def _clip_action(rng: np.random.Generator, config: GeneratorConfig, clips: ClipBank, length: int) -> Action:
    sprite = chance(rng, config.sprite_from_clip)
    alternating = chance(rng, config.alternate_sprites if sprite else config.alternate_footage)
    period = draw_period(rng, config, length, alternating=alternating)
    if not sprite:
        return recorded_action(rng, config, clips.segments, source="clips", period=period, alternating=alternating)
    # Only one frame of the clip is needed: the path makes the cycle, not the footage.
    first = int(rng.integers(clips.filmed))
    clip = int(np.searchsorted(clips.offsets, first, side="right")) - 1
    turn, ease, warp = draw_pace(rng, config)
    recipe = int(rng.integers(2**31))
    name = f"sprite:{first}:{recipe}" + (":alternating" if alternating else "")
    segment = (clip, first - int(clips.offsets[clip]), 1)
    return Action("sprite", name, "cycle", period, recipe, alternating, turn, ease, warp, segment)


def _procedural_action(rng: np.random.Generator, config: GeneratorConfig, length: int) -> Action:
    turn, ease, warp = draw_pace(rng, config)
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
