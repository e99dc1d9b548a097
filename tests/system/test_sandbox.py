"""What a confined process can still do, and what it cannot: each attempt is an attack that succeeded once, or may."""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from movies import bouncing, write_movie

from escounts.system.processes import Child, Line
from escounts.system.sandbox import Sandbox, confine, missing_protections

pytestmark = pytest.mark.skipif(bool(missing_protections()), reason="this machine cannot confine a process")
SECONDS = 300.0
UNPRIVILEGED = ("process_vm_readv", "unshare", "setns", "mount", "perf_event_open", "bpf", "open_by_handle_at")
BY_NUMBER = ("shmget", "semget", "msgget", "keyctl", "add_key", "request_key", "mq_open", "userfaultfd", "chroot")
PARENTS = ("setpriority", "ioprio_set", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
"""Calls whose first or second argument names a process."""
TIOCSTI, FIOSETOWN = 0x5412, 0x8901
FILE_REQUESTS = {
    "set flags": 0x40086602, "set attributes": 0x401C5820, "set version": 0x40087602, "seal for good": 0x40806685,
    "freeze the disk": 0xC0045877, "trim the disk": 0xC0185879, "shut the disk down": 0x8004587D,
}  # fmt: skip
"""ioctl of an open file; tried of none at all, which the kernel says itself where nothing was refused."""


def system_call(name: str, *arguments: object) -> None:
    import pyseccomp

    number = pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def attempts(scratch: Path, elsewhere: Path, video: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    mine, other, parent = elsewhere / "mine.txt", str(elsewhere / "mine.txt").encode(), os.getppid()
    shown, way = os.open(video, os.O_RDONLY), scratch / "way"
    information = (ctypes.c_int * 32)(0, 0, -1)  # si_code: SI_QUEUE, as anybody may send it
    limits = (ctypes.c_ulong * 2)()

    yield "write in scratch", lambda: (scratch / "a.txt").write_text("x")
    yield "read in scratch", lambda: (scratch / "a.txt").read_text()
    yield "temporary file", lambda: tempfile.TemporaryFile().close()
    yield "read the video", video.read_bytes
    yield "read itself", lambda: Path("/proc/self/status").read_text()
    yield "nothing", lambda: Path("/dev/null").write_text("x")
    yield "own limits", lambda: system_call("prlimit64", 0, 0, None, limits)
    yield "signal to itself", lambda: system_call("tgkill", os.getpid(), os.getpid(), 0)

    yield "write elsewhere", lambda: (elsewhere / "b.txt").write_text("x")
    yield "overwrite", lambda: mine.write_text("changed")
    yield "truncate", lambda: os.truncate(mine, 0)
    yield "delete", mine.unlink
    yield "rename", lambda: mine.rename(scratch / "stolen.txt")
    yield "link", lambda: os.link(mine, scratch / "linked.txt")
    yield "make a disk", lambda: os.mknod(scratch / "disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    yield "make a set-user-id program", lambda: os.open(scratch / "u", os.O_CREAT | os.O_WRONLY, 0o4755)
    yield "make a set-group-id program", lambda: os.mknod(scratch / "g", 0o2755 | stat.S_IFREG)
    yield "a terminal", lambda: open("/dev/ptmx", "r+b", buffering=0).close()

    yield "read", mine.read_text
    way.symlink_to(mine)
    yield "read by a link", way.read_text
    yield "list", lambda: os.listdir(elsewhere)
    yield "list where it was started", lambda: os.listdir(".")
    yield "accounts", lambda: Path("/etc/passwd").read_text()
    yield "home", lambda: os.listdir(os.path.expanduser("~"))
    yield "processes", lambda: os.listdir("/proc")
    yield "parent's command line", lambda: Path(f"/proc/{parent}/cmdline").read_text()
    yield "parent's environment", lambda: Path(f"/proc/{parent}/environ").read_text()
    yield "parent's memory", lambda: open(f"/proc/{parent}/mem", "rb").close()

    yield "chmod", lambda: os.chmod(mine, 0o666)
    yield "chmod of what is open", lambda: os.chmod(shown, 0o666)
    yield "chown", lambda: os.chown(mine, os.getuid(), os.getgid())
    yield "utime", lambda: os.utime(mine)
    yield "setxattr", lambda: os.setxattr(mine, "user.mark", b"x")
    yield "setxattr of what is open", lambda: os.setxattr(shown, "user.mark", b"x")
    yield "removexattr", lambda: os.removexattr(mine, "user.mark")
    for name, arguments in {
        "fchmodat": (-100, other, 0o666),
        "utimensat": (-100, other, None, 0),
        "lsetxattr": (other, b"user.mark", b"x", 1, 0),
    }.items():
        yield name, partial(system_call, name, *arguments)
    for name, request in FILE_REQUESTS.items():
        yield name, partial(system_call, "ioctl", -1, request, None)

    yield "network", lambda: socket.create_connection(("127.0.0.1", 9), timeout=1)
    yield "name lookup", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    yield "unix socket", lambda: socket.socket(socket.AF_UNIX)
    yield "command", lambda: subprocess.run(["true"], check=True)
    yield "fork", os.fork
    yield "kill", lambda: os.kill(parent, 0)
    yield "tgkill", lambda: system_call("tgkill", parent, parent, 0)
    yield "rt_sigqueueinfo", lambda: system_call("rt_sigqueueinfo", parent, 0, information)
    yield "rt_tgsigqueueinfo", lambda: system_call("rt_tgsigqueueinfo", parent, parent, 0, information)
    yield "pidfd_send_signal", lambda: system_call("pidfd_send_signal", os.pidfd_open(parent), 0, None, 0)
    yield "signal by an owned pipe", lambda: fcntl.fcntl(shown, fcntl.F_SETOWN, parent)
    yield "signal by ioctl", lambda: fcntl.ioctl(shown, FIOSETOWN, array.array("i", [parent]))
    yield "type into a terminal", lambda: fcntl.ioctl(2, TIOCSTI, b"x")
    yield "limits of the parent", lambda: system_call("prlimit64", parent, 0, None, limits)
    yield "sockets of the parent", lambda: system_call("pidfd_getfd", os.pidfd_open(parent), 0, 0)
    for name in (*UNPRIVILEGED, *BY_NUMBER):
        yield name, partial(system_call, name, 0, 0, 0, 0, 0, 0)
    for name in PARENTS:
        yield name, partial(system_call, name, parent, parent, 0, 0)


ALLOWED = {"write in scratch", "read in scratch", "temporary file", "read the video", "read itself", "nothing"}
ALLOWED |= {"own limits", "signal to itself"}


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (
        OSError
    ) as error:  # of a link out of a folder that it may not change, Landlock says that it is another disk
        refused = error.errno in (errno.EPERM, errno.EACCES, errno.EXDEV)
        return "refused" if refused else str(error)
    except Exception as error:
        return str(error)
    return "done"


def attack(line: Line, scratch: Path, elsewhere: Path, video: Path) -> None:
    """In the confined process: tries everything, from a thread, too, and counts."""
    found = {name: outcome(attempt) for name, attempt in attempts(scratch, elsewhere, video)}
    line.report("tried", found)
    later: list[str] = []
    started = threading.Thread(target=lambda: later.append(outcome((elsewhere / "mine.txt").read_text)))
    started.start()
    started.join()
    line.report("in a thread", later[0])
    import escounts

    line.report("counted", escounts.count(video, model="lite", device="cpu").count)


def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A folder for the confined process, one with a file that is none of its business, and a video with 4 bounces."""
    scratch, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    return scratch, elsewhere, write_movie(tmp_path / "a.mp4", bouncing(4, 4.0))


def test_a_confined_process_counts_and_does_nothing_else(tmp_path: Path) -> None:
    scratch, elsewhere, video = places(tmp_path)
    before = (elsewhere / "mine.txt").stat()
    child = Child(attack, scratch, elsewhere, video, sandbox=Sandbox((str(video),), (str(scratch),)))
    try:
        tried, in_a_thread, counted = (child.take(SECONDS) for _ in range(3))
    finally:
        child.end()
    assert tried is not None and tried[0] == "tried"
    found: dict[str, str] = tried[1]
    assert {name for name, said in found.items() if said == "done"} == ALLOWED, found
    assert {said for name, said in found.items() if name not in ALLOWED} == {"refused"}, found
    assert in_a_thread == ["in a thread", "refused"] and counted == ["counted", 4]
    after = (elsewhere / "mine.txt").stat()
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
    assert (elsewhere / "mine.txt").read_text() == "mine" and not (elsewhere / "b.txt").exists()


def import_added(line: Line) -> None:
    import sandboxed_extra  # type: ignore[import-not-found]

    line.report("added", sandboxed_extra.VALUE)


def test_modules_are_found_where_a_pth_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an environment that borrows another one's packages; no worker could be started."""
    (tmp_path / "sandboxed_extra.py").write_text("VALUE = 3\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    child = Child(import_added, sandbox=Sandbox())
    try:
        assert child.take(SECONDS) == ["added", 3]
    finally:
        child.end()


def read_later(line: Line) -> None:
    receive = line.listen()
    for _ in range(2):
        receive()
        line.report("read", outcome(Path("/proc/self/statm").read_text))


@pytest.mark.skipif(not os.access("/proc/sys/vm/drop_caches", os.W_OK), reason="only root may drop caches")
def test_what_the_kernel_forgets_for_want_of_memory_stays_readable() -> None:
    child = Child(read_later, sandbox=Sandbox())
    try:
        child.send("first")
        first = child.take(SECONDS)
        Path("/proc/sys/vm/drop_caches").write_text("2")
        child.send("again")
        assert first == child.take(SECONDS) == ["read", "done"]
    finally:
        child.end()


def look_around(line: Line, *ports: int) -> None:
    tcp = outcome(lambda: socket.create_connection(("127.0.0.1", ports[0]), timeout=5).close())
    line.report("tcp", tcp)
    line.report("unix", outcome(lambda: socket.socket(socket.AF_UNIX)))
    line.report("packets", outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)))
    line.report("names", outcome(lambda: socket.getaddrinfo("localhost", 80)))


def test_a_process_that_may_use_the_network_reaches_no_service_of_the_machine_by_its_file() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = Child(look_around, server.getsockname()[1], sandbox=Sandbox(network=True))
        try:
            said = dict(child.take(SECONDS) or ["", ""] for _ in range(4))
        finally:
            child.end()
    assert said == {"tcp": "done", "unix": "refused", "packets": "refused", "names": "done"}


def test_a_process_that_has_threads_is_not_taken_for_confined() -> None:
    """Landlock would leave them free: numpy's thread could do everything."""
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait, daemon=True)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="a thread was started before"):
            confine(Sandbox())
    finally:
        waiting.set()
        thread.join()


def test_a_confined_process_begins_with_one_thread() -> None:
    """Else numpy, imported with the package, starts as many as there are cores."""
    child = Child(count_threads, sandbox=Sandbox())
    try:
        assert child.take(SECONDS) == ["threads", 1]
    finally:
        child.end()


def count_threads(line: Line) -> None:
    assert "numpy" in sys.modules
    line.report("threads", len(os.listdir("/proc/self/task")))
