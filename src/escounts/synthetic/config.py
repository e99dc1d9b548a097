"""The recipe of the generated repetitions: every probability and every range is a value here."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

Range = tuple[float, float]

SIZES = ("drift_size", "one_sided", "blur_below")
"""Numbers of the recipe that are not shares; nor are `negative_…`, but weights beside each other."""


@dataclass(frozen=True)
class GeneratorConfig:
    """Shares are probabilities 0..1, periods and durations are in frames unless a name says otherwise."""

    # Where the motion comes from; a missing bank's share goes to the others.
    clips: float = 0.42
    motion: float = 0.33
    procedural: float = 0.25

    # What a batch is made of.
    labelled: float = 0.0
    """Videos of labelled clips as they were filmed, where the bank has them; the shares below are of the others."""
    labelled_sibling: float = 0.3
    """Share of those that have another clip of the same motion in the batch, where there is one."""
    negative: float = 0.25
    """Videos with no repetitions."""
    single: float = 0.05
    """Videos with exactly one complete there-and-back: one repetition."""
    sibling: float = 0.35
    """Videos that have another video of the same action in the batch."""
    reverse: float = 0.25
    """Videos played backwards in time."""

    # The timeline.
    period: Range = (2.4, 70.0)
    """Log-uniform; the upper end is cut to 0.8 of the video's length."""
    jitter: Range = (0.0, 0.22)
    """Standard deviation of a repetition's log length."""
    irregular: float = 0.12
    """Share of videos with a jitter far beyond that, as of a ball that is kept up."""
    irregular_jitter: Range = (0.22, 0.5)
    drift: float = 0.4
    """Share of videos whose tempo speeds up or slows down."""
    drift_size: float = 0.25
    pause: float = 0.2
    """Share of videos with pauses between repetitions."""
    pause_length: Range = (0.05, 1.0)
    """Of a period."""
    lead: float = 0.55
    tail: float = 0.55
    """Share of videos with something else before the first (after the last) repetition."""
    lead_length: Range = (0.03, 0.4)
    """Of the video."""
    cut_inside: float = 0.4
    """Share of videos without lead (tail) that begin (end) inside a repetition."""
    few: float = 0.4
    """Share of videos limited to 1..few_most repetitions."""
    few_most: int = 8
    reach: float = 0.22
    """How much shorter than the full reach a repetition may fall."""
    phase_warp: Range = (-0.6, 0.6)
    """How unevenly time runs within a repetition."""
    lead_still: float = 0.3
    """Share of leads and tails in which the performer stands still; in the others something else happens."""
    approach: float = 0.4
    """Share of leads and tails in which a mechanism moves, by less than a cycle."""
    second_action: float = 0.05
    """Share of clip and figure videos in which another repeated action follows the first; both count."""

    # Where there are no repetitions: how likely each way is beside the others.
    negative_pass: float = 3.0
    """The motion is played once, one way."""
    negative_wander: float = 7.0
    """The motion goes to and fro without a rhythm."""
    negative_frozen: float = 2.0
    negative_pan: float = 2.0
    """The camera pans over a still scene."""
    negative_light: float = 2.0
    """Only the light changes."""
    negative_once: float = 5.0
    """A clip or a motion-capture trial that does not come back, played as it is."""
    negative_cuts: float = 1.5
    """One shot after another; clips only."""
    negative_coded: float = 6.0
    """A still picture that pulses as codecs make it; clips only, where coded stills are."""
    negative_walk: float = 1.5
    """Somebody walks through the picture; motion capture only."""

    # Alternating sides: a full cycle, left and right, is one repetition.
    alternate_figures: float = 0.22
    one_sided: float = 0.9
    """Motion capture alternates only where it differs this much from its mirror image (0 none, 2 opposite)."""
    alternate_footage: float = 0.16
    alternate_sprites: float = 0.15
    alternate_exercises: float = 0.6
    """Of those parametric exercises that have a side."""
    two_sided: float = 0.4
    """Share of parametric exercises that are cycles of two sides: pedalling, running, boxing …"""

    # How a segment of footage or motion becomes a repetition.
    there_and_back: float = 0.5
    natural_cycle: float = 0.3
    """The rest are forward loops, with a hard or a cross-faded seam."""
    filmed: float = 0.3
    """Share of clip videos that play repetitions as they were filmed, where the bank has a list of them."""
    figure_cycle: float = 0.5
    """Share of motion-capture videos made of a natural cycle; the rest go there and back."""
    sprite_from_clip: float = 0.15
    """Share of clip videos in which a piece of one frame moves on a path."""
    composite: float = 0.35
    """Share of clip videos shown small, before another background."""
    composite_size: Range = (0.2, 0.8)
    """How large, as a part of the screen; log-uniform."""

    # The camera; the shares of still, gentle, strong and fast motion add up to one.
    camera_still: float = 0.26
    camera_gentle: float = 0.26
    camera_strong: float = 0.24
    camera_fast: float = 0.24
    shake: float = 0.45
    shake_size: Range = (0.003, 0.045)
    pan: float = 0.12
    """Share of videos with a pan in one direction that never comes back."""
    zoom: float = 0.12
    parallax: Range = (0.15, 1.0)
    """How far the performer follows the background's motion."""
    shot_change: float = 0.04
    """Share of videos in which the camera jumps once while the motion goes on."""
    aspect: Range = (9 / 16, 16 / 9)
    """Width / height of the scene before it is squashed to a square."""

    # Motion blur, drawn as the mean of sub-frames.
    blur_below: float = 9.0
    """Videos whose period is shorter are drawn with sub-frames (with probability `blur`)."""
    blur: float = 0.6
    subframes: int = 3
    shutter: Range = (0.3, 1.0)
    """Of a frame's duration."""

    # The finish.
    grey: float = 0.12
    dark: float = 0.15
    """Share of videos filmed in the dark: little contrast, most of it black."""
    flicker: float = 0.3
    soft: float = 0.3
    blur_finish: float = 0.2
    noise: float = 0.4
    noise_size: Range = (1.0, 12.0)
    """Standard deviation, of 255."""
    overlay: float = 0.2
    pulse: float = 0.2
    """Share of videos over which a coded still's pulse is laid."""
    hold: float = 0.2
    """Share of videos whose frames come at a lower rate than they are read, so that some are shown twice."""
    hold_rate: Range = (0.3, 0.95)
    """New frames per frame shown; at least HOLD_LEAST per repetition."""
    letterbox: float = 0.1
    flash: float = 0.0
    """Share of videos in which a light flashes without a rhythm: a fire, a welder's arc, a screen. Above 0 it is also
    half of the videos in which only the light changes."""
    squeeze: float = 0.0
    """Share of videos that go through a coarse codec: blocks, and changes too small for it are not shown."""
    squeeze_step: Range = (12.0, 70.0)
    """How coarse: levels of 255 that one step of its quantiser is; log-uniform."""

    # Figures.
    figure_size: Range = (0.3, 0.95)
    """How large, as a part of what fits the screen; log-uniform."""
    far_shade: Range = (0.05, 0.6)
    """How much darker the far arm and leg are than the near ones."""
    odd_limb: float = 0.3
    """Share of figures with a sleeve, sock or bandage on one side only."""
    sway: Range = (0.0, 0.012)
    """How far each joint wanders, in body heights: no repetition is like another."""
    shuffle: Range = (0.0, 0.03)
    """How far the whole body wanders."""
    turning: float = 0.12
    """Share of figures seen from a viewpoint that goes round them."""
    upper_body: float = 0.2
    prop: float = 0.3
    clip_background: float = 0.45
    """Share of figure and procedural videos before a clip's frame, where there are clips."""
    background_still: float = 0.5
    """Share of such backgrounds that are one frame; the others play on, once."""
    exercise: float = 0.5
    """Share of procedural videos that show a parametric exercise; the others show mechanisms and patterns."""

    def __post_init__(self) -> None:
        if not 0 < self.period[0] < self.period[1]:
            raise ValueError(f"period is {self.period}, expected 0 < shortest < longest, in frames")
        for name, value in asdict(self).items():
            numbers = value if isinstance(value, tuple) else (value,)
            if not all(math.isfinite(number) for number in numbers):
                raise ValueError(f"{name} is {value}, expected a finite number")
            if len(numbers) == 2 and numbers[0] > numbers[1]:
                raise ValueError(f"{name} is {value}, expected the smaller number first")
            if min(numbers) < 0 and name != "phase_warp":
                raise ValueError(f"{name} is {value}, expected nothing below 0")
            share = isinstance(value, float) and name not in SIZES and not name.startswith("negative_")
            if share and value > 1:
                raise ValueError(f"{name} is {value}, expected a share from 0 to 1")
        if self.clips + self.motion + self.procedural <= 0:
            raise ValueError("clips, motion and procedural are all 0: nothing is left to draw")
        if self.few_most < 1:
            raise ValueError(f"few_most is {self.few_most}, expected at least 1")
        if self.negative + self.single + self.sibling > 1:
            raise ValueError(
                f"negative + single + sibling is {self.negative + self.single + self.sibling:.2f}, "
                "expected at most 1: siblings always repeat"
            )
        if self.subframes < 1:
            raise ValueError(f"subframes is {self.subframes}, expected at least 1")
