"""A process that counts: whatever a video does to it, the one who asked gets a row."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from escounts import __version__
from escounts.batching.processes import TaskError, TaskProcess
from escounts.batching.rows import Row
from escounts.batching.tasks import Settings, Task, is_address


class CountingProcess(TaskProcess[Task, Row]):
    """Counts one video at a time in a process of its own.

    >>> with CountingProcess(settings) as process:
    ...     row = process.count(task)
    """

    def __init__(self, settings: Settings, *, threads: int | None = None) -> None:
        """threads: cores that it may use; all when None."""
        super().__init__(_counter, settings, limit=settings.limit, threads=threads)

    def count(self, task: Task) -> Row:
        """The video's row, an error row where it cannot be counted. Raises EscountsError where no video can be."""
        began = time.monotonic()
        try:
            answer = super().ask(task)
        except TaskError as error:
            named = str(error) if task.video in str(error) else f"{task.video}: {error}"
            answer = {"status": "error", "error": named}
        return {**blank_row(task), **answer, "spent": time.monotonic() - began}

    def ask(self, task: Task) -> Row:
        """The video's row: see count."""
        return self.count(task)


def _counter(settings: Settings) -> Callable[[Task], Row]:
    """In the process: the model, loaded; it answers each task with a part of a row."""
    from escounts.counter import load  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    counter = load(settings.model, device=settings.device)
    return lambda task: row_of(counter, task, settings)


def row_of(counter: Any, task: Task, settings: Settings, *, video: Any = None) -> Row:
    """The counted part of a video's row. video: it, opened; None: the task's address is."""
    fetch = video is None and is_address(task.video)
    folder = Path(tempfile.mkdtemp(prefix="escounts-")) if fetch else None
    try:
        video = video or (task.video if folder is None else fetched(task.video, folder))
        result = counter.count(
            video,
            exemplars=settings.exemplars,
            thorough=settings.thorough,
            assume_repeats=settings.assume_repeats,
        )
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return {
        "status": "counted",
        "count": result.count,
        "raw_count": result.raw_count,
        "confidence": result.confidence,
        "unsure": result.unsure,
        "unit": result.unit,
        "starts": [repetition.start for repetition in result.repetitions],
        "ends": [repetition.end for repetition in result.repetitions],
        "duration": result.duration,
        "model": result.model,
    }


def fetched(address: str, folder: Path) -> str:
    """A copy of a stored video: decoders jump about in a file, which object storage answers slowly."""
    import fsspec  # noqa: PLC0415 - not needed for local files

    target = str(folder / os.path.basename(address))
    storage, path = fsspec.core.url_to_fs(address)
    storage.get_file(path, target)
    return target


def blank_row(task: Task) -> Row:
    """What every row has."""
    return {"id": task.id, "video": task.video, "escounts": __version__}
