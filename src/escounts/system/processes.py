"""Processes of our own: fresh interpreters, since torch's threads do not survive a fork.

The parent sends pickles. A child answers in JSON: it may have opened other people's videos, and unpickling runs
whatever the writer likes. A thread of its own reads each child's reports, so that half a report holds nobody up.
Ctrl-C is the parent's to handle; a child whose parent is gone ends without a word.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import FileIO
from typing import Any, cast

from escounts.errors import EscountsError
from escounts.system.sandbox import ONE_THREAD, Sandbox, confine

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from escounts.system.processes import run_child; run_child()"
"""What the interpreter of a child runs; its arguments are the parent's places of modules."""
HEAD = struct.Struct("<I")
"""Before each message: its length in bytes."""
MAX_REPORT = 256 * 2**20
"""Bytes; the document of the longest video that a server takes is a few MiB."""
UNFINISHED_SECONDS = 30.0
"""For one report, from its first byte to its last."""
WAITING = 2
"""Reports that are kept until somebody takes them, each as large as it may be; who sends more has to wait."""


class Line:
    """A child's line to its parent."""

    def __init__(self, commands: FileIO, reports: FileIO) -> None:
        self._commands, self._reports = commands, reports
        self._reporting = threading.Lock()

    def receive(self) -> Any:
        """What the parent sends next; EOFError where it is gone."""
        return pickle.loads(_read_message(self._commands))

    def report(self, *parts: object) -> None:
        """Tell the parent, from any thread. parts: the kind first, then JSON values; tuples arrive as lists.

        Ends this process where the parent is gone: nobody needs it.
        """
        message = json.dumps(parts).encode()
        try:
            with self._reporting:
                _write_message(self._reports, message)
        except OSError:
            os._exit(0)

    def listen(self) -> Callable[[], Any]:
        """`receive`, from a thread that ends this process, whatever it is doing, as soon as the parent is gone."""
        received: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def read() -> None:
            try:
                while True:
                    received.put(self.receive())
            except (EOFError, OSError):
                os._exit(0)
            except BaseException:
                _fail()

        threading.Thread(target=read, name="commands", daemon=True).start()
        return received.get


def run_child() -> None:
    """The whole life of a child. What it prints goes to stderr: stdout is its line to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Line(FileIO(os.dup(0), "rb"), FileIO(os.dup(1), "wb"))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    del sys.argv[1:]
    try:
        target, arguments, sandbox = line.receive()
        if sandbox is not None:
            confine(sandbox)  # what this machine cannot confine, `escounts doctor` says
        target(line, *arguments)
    except EOFError:  # the parent was killed
        pass
    except BaseException:
        _fail()
    os._exit(0)  # whatever its threads are doing


def _fail() -> None:
    """End this process as an error that nobody handles does."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


