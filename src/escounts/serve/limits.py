"""Limits on requests: how many connections the server holds, and how large and how slow a request may be.

uvicorn closes a connection that is silent after an answer, but waits for ever for a first request. Here such a
connection is closed after a while (408), and gives its place to a new one when there are too many; so does one whose
answer nobody reads (429 when every place is taken by a request that is being answered). Bodies are checked as they
arrive.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from escounts.serve.settings import MEBIBYTE, Settings

UPLOAD = ("POST", "/api/videos")
SESSION_PATH = "/api/session"
SESSION_BYTES = 16 * 1024
LOWEST_RATE = 1024
"""Bytes per second that a body must bring on average, so that one that trickles does not hold its place."""


class BodyLimits:
    """ASGI middleware: 413 for a body that is too large, 408 for one that stalls or trickles.

    Uploads are measured against `max_upload` where they are written; here only their pace is watched.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope)
        stated = Headers(scope=scope).get("content-length", "")
        if limit is not None and stated.isascii() and stated.isdigit() and int(stated) > limit:
            await JSONResponse({"detail": _too_large(limit)}, 413)(scope, receive, send)
            return
        await self._app(scope, self._watched(receive, limit), send)

    def _limit(self, scope: Scope) -> int | None:
        if (scope["method"], scope["path"]) == UPLOAD:
            return None
        return SESSION_BYTES if scope["path"] == SESSION_PATH else self._settings.max_body

    def _watched(self, receive: Receive, limit: int | None) -> Receive:
        """`receive` until the body is whole; after that (an event stream waits for the end there) as it was."""
        patience = self._settings.request_seconds
        began = time.monotonic()
        size = 0
        whole = False

        async def watched() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), patience)
            except (TimeoutError, asyncio.TimeoutError) as error:
                raise _too_slow(f"nothing came for {patience:g} s") from error
            if message["type"] != "http.request":
                return message
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if limit is not None and size > limit:
                raise HTTPException(413, _too_large(limit))
            if not whole and size < LOWEST_RATE * (time.monotonic() - began - patience):
                raise _too_slow(f"less than {LOWEST_RATE} bytes per second came")
            return message

        return watched


def _too_large(limit: int) -> str:
    size = f"{limit / MEBIBYTE:.0f} MiB" if limit >= MEBIBYTE else f"{limit / 1024:.0f} KiB"
    return f"the request is larger than the {size} this server takes here"


def _too_slow(what: str) -> HTTPException:
    return HTTPException(408, f"the request came too slowly: {what}; send it again", headers={"connection": "close"})


PROTOCOL: Any = H11Protocol
"""httptools, which uvicorn would take where it is installed, reads a head of any length into memory."""
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

    class LimitedProtocol(PROTOCOL):  # type: ignore[misc]
        opened = 0.0
        deadline: asyncio.TimerHandle | None = None
        unread: float | None = None
        """Since when the other end takes nothing more of its answer."""

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

        def pause_writing(self) -> None:
            super().pause_writing()
            self.unread = self.loop.time()

        def resume_writing(self) -> None:
            super().resume_writing()
            self.unread = None

        def send_400_response(self, msg: str) -> None:
            """For what is not HTTP. A request that had begun is answered once: two answers would be a traceback."""
            answered = self.cycle is not None and self.cycle.response_started
            if self.cycle is not None:
                self.cycle.disconnected = True
            if answered:
                self.transport.close()
            else:
                super().send_400_response(msg)

        def _make_room(self) -> None:
            """Close the idle connection that has waited longest, before all one that never asked for anything; where
            none is idle, the one whose answer nobody has read for longest: a browser whose video was paused asks
            again for the rest."""
            others = [other for other in self.connections if other is not self]
            idle = [other for other in others if other.idle]
            long_ago = self.loop.time() - seconds
            unread = [other for other in others if other.unread is not None and other.unread <= long_ago]
            if idle:
                oldest = min(idle, key=lambda other: (other.cycle is not None, other.opened))
            elif unread:
                oldest = min(unread, key=lambda other: other.unread)
            else:
                self._refuse(429, "Too Many Requests", f"{most} connections are open already; try again later")
                return
            oldest.transport.abort()
            self.connections.discard(oldest)

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
