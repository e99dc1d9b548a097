"""What selection.py asks about: labelled clips, copies of them that are shifted and magnified, and drawn figures that
do two things on one spot."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from labelled import Span, read_sets

from escounts.counting.views import BASE_RATE
from escounts.synthetic import GeneratorConfig, MotionBank
from escounts.synthetic.camera import STILL_CAMERA
from escounts.synthetic.composition import Composer
from escounts.synthetic.render import render
from escounts.system.arrays import Image

SHARE = (0.7, 0.9)
"""Of a picture's width, what a copy shows."""
DRAWN_SECONDS, DRAWN_SIZE = 16, 128
DRAWN = GeneratorConfig(
    exercise=1.0, reverse=0.0, cut_inside=0.0, lead=0.0, tail=0.0, few=0.0, pause=0.0, shot_change=0.0,
    sprite_from_clip=0.0, alternate_figures=0.0, alternate_exercises=0.0, two_sided=0.0, blur=0.0, hold=0.0,
    period=(30.0, 70.0),
)  # fmt: skip
MOVING_CAMERA = replace(DRAWN, camera_still=0.0, camera_gentle=0.5, camera_strong=0.5, camera_fast=0.0)
STILL = replace(
    DRAWN, **{name: getattr(STILL_CAMERA, name) for name in ("camera_still", "camera_gentle", "camera_strong")},
    camera_fast=0.0, shake=0.0, pan=0.0, zoom=0.0, turning=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class Clip:
    """One labelled set: what is counted lies in `within`; mark: one repetition of it."""

    path: Path
    source: str
    action: str
    count: int
    within: Span
    mark: Span
    alone: bool


@dataclass(frozen=True)
class Drawn:
    """Pictures at the base rate; of two motions the first is marked."""

    images: Sequence[Image]
    marked: Sequence[Span]
    others: Sequence[Span]


def drawn(number: int, config: GeneratorConfig, motion: MotionBank | None) -> Iterator[Drawn]:
    """One figure that does two things, one after the other, without a cut; every other one is motion capture."""
    length, index = round(DRAWN_SECONDS * BASE_RATE), 0
    composer = Composer(config, None, motion)
    while number:
        rng, index = np.random.default_rng(index), index + 1
        source = "motion" if motion is not None and index % 2 else "procedural"
        one, other = (composer.draw_action(rng, length // 2, source) for _ in range(2))
        if one.name.split(":")[1] == other.name.split(":")[1]:
            continue
        plan = composer.perform(rng, one, length, second=other)
        spans = [(start / BASE_RATE, end / BASE_RATE) for start, end in plan.spans]
        parts = [[span for span, part in zip(spans, plan.parts, strict=True) if part == wanted] for wanted in (0, 1)]
        if min(len(part) for part in parts) < 2:
            continue
        frames = render([plan], device="cpu", size=DRAWN_SIZE).frames_BTCHW[0]
        yield Drawn(list(frames.permute(0, 2, 3, 1).contiguous().numpy()), parts[0], parts[1])
        number -= 1


def dissolved(one: Sequence[Image], other: Sequence[Image], frames: int) -> list[Image]:
    """One after the other; the end of the first passes into the begin of the second."""
    frames = min(frames, len(one) // 2, len(other) // 2)
    shares = np.linspace(0, 1, frames + 2)[1:-1]
    between = [
        (before * (1 - share) + after * share).round().astype(np.uint8)
        for before, after, share in zip(one[-frames:], other[:frames], shares, strict=True)
    ]
    return [*one[:-frames], *between, *other[frames:]]


def shifted(images: Sequence[Image], dice: random.Random) -> list[Image]:
    """The same part of every picture, as large as the whole."""
    size = images[0].shape[0]
    share = dice.uniform(*SHARE)
    left, top = (int(dice.uniform(0, 1 - share) * size) for _ in range(2))
    side = int(share * size)
    found: list[Image] = []
    for image in images:
        part = torch.from_numpy(image[top : top + side, left : left + side].copy()).permute(2, 0, 1)[None].float()
        large = F.interpolate(part, (size, size), mode="bilinear").round().clamp(0, 255).byte()
        found.append(large[0].permute(1, 2, 0).contiguous().numpy())
    return found


def read_clips(table: Path, folder: Path, *, split: str | None = None) -> list[Clip]:
    """The sets of a list that have a marked repetition. split: of the list, those of this split."""
    sets = [one for one in read_sets(table, folder, split=split) if one.exemplar is not None]
    files = [one.name for one in sets]
    return [
        Clip(
            path=one.path,
            source=one.source,
            action=one.motion or one.name,
            count=one.count,
            within=one.within or (0.0, one.duration),
            mark=one.exemplar or (0.0, 0.0),
            alone=files.count(one.name) == 1,
        )
        for one in sets
    ]
