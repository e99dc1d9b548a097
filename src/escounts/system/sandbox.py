"""A process that opens other people's videos, confined: no network, no new processes, files written in few places.

Landlock (which files may be written) and seccomp (which system calls are answered) are Linux's own; both only take
away, and nothing in the process can give it back. Memory and time are bounded by whoever starts the process.

What it tells the process that started it is JSON, never a pickle: unpickling runs whatever the writer likes, and the
writer has opened other people's videos. For the same reason a thread of its own waits for each process's reports, and
nobody else.
"""

from __future__ import annotations

import errno
import json
import math
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from escounts.system.extras import install_command

CLONE_THREAD = 0x00010000
NETWORK = ("socket", "io_uring_setup")
"""io_uring would open sockets past any filter of system calls."""
PROCESSES = ("fork", "vfork", "execve", "execveat", "ptrace", "process_vm_writev")
SIGNALS = ("kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
REACHING = (
    "pidfd_getfd",
    "process_vm_readv",
    "perf_event_open",
    "bpf",
    "unshare",
    "setns",
    "mount",
    "open_by_handle_at",
)
"""Into other processes, whose sockets can be had for a number, or past the rules of files."""
DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd", "dxg")
"""What may be written to in /dev: nothing that holds, and GPUs. Disks and terminals are files there, too."""


def confine(writable: Sequence[Path]) -> list[str]:
    """Confine this process and every thread that it starts from now on; before threads are started and files opened.

    writable: the only folders in which files may be made, changed or removed; temporary files go to the first one.
    Returns what could not be confined and why, in words; nothing of it where all is.
    """
    missing = missing_protections()
    if writable:
        tempfile.tempdir = str(writable[0])
    if "files" not in missing:
        _confine_files(writable)
    if "network" not in missing:
        _confine_calls()
    return [f"{what}: {why}" for what, why in missing.items()]


def missing_protections() -> dict[str, str]:
    """What cannot be confined on this machine ("files", "network") → why, and what to do about it."""
    if sys.platform != "linux":
        return dict.fromkeys(("files", "network"), f"{sys.platform} has neither Landlock nor seccomp")
    missing = {}
    try:
        import landlock  # noqa: PLC0415 - optional: of the extra `serve`

        if landlock.landlock_abi_version() < 3:
            missing["files"] = (
                f"Landlock of this kernel is too old ({os.uname().release}); 6.2 or later has all of it"
            )
    except ImportError:
        missing["files"] = f"the package landlock is not installed: {install_command('serve')}"
    except OSError as error:
        missing["files"] = f"this kernel has no Landlock, or it is switched off ({error.strerror})"
    try:
        import pyseccomp  # noqa: F401, PLC0415 - optional: of the extra `serve`, and wants the system's libseccomp
    except ImportError:
        missing["network"] = f"pyseccomp or the system's libseccomp is not installed: {install_command('serve')}"
    except (OSError, RuntimeError) as error:
        missing["network"] = f"libseccomp cannot be used: {error}"
    return missing


def _confine_files(writable: Sequence[Path]) -> None:
    import landlock  # noqa: PLC0415 - optional: of the extra `serve`

    access = landlock.FSAccess
    reading = access.READ_FILE | access.READ_DIR | access.EXECUTE | access.IOCTL_DEV
    rules = landlock.Ruleset(restrict_rules=access.all() & ~reading)
    for folder in writable:
        folder.mkdir(parents=True, exist_ok=True)
        rules.allow(str(folder))
    devices = [str(path) for name in DEVICES for path in Path("/dev").glob(name)]
    rules.allow(*devices, rules=access.WRITE_FILE)
    rules.apply()


def _confine_calls() -> None:
    import pyseccomp  # noqa: PLC0415 - optional: of the extra `serve`

    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for call in (*NETWORK, *PROCESSES, *SIGNALS, *REACHING):
        rules.add_rule(refuse, call)
    # Threads are made by clone, too; what clone3 asks for cannot be seen, and the C library goes back to clone.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    # A process signals itself when it aborts, and its own threads: nobody else.
    rules.add_rule(refuse, "tgkill", pyseccomp.Arg(0, pyseccomp.NE, os.getpid()))
    # Limits are set for oneself: a limit of no processor time ends whoever it is set for.
    rules.add_rule(refuse, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
    rules.load()


MAX_REPORT = 256 * 2**20
"""Bytes; the document of the longest video that a server takes is a few MiB."""
UNFINISHED_SECONDS = 30.0
"""For one report, from its first byte to its last."""
WAITING = 2
"""Reports that are kept until somebody takes them, each as large as it may be; who sends more has to wait."""


def send_report(connection: Connection, *parts: object) -> None:
    """One report to the server. parts: the kind first, then JSON values; tuples arrive as lists."""
    connection.send_bytes(json.dumps(parts).encode())


def read_report(connection: Connection, length: int) -> list[Any]:
    """The next report, of so many parts, all but the last of them text; numbers in it are finite.

    EOFError or OSError where the process is gone, ValueError where what it wrote is not a report.
    """
    try:
        parts = json.loads(connection.recv_bytes(MAX_REPORT), parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError("a report is nested too deeply") from error
    if not isinstance(parts, list) or len(parts) != length or not all(isinstance(part, str) for part in parts[:-1]):
        raise ValueError(f"a report is not a list of {length} parts that begins with its kind")
    return parts


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # neither a database column nor an answer holds it
        raise ValueError(f"a report holds a number that is not finite ({text})")
    return number


def are_numbers(values: Iterable[object]) -> bool:
    return all(isinstance(value, int | float) for value in values)


class Reports:
    """The reports of one process. told: called, in a thread of theirs, whenever there is something to take."""

    def __init__(self, connection: Connection, length: int, *, told: Callable[[], None] = lambda: None) -> None:
        self._connection, self._length, self._told = connection, length, told
        self._arrived: queue.Queue[list[Any] | Exception] = queue.Queue(WAITING)
        self._begun: float | None = None
        self._over: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="reports", daemon=True)
        self._thread.start()

    def take(self, seconds: float = 0.0) -> list[Any] | None:
        """The next report, waited for so long; None where none has come.

        Raises what `read_report` raises, again and again once all before it are taken, and ValueError where a report
        was begun and does not end.
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

    def close(self) -> None:
        """Close the pipe of a process that has ended."""
        self._closed = True
        while self._thread.is_alive() and not self._arrived.empty():
            self._arrived.get()  # it may be waiting to put one there
        self._thread.join(2)
        if not self._thread.is_alive():  # else a child of the process holds the pipe, and the thread must keep it
            self._connection.close()

    def _read(self) -> None:
        try:
            while not self._closed:
                self._connection.poll(None)
                self._begun = time.monotonic()
                report = read_report(self._connection, self._length)
                self._begun = None
                self._arrived.put(report)
                self._told()
        except Exception as error:  # it is gone, or what it wrote is not a report
            self._begun = None
            self._arrived.put(error)
            self._told()
