"""Files that are written whole or not at all, records that grow line by line, and folders that one process holds."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from escounts.errors import EscountsError, OutputError

PARTIAL = re.compile(r"\..{1,40}\.[0-9a-f]{8}\.partial", re.DOTALL)
"""How partial files are named here; those of other programs, a download's, are not ours to sweep."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """An empty file beside `path`, to write to, that takes its place when the block ends well.

    Its name ends in .partial, so a writer must be told the format. Whatever goes wrong, the partial file goes
    away and an older `path` stays as it was; an OSError (no space, no permission) becomes an OutputError that
    names the file. A process that is killed leaves the partial file behind: see `remove_partials`.
    """
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.partial")
    held: int | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = _held(partial)
        mode = partial.stat().st_mode
        yield partial
        if partial.stat().st_mode != mode:  # as any new file: some writers make theirs readable by the owner alone
            with suppress(PermissionError):  # a confined process changes no modes
                os.chmod(partial, mode)
        with open(partial, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if held is not None:
            os.close(held)


def _held(partial: Path) -> int:
    """A new file and a lock on it, which ends with this process: only what nobody holds is swept away."""
    while True:
        held = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if fcntl is None:
            return held
        fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held).st_nlink:
            return held
        os.close(held)  # swept away before it was locked


def _abandoned(partial: Path) -> bool:
    """Whether the process that made a partial file is gone; where files cannot be locked, nobody knows."""
    if fcntl is None:
        return True
    with open(partial, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        partial.unlink()  # while it is held: whoever has just made it sees that it is gone, and makes it anew
    return True


def keep_existing(paths: Iterable[Path], advice: str) -> None:
    """Raise OutputError where one of these is there already. advice: what to do then."""
    there = [str(path) for path in paths if os.path.lexists(path)]
    if there:
        raise OutputError(f"{', '.join(there)} is there already; {advice}")


def printable(text: str) -> str:
    """The text as UTF-8 can hold it: the bytes of a file's name that are none become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_text(path: Path, text: str) -> None:
    """A whole text file, UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """A whole file."""
    with atomic_file(path) as partial:
        partial.write_bytes(content)


def file_state(path: str | os.PathLike[str]) -> list[int]:
    """What tells a changed file from the same one: its size in bytes and its time of change in nanoseconds."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def append_json(path: Path, values: object) -> None:
    """One more line of a record; it begins a line of its own where the one before it broke off."""
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(values) + "\n")  # ASCII: a name need not be UTF-8


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a record, one a line, without lines that broke off in a crash; none where there is no file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, RecursionError):
            if isinstance(entry := json.loads(line), dict):
                yield entry


def remove_partials(folder: Path, *, older: float = 0.0) -> None:
    """Remove the partial files that killed processes left in a folder; what another process is writing stays, and so
    does what another program named.

    older: seconds since a file was last written to, for folders that several machines share.
    """
    for partial in folder.glob(".*.partial"):
        with suppress(OSError):
            if PARTIAL.fullmatch(partial.name) is None:
                continue
            if time.time() - partial.stat().st_mtime >= older and _abandoned(partial):
                partial.unlink(missing_ok=True)


def lock_folder(folder: Path, refusal: EscountsError) -> filelock.BaseFileLock:
    """Hold a folder for this process, until `.release()` or its end; raises `refusal` where another one holds it.

    On every platform: the file `lock` in the folder is locked, not merely there, so a killed process leaves it free.
    """
    lock = filelock.FileLock(folder / "lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise refusal from None
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written to: {error.strerror or error}") from error
    return lock
