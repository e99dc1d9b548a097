"""A child's line with nobody at either end: what a child says and hears, without a process."""

from __future__ import annotations

import os
import pickle
import select
from io import FileIO
from typing import Any

from escounts.system.processes import Line, _read_message, _write_message, parsed_report


class Parent:
    """The other end of a line."""

    def __init__(self, commands: int, reports: int) -> None:
        self._commands, self._reports = FileIO(commands, "wb"), FileIO(reports, "rb")

    def send(self, message: object) -> None:
        _write_message(self._commands, pickle.dumps(message))

    def take(self, parts: int) -> list[Any]:
        return parsed_report(_read_message(self._reports), parts)

    def poll(self, seconds: float = 0.0) -> bool:
        """Whether something has been reported, or is within so many seconds."""
        return bool(select.select([self._reports], [], [], seconds)[0])

    def close(self) -> None:
        self._commands.close()
        self._reports.close()


def line() -> tuple[Parent, Line]:
    """Both ends."""
    hears, says = os.pipe()
    read, reports = os.pipe()
    return Parent(says, read), Line(FileIO(hears, "rb"), FileIO(reports, "wb"))
