"""A run's folder: config, log, checkpoints. One process writes at a time; every file is whole or absent.

What a run and a figure were made by is kept with them: the commit of the code. Figures of other code are known
to be stale.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from filelock import BaseFileLock

from escounts import __version__
from escounts.errors import DataError
from escounts.system.atomic_files import atomic_file, keep_existing, lock_folder, remove_partials, write_text
from escounts.system.processes import run_program

PACKAGE = Path(__file__).resolve().parents[2]

TRAINING = (
    "counting/maps.py",
    "nn",
    "research/training/objective.py",
    "research/training/optimisation.py",
    "research/training/batches.py",
    "research/training/stored_tokens.py",
    "research/training/trainer.py",
)
"""What decides the weights a run ends with."""
PREDICTING = (
    "counter.py",
    "exemplars.py",
    "results.py",
    "counting",
    "nn",
    "video/decoding.py",
    "video/files.py",
    "research/training/predictions.py",
    "research/evaluation/evaluate.py",
    "research/evaluation/models.py",
)
"""What decides the counts of given weights."""


@lru_cache(maxsize=8)
def code_identity(places: tuple[str, ...] = (".",)) -> str:
    """The commit that last changed some files and folders of the package, and what is changed in them since; the
    version where the package is in no checkout."""

    def ask(*arguments: str) -> str:
        return run_program("git", "-C", str(PACKAGE), *arguments, "--", *places).stdout.strip()

    try:
        commit, changes = ask("log", "-1", "--format=%H"), ask("diff", "HEAD")
    except OSError:  # no git on this machine
        commit = ""
    if not commit:  # nor any of the package in whatever checkout it lies in
        return f"version {__version__}"
    return commit + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:16]}" if changes else "")


OWN_FILES = ("best.safetensors", "last.safetensors", "last.pt", "log.jsonl", "config.json")
"""What a run writes; where one of them lies in a folder that is no run's, it is somebody's."""
ABOUT = "run.json"
"""What a run folder says of its run."""


def reserve_run_folder(out: Path, about: Mapping[str, Any]) -> None:
    """Make `out` the folder of the run that `about` describes (JSON values); another run's is refused."""
    file, mine = out / ABOUT, json.loads(json.dumps(about))
    if file.exists():
        try:
            there = dict(json.loads(file.read_text()))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise DataError(
                f"{file} is damaged ({error}); delete it if {out} is this run's, or choose another --out"
            ) from None
        changed = [key for key in mine if not _holds(there.get(key), mine[key])]
        if changed:
            raise DataError(f"{out} holds another run (another {', another '.join(changed)}); choose another --out")
    else:
        keep_existing((out / name for name in OWN_FILES), f"no {ABOUT} says whose run it is of: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(mine, indent=1, sort_keys=True) + "\n")


def _holds(there: Any, mine: Any) -> bool:
    """Whether a run folder's values are these. It may hold more: settings that an earlier version had."""
    if isinstance(mine, dict) and isinstance(there, dict):
        return all(key in there and _holds(there[key], value) for key, value in mine.items())
    return bool(there == mine)


class RunFolder:
    """config.json, log.jsonl, last.pt (the state to resume from), TensorBoard events if it is installed."""

    def __init__(self, out: Path) -> None:
        self.path = out
        out.mkdir(parents=True, exist_ok=True)
        self._lock: BaseFileLock | None = None
        self._board: Any = None

    def __enter__(self) -> RunFolder:
        busy = DataError(f"{self.path} is in use by another run; choose another --out or wait for it")
        self._lock = lock_folder(self.path, busy)
        remove_partials(self.path)
        self._board = _tensorboard(self.path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()
        if self._lock is not None:
            self._lock.release()

    def log(self, step: int, figures: dict[str, float]) -> None:
        """One line of figures at a step, to log.jsonl and TensorBoard."""
        with open(self.path / "log.jsonl", "a") as file:
            file.write(json.dumps({"step": step, **figures}) + "\n")
        if self._board is not None:
            for name, value in figures.items():
                self._board.add_scalar(name, value, step)

    def forget_after(self, step: int) -> None:
        """Drop log lines past a step: a killed run logged them after its last checkpoint."""
        log = self.path / "log.jsonl"
        if log.exists():
            lines = [line for line in log.read_text(errors="replace").splitlines() if _step(line) <= step]
            write_text(log, "".join(line + "\n" for line in lines))

    def save_state(self, state: dict[str, Any]) -> None:
        """The state that resuming needs, written whole or not at all."""
        with atomic_file(self.path / "last.pt") as partial:
            torch.save(state, partial)

    def load_state(self) -> dict[str, Any] | None:
        """The last state, or None for a new run."""
        path = self.path / "last.pt"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, pickle.UnpicklingError) as error:
            reason = str(error).split("\n")[0][:120]
            raise DataError(f"{path} is damaged ({reason}); delete it to train from the beginning") from error
        return state


def _step(line: str) -> float:
    """The step of a line of the log; past every step for a line that was torn when its process was killed."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return math.inf


def _tensorboard(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - the extra [train]
    except ImportError:
        return None
    return SummaryWriter(str(path / "tensorboard"))
