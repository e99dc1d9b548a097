"""Several processes read videos ahead of those that count them: for a GPU, which needs many cores to be kept busy.

A reader leaves a video's small images in a file of a temporary folder (in memory where the system has such a place);
a counting process maps it. The reader goes on with the next video meanwhile; no more than twice as many videos as
there are readers are being read, wait or are being counted. On a GPU two or three processes count: while one waits
for the GPU, another has Python's work done.
"""

from __future__ import annotations

import os
import queue
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

import escounts
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
from escounts.errors import EscountsError
from escounts.system.arrays import Image
from escounts.system.atomic_files import lock_folder
from escounts.system.sandbox import Sandbox
from escounts.system.task_processes import TaskProcess, Worker
from escounts.video.decoding import ReadyPicture
from escounts.video.files import Video, VideoInfo
from escounts.video.in_memory import PicturesInMemory, VideoInMemory

T = TypeVar("T")
A = TypeVar("A")
MOST_BYTES = 512 * 2**20
"""Of one video's images (six minutes for the default model); a longer one is read by the process that counts it."""
IN_MEMORY, LEAST_ROOM = Path("/dev/shm"), 4 * 2**30
"""A place for files in memory, and the bytes that must be free there; containers often have 64 MB."""
IMAGES = "escounts-read-"
"""How folders of images begin."""
GPU_COUNTERS, ENGINE_COUNTERS = 2, 3
"""Processes that count on one GPU; and where it reads as well, so that counting takes half as long again."""


Reading = tuple[int, float]
"""How a model reads videos: side of its square images in pixels, images per second."""
ReadVideo = Mapping[str, Any] | None
"""What is known of a video that was read ahead (`VideoInfo`), and the file of its images, as JSON values; None where
there was no room for them."""
ToCount = tuple[Task, ReadVideo] | None


def video_of_images(read: Mapping[str, Any], reading: Reading, start: float) -> Video:
    """A video whose images were read by another process, from so many seconds on."""
    side, rate = reading
    known = {name: value for name, value in read.items() if name != "images"}
    pixels = np.asarray(np.memmap(read["images"], np.uint8, "r"))  # no memmap: it makes an object of each row
    pictures = [ReadyPicture(0, Fraction(1), 0, image) for image in pixels.reshape(-1, side, side, 3)]
    video = VideoInMemory.of(PicturesInMemory(pictures, rate, begin=start))
    video.path = Path(read["path"])
    box = None if read["region"] is None else tuple(read["region"])
    video.info = VideoInfo(**{**known, "path": video.path, "rotation": 0, "region": box})  # they are upright
    return video


def reader(
    folder: Path, most: int, settings: Settings, reading: Reading, by_engine: bool = False
) -> Callable[[Task], ReadVideo]:
    """In a reading process: each task becomes a file of images in the folder, of so many bytes at most. by_engine:
    NVDEC decodes. settings: say which seconds, and which box of the picture.
    """
    side, rate = reading
    start, end, opened = settings.start, settings.end, Video
    if by_engine:
        from escounts.video import nvdec  # noqa: PLC0415 - torch: readers that use the processor need none of it

        nvdec.warm_up()
        opened = nvdec.NvdecVideo

    def read(task: Task) -> ReadVideo:
        with tempfile.TemporaryDirectory(prefix="escounts-") as here:
            path = fetched(task.video, Path(here)) if is_address(task.video) else task.video
            video = opened(path, threads=1)
            if settings.region is not None:
                video = video.cropped(settings.region)
            if ((end or video.info.duration) - start) * rate * side * side * 3 > most:
                return None
            room = most // (side * side * 3)  # a header may promise less than the file holds
            frames = islice(video.frames(size=(side, side), start=start, end=end, rate=rate), room + 1)
            target = images_file(folder, task)
            try:
                held = 0 < write_images(target, (frame.image for frame in frames)) <= room
            except OSError:  # the place is full, perhaps of others' files: who counts reads the video itself
                held = False
        if not held:
            target.unlink(missing_ok=True)
            return None
        return {**asdict(video.info), "path": task.video, "images": str(target)}

    return read


def write_images(target: Path, images: Iterable[Image]) -> int:
    """Images one after another, each written as it comes; how many there were."""
    count = 0
    with target.open("wb", buffering=0) as file:
        for image in images:
            rest = np.ascontiguousarray(image).data.cast("B")
            while rest:  # a place that is nearly full takes a part
                rest = rest[file.write(rest) :]
            count += 1
    return count


