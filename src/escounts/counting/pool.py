"""Pieces of inference side by side, one on each core, while the caller reads the video.

An operation that is spread over the cores ends with the slowest of them: where the video's decoder, or anyone else,
has one of two cores for a moment, the other waits, spinning. A piece of work a core waits for nobody.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

import torch

from escounts.nn.device import Precision, counting_precision, precision

P = ParamSpec("P")
R = TypeVar("R")

MOST = 4
"""Pieces at a time, for the sake of memory: 40 MB each. From twice as many cores on, several share a piece."""

AHEAD = 2
"""Pieces that may wait for each that runs: what they take (frames) is held that long."""

LARGEST_BLOCK = 16 * 2**20
"""Bytes; see keep_freed_memory. Twice as much holds the activations of one piece."""


_starting = threading.Lock()
"""While threads start, torch's number of cores for threads to come is not the one that holds: one at a time."""


@contextmanager
def one_core() -> Iterator[None]:
    """For small work, such as reading weights: torch's other threads would spin, waiting for a share of it."""
    with _starting:
        cores = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(cores)


class InferencePool:
    """Runs pieces of inference in the order they come, on as many cores as torch may use here; with a GPU, at once.

    >>> with InferencePool(device) as cores:
    ...     futures = [cores.submit(encoder.image_features, images, 8) for images in chunks]
    """

    def __init__(self, device: torch.device, wanted: Precision = "auto") -> None:
        self.device, self.wanted = device, counting_precision(device, wanted)
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[Any]] = deque()
        self._pieces = 1

    def __enter__(self) -> InferencePool:
        if self.device.type == "cpu":
            keep_freed_memory()
            self._pool = self._started()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits for the pieces that run; those that have not begun are dropped if something went wrong."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=error is not None)

    def submit(self, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> Future[R]:
        """The work's future result. Waits where too much is waiting, and raises what the oldest piece raised.

        A piece may wait for the results of pieces that were submitted before it.
        """

        def run() -> R:
            with torch.inference_mode(), precision(self.device, self.wanted):  # both hold for one thread only
                return work(*args, **options)

        if self._pool is None:
            done: Future[R] = Future()
            done.set_result(run())
            return done
        while len(self._waiting) >= self._pieces * (1 + AHEAD):
            self._waiting.popleft().result()
        future = self._pool.submit(run)
        self._waiting.append(future)
        return future

    def _started(self) -> ThreadPoolExecutor:
        """All threads at once. torch keeps a number of cores for each thread, and one for threads to come: that one
        is put back."""
        with _starting:
            cores = torch.get_num_threads()
            self._pieces = min(cores, MOST)
            begun = threading.Barrier(self._pieces + 1)

            def prepare() -> None:
                torch.get_num_threads()  # the first use in a thread takes over the number for threads to come
                torch.set_num_threads(cores // self._pieces)
                with suppress(threading.BrokenBarrierError):  # who starts it was interrupted, and says so himself
                    begun.wait()

            pool = ThreadPoolExecutor(self._pieces, "escounts-core", initializer=prepare)
            try:
                for _ in range(self._pieces):
                    pool.submit(int)
                begun.wait()
            except BaseException:  # no more threads to be had, or interrupted: nobody is left waiting for the others
                begun.abort()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                torch.set_num_threads(cores)
            return pool


def keep_freed_memory() -> None:
    """Let the C library keep what torch frees: without this, glibc gives the memory of every activation back to the
    system, and filling its pages anew takes a fifth of the frame stage's time.

    glibc keeps as much as twice the largest block that was freed so far. The block freed here is never touched: it
    costs nothing. Other C libraries have their own rules, and lose nothing by it.
    """
    torch.empty(LARGEST_BLOCK, dtype=torch.uint8)
