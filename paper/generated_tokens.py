"""Tokens of generated videos without a file in between: drawn in batches on a device, encoded there, stored.

The same plans as `research/datasets/generated.py` writes to disk; a machine without a video decoder can make them.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor

from escounts.errors import DataError
from escounts.nn.encoders.interface import Encoder
from escounts.research.datasets.annotations import Dataset, VideoAnnotation, assemble
from escounts.research.datasets.encoding import encoded_tokens, exemplars_in_place, spread
from escounts.research.datasets.generated import MADE, SEEDS, SyntheticSet
from escounts.research.datasets.stores import load_labels, save_labels
from escounts.research.datasets.tokens import TokenLayout, TokenWriter, VideoTokens
from escounts.synthetic import Plan
from escounts.synthetic.generator import class_of
from escounts.synthetic.render import render
from escounts.synthetic.timeline import seeded
from escounts.system.atomic_files import write_bytes, write_text

THUMBNAILS = "thumbnails.safetensors"
THUMBNAIL = 16
FILE_THREADS = 8
LENGTH_STEP = 16
"""Lengths are whole multiples of this many frames, so that many videos are drawn at once."""


Planned = tuple[VideoAnnotation, Plan]
"""A video that is to be drawn: what is true of it, and how."""


def generated_stores(
    what: SyntheticSet,
    encoder: Encoder,
    layouts: Mapping[Path, TokenLayout],
    *,
    device: torch.device | str = "cpu",
    workers: int = 0,
    batch: int = 32,
) -> Dataset:
    """Draw a set once and store its tokens in every layout; what is there already is kept. The dataset.

    layouts: folder → layout; their rates must divide the set's. workers: processes that plan. The first folder also
    gets the test videos' thumbnails, which the classical method counts.
    """
    told = (json.dumps({"set": asdict(what), "identity": {str(p.name): asdict(v) for p, v in layouts.items()}},
                       sort_keys=True) + "\n")  # fmt: skip
    paths = list(layouts)
    made = [path / MADE for path in paths]
    if all(file.exists() and file.read_text() == told for file in made):
        return load_labels(paths[0], "synthetic")
    planned = plan_videos(what, workers=workers)
    rows = {split: sum(video.split == split for video, _ in planned) for split in SEEDS}
    dataset = assemble("synthetic", [video for video, _ in planned], rows)
    known = {video.name: video for video in dataset.videos}
    thumbnails: dict[str, Tensor] = {}
    with ExitStack() as stack:
        writers = [stack.enter_context(TokenWriter(path, layouts[path])) for path in paths]
        files = stack.enter_context(ThreadPoolExecutor(FILE_THREADS))
        for group in _groups(planned, batch):
            frames_BTCHW = render([plan for _, plan in group], device=device, size=encoder.spec.size).frames_BTCHW
            for writer in writers:
                # Hashing and writing let other threads run; a set is thousands of small files.
                videos = [known[video.name] for video, _ in group]
                list(files.map(writer.write, _encoded(videos, frames_BTCHW, encoder, writer.layout, what.fps)))
            for (video, _), small in zip(group, _thumbnails(frames_BTCHW), strict=True):
                if video.split == "test":
                    thumbnails[video.name] = small
        for writer in writers:
            writer.finish()
    write_bytes(paths[0] / THUMBNAILS, save({name: thumbnails[name] for name in sorted(thumbnails)}))
    for path, file in zip(paths, made, strict=True):
        save_labels(path, dataset)
        write_text(file, told)
    return dataset


def plan_videos(what: SyntheticSet, *, workers: int = 0) -> list[Planned]:
    """Every video of a set, decided but not drawn; classes are named so that others of a class can be found."""
    asked = [(what, split, index) for split in SEEDS for index in range(getattr(what, split))]
    if workers < 2:
        return [_plan(one) for one in asked]
    # A fresh interpreter in each: the parent may hold a GPU.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        return list(pool.map(_plan, asked, chunksize=32))


def thumbnails_of(store: Path) -> dict[str, Tensor]:
    """Test videos as thumbnails (T, 256) uint8, by name."""
    path = store / THUMBNAILS
    if not path.exists():
        raise DataError(f"{store} has no {THUMBNAILS}; draw the set again")
    return load_file(path)


def _plan(asked: tuple[SyntheticSet, str, int]) -> Planned:
    what, split, index = asked
    seconds = seeded(what.seed_of(split), index).uniform(*what.seconds)
    length = max(LENGTH_STEP, round(seconds * what.fps / LENGTH_STEP) * LENGTH_STEP)
    plan = what.generator(split).plan(index, length)
    name, fps, length = f"{split}_{index:05d}", what.fps, plan.length
    spans = tuple((max(start, 0.0) / fps, min(end, length) / fps) for start, end in plan.spans)
    video = VideoAnnotation(
        name=name,
        file=name,
        action=class_of(plan),
        count=len(spans),
        spans=spans,
        fps=fps,
        duration=length / fps,
        split=split,
    )
    return video, plan


def _groups(planned: Sequence[Planned], batch: int) -> Iterator[Sequence[Planned]]:
    """Videos of one length, at most `batch` at once."""
    by_length: dict[int, list[Planned]] = {}
    for video, plan in planned:
        by_length.setdefault(plan.length, []).append((video, plan))
    for members in by_length.values():
        for begin in range(0, len(members), batch):
            yield members[begin : begin + batch]


def _encoded(
    videos: Sequence[VideoAnnotation], frames_BTCHW: Tensor, encoder: Encoder, layout: TokenLayout, fps: float
) -> Iterator[VideoTokens]:
    """The tokens of videos of one length in one layout."""
    assert layout.fps is not None
    stride = round(fps / layout.fps)
    if stride < 1 or abs(stride * layout.fps - fps) > 1e-6:
        raise DataError(f"tokens at {layout.fps:g} a second cannot be cut from videos of {fps:g} frames a second")
    frames_BTHWC = frames_BTCHW[:, stride // 2 :: stride].permute(0, 1, 3, 4, 2)
    sequences: dict[int, Tensor] = {}
    window = layout.window_cells * layout.frames_per_cell
    for offset in layout.offsets:
        parts = [
            encoded_tokens(encoder, frames_BTHWC[:, begin : begin + window], layout.grid)
            for begin in range(offset * layout.frames_per_cell, frames_BTHWC.shape[1], window)
        ]
        if parts:
            sequences[offset] = torch.cat(parts, 1)
    step = layout.step(fps)
    for row, video in enumerate(videos):
        own = {offset: tokens[row] for offset, tokens in sequences.items()}
        spans = spread(video.exemplars, layout.exemplars)
        yield VideoTokens(
            name=video.name,
            sequences=own,
            exemplars=exemplars_in_place(own[0], spans, step, layout.exemplar_cells),
            exemplar_spans=np.asarray(spans, dtype=np.float64).reshape(-1, 2),
            step=step,
            duration=video.duration or 0.0,
        )


def _thumbnails(frames_BTCHW: Tensor) -> Tensor:
    """(B, T, 256) uint8: grey, averaged to 16×16, as the classical method reads a video."""
    grey_BTHW = frames_BTCHW.float().mean(2)
    small = F.adaptive_avg_pool2d(grey_BTHW, THUMBNAIL)
    return small.flatten(2).round().to(torch.uint8).cpu()
