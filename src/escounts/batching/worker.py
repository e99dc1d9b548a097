"""A process that counts: whatever a video does to it, the one who asked gets a row.

The model is loaded once. A video that takes too long, or kills the process (memory, a fault in a decoder), costs that
process; another is started for the next video.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from escounts import __version__
from escounts.batching.rows import Row
from escounts.batching.tasks import Settings, Task, is_address
from escounts.errors import EscountsError

STARTING = 300.0
"""Seconds that a process may take to load its model."""
ATTEMPTS = 2
"""A process that dies may not have died of the video it had."""


class CountingProcess:
    """Counts one video at a time in a process of its own.

    >>> with CountingProcess(settings) as process:
    ...     row = process.count(task)
    """

    def __init__(self, settings: Settings, *, threads: int | None = None) -> None:
        """threads: cores that it may use; all when None."""
        self.settings, self.threads = settings, threads
        self._process: Any = None
        self._pipe: Connection | None = None

    def __enter__(self) -> CountingProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def count(self, task: Task) -> Row:
        """The video's row, an error row where it cannot be counted. Raises EscountsError where no video can be."""
        began = time.monotonic()
        answer: Row = {}
        for _ in range(ATTEMPTS):
            self._start()
            try:
                answer = self._answer(task)
                break
            except (EOFError, OSError):
                self._process.join(5)
                answer = {"status": "error", "error": f"{task.video}: {_death(self._process.exitcode)}"}
                self.stop()
        return {**_blank(task), **answer, "spent": time.monotonic() - began}

    def _answer(self, task: Task) -> Row:
        """What the process says of a video; raises EOFError or OSError where it dies over it."""
        assert self._pipe is not None
        self._pipe.send(task)
        if self._pipe.poll(self.settings.limit):
            answer: Row = self._pipe.recv()
            return answer
        self.stop()
        late = f"{task.video}: not counted within {self.settings.limit:g} s; raise the limit to wait longer"
        return {"status": "error", "error": late}

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.settings, self.threads), daemon=True)
        self._process.start()
        theirs.close()
        try:
            ready = self._pipe.poll(STARTING) and self._pipe.recv()
        except EOFError:
            self._process.join(5)
            ready = f"loading the model: {_death(self._process.exitcode)}"
        if ready != "ready":
            self.stop()
            raise EscountsError(ready or f"the model did not load within {STARTING:g} s")


def _serve(pipe: Connection, settings: Settings, threads: int | None) -> None:
    """The process: loads the model, answers each task with a part of a row; ends with the one who asks."""
    import torch  # noqa: PLC0415 - a second of start-up that the driver need not spend

    from escounts.counter import load  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        counter = load(settings.model, device=settings.device)
    except EscountsError as error:
        pipe.send(str(error))
        return
    pipe.send("ready")
    while True:
        try:
            task: Task = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            answer = _counted(counter, task, settings)
        except (EscountsError, OSError, MemoryError, RuntimeError) as error:
            answer = {"status": "error", "error": str(error) or type(error).__name__}
        pipe.send(answer)


def _counted(counter: Any, task: Task, settings: Settings) -> Row:
    folder = Path(tempfile.mkdtemp(prefix="escounts-")) if is_address(task.video) else None
    try:
        video = task.video if folder is None else _fetched(task.video, folder)
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


def _fetched(address: str, folder: Path) -> str:
    """A copy of a stored video: decoders jump about in a file, which object storage answers slowly."""
    import fsspec  # noqa: PLC0415 - not needed for local files

    target = str(folder / os.path.basename(address))
    storage, path = fsspec.core.url_to_fs(address)
    storage.get_file(path, target)
    return target


def _blank(task: Task) -> Row:
    return {"id": task.id, "video": task.video, "escounts": __version__}


def _death(code: int | None) -> str:
    cause = f"signal {-code}: out of memory, or killed" if code is not None and code < 0 else f"exit code {code}"
    return f"the counting process died ({cause})"
