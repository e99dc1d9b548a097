"""Errors a person can act on. The command line prints them as one line, without a traceback."""

from __future__ import annotations

import os
import traceback
from pathlib import Path


class EscountsError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class VideoError(EscountsError):
    """A video cannot be opened or decoded, or has nothing to count in it."""


class ExemplarError(EscountsError):
    """An exemplar is malformed, empty, or lies outside its video."""


class ModelError(EscountsError):
    """A model name is unknown, or its weights are missing, damaged or of another model."""


class DataError(EscountsError):
    """A dataset, a label file or a token store is missing, damaged or inconsistent."""


class OutputError(EscountsError):
    """A result cannot be written where it was asked for."""


def explained(error: Exception, about: str = "") -> str:
    """One line: what is wrong with the input, or that escounts itself is at fault and whom to tell.

    about: what comes first where the error does not name its file itself.
    """
    if isinstance(error, (EscountsError, OSError)) and str(error):
        return str(error)
    if isinstance(error, MemoryError):
        return f"{about}not enough memory"
    ours = [
        step for step in traceback.extract_tb(error.__traceback__) if f"{os.sep}escounts{os.sep}" in step.filename
    ]
    where = f" in {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    text = " ".join(str(error).split())
    return (
        f"{about}{type(error).__name__}{where}: {text}. This is a fault of escounts, not yours: please send this "
        "line, what `escounts doctor` prints and, if you may, the video to the maintainers; see CONTRIBUTING.md"
    )
