"""What selection.py asks about: labelled clips, copies of them that are shifted and magnified, and drawn figures that
do two things on one spot."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from escounts.counting.views import BASE_RATE
from escounts.synthetic import GeneratorConfig, MotionBank
from escounts.synthetic.composition import STILL_CAMERA, Composer, draw_action
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
Span = tuple[float, float]


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
        one, other = (draw_action(rng, config, None, motion, length // 2, source=source) for _ in range(2))
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


def read_sets(folder: Path) -> list[Clip]:
    """The sets of sets.csv."""
    with open(folder / "sets.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    files = [row["file"] for row in rows]
    return [
        Clip(
            folder / row["file"],
            row["file"],
            row["action"],
            int(row["count"]),
            (float(row["t_start"]), float(row["t_end"])),
            (float(row["exemplar_start_s"]), float(row["exemplar_end_s"])),
            files.count(row["file"]) == 1,
        )
        for row in rows
    ]


def read_pool(folder: Path) -> list[Clip]:
    """The labelled pool's validation clips that hold a repetition."""
    with open(folder / "pool.csv", newline="") as file:
        sources = {row["file"]: row["source"] for row in csv.DictReader(file)}
    with open(folder / "pool_labels.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "val" and row["rep_times"]]
    files = [row["file"] for row in rows]
    found = []
    for row in rows:
        spans = [tuple(float(time) for time in span.split("-")) for span in row["rep_times"].split()]
        mark = spans[len(spans) // 2]
        within = (float(row["t_start"]), float(row["t_end"]))
        alone = files.count(row["file"]) == 1
        source = sources[row["file"]]
        count = int(row["count"])
        path = folder / row["file"]
        found.append(Clip(path, source, row["motion"], count, within, (mark[0], mark[1]), alone))
    return found


def read_dev(folder: Path) -> list[Clip]:
    """The clips of dev.csv."""
    with open(folder / "dev.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Clip(
            folder / row["file"],
            row["source"],
            row["file"],
            int(row["count"]),
            (0.0, float(row["duration_s"])),
            (float(row["exemplar_start_s"]), float(row["exemplar_end_s"])),
            True,
        )
        for row in rows
    ]
