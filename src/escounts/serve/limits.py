"""Limits on requests: how many are answered at a time, and how large and how slow one may be.

uvicorn closes a connection that is silent after an answer, but waits for ever for the end of a first head; here both
are closed after `request_seconds`. All else is a middleware: bodies are checked as they arrive, answers must be
read, and past `max_connections` requests a new one is refused.
"""

from __future__ import annotations

import asyncio
import time
from types import FrameType

import h11
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


class Unread(Exception):
    """The client does not read its answer."""


class RequestLimits:
    """ASGI middleware: 429 where too many requests are being answered, 413 for a body that is too large, 408 for one
    that stalls or trickles; an answer that nobody reads is broken off.

    Uploads are measured against `max_upload` where they are written; here only their pace is watched.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._open >= self._settings.max_connections:
            detail = f"{self._open} requests are being answered already; try again later"
            headers = {"retry-after": "5", "connection": "close"}
            await JSONResponse({"detail": detail}, 429, headers=headers)(scope, receive, send)
            return
        limit = self._limit(scope)
        stated = Headers(scope=scope).get("content-length", "")
        if limit is not None and stated.isascii() and stated.isdigit() and int(stated) > limit:
            await JSONResponse({"detail": _too_large(limit)}, 413)(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, self._watched(receive, limit), self._read(send))
        except Unread:
            pass  # uvicorn closes a connection whose answer is not whole
        finally:
            self._open -= 1

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

    def _read(self, send: Send) -> Send:
        """`send`, which waits until the client has read what came before; Unread where it does not."""

        async def read(message: Message) -> None:
            try:
                await asyncio.wait_for(send(message), self._settings.request_seconds)
            except (TimeoutError, asyncio.TimeoutError) as error:
                raise Unread from error

        return read


def _too_large(limit: int) -> str:
    size = f"{limit / MEBIBYTE:.0f} MiB" if limit >= MEBIBYTE else f"{limit / 1024:.0f} KiB"
    return f"the request is larger than the {size} this server takes here"


def _too_slow(what: str) -> HTTPException:
    return HTTPException(408, f"the request came too slowly: {what}; send it again", headers={"connection": "close"})


class PatientProtocol(H11Protocol):
    """Closes a connection on which no head of a request is whole in time. h11 bounds the length of a head, which
    httptools, uvicorn's other choice, does not."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = asyncio.get_running_loop().call_later(self.timeout_keep_alive, transport.close)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # what follows an answered request is not HTTP
            self.transport.abort()
        if self.cycle is not None:
            self._late.cancel()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if self.cycle is not None:  # the head was well formed, the body is not: nothing more can be answered
            self.cycle.disconnected = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """uvicorn with the limits of the settings. Ends event streams and live counts first, so that Ctrl-C does not wait
    for open pages."""

    def __init__(self, app: FastAPI, settings: Settings, *, patience: int = 3) -> None:
        self._service = app.state.service
        config = uvicorn.Config(
            app,
            log_level="warning",
            server_header=False,
            ws="none",
            http=PatientProtocol,
            timeout_keep_alive=settings.request_seconds,  # type: ignore[arg-type]  # the event loop takes parts of one
            timeout_graceful_shutdown=patience,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.hub.close()
        self._service.live.stop()
        super().handle_exit(sig, frame)
