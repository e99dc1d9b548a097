"""Tasks in processes of their own: whatever a task does to its process, the one who asked hears of it.

Counting many videos, teaching, encoding and evaluating a dataset share this. What a process needs (a model) is
prepared once; a process that dies or takes too long is replaced for the next task.
"""

from __future__ import annotations

import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from escounts.errors import EscountsError, explained
from escounts.system.processes import Child, Line
from escounts.system.sandbox import Sandbox

T = TypeVar("T")
A = TypeVar("A")
Own = TypeVar("Own", bound="TaskProcess[Any, Any]")
Asked = TypeVar("Asked", contravariant=True)
Answered = TypeVar("Answered", covariant=True)
Prepare = Callable[..., Callable[[T], A]]

STARTING = 300.0
"""Seconds that a process may take to get ready."""
ATTEMPTS = 2
"""A process that dies may not have died of the task it had."""
STARTS = 3
"""A process that is killed while it gets ready was killed by somebody else."""
STOPPED = "it was stopped before this task"
NOT_A_REPORT = "its process sent what is not a report"
TICK_SECONDS = 1.0
"""Between looks at a report that was begun and is not ended."""


class TaskError(EscountsError):
    """Why a task has no answer: what it raised, how its process died, or that it took too long."""


class Worker(Protocol[Asked, Answered]):
    """What `answers` asks: one task at a time."""

    def ask(self, task: Asked) -> Answered:
        """The answer to a task; raises TaskError where that task has none."""
        ...

    def stop(self) -> None:
        """End, whatever it is doing."""
        ...


