"""Several processes read videos ahead of the one that counts them: for a GPU, which one process should own.

A reader leaves a video's small images in a file of a temporary folder (in memory where the system has such a place);
the counting process maps it. No more videos wait than there are readers.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from escounts.arrays import Image
from escounts.batching.processes import TaskProcess
from escounts.batching.tasks import (
    CountingProcess,
    Row,
    Settings,
    Task,
    fetched,
    is_address,
    row_of,
    same_on_every_machine,
    whole_row,
)
from escounts.counting_model import CountingModel
from escounts.video import Frame, Video, VideoInfo

MOST_BYTES = 512 * 2**20
"""Of one video's images (six minutes for the default model); a longer one is read by the process that counts it."""
IN_MEMORY = Path("/dev/shm")


Reading = tuple[int, float]
"""How a model reads videos: side of its square images in pixels, images per second."""
ReadVideo = tuple[Task, VideoInfo, Path | None]
"""A video that was read ahead, and the file with its images, or None where there is no room for them."""


class VideoInImages(Video):
    """A Video whose images were read by another process."""

    def __init__(self, info: VideoInfo, images: Path, reading: Reading) -> None:
        self.path, self.info, self._reading = info.path, info, reading
        self._images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = np.load(images, mmap_mode="r")

    def frames(
        self,
        *,
        size: tuple[int, int] | None = None,
        start: float = 0.0,
        end: float | None = None,
        rate: float | None = None,
        every: int | None = None,
    ) -> Iterator[Frame]:
        """The images that were read; only as they were read, whole and from the beginning."""
        side, own = self._reading
        if (size, rate, start, end, every) != ((side, side), own, 0.0, None, None):
            raise ValueError(
                f"{self.path} was read ahead at {side} × {side}, {own:g} per second, and can be no other"
            )
        for index, image in enumerate(self._images):
            yield Frame((index + 0.5) / own, np.asarray(image))


def reading_of(model: CountingModel) -> Reading | None:
    """How a model reads, None where it does not read whole videos at one rate and size."""
    from escounts.inference.multi_rate import MultiRateModel  # noqa: PLC0415 - torch: the readers need none of it
    from escounts.inference.views import BASE_RATE  # noqa: PLC0415 - torch

    return (model.network.encoder.spec.size, BASE_RATE) if isinstance(model, MultiRateModel) else None


def reader(folder: Path, reading: Reading, most: int) -> Callable[[Task], ReadVideo]:
    """In a reading process: each task becomes a file of images in the folder."""

    def read(task: Task) -> ReadVideo:
        with tempfile.TemporaryDirectory(prefix="escounts-") as here:
            path = fetched(task.video, Path(here)) if is_address(task.video) else task.video
            video = Video(path, threads=1)
            side, rate = reading
            if video.info.duration * rate * side * side * 3 > most:
                return task, video.info, None
            room = most // (side * side * 3)  # a header may promise less than the file holds
            frames = islice(video.frames(size=(side, side), rate=rate), room + 1)
            images: list[Image] = [frame.image for frame in frames]
            if len(images) > room:
                return task, video.info, None
        target = images_file(folder, task)
        try:
            np.save(target, np.stack(images) if images else np.zeros((0, side, side, 3), np.uint8))
        except OSError:  # the place is full, perhaps of others' files: the process that counts reads the video itself
            target.unlink(missing_ok=True)
            return task, video.info, None
        return task, replace(video.info, path=Path(task.video)), target

    return read


def counter_of_read(settings: Settings) -> Callable[[ReadVideo | None], Row]:
    """In the counting process: rows of videos that were read ahead; None asks how it reads."""
    from escounts.counter import load  # noqa: PLC0415 - torch: the driver need not spend a second on it

    counter = same_on_every_machine(load(settings.model, device=settings.device))
    reading = reading_of(counter.model)

    def work(read: ReadVideo | None) -> Row:
        if read is None or reading is None:
            return {"reading": reading}
        task, info, images = read
        video = None if images is None else VideoInImages(info, images, reading)
        return row_of(counter, task, settings, video=video)

    return work


class ReadAheadWorker:
    """A reader of its own before the counting process that all workers share. folder: the reader's."""

    def __init__(
        self,
        read: TaskProcess[Task, ReadVideo],
        count: TaskProcess[ReadVideo | None, Row],
        turn: threading.Lock,
        folder: Path,
    ) -> None:
        self._read, self._count, self._turn, self._folder = read, count, turn, folder

    def ask(self, task: Task) -> Row:
        """The video's row, an error row where it cannot be read or counted."""
        try:
            return whole_row(task, self._counted)
        finally:  # here, where it also happens after a process was killed
            images_file(self._folder, task).unlink(missing_ok=True)

    def _counted(self, task: Task) -> Row:
        read = self._read.ask(task)
        with self._turn:
            return self._count.ask(read)

    def stop(self) -> None:
        """End both processes."""
        self._read.stop()
        self._count.stop()


def read_ahead_workers(
    settings: Settings, readers: int, folder: Path
) -> list[ReadAheadWorker] | list[CountingProcess]:
    """That many readers before one counting process; where the model reads in its own way, that one alone."""
    count: TaskProcess[ReadVideo | None, Row] = TaskProcess(counter_of_read, settings, limit=settings.limit)
    reading = count.ask(None)["reading"]
    if reading is None:
        count.stop()
        return [CountingProcess(settings)]
    turn = threading.Lock()
    return [
        ReadAheadWorker(TaskProcess(reader, folder, reading, MOST_BYTES, limit=settings.limit), count, turn, folder)
        for _ in range(readers)
    ]


def images_file(folder: Path, task: Task) -> Path:
    """Where a video's images wait."""
    return folder / f"{task.id}.npy"


def images_folder() -> tempfile.TemporaryDirectory[str]:
    """Where images wait: in memory where the system has a place for files there."""
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="escounts-read-", dir=place)
