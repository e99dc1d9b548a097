"""Pieces of the release check side by side: each in a process of its own, some at a time, others alone.

Every piece has its own time limit, its own file of verdicts and its own record; whatever becomes of one is nothing to
the others. A piece that is killed leaves no record, and the next run does it again.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from release_rows import Row

FORK = multiprocessing.get_context("fork")
Run = Callable[[float, float, Path], list[Row]]
"""From the share of the cases, the limit in seconds and a file for verdicts to rows."""


@dataclass(frozen=True)
class Part:
    """pieces: what can run side by side. limit: seconds of each. alone: it measures time or memory, and runs after
    everything else with nothing beside it."""

    pieces: tuple[Run, ...]
    limit: float
    alone: bool = False


@dataclass(frozen=True)
class Piece:
    """One of a part's pieces, the files that it leaves, and of what."""

    part: str
    number: int
    of: Part
    place: Path
    code: str
    commit: str
    share: float

    @property
    def name(self) -> str:
        return f"{self.part}-{self.number + 1}" if len(self.of.pieces) > 1 else self.part

    @property
    def kept(self) -> Path:
        return self.place / f"{self.name}.json"

    @property
    def verdicts(self) -> Path:
        return self.place / f"{self.name}-{self.code}.jsonl"

    def record(self) -> dict[str, Any] | None:
        """What it left; None where it has not run on this code."""
        found = json.loads(self.kept.read_text()) if self.kept.is_file() else {}
        return found if found.get("code") == self.code else None

    def forget(self) -> None:
        self.kept.unlink(missing_ok=True)
        self.verdicts.unlink(missing_ok=True)

    def measure(self, lanes: int) -> None:
        """Run it, and write down what it found and what it cost. lanes: pieces that run at a time."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the one that started this, which ends it
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and what was started here ends with it
        if lanes > 1:  # as many threads as it has cores: more would wait for each other
            os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // lanes))
        began, busy, loads = time.time(), children_seconds(), [os.getloadavg()[0]]
        print(f"{self.name} …", flush=True)
        try:
            rows = self.of.pieces[self.number](self.share, self.of.limit, self.verdicts)
        except Exception as error:  # one piece that cannot run is a failed one, not the end of the others
            note = f"did not run: {type(error).__name__}: {error}"[:300]
            rows = [Row(self.name, 1, 0, note=note, failed=True)]
        loads += os.getloadavg()
        record = {
            "commit": self.commit,
            "code": self.code,
            "began": round(began),
            "seconds": round(time.time() - began),
            "processor_seconds": round(children_seconds() - busy),
            "load": [round(min(loads), 1), round(max(loads), 1)],
            "lanes": lanes,
            "rows": [asdict(row) for row in rows],
        }
        partial = self.kept.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(self.kept)
        verdict = "" if all(row.good for row in rows) else ", FAILED"
        print(f"{self.name}: {record['seconds'] / 60:.1f} min{verdict}", flush=True)


def side_by_side(pieces: Sequence[Piece], lanes: int) -> None:
    """Run pieces, so many at a time in their order; after them, one by one, those that want to be alone."""
    _in_lanes([one for one in pieces if not one.of.alone], lanes)
    _in_lanes([one for one in pieces if one.of.alone], 1)


def _in_lanes(pieces: Sequence[Piece], lanes: int) -> None:
    waiting, running = deque(pieces), {}
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                piece = waiting.popleft()
                process = FORK.Process(target=piece.measure, args=(lanes,), name=piece.name)
                process.start()
                running[process.sentinel] = process
            for over in wait(list(running)):
                process = running.pop(over)  # type: ignore[arg-type]
                process.join()
                if process.exitcode:
                    print(f"{process.name}: ended with exit code {process.exitcode}, no record", flush=True)
    finally:  # Ctrl-C, SIGTERM: nothing goes on alone
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def children_seconds() -> float:
    """Processor time of everything that was started by this process and is over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def only_one(place: Path) -> Iterator[None]:
    """Refuses where another check, or a piece that a killed one left running, writes to the same folder."""
    with (place / "lock").open("a") as file:  # the pieces inherit it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another release check, or a piece of one that was killed, still runs in {place}: wait for it")
        yield