class TaskProcess(Generic[T, A]):
    """One process. prepare(*arguments) runs there once and gives the function that answers a task in JSON values.

    Args:
        prepare: a function of a module, which the process imports.
        limit: seconds a task may take, None for ever.
        threads: cores that torch may use there; all when None.
        attempts: times that a task is tried whose process dies.
        hear: called with what the process tells of a task before it is done; prepare gets a function to tell by, as
            its last argument. ValueError: the process has no reason to tell this.
        sandbox: what it is confined to; None: nothing is held back from it.

    >>> with TaskProcess(open_model, "lite", "cpu") as process:
    ...     answer = process.ask(task)
    """

    def __init__(
        self,
        prepare: Prepare[T, A],
        *arguments: Any,
        limit: float | None = None,
        threads: int | None = None,
        attempts: int = ATTEMPTS,
        hear: Callable[[Any], None] | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self._prepare, self._arguments, self._hear = prepare, arguments, hear
        self._limit, self._threads, self._attempts, self._sandbox = limit, threads, attempts, sandbox
        self._process: Child | None = None
        self._closed = False
        self._changing = threading.Lock()  # stop() comes from another thread than ask()
        self._starting = threading.Lock()  # begin() may, too

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def begin(self) -> None:
        """Get ready before the first task, from any thread; what goes wrong, the first task meets again."""
        with suppress(EscountsError), self._starting:
            self._start()

    def ask(self, task: T) -> A:
        """The answer; raises TaskError where the task has none, EscountsError where no task can have one."""
        death = ""
        for _ in range(self._attempts):
            with self._starting:
                process = self._start()
            try:
                return self._answer(process, task)
            except (EOFError, OSError):
                death = process.death()
            except ValueError:  # whatever has taken it over is no longer ours
                death = NOT_A_REPORT
            self._end(process)
        raise TaskError(death)

    def _answer(self, process: Child, task: T) -> A:
        """What the process says; raises EOFError or OSError where it dies over it."""
        process.send(task)
        end = math.inf if self._limit is None else time.monotonic() + self._limit
        while True:
            report = _report(process, None if self._limit is None else end - time.monotonic())
            if report is None:
                self._end(process)
                raise TaskError(f"not done within {self._limit:g} s; raise the limit to wait longer")
            kind, answer = report
            if kind != "told" or self._hear is None:
                break
            self._hear(answer)
        if kind != "done":
            raise TaskError(str(answer))
        return answer  # type: ignore[no-any-return]

    def stop(self) -> None:
        """End the process, whatever it is doing; no other is started."""
        with self._changing:
            self._closed = True
        if self._process is not None:
            self._end(self._process)

    def _end(self, process: Child) -> None:
        process.end()
        with self._changing:
            if self._process is process:
                self._process = None

    def _start(self) -> Child:
        """A process that is ready; one that is killed before it is, is started again."""
        if self._process is not None and self._process.is_alive():
            return self._process
        for attempt in range(STARTS):
            process = self._begun()
            why = self._unready(process)
            if why is None:
                return process
            killed = (process.exitcode or 0) < 0
            self._end(process)
            if self._closed:
                raise TaskError(STOPPED)
            if not killed or attempt == STARTS - 1:
                raise EscountsError(why)
        raise AssertionError

    def _begun(self) -> Child:
        with self._changing:
            if self._closed:
                raise TaskError(STOPPED)
            about = (self._prepare, self._arguments, self._threads, self._hear is not None)
            self._process = Child(_serve, *about, sandbox=self._sandbox)
            return self._process

    def _unready(self, process: Child) -> str | None:
        """Wait until it is ready; otherwise why it is not. stop() may end it meanwhile."""
        try:
            report = _report(process, STARTING)
        except (EOFError, OSError):
            return f"getting ready: {process.death()}"
        except ValueError:
            return NOT_A_REPORT
        if report is None:
            return f"a process was not ready within {STARTING:g} s"
        return None if report[0] == "ready" else str(report[1])


def _report(process: Child, seconds: float | None) -> list[Any] | None:
    """The next report; None where it has not come within so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = TICK_SECONDS if end is None else end - time.monotonic()
        report = process.take(min(TICK_SECONDS, max(0.0, left)))
        if report is not None or left <= 0:
            return report


def _serve(
    line: Line, prepare: Prepare[Any, Any], arguments: tuple[Any, ...], threads: int | None, telling: bool
) -> None:
    """The process: prepares, answers each task; ends with the one who asks."""
    receive = line.listen()
    try:
        work = prepare(*arguments, partial(line.report, "told")) if telling else prepare(*arguments)
    except EscountsError as error:
        line.report("refused", str(error))
        return
    if threads is not None and "torch" in sys.modules:  # two seconds that a model without a network need not spend
        sys.modules["torch"].set_num_threads(threads)
    line.report("ready", None)
    while True:
        task = receive()
        try:
            line.report("done", work(task))
        except Exception as error:  # whatever it is, it is this task's failure alone
            line.report("failed", explained(error))


def answers(
    tasks: Sequence[T], workers: Sequence[Worker[T, A]], *, keep: Callable[[T, A | TaskError], None] | None = None
) -> Iterator[tuple[T, A | TaskError]]:
    """Tasks with their answers as they come, each worker at one of them. Closing it ends the workers.

    keep: called with each as soon as it is there, in its worker's thread, before anyone takes it here.
    """
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    given: queue.SimpleQueue[tuple[T, A | TaskError] | BaseException | None] = queue.SimpleQueue()
    closing = threading.Event()

    def work(worker: Worker[T, A]) -> None:
        try:
            while not closing.is_set():
                task = waiting.get_nowait()
                answer: A | TaskError
                try:
                    answer = worker.ask(task)
                except TaskError as error:
                    answer = error
                if closing.is_set():
                    return  # the process was ended, not the task's fault
                if keep is not None:
                    keep(task, answer)
                given.put((task, answer))
        except queue.Empty:
            given.put(None)
        except BaseException as error:  # the driver's to raise
            given.put(error)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        working = len(threads)
        while working:
            item = given.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                working -= 1
            else:
                yield item
    finally:
        closing.set()
        for worker in workers:
            worker.stop()


def divided(
    prepare: Prepare[T, A],
    devices: Sequence[str],
    jobs: int,
    arguments: Callable[[str], tuple[Any, ...]],
    **options: Any,
) -> list[TaskProcess[T, A]]:
    """`jobs` processes, at least one for every device, in turn on each of them; they share this machine's cores.

    arguments: what prepare takes on a device. options: of `TaskProcess`.
    """
    count = max(jobs, len(devices))
    threads = max(1, (os.cpu_count() or 1) // count)
    places = [devices[index % len(devices)] for index in range(count)]
    return [TaskProcess(prepare, *arguments(place), threads=threads, **options) for place in places]
