"""Errors a person can act on. The command line prints them as one line, without a traceback."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

_BREAK = re.compile(r"[\t-\r\x1c-\x1f\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def one_line(text: str) -> str:
    """Text of others, a file's name, a cell of a table: one line, and no command to the terminal that shows it."""
    return without_controls(_BREAK.sub(" ", text))


def without_controls(text: str, keep: str = "") -> str:
    """Control characters but those of `keep` as JSON writes them; the rest as it is."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


class EscountsError(Exception):
    """Base of every error that is the input's fault, not the program's; always one line."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(one_line(value) if isinstance(value, str) else value for value in arguments))


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
        return one_line(str(error))
    if isinstance(error, MemoryError):
        return f"{about}not enough memory"
    ours = [
        step for step in traceback.extract_tb(error.__traceback__) if f"{os.sep}escounts{os.sep}" in step.filename
    ]
    where = f" in {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    text = one_line(" ".join(str(error).split()))
    return (
        f"{about}{type(error).__name__}{where}: {text}. This is a fault of escounts, not yours: please send this "
        "line, what `escounts doctor` prints and, if you may, the video to the maintainers; see CONTRIBUTING.md"
    )
