"""What a confined process tells the server, as JSON.

Never as a pickle: unpickling runs whatever the writer likes, and the writer has opened other people's videos.
"""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

MAX_REPORT = 256 * 2**20
"""Bytes; the document of the longest video that a server takes is a few MiB."""


def send_report(connection: Connection, *parts: object) -> None:
    """One report to the server. parts: the kind first, then JSON values; tuples arrive as lists."""
    connection.send_bytes(json.dumps(parts).encode())


def read_report(connection: Connection, length: int) -> list[Any]:
    """The next report, of so many parts, all but the last of them text.

    EOFError or OSError where the process is gone, ValueError where what it wrote is not a report.
    """
    try:
        parts = json.loads(connection.recv_bytes(MAX_REPORT))
    except RecursionError as error:
        raise ValueError("a report is nested too deeply") from error
    if not isinstance(parts, list) or len(parts) != length or not all(isinstance(part, str) for part in parts[:-1]):
        raise ValueError(f"a report is not a list of {length} parts that begins with its kind")
    return parts
