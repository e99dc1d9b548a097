"""The generator: an index becomes a plan, plans become videos with the true times of every repetition.

And whole videos as arrays: a stream of labelled ones for datasets, and the sample video, a figure that stands, does
eight squats of uneven length and depth, and stands again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from escounts.synthetic.actions import Action
from escounts.synthetic.camera import stretch
from escounts.synthetic.clips import ClipBank
from escounts.synthetic.composition import Composer
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.exercises import exercise_poses
from escounts.synthetic.figures import View, draw_body, draw_figure
from escounts.synthetic.labelled import draw_clip, labelled_plan, siblings_of
from escounts.synthetic.motion import MotionBank
from escounts.synthetic.plan import Backdrop, Canvas, Finish, Plan, draw_backdrop
from escounts.synthetic.render import GeneratedBatch, render
from escounts.synthetic.timeline import Floats, Span, chance, seeded, smooth_noise, there_and_back

ACTION, LOOK, PAIRS, LABELLED = 1, 2, 3, 4
"""Independent streams of random numbers: what is done, how it is shown, who is whose sibling; labelled clips."""


class Generator:
    """Videos of repetitions, by index. The same seed, index and length give the same video."""

    def __init__(
        self,
        config: GeneratorConfig | None = None,
        *,
        clips: ClipBank | None = None,
        motion: MotionBank | None = None,
        seed: int = 0,
    ):
        self.config = config or GeneratorConfig()
        self.clips = clips
        self.motion = motion
        self.seed = seed
        self._composer = Composer(self.config, clips, motion)

    def plan(self, index: int, length: int) -> Plan:
        """The video `index` of `length` frames, decided but not drawn. numpy only, a few milliseconds."""
        return self._alone(index, length, 1.0)

    def plans(self, index: int, size: int, length: int) -> list[Plan]:
        """One batch: videos index · size and following; a share of them come as pairs of siblings.

        Siblings show one action with another camera, background, tempo and body. They always repeat, so the
        other videos take over their share of the negatives. Labelled clips come last.
        """
        labelled = self._labelled(index, size, length)
        return self._generated(index * size, index, size - len(labelled), length) + [
            plan if plan.sibling < 0 else replace(plan, sibling=plan.sibling + size - len(labelled))
            for plan in labelled
        ]

    def _labelled(self, index: int, size: int, length: int) -> list[Plan]:
        """The labelled clips of a batch, some of them in pairs of one motion; siblings are numbered among them."""
        if self.clips is None or not self.clips.labelled or not self.config.labelled:
            return []
        rng = seeded(self.seed, index, LABELLED)
        plans: list[Plan] = []
        wanted = int(rng.binomial(size, self.config.labelled))
        while len(plans) < wanted:
            clip = draw_clip(rng, self.clips.labelled)
            alike = siblings_of(clip, self.clips.labelled) if chance(rng, self.config.labelled_sibling) else []
            shown = [clip, alike[int(rng.integers(len(alike)))]] if alike and wanted - len(plans) > 1 else [clip]
            own = len(plans)
            for number, one in enumerate(shown):
                plan = labelled_plan(rng, self.config, self.clips, length, clip=one)
                plans.append(replace(plan, sibling=own + 1 - number if len(shown) == 2 else -1))
        return plans

    def _generated(self, first: int, index: int, size: int, length: int) -> list[Plan]:
        """Videos first … first + size - 1, those in pairs before those alone."""
        if not size:
            return []
        rng = seeded(self.seed, index, PAIRS)
        pairs = int(rng.binomial(size // 2, min(1.0, self.config.sibling)))
        alone = (size - 2 * pairs) / size
        plans: list[Plan] = []
        for pair in range(pairs):
            one = 2 * pair
            action_rng = seeded(self.seed, first + one, ACTION, PAIRS)
            action = self._composer.draw_action(action_rng, length)
            backwards = chance(action_rng, self.config.reverse)
            for other in (one + 1, one):
                own = first + len(plans)
                plan = self._perform(action, own, length, backwards=backwards)
                plans.append(replace(plan, sibling=other))
        for own in range(first + len(plans), first + size):
            plans.append(self._alone(own, length, alone))
        return plans

    def render(
        self, plans: Sequence[Plan], *, device: torch.device | str, size: int | tuple[int, int] = 128
    ) -> GeneratedBatch:
        """Draw plans. size: pixels of the square, or (height, width)."""
        bank = self.clips.on(device) if self.clips is not None else None
        return render(plans, device=device, size=size, bank_NHWC=bank)

    def batch(
        self, index: int, size: int, length: int, *, device: torch.device | str, size_px: int = 128
    ) -> GeneratedBatch:
        """Plan and draw the batch `index` of `size` videos of `length` frames."""
        return self.render(self.plans(index, size, length), device=device, size=size_px)

    def _alone(self, index: int, length: int, alone: float) -> Plan:
        """A video without a sibling, where only `alone` of the batch can be negative or single."""
        rng = seeded(self.seed, index, ACTION)
        draw = rng.random() * max(alone, self.config.negative + self.config.single)
        action = self._composer.draw_action(rng, length)
        if draw < self.config.negative:
            return self._composer.negative(seeded(self.seed, index, LOOK), action, length)
        if draw < self.config.negative + self.config.single:
            return self._perform(action, index, length, single=True)
        return self._perform(action, index, length, second=self._composer.draw_second(rng, action, length))

    def _perform(
        self,
        action: Action,
        index: int,
        length: int,
        *,
        single: bool = False,
        second: Action | None = None,
        backwards: bool | None = None,
    ) -> Plan:
        rng = seeded(self.seed, index, LOOK)
        single = single and action.way != "loop"  # a loop played once does not come back
        plan = self._composer.perform(rng, action, length, single=single, second=second)
        if chance(rng, self.config.reverse) if backwards is None else backwards:
            plan = replace(plan.reversed(), action=action.reversed_name())
        return plan


SAMPLE_RATE = 24.0
"""Frames a second."""
SAMPLE_SIZE = (240, 320)
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
    spans = tuple(
        (start * SAMPLE_RATE, (start + length) * SAMPLE_RATE) for start, length in zip(starts, lengths, strict=True)
    )
    frames = round(seconds * SAMPLE_RATE)
    times = np.arange(frames, dtype=np.float64) + 0.5
    poses = exercise_poses("squat", _squat_depth(times, spans, rng.uniform(0.85, 1.0, repetitions)))
    poses = poses + 0.006 * np.moveaxis(smooth_noise(rng, times, 3, 18.0), 0, -1)[:, None, :]
    canvas = Canvas(frames)
    view = View(azimuth=-0.75, elevation=0.12, size=1.28, x=0.0, y=0.68, middle=(0.0, 0.0, -0.05))
    body = replace(
        draw_body(rng, GeneratorConfig(odd_limb=0.0)), build=1.0, head=1.05, limbs=(1.0, 1.0), colours=CLOTHES,
        hair=(0.13, 0.09, 0.07),
    )  # fmt: skip
    draw_figure(rng, canvas, body, poses, view, prop=False)
    aspect = math.sqrt(SAMPLE_SIZE[1] / SAMPLE_SIZE[0])
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
        alternates=False,
        backdrop=Backdrop(screen, image=draw_backdrop(np.random.default_rng(seed + 3), floor=0.76)),
        footage=None,
        shapes=canvas.shapes(layer),
        finish=Finish(noise=2.0, flicker=np.zeros(frames, np.float32)),
    )


def _squat_depth(times: Floats, spans: tuple[Span, ...], reach: Floats) -> Floats:
    """How deep the squat is at each time, 0 standing to 1."""
    along = np.zeros(len(times))
    for (start, end), deepest in zip(spans, reach, strict=True):
        inside = (times >= start) & (times < end)
        along[inside] = deepest * there_and_back((times[inside] - start) / (end - start), 0.48, 1.0)
    return along


DATASET = GeneratorConfig(negative=0.1, single=0.0, sibling=0.0, cut_inside=0.0, reverse=0.0, period=(6.0, 60.0))
"""The recipe of labelled videos: whole repetitions only, and tempi that a dataset's videos have."""


