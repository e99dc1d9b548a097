"""A dataset's encoding, planned before anything long starts: which videos, which tokens, how much disk,
how long."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from escounts.errors import VideoError
from escounts.nn.encoders.interface import Encoder
from escounts.research.datasets.annotations import Dataset, Problem, VideoAnnotation
from escounts.research.datasets.encoding import (
    ASSUMED_FPS,
    ASSUMED_SECONDS,
    Progress,
    disk_need,
    encode_dataset,
    encode_video,
    encoding_work,
    layout_for,
)
from escounts.research.datasets.registry import load_dataset
from escounts.research.datasets.stores import open_encoder, save_labels, store_path
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.system.task_processes import divided

PAPER_POOL = 6
"""Side of the grid to which the tokens of the paper's encoders are pooled, as in the released code."""
PROBE_SECONDS = 8.0
"""Of the video by which the time is estimated."""


@dataclass(frozen=True)
class EncodingPlan:
    """What `run` will do. videos: folder they lie in. path: of the store. splits: None for all."""

    dataset: Dataset
    videos: Path
    encoder: Encoder
    layout: TokenLayout
    path: Path
    splits: tuple[str, ...] | None
    every: int | None = None
    device: str = "cpu"

    @property
    def wanted(self) -> list[VideoAnnotation]:
        """The videos it is about."""
        return [video for video in self.dataset.videos if not self.splits or video.split in self.splits]

    @property
    def need(self) -> tuple[int, int, int]:
        """How much disk it takes, as disk_need says it."""
        return disk_need(self.wanted, self.layout)

    def seconds(self) -> float | None:
        """How long it takes on this machine, by the first seconds of a video that is here; None without one."""
        for video in self.wanted:
            path = self.dataset.locate(self.videos, video)
            if path is None:
                continue
            whole = video.duration or ASSUMED_SECONDS
            part = replace(video, duration=min(whole, PROBE_SECONDS), spans=(), marked=())
            layout = replace(self.layout, offsets=self.layout.offsets[:1])
            began = time.perf_counter()
            try:
                encoded = encode_video(path, part, self.encoder, layout)
            except VideoError:
                continue
            measured = _windows(encoded.duration, video.fps or ASSUMED_FPS, layout)
            wanted = sum(_wanted_windows(other, self.layout) for other in self.wanted)
            return (time.perf_counter() - began) * wanted / measured
        return None

    def run(
        self, progress: Progress | None = None, *, devices: Sequence[str] = (), jobs: int = 1
    ) -> tuple[TokenStore, list[Problem]]:
        """Encode what is not there yet: the store, and every video that was left out with the reason.

        jobs: processes that share the videos, on the devices in turn (on the plan's own where none is given); with
        one job and no devices it is done in this process.
        """
        name = self.layout.encoder

        def arguments(device: str) -> tuple[object, ...]:
            return name, self.every, device, self.path, self.layout

        shared = jobs > 1 or len(devices) > 0
        processes = divided(encoding_work, devices or (self.device,), jobs, arguments) if shared else []
        store, problems = encode_dataset(
            self.dataset,
            self.videos,
            self.path,
            self.encoder,
            self.layout,
            splits=self.splits,
            progress=progress,
            processes=processes,
        )
        save_labels(self.path, self.dataset)
        return store, problems


def _wanted_windows(video: VideoAnnotation, layout: TokenLayout) -> float:
    """Windows of a video at every offset, and one for each exemplar that is encoded alone."""
    exemplars = min(len(video.exemplars), layout.exemplars) if layout.fps is None else 0
    return _windows(video.duration or ASSUMED_SECONDS, video.fps or ASSUMED_FPS, layout) + exemplars


def _windows(seconds: float, fps: float, layout: TokenLayout) -> float:
    cells = seconds / layout.step(fps)
    return sum(max(1.0, math.ceil((cells - offset) / layout.window_cells)) for offset in layout.offsets)


def plan_encoding(
    name: str,
    root: Path,
    tokens: Path,
    *,
    videos: Path | None = None,
    encoder: str = "mae-vit-b",
    pool: int | None = None,
    shifts: int = 4,
    exemplars: int = 8,
    every: int | None = None,
    padding: Literal["last", "mean"] = "last",
    splits: Sequence[str] = (),
    device: str = "cpu",
) -> EncodingPlan:
    """The encoding of a dataset by name: what `escounts encode` does.

    >>> plan = plan_encoding("ucfrep", Path("UCF"), Path("tokens"), encoder="r2plus1d-18")
    >>> plan.need, plan.run()
    """
    model, identity = open_encoder(encoder, every=every, device=device)
    side = pool or (min(model.spec.grid[0], PAPER_POOL) if model.spec.fps is None else None)
    grid = (side, side) if side else None
    layout = layout_for(model.spec, identity, pool=grid, shifts=shifts, exemplars=exemplars, padding=padding)
    dataset = load_dataset(name, root)
    path = store_path(tokens, name, encoder, every)
    files = videos or (root.parent if root.is_file() else root)
    return EncodingPlan(dataset, files, model, layout, path, tuple(splits) or None, every, device)
