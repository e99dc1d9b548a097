"""Tasks in processes of their own: whatever a task does to its process, the one who asked hears of it.

Counting many videos, encoding and evaluating a dataset share this. What a process needs (a model) is prepared once; a
process that dies or takes too long is replaced for the next task.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from escounts.errors import EscountsError, explained
from escounts.system.child_processes import started

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
UNGUARDED = '; a script that counts in processes begins with `if __name__ == "__main__":`, or they run it again'
STOPPED = "it was stopped before this task"


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
    """One process. prepare(*arguments) runs there once and gives the function that answers a task.

    prepare: a function of a module, which the process imports. limit: seconds a task may take, None for ever.
    threads: cores that torch may use there; all when None.

    >>> with TaskProcess(open_model, "lite", "cpu") as process:
    ...     answer = process.ask(task)
    """

    def __init__(
        self, prepare: Prepare[T, A], *arguments: Any, limit: float | None = None, threads: int | None = None
    ) -> None:
        self._prepare, self._arguments = prepare, arguments
        self._limit, self._threads = limit, threads
        self._process: Any = None
        self._pipe: Connection | None = None
        self._closed = False
        self._changing = threading.Lock()  # stop() comes from another thread than ask()
        self._starting = threading.Lock()  # begin() may, too

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def begin(self) -> None:
        """Get ready before the first task, from any thread; what goes wrong, the first task meets again."""
        with suppress(EscountsError), self._starting:
            self._start()

    def ask(self, task: T) -> A:
        """The answer; raises TaskError where the task has none, EscountsError where no task can have one."""
        death = ""
        for _ in range(ATTEMPTS):
            with self._starting:
                self._start()
            try:
                return self._answer(task)
            except (EOFError, OSError):
                self._process.join(5)
                death = _death(self._process.exitcode)
                self._end()
        raise TaskError(death)

    def _answer(self, task: T) -> A:
        """What the process says; raises EOFError or OSError where it dies over it."""
        assert self._pipe is not None
        self._pipe.send(task)
        if not self._pipe.poll(self._limit):
            self._end()
            raise TaskError(f"not done within {self._limit:g} s; raise the limit to wait longer")
        answer: A
        answered, answer = self._pipe.recv()
        if not answered:
            raise TaskError(str(answer))
        return answer

    def stop(self) -> None:
        """End the process, whatever it is doing; no other is started."""
        with self._changing:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _start(self) -> None:
        """Have a process that is ready; one that is killed before it is, is started again."""
        if self._process is not None and self._process.is_alive():
            return
        for attempt in range(STARTS):
            said = self._prepared()
            if said == "ready":
                return
            process = self._process
            if process is None:  # stop() came meanwhile
                raise TaskError(STOPPED)
            killed = (process.exitcode or 0) < 0
            self._end()
            if not killed or attempt == STARTS - 1:
                raise EscountsError(said)

    def _prepared(self) -> str:
        """Start a process: "ready", or why it is not. stop() may take it away meanwhile."""
        with self._changing:
            if self._closed:
                raise TaskError(STOPPED)
            try:
                process, pipe = started(_serve, self._prepare, self._arguments, self._threads)
            except OSError as error:  # no memory or no room for another one: no task can have an answer
                raise EscountsError(f"no process could be started: {error.strerror or error}") from error
            self._process, self._pipe = process, pipe
        try:
            if pipe.poll(STARTING):
                return str(pipe.recv())
        except (EOFError, OSError):
            process.join(5)
            unguarded = UNGUARDED if process.exitcode == 1 else ""
            return f"getting ready: {_death(process.exitcode)}{unguarded}"
        return f"a process was not ready within {STARTING:g} s"


def _serve(pipe: Connection, prepare: Prepare[Any, Any], arguments: tuple[Any, ...], threads: int | None) -> None:
    """The process: prepares, answers each task; ends with the one who asks."""
    with suppress(BrokenPipeError, ConnectionResetError, EOFError, KeyboardInterrupt):  # who asks is gone
        _answer_tasks(pipe, prepare, arguments, threads)


def _answer_tasks(
    pipe: Connection, prepare: Prepare[Any, Any], arguments: tuple[Any, ...], threads: int | None
) -> None:
    try:
        work = prepare(*arguments)
    except EscountsError as error:
        pipe.send(str(error))
        return
    if threads is not None and "torch" in sys.modules:  # two seconds that a model without a network need not spend
        sys.modules["torch"].set_num_threads(threads)
    pipe.send("ready")
    while True:
        task = pipe.recv()
        try:
            answer = True, work(task)
        except Exception as error:  # whatever it is, it is this task's failure alone
            answer = False, explained(error)
        pipe.send(answer)


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
    prepare: Prepare[T, A], devices: Sequence[str], jobs: int, arguments: Callable[[str], tuple[Any, ...]]
) -> list[TaskProcess[T, A]]:
    """`jobs` processes, at least one for every device, in turn on each of them; they share this machine's cores.

    arguments: what prepare takes on a device.
    """
    count = max(jobs, len(devices))
    threads = max(1, (os.cpu_count() or 1) // count)
    places = [devices[index % len(devices)] for index in range(count)]
    return [TaskProcess(prepare, *arguments(place), threads=threads) for place in places]


def _death(code: int | None) -> str:
    cause = f"signal {-code}: out of memory, or killed" if code is not None and code < 0 else f"exit code {code}"
    return f"its process died ({cause})"
