"""A dataset's encoding into a token store: planned before anything long starts (which videos, which tokens, how much
disk, how long), then run, here or in processes."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from escounts.errors import DataError, OutputError, VideoError
from escounts.nn.encoders.interface import Encoder
from escounts.research.datasets.annotations import Dataset, Problem, VideoAnnotation
from escounts.research.datasets.encoding import encode_video, layout_for
from escounts.research.datasets.registry import load_dataset
from escounts.research.datasets.stores import open_encoder, save_labels, store_path
from escounts.research.datasets.tokens import TokenLayout, TokenStore, TokenWriter, write_video
from escounts.system.task_processes import TaskError, Worker, answers, divided

Progress = Callable[[int, int, str], None]
"""Called with (videos done, videos in all, name)."""

RELEASED_WINDOW_BYTES = 8 * 14 * 14 * 768 * 4
RELEASED_STRIDE = 16
"""The released code's layout: float32 tokens of 14×14, a window at every 16 raw frames."""
ASSUMED_FPS, ASSUMED_SECONDS = 30.0, 30.0
PAPER_POOL = 6
"""Side of the grid to which the tokens of the paper's encoders are pooled, as in the released code."""
PROBE_SECONDS = 8.0
"""Of the video by which the time is estimated."""


EncodingTask = tuple[Path, VideoAnnotation]
EncodingAnswer = Sequence[str | bool | None]
"""What was wrong with a video, None where its file is written; and whether it was the store's fault."""
EncodingWork = Callable[[EncodingTask], EncodingAnswer]
EncodingProcess = Worker[EncodingTask, EncodingAnswer]


@dataclass(frozen=True)
class EncodingPlan:
    """What `run` will do. videos: folder they lie in. path: of the store. splits: None for all."""

    dataset: Dataset
    videos: Path
    encoder: Encoder
    layout: TokenLayout
    path: Path
    splits: tuple[str, ...] | None = None
    every: int | None = None
    device: str = "cpu"

    @property
    def wanted(self) -> list[VideoAnnotation]:
        """The videos it is about."""
        return [video for video in self.dataset.videos if not self.splits or video.split in self.splits]

    def need(self, videos: Sequence[VideoAnnotation]) -> tuple[int, int, int]:
        """Bytes that some videos take, by the durations that the labels state: in the store, of the exemplars in it,
        and in the released code's layout."""
        store = exemplars = released = 0
        for video in videos:
            seconds, fps = video.duration or ASSUMED_SECONDS, video.fps or ASSUMED_FPS
            shots = min(len(video.exemplars), self.layout.exemplars)
            whole = self.layout.video_bytes(seconds, fps, shots)
            store += whole
            exemplars += whole - self.layout.video_bytes(seconds, fps, 0)
            released += (int(seconds * fps / RELEASED_STRIDE) + 1 + len(video.exemplars)) * RELEASED_WINDOW_BYTES
        return store, exemplars, released

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
        if jobs == 1 and not devices:
            return self.encode(progress)

        def arguments(device: str) -> tuple[object, ...]:
            return self.layout.encoder, self.every, device, self.path, self.layout

        return self.encode(progress, divided(encoding_work, devices or (self.device,), jobs, arguments))

    def encode(
        self, progress: Progress | None = None, processes: Sequence[EncodingProcess] = ()
    ) -> tuple[TokenStore, list[Problem]]:
        """The same with processes that are there (see encoding_work); none: it is done here. A bad video is reported
        by name and the rest go on."""
        videos = self.wanted
        problems: list[Problem] = []
        with TokenWriter(self.path, self.layout) as writer:
            todo = [video for video in videos if not writer.has(video.name)]
            needed, free = self.need(todo)[0], shutil.disk_usage(self.path).free
            if needed > free:
                raise DataError(
                    f"{self.path} needs about {needed / 1e9:.1f} GB more, {free / 1e9:.1f} GB are free; "
                    "free some, or store fewer offsets, exemplars or a smaller grid"
                )
            here = {}
            for video in todo:
                if (path := self.dataset.locate(self.videos, video)) is None:
                    what = f"no video under {self.videos}"
                    problems.append(Problem(video.split, video.name, what, unusable=True))
                else:
                    here[video.name] = path, video
            done = len(videos) - len(here)
            for (_, video), wrong in self._encoded(list(here.values()), processes):
                done += 1
                if progress:
                    progress(done, len(videos), video.name)
                if wrong is not None or not writer.has(video.name):
                    problems.append(Problem(video.split, video.name, wrong or "its file is gone", unusable=True))
            store = writer.finish()
        save_labels(self.path, self.dataset)
        if progress:
            progress(len(videos), len(videos), "")
        return store, problems

    def _encoded(
        self, tasks: Sequence[EncodingTask], processes: Sequence[EncodingProcess]
    ) -> Iterator[tuple[EncodingTask, str | None]]:
        """Every task whose video is in the store now, or what was wrong with it."""
        work = _work(self.encoder, self.path, self.layout)
        for task, answer in answers(tasks, processes) if processes else ((task, work(task)) for task in tasks):
            wrong, stored_badly = (str(answer), False) if isinstance(answer, TaskError) else answer
            if stored_badly:
                raise OutputError(wrong)  # a full disk is full for every other video, too
            yield task, None if wrong is None else str(wrong)


def encoding_work(name: str, every: int | None, device: str, out: Path, layout: TokenLayout) -> EncodingWork:
    """In a process: opens the encoder; each task is then a file of the store, or the reason why not."""
    return _work(open_encoder(name, every=every, device=device)[0], out, layout)


def _work(encoder: Encoder, out: Path, layout: TokenLayout) -> EncodingWork:
    def work(task: EncodingTask) -> EncodingAnswer:
        try:
            write_video(out, encode_video(*task, encoder, layout))
        except (VideoError, OutputError) as error:
            return str(error), isinstance(error, OutputError)
        return None, False

    return work


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
    >>> plan.need(plan.wanted), plan.run()
    """
    model, identity = open_encoder(encoder, every=every, device=device)
    side = pool or (min(model.spec.grid[0], PAPER_POOL) if model.spec.fps is None else None)
    grid = (side, side) if side else None
    layout = layout_for(model.spec, identity, pool=grid, shifts=shifts, exemplars=exemplars, padding=padding)
    dataset = load_dataset(name, root)
    path = store_path(tokens, name, encoder, every)
    files = videos or (root.parent if root.is_file() else root)
    return EncodingPlan(dataset, files, model, layout, path, tuple(splits) or None, every, device)
