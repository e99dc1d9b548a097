"""Child processes that read damaged files: bounded in time and memory, replaced when they die or hang."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.mutations import mutated
from fuzz.seeds import IMAGES

READER = Path(__file__).parent / "reader.py"
SECONDS = 60.0
"""For one file, on a machine that is busy with other things; a file of some kilobytes takes milliseconds."""


@dataclass
class Tally:
    """What became of the cases. failures: (case, seed, how it was damaged, what happened)."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str, str]] = field(default_factory=list)

    def row(self) -> dict[str, int]:
        """For the release table."""
        cases = sum(self.outcomes.values())
        bad = {kind: self.outcomes[kind] for kind in ("hang", "crash", "traceback")}
        return {"cases": cases, "survived": cases - sum(bad.values()), "lost": 0, **bad}


class Reader:
    """One child; started when it is needed."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, path: Path) -> tuple[str, str]:
        """(outcome, detail) of reading a file: read, refused, traceback, hang or crash."""
        child = self._child or self._started()
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(os.fsencode(path) + b"\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], SECONDS)
        line = child.stdout.readline() if ready else b""
        if line:
            answer = json.loads(line)
            return answer["outcome"], answer["detail"]
        if not ready:
            child.kill()
        code = child.wait()
        self._child = None
        return ("hang", f"no answer in {SECONDS:.0f} s") if not ready else ("crash", f"exit code {code}")

    def close(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            self._child.wait(timeout=30)

    def _started(self) -> subprocess.Popen[bytes]:
        self._child = subprocess.Popen(
            [sys.executable, str(READER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        )
        return self._child


def run_cases(seeds: Mapping[str, bytes], cases: Iterable[int], place: Path, *, keep: Path | None = None) -> Tally:
    """Damage and read every case. keep: folder for the files that failed, to be put into the corpus."""
    tally, reader = Tally(), Reader()
    for case in cases:
        name, how, data = mutated(seeds, case)
        path = place / (f"case{Path(name).suffix}" if name != IMAGES else IMAGES)
        if name == IMAGES:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            for index in range(3):
                (path / f"{index}.png").write_bytes(seeds[IMAGES] if index != 1 else data)
        else:
            path.write_bytes(data)
        outcome, detail = reader.ask(path)
        tally.outcomes[outcome] += 1
        if outcome in ("hang", "crash", "traceback"):
            tally.failures.append((case, name, how, detail))
            if keep is not None:
                keep.mkdir(exist_ok=True)
                (keep / f"{case}-{outcome}-{name}").write_bytes(data)
    reader.close()
    return tally
