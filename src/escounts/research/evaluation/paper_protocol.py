"""As the paper evaluates: which exemplars a video gets (Table 4), and the released code's evaluation of RepCount,
step by step: what it keeps, how it stitches, what it takes as truth.

Exemplars come from the counted video, or from another training video of its action. Stored are windows of 64 frames
that begin every 16 frames, 8 cells of 8 frames each. Shift one reads windows 0, 4, 8 …, shift two windows 2, 6, 10 …,
four cells later; the other two shifts are stored and not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from zlib import crc32

import numpy as np
import numpy.typing as npt

from escounts.counting.density import released_density_map
from escounts.errors import DataError
from escounts.research.datasets.annotations import VideoAnnotation
from escounts.research.training.batches import ExemplarChoice, ExemplarSampler, ExemplarSampling
from escounts.system.arrays import Array32


def choose_exemplars(
    videos: Sequence[VideoAnnotation],
    train: Sequence[VideoAnnotation],
    offered: Mapping[str, int],
    *,
    shots: int,
    kind: Literal["same", "other"],
) -> dict[str, list[ExemplarChoice]]:
    """Exemplars for every video, always the same ones; fewer where fewer repetitions are offered.

    kind "same": repetitions of the video itself; "other": of training videos of its action, never of itself.
    offered: exemplars that each video can give. A video that has none is counted zero-shot.
    """
    pool = [*train, *videos] if kind == "same" else list(train)
    sampling = ExemplarSampling(other_video=float(kind == "other"))
    sampler = ExemplarSampler([video for video in pool if offered.get(video.name)], offered, sampling)
    chosen = {}
    for video in videos:
        rng = np.random.default_rng((0, crc32(video.name.encode())))
        wanted = min(shots, offered.get(video.name, 0)) if kind == "same" else shots
        choices = sampler.choose(video, wanted, rng)
        chosen[video.name] = [choice for choice in choices if (choice[0] != video.name) == (kind == "other")]
    return chosen


FRAMES_PER_CELL, WINDOW_CELLS, WINDOW_STRIDE = 8, 8, 16
SHIFT = 4
"""Cells by which the second shift begins later."""


def frame_count(video: VideoAnnotation) -> int:
    """Raw frames of a video by its labels."""
    if video.fps is None or video.duration is None:
        raise DataError(f"{video.name}: its labels state no frame rate and length, which the released code counts in")
    return round(video.duration * video.fps)


def kept_cells(frames: int) -> tuple[int, int]:
    """Cells of the two shifts that the loader keeps, as many as its windows hold at most.

    A window begins wherever at least two frames are left; the cells are cut at the last frame.
    """
    windows = len(range(0, frames - 1, WINDOW_STRIDE))
    per_shift = WINDOW_CELLS * FRAMES_PER_CELL // WINDOW_STRIDE
    end = -(-frames // FRAMES_PER_CELL)
    first = min(end, WINDOW_CELLS * len(range(0, windows, per_shift)))
    second = min(max(end - SHIFT, 0), WINDOW_CELLS * len(range(per_shift // 2, windows, per_shift)))
    return first, second


def stitch(first_T: npt.ArrayLike, second_T: npt.ArrayLike) -> Array32:
    """The mean of both maps after four zeros in front of the second, so that a video's first cells count half.

    Raises DataError where the released code fails: the maps are still not equally long.
    """
    first, second = np.asarray(first_T, np.float32), np.asarray(second_T, np.float32)
    if len(first) != len(second):
        second = np.concatenate([np.zeros(SHIFT, np.float32), second])
    if len(first) != len(second):
        raise DataError(f"the released code fails here: its two maps have {len(first)} and {len(second)} cells")
    mean: Array32 = ((first + second) / 2).astype(np.float32)
    return mean


def released_truth(video: VideoAnnotation) -> float:
    """The count that the loader takes as the truth: the sum of its own density map.

    A repetition is lost where two middles share a cell or it has no length. Raises DataError for a video without
    repetitions, on which the loader fails.
    """
    if not video.spans:
        raise DataError("the released code fails here: its loader takes no video without repetitions")
    fps = video.fps or 0.0
    frames = frame_count(video)
    spans: Sequence[tuple[int, int]] = [(round(start * fps), round(end * fps)) for start, end in video.spans]
    return float(released_density_map(spans, frames=frames).sum())
