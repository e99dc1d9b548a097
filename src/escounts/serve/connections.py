"""How many connections the server holds, and how long one may take to say what it wants.

uvicorn closes a connection that is silent after an answer, but waits for ever for a first request. Here such a
connection is closed after a while (408), and gives its place to a new one when there are too many (429 when every
place is taken by a request that is being answered).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from escounts.serve.settings import Settings

OTHER_FILES = 128
"""Open files that are not connections: the database, uploads, workers' pipes."""


def server_config(app: FastAPI, settings: Settings, **options: Any) -> uvicorn.Config:
    """How uvicorn serves the application, with the limits of its settings."""
    return uvicorn.Config(
        app, log_level="warning", server_header=False, ws="none", http=limited_protocol(settings), **options
    )


def limited_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with a cap on connections and on the time until a request is whole."""
    most = min(settings.max_connections, _open_files_allowed())
    seconds = settings.request_seconds

    class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        opened = 0.0
        deadline: asyncio.TimerHandle | None = None

        @property
        def idle(self) -> bool:
            """Whether no request is being answered on this connection."""
            return self.cycle is None or bool(self.cycle.response_complete)

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.opened = self.loop.time()
            self._start_clock()
            if len(self.connections) > most:
                self._make_room()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.transport.is_closing():
                self._stop_clock()
            elif self.idle:
                self._start_clock()
            else:
                self._stop_clock()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_clock()
            super().connection_lost(exc)

        def _make_room(self) -> None:
            """Close the idle connection that has waited longest, before all one that never asked for anything."""
            others = [other for other in self.connections if other is not self and other.idle]
            if others:
                oldest = min(others, key=lambda other: (other.cycle is not None, other.opened))
                oldest.transport.abort()
                self.connections.discard(oldest)
            else:
                self._refuse(429, "Too Many Requests", f"{most} connections are open already; try again later")

        def _start_clock(self) -> None:
            if self.deadline is None:
                self.deadline = self.loop.call_later(seconds, self._out_of_time)

        def _stop_clock(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def _out_of_time(self) -> None:
            self.deadline = None
            if self.idle and not self.transport.is_closing():
                self._refuse(408, "Request Timeout", f"no whole request came within {seconds:g} s")

        def _refuse(self, status: int, phrase: str, detail: str) -> None:
            body = json.dumps({"detail": detail}).encode()
            head = (
                f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\nretry-after: 5\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    return LimitedProtocol


def _open_files_allowed() -> int:
    """Connections for which this process may have open files."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource  # noqa: PLC0415 - POSIX only

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - OTHER_FILES, 16)