def counter_of_read(settings: Settings) -> Callable[[ToCount], Row]:
    """In a counting process: rows of videos that were read ahead; None asks how it reads: at one rate and size, or
    (null) in a way of its own."""
    counter = same_on_every_machine(escounts.load(settings.model, device=settings.device))
    reading: Reading | None = getattr(counter.model, "reading", None)

    def work(asked: ToCount) -> Row:
        if asked is None:
            return {"reading": reading}
        task, read = asked
        video = None if read is None or reading is None else video_of_images(read, reading, settings.start)
        return row_of(counter, task, settings, video=video)

    return work


class Shared(Generic[T, A]):
    """Processes that several threads ask, each thread one of them at a time."""

    def __init__(self, processes: Sequence[Worker[T, A]]) -> None:
        self._all = processes
        self._idle: queue.SimpleQueue[Worker[T, A]] = queue.SimpleQueue()
        for process in processes:
            self._idle.put(process)

    def ask(self, task: T) -> A:
        """The answer of one that nobody else asks; waits for it."""
        process = self._idle.get()
        try:
            return process.ask(task)
        finally:
            self._idle.put(process)

    def stop(self) -> None:
        """End all of them."""
        for process in self._all:
            process.stop()


class ReadAheadWorker:
    """Has a video read by one process and counted by another; workers share both kinds. folder: the readers'."""

    def __init__(self, readers: Shared[Task, ReadVideo], counters: Shared[ToCount, Row], folder: Path) -> None:
        self._readers, self._counters, self._folder = readers, counters, folder

    def ask(self, task: Task) -> Row:
        """The video's row, an error row where it cannot be read or counted."""
        try:
            return whole_row(task, lambda task: self._counters.ask((task, self._readers.ask(task))))
        finally:  # here, where it also happens after a process was killed
            images_file(self._folder, task).unlink(missing_ok=True)

    def stop(self) -> None:
        """End all processes."""
        self._readers.stop()
        self._counters.stop()


def read_ahead_workers(
    settings: Settings, readers: int, folder: Path, *, engine_readers: int = 0, sandbox: Sandbox | None = None
) -> list[ReadAheadWorker] | list[CountingProcess]:
    """Workers that share so many readers; where the model reads in its own way, one counting process alone.

    engine_readers: readers beside them that decode with NVDEC; whoever is idle takes the next video. Twice as many
    workers as readers: a reader goes on while the video that it read waits to be counted. sandbox: what
    all processes are confined to.
    """
    on_gpu = settings.device.startswith("cuda")
    options: dict[str, Any] = {"limit": settings.limit, "sandbox": sandbox}
    counters: list[TaskProcess[ToCount, Row]] = [
        TaskProcess(counter_of_read, settings, threads=1 if on_gpu else None, **options)  # cores: readers'
        for _ in range((ENGINE_COUNTERS if engine_readers else GPU_COUNTERS) if on_gpu else 1)
    ]
    reading = counters[0].ask(None)["reading"]
    if reading is None:
        counters[0].stop()
        return [CountingProcess(settings, sandbox=sandbox)]
    for process in counters[1:]:  # their seconds of loading pass while the first videos are read
        threading.Thread(target=process.begin, daemon=True).start()
    kinds = [True] * engine_readers + [False] * readers
    shared = Shared([TaskProcess(reader, folder, MOST_BYTES, settings, reading, kind, **options) for kind in kinds])
    counting = Shared(counters)
    return [ReadAheadWorker(shared, counting, folder) for _ in range(2 * len(kinds))]


def images_file(folder: Path, task: Task) -> Path:
    """Where a video's images wait."""
    return folder / f"{task.id}.rgb"


@contextmanager
def images_folder() -> Iterator[str]:
    """Where images wait: in memory where the system has a place for files there, with room.

    What a killed run left is removed first: it may be gigabytes of memory. A folder is in use as long as its process
    holds its lock, and has its name from when that is so.
    """
    roomy = os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free >= LEAST_ROOM
    made = Path(tempfile.mkdtemp(prefix=f".{IMAGES}", dir=IN_MEMORY if roomy else None))
    lock = lock_folder(made, EscountsError(f"{made} is held by another process"))
    folder = made.rename(made.with_name(made.name[1:]))
    try:
        for other in folder.parent.glob(f"{IMAGES}*"):
            if other != folder:
                _remove_abandoned(other, owner=folder.stat().st_uid)
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _remove_abandoned(folder: Path, owner: int) -> None:
    """Remove a folder of images that its process no longer holds; not those of others, nor what a link leads to."""
    with suppress(OSError, EscountsError):
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == owner:
            lock = lock_folder(folder, EscountsError(f"{folder} is in use"))
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