class Child:
    """A process that calls `target(line, *arguments)`, and its end of the line. Raises EscountsError where none can
    start.

    target: a function of a module, which the child imports. parts: of each report, all but the last of them text.
    on_message: called, in a thread, whenever there is something to take. sandbox: what it is confined to, as far as
    this machine can, before `target` is called; None: it may do what its parent may.

    >>> child = Child(count_videos, "lite")
    >>> child.send("a.mp4")
    >>> kind, value = child.take(60.0)
    """

    def __init__(
        self,
        target: Callable[..., None],
        *arguments: Any,
        parts: int = 2,
        on_message: Callable[[], None] = lambda: None,
        sandbox: Sandbox | None = None,
    ) -> None:
        try:
            self._process = spawned({} if sandbox is None else ONE_THREAD)
        except OSError as error:  # no memory or no room for another one
            raise EscountsError(f"no process could be started: {error.strerror or error}") from error
        self._commands, self._reports = cast(FileIO, self._process.stdin), cast(FileIO, self._process.stdout)
        self._kill = weakref.finalize(self, _kill, self._process)  # at the parent's end, too
        self._parts, self._on_message = parts, on_message
        self._arrived: queue.Queue[list[Any] | Exception] = queue.Queue(WAITING)
        self._begun: float | None = None
        self._over: Exception | None = None
        self._closed = False
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="reports", daemon=True)
        self._thread.start()
        with suppress(OSError):  # it has died already: whoever takes a report learns that
            self.send((target, arguments, sandbox))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; minus the signal's number where one ended it."""
        return self._process.poll()

    def is_alive(self) -> bool:
        return self.exitcode is None

    def send(self, message: object) -> None:
        """Waits until the child has room for it; OSError where it is gone."""
        content = pickle.dumps(message)
        with self._sending:
            if self._commands.closed:
                raise BrokenPipeError("the process was ended")
            _write_message(self._commands, content)

    def take(self, seconds: float = 0.0) -> list[Any] | None:
        """The next report, waited for so long; None where none has come.

        Once all reports are taken and no other can follow, every call raises: EOFError or OSError where the process
        is gone, ValueError where what it wrote is not a report, or was begun and does not end.
        """
        try:
            found = self._arrived.get(seconds > 0, seconds)
        except queue.Empty:
            found = self._over or []
        if isinstance(found, Exception):
            self._over = found
            raise found
        begun = self._begun
        if not found and begun is not None and time.monotonic() - begun > UNFINISHED_SECONDS:
            raise ValueError(f"a report was begun and not ended within {UNFINISHED_SECONDS:g} s")
        return found or None

    def kill(self) -> None:
        self._process.kill()

    def join(self, seconds: float | None = None) -> None:
        """Wait for its end, no longer than so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def death(self) -> str:
        """How it ended, as everybody is told; one that has closed its line and stays is ended here."""
        self.join(5)
        if self.is_alive():
            self.kill()
            self.join(5)
        code = self.exitcode
        if code is None or code >= 0:
            return f"its process died (exit code {code})"
        names = {number.value: number.name for number in signal.Signals}
        return f"its process died ({names.get(-code, f'signal {-code}')}: out of memory, or killed)"

    def end(self) -> None:
        """End it, whatever it is doing, and close the line."""
        self._kill()
        self._closed = True
        while self._thread.is_alive() and not self._arrived.empty():
            self._arrived.get()  # the thread may be waiting to put one there
        self._thread.join(2)
        with self._sending:
            self._commands.close()
        if not self._thread.is_alive():  # else a child of the process holds the pipe, and the thread must keep it
            self._reports.close()

    def _read(self) -> None:
        try:
            while not self._closed:
                first = _read(self._reports, 1)
                self._begun = time.monotonic()
                report = parsed_report(_read_message(self._reports, first, most=MAX_REPORT), self._parts)
                self._begun = None
                self._arrived.put(report)
                self._on_message()
        except Exception as error:  # it is gone, or what it wrote is not a report
            self._begun = None
            self._arrived.put(error)
            self._on_message()


def spawned(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A fresh interpreter that runs `run_child`, with Ctrl-C held back from its first instruction on.

    environment: variables that it has beside, or instead of, its parent's.
    """
    command = [sys.executable, "-c", PROGRAM, *sys.path]
    variables = {**os.environ, **environment}
    if sys.platform == "win32":
        return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_program(*command: str) -> subprocess.CompletedProcess[str]:
    """Another program, waited for: its exit code and what it printed. OSError where there is none of that name."""
    return subprocess.run(list(command), capture_output=True, text=True, check=False)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _write_message(file: FileIO, content: bytes) -> None:
    rest = memoryview(HEAD.pack(len(content)) + content)
    while rest:
        rest = rest[file.write(rest) :]


def _read_message(file: FileIO, first: bytes = b"", *, most: int | None = None) -> bytes:
    """A whole message, of which `first` has been read; EOFError where the line is closed before its end."""
    (length,) = HEAD.unpack(first + _read(file, HEAD.size - len(first)))
    if most is not None and length > most:
        raise ValueError(f"a report of {length} bytes is longer than the {most} that are read")
    return _read(file, length)


def _read(file: FileIO, length: int) -> bytes:
    content = bytearray(length)
    rest = memoryview(content)
    while rest:
        count = file.readinto(rest)
        if not count:
            raise EOFError("the line is closed")
        rest = rest[count:]
    return bytes(content)


def parsed_report(content: bytes, parts: int) -> list[Any]:
    """A report of so many parts, all but the last of them text; numbers in it are finite. ValueError: it is none."""
    try:
        report = json.loads(content, parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError("a report is nested too deeply") from error
    if not isinstance(report, list) or len(report) != parts or not all(isinstance(p, str) for p in report[:-1]):
        raise ValueError(f"a report is not a list of {parts} parts that begins with its kind")
    return report


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # neither a database column nor an answer holds it
        raise ValueError(f"a report holds a number that is not finite ({text})")
    return number


def are_numbers(values: Iterable[object]) -> bool:
    return all(isinstance(value, int | float) for value in values)
