"""Bodies of requests: how large one may be and how slowly it may come, checked as it arrives."""

from __future__ import annotations

import asyncio
import time

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
