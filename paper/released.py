"""The released code's evaluation of RepCount, step by step: what it keeps, how it stitches, what it takes as truth.

Stored are windows of 64 frames that begin every 16 frames, 8 cells of 8 frames each. Shift one reads windows 0, 4,
8 …, shift two windows 2, 6, 10 …, four cells later; the other two shifts are stored and not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from escounts.counting.maps import bump, mirrored
from escounts.errors import DataError
from escounts.research.datasets.annotations import VideoAnnotation
from escounts.research.datasets.tokens import VideoTokens
from escounts.research.evaluation.by_name import ModelPlace, open_model
from escounts.research.evaluation.models import Count, EvalSpec, TokenModel
from escounts.research.training.predictions import Prediction, decode, exemplar_arguments
from escounts.system.arrays import Array, Array32

DATASETS = ("repcount", "repcount-open")
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


@dataclass(frozen=True)
class ReleasedSpec(EvalSpec):
    """An evaluation with the released code's arithmetic: zero-shot, with its own two shifts."""

    released: bool = True

    @property
    def label(self) -> str:
        """How files and messages name it."""
        return f"{self.given}-released"


class ReleasedModel:
    """A head on tokens that counts with the released arithmetic: two shifts, first cells halved, its own truth."""

    def __init__(self, model: TokenModel) -> None:
        self.model, self.name, self.identity = model, model.name, model.identity

    def offered(self, video: VideoAnnotation) -> int:
        return 0

    def fingerprint(self, video: VideoAnnotation) -> str | None:
        return self.model.fingerprint(video)

    def open(self, video: VideoAnnotation) -> Count:
        tokens = self.model.source.tokens(video)
        return lambda spec, chosen: self._count(video, tokens)

    def _count(self, video: VideoAnnotation, tokens: VideoTokens) -> Prediction:
        layout, head, device = self.model.source.layout, self.model.head, self.model.device
        if SHIFT not in layout.offsets or layout.padding != "mean":
            raise DataError(
                f"the released arithmetic needs tokens at offsets 0 and {SHIFT} padded with the mean colour; these "
                f"have offsets {layout.offsets}, padding {layout.padding!r}: encode with --padding mean"
            )
        truth = released_truth(video)
        given = exemplar_arguments(head, (), device)
        maps: list[npt.ArrayLike] = []
        for offset, cells in zip((0, SHIFT), kept_cells(frame_count(video)), strict=True):
            sequence = tokens.sequences.get(offset)
            kept = None if sequence is None else sequence[:cells]
            maps.append([] if kept is None or not len(kept) else decode(head, kept, given, device))
        return self.model.row(video, tokens, stitch(*maps), released_truth=truth)


def open_released(name: str, place: ModelPlace, *, split: str) -> ReleasedModel:
    """The model of that name for the released arithmetic; only a head on tokens can have it."""
    if place.dataset.name not in DATASETS:
        allowed = " and ".join(DATASETS)
        raise DataError(f"--released is the released code's evaluation of {allowed}; got {place.dataset.name}")
    model = open_model(name, replace(place, padding="mean", shifts=2), split=split)
    if not isinstance(model, TokenModel):
        raise DataError(
            f"--released is the arithmetic of the released decoder; {model.name} has its own: leave it out"
        )
    return ReleasedModel(model)


def released_density_map(
    spans: Sequence[tuple[int, int]],
    *,
    frames: int,
    frames_per_cell: int = 8,
    sigma: float = 0.5,
    skip_cells: int = 0,
    most_cells: int | None = None,
) -> Array:
    """The published loaders' map, errors included: what the released metrics take as truth. Spans in frames.

    Two repetitions with the same middle cell become one, one without length is lost, and so is one that
    starts before the first cell (skip_cells: time shift in cells) or after the last (most_cells: the training cut).
    """
    end_cell = -(-frames // frames_per_cell)
    if most_cells is not None:
        end_cell = min(end_cell, most_cells + skip_cells)
    middles = set()
    for low, high in spans:
        first, last = low // frames_per_cell, min(-(-high // frames_per_cell), end_cell - 1)
        if low != high and skip_cells <= first < end_cell:
            middles.add((first + last) // 2)
    values = np.zeros(end_cell - skip_cells)
    for middle in sorted(middles):
        index, mass = bump(middle - skip_cells + 0.5, sigma)
        np.add.at(values, mirrored(index, len(values)), mass)
    return values