@dataclass(frozen=True)
class SyntheticVideo:
    """frames (N, H, W, 3) uint8 RGB; spans: every repetition (start, end) in seconds."""

    name: str
    action: str
    fps: float
    frames: npt.NDArray[np.uint8]
    spans: tuple[Span, ...]


def synthetic_videos(
    number: int,
    seed: int = 0,
    *,
    generator: Generator | None = None,
    fps: float = 15.0,
    size: tuple[int, int] = (128, 160),
    seconds: tuple[float, float] = (5.0, 12.0),
) -> Iterator[SyntheticVideo]:
    """Labelled videos, one after another; by default drawn by code alone, so that it runs anywhere.

    size: height and width in pixels. seconds: shortest and longest video.
    """
    generator = generator or Generator(DATASET, seed=seed)
    for index in range(number):
        length = int(seeded(seed, index).uniform(*seconds) * fps)
        plan = generator.plan(index, length)
        yield _video(f"{index:05d}", class_of(plan), plan, generator, fps, size)


def _video(
    name: str, action: str, plan: Plan, generator: Generator, fps: float, size: tuple[int, int]
) -> SyntheticVideo:
    frames = generator.render([plan], device="cpu", size=size).frames_BTCHW[0]
    spans = tuple((max(start, 0) / fps, min(end, plan.length) / fps) for start, end in plan.spans)
    return SyntheticVideo(name, action, fps, frames.permute(0, 2, 3, 1).contiguous().numpy(), spans)


def class_of(plan: Plan) -> str:
    """The class of a planned video: its exercise or mechanism by name, else where its motion comes from."""
    parts = plan.action.split(":")
    return parts[1] if parts[0] in ("exercise", "mechanism") else parts[0]


def sample_video(*, repetitions: int = 8, seed: int = 0) -> SyntheticVideo:
    """The sample video: a figure that does squats, with the true times of each."""
    plan = sample_plan(repetitions=repetitions, seed=seed)
    return _video("sample", "squat", plan, Generator(), SAMPLE_RATE, SAMPLE_SIZE)
