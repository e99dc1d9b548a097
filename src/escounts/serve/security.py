"""Who may ask for what, how much of it and how slowly: host names, origins, the token, limits on requests, and the
headers every answer carries.

A service on loopback trusts its machine but not the pages open in its browser: a foreign page is kept out by
the Host header (DNS rebinding), by Origin and Sec-Fetch-Site, and by a header that forms cannot send.

uvicorn closes a connection that is silent after an answer, but waits for ever for the end of a first head; here both
are closed after `request_seconds`. Bodies are checked as they arrive, answers must be read, and past
`max_connections` requests a new one is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import FrameType
from urllib.parse import urlsplit

import h11
import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from escounts.serve.settings import MEBIBYTE, Settings

GUARD_HEADER = "x-escounts"
COOKIE = "escounts_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/api/session", "/healthz"})
GUESS_SECONDS = 60.0
ADDRESSES_REMEMBERED = 1000
UPLOAD = ("POST", "/api/videos")
SESSION_PATH = "/api/session"
SESSION_BYTES = 16 * 1024
LOWEST_RATE = 1024
"""Bytes per second that a body must bring on average, so that one that trickles does not hold its place."""

HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",  # the browser asks each time, so that an upgrade of the page shows at once
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "media-src 'self' blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}


def session_value(token: str) -> str:
    """What the cookie holds: proof of the token, not the token."""
    return hmac.new(token.encode(), b"escounts session", hashlib.sha256).hexdigest()


class GuessLimit:
    """Wrong tokens by client address within a minute; past `most` of them the address is refused.

    The same wrong one again counts once: a page that was opened before the server got a new token keeps sending
    its old cookie. Past the limit right ones are refused too, or guessing could go on by what comes through.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._guesses: OrderedDict[str, dict[bytes, float]] = OrderedDict()

    def note(self, address: str, guess: str) -> None:
        """Remember a wrong token."""
        digest = hashlib.sha256(guess.encode("utf-8", "replace")).digest()
        with self._lock:
            guesses = self._guesses.setdefault(_network(address), {})
            self._guesses.move_to_end(_network(address))
            guesses.pop(digest, None)
            guesses[digest] = time.monotonic()
            if len(guesses) > self._most:
                del guesses[next(iter(guesses))]
            if len(self._guesses) > ADDRESSES_REMEMBERED:
                self._guesses.popitem(last=False)

    def seconds_left(self, address: str) -> int:
        """How long an address has to wait before its tokens are looked at again; 0: not at all."""
        now = time.monotonic()
        with self._lock:
            guesses = self._guesses.get(_network(address), {})
            recent = [moment for moment in guesses.values() if now - moment < GUESS_SECONDS]
        return 0 if len(recent) < self._most else math.ceil(recent[0] + GUESS_SECONDS - now)

    def admit(self, address: str, shown: Sequence[tuple[str, str]], *, refusal: str) -> None:
        """Let in who shows a token. shown: what was given, and what it should be. HTTPException: who does not."""
        wait = self.seconds_left(address) if shown else 0
        if wait:
            detail = f"too many wrong tokens from this address; try again in {wait} s"
            raise HTTPException(429, detail, headers={"retry-after": str(wait)})
        if any(hmac.compare_digest(given.encode("utf-8", "replace"), right.encode()) for given, right in shown):
            return
        for given, _ in shown:
            self.note(address, given)
        raise HTTPException(401, refusal, headers={"www-authenticate": "Bearer"})


class Unread(Exception):
    """The client does not read its answer."""


class Guard:
    """ASGI middleware: refuses before any handler runs, watches how a request comes and its answer goes, and puts the
    headers on every answer.

    429 where too many requests are being answered, 413 for a body that is too large, 408 for one that stalls or
    trickles; an answer that nobody reads is broken off. Uploads are measured against `max_upload` where they are
    written; here only their pace is watched.
    """

    def __init__(self, app: ASGIApp, settings: Settings, guesses: GuessLimit) -> None:
        self._app = app
        self._settings = settings
        self._guesses = guesses
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        limit = self._limit(scope)
        try:
            self._check(HTTPConnection(scope), scope["method"])
            self._check_room(Headers(scope=scope).get("content-length", ""), limit)
        except HTTPException as refused:
            answer = JSONResponse({"detail": refused.detail}, refused.status_code, headers=refused.headers)
            await answer(scope, receive, send_guarded)
            return
        self._open += 1
        try:
            await self._app(scope, self._watched(receive, limit), self._read(send_guarded))
        except Unread:
            pass  # uvicorn closes a connection whose answer is not whole
        finally:
            self._open -= 1

    def _check(self, asked: HTTPConnection, method: str) -> None:
        """HTTPException for a request that is not let in."""
        headers, path = asked.headers, asked.scope["path"]
        host = headers.get("host", "")
        if self._settings.loopback and _host_name(host) not in LOOPBACK_NAMES:
            raise HTTPException(421, "this service answers to localhost only")
        guarded = path.startswith("/api/") or path == "/metrics"
        if guarded and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise HTTPException(403, "requests from other sites are refused")
        if method not in SAFE_METHODS:
            if headers.get("origin") not in (None, f"http://{host}", f"https://{host}"):
                raise HTTPException(403, "requests from other sites are refused")
            if GUARD_HEADER not in headers:
                raise HTTPException(403, "send the header X-Escounts: 1 with requests that change something")
        token = self._settings.token
        if guarded and token is not None and path not in OPEN_PATHS:
            refusal = "a token is needed: Authorization: Bearer TOKEN, or open the address that was printed"
            self._guesses.admit(client_address(asked), _credentials(asked, token), refusal=refusal)

    def _check_room(self, stated: str, limit: int | None) -> None:
        """HTTPException where too many are being answered, or the body is stated to be longer than `limit`."""
        if self._open >= self._settings.max_connections:
            detail = f"{self._open} requests are being answered already; try again later"
            raise HTTPException(429, detail, headers={"retry-after": "5", "connection": "close"})
        if limit is not None and stated.isascii() and stated.isdigit() and int(stated) > limit:
            raise HTTPException(413, _too_large(limit))

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


def _credentials(asked: HTTPConnection, token: str) -> list[tuple[str, str]]:
    """What the client shows by header and by cookie, each with what it should be."""
    scheme, _, given = asked.headers.get("authorization", "").partition(" ")
    bearer = given.strip() if scheme.lower() == "bearer" else ""
    shown = [(bearer, token), (asked.cookies.get(COOKIE, ""), session_value(token))]
    return [(given, right) for given, right in shown if given]


def client_address(asked: HTTPConnection) -> str:
    """The address at the other end of a connection; empty for one that has none."""
    return asked.client.host if asked.client is not None else ""


def _network(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 one: a guesser has all of its addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _host_name(host: str) -> str:
    """The name in a Host header without port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


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
