"""Whole videos as arrays: the sample video, and a stream of labelled videos for datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import seeded
from escounts.synthetic.generator import Generator
from escounts.synthetic.plan import Plan
from escounts.synthetic.render import render
from escounts.synthetic.sample import RATE, SIZE, sample_plan
from escounts.synthetic.timeline import Span

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
        frames = generator.render([plan], device="cpu", size=size).frames_BTCHW[0]
        yield SyntheticVideo(
            name=f"{index:05d}",
            action=class_of(plan),
            fps=fps,
            frames=frames.permute(0, 2, 3, 1).contiguous().numpy(),
            spans=tuple((max(start, 0) / fps, min(end, length) / fps) for start, end in plan.spans),
        )


def class_of(plan: Plan) -> str:
    """The class of a planned video: its exercise or mechanism by name, else where its motion comes from."""
    parts = plan.action.split(":")
    return parts[1] if parts[0] in ("exercise", "mechanism") else parts[0]


def sample_video(*, repetitions: int = 8, seed: int = 0) -> SyntheticVideo:
    """The sample video: a figure that does squats, with the true times of each."""
    plan = sample_plan(repetitions=repetitions, seed=seed)
    frames = render([plan], device="cpu", size=SIZE).frames_BTCHW[0]
    return SyntheticVideo(
        name="sample",
        action="squat",
        fps=RATE,
        frames=frames.permute(0, 2, 3, 1).contiguous().numpy(),
        spans=tuple((start / RATE, end / RATE) for start, end in plan.spans),
    )
