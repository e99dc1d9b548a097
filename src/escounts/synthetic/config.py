"""The recipe of the generated repetitions: the probabilities and ranges that recipes differ in.

What all have in common is a number where it is used.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

Range = tuple[float, float]


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
    drift: float = 0.4
    """Share of videos whose tempo speeds up or slows down."""
    pause: float = 0.2
    """Share of videos with pauses between repetitions."""
    lead: float = 0.55
    tail: float = 0.55
    """Share of videos with something else before the first (after the last) repetition."""
    cut_inside: float = 0.4
    """Share of videos without lead (tail) that begin (end) inside a repetition."""
    few: float = 0.4
    """Share of videos limited to 1..few_most repetitions."""
    few_most: int = 8
    reach: float = 0.22
    """How much shorter than the full reach a repetition may fall."""
    second_action: float = 0.05
    """Share of clip and figure videos in which another repeated action follows the first; both count."""

    # Where there are no repetitions: how likely these ways are beside NEGATIVES of `composition`.
    negative_light: float = 2.0
    """Only the light changes."""
    negative_once: float = 5.0
    """A clip or a motion-capture trial that does not come back, played as it is."""

    # Alternating sides: a full cycle, left and right, is one repetition.
    alternate_figures: float = 0.22
    alternate_footage: float = 0.16
    alternate_sprites: float = 0.15
    alternate_exercises: float = 0.6
    """Of those parametric exercises that have a side."""
    two_sided: float = 0.4
    """Share of parametric exercises that are cycles of two sides: pedalling, running, boxing …"""

    # How a segment of footage or motion becomes a repetition.
    filmed: float = 0.3
    """Share of clip videos that play repetitions as they were filmed, where the bank has a list of them."""
    sprite_from_clip: float = 0.15
    """Share of clip videos in which a piece of one frame moves on a path."""
    composite: float = 0.35
    """Share of clip videos shown small, before another background."""

    # The camera; the shares of still, gentle, strong and fast motion add up to one.
    camera_still: float = 0.26
    camera_gentle: float = 0.26
    camera_strong: float = 0.24
    camera_fast: float = 0.24
    shake: float = 0.45
    pan: float = 0.12
    """Share of videos with a pan in one direction that never comes back."""
    zoom: float = 0.12
    shot_change: float = 0.04
    """Share of videos in which the camera jumps once while the motion goes on."""

    # Motion blur, drawn as the mean of sub-frames.
    blur: float = 0.6
    subframes: int = 3

    # The finish.
    dark: float = 0.15
    """Share of videos filmed in the dark: little contrast, most of it black."""
    flicker: float = 0.3
    noise: float = 0.4
    hold: float = 0.2
    """Share of videos whose frames come at a lower rate than they are read, so that some are shown twice."""
    flash: float = 0.0
    """Share of videos in which a light flashes without a rhythm: a fire, a welder's arc, a screen. Above 0 it is also
    half of the videos in which only the light changes."""
    squeeze: float = 0.0
    """Share of videos that go through a coarse codec: blocks, and changes too small for it are not shown."""

    # Figures.
    odd_limb: float = 0.3
    """Share of figures with a sleeve, sock or bandage on one side only."""
    sway: Range = (0.0, 0.012)
    """How far each joint wanders, in body heights: no repetition is like another."""
    shuffle: Range = (0.0, 0.03)
    """How far the whole body wanders."""
    turning: float = 0.12
    """Share of figures seen from a viewpoint that goes round them."""
    upper_body: float = 0.2
    clip_background: float = 0.45
    """Share of figure and procedural videos before a clip's frame, where there are clips."""
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
            if min(numbers) < 0:
                raise ValueError(f"{name} is {value}, expected nothing below 0")
            # `negative_…` are weights beside each other.
            if isinstance(value, float) and value > 1 and not name.startswith("negative_"):
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
