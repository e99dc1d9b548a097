"""Who may ask for what: host names, origins, the token, and the headers every answer carries.

A service on loopback trusts its machine but not the pages open in its browser: a foreign page is kept out by
the Host header (DNS rebinding), by Origin and Sec-Fetch-Site, and by a header that forms cannot send.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from escounts.serve.settings import Settings

GUARD_HEADER = "x-escounts"
COOKIE = "escounts_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/api/session", "/healthz"})
GUESS_SECONDS = 60.0
ADDRESSES_REMEMBERED = 1000

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


class Guard:
    """ASGI middleware: refuses before any handler runs, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, settings: Settings, guesses: GuessLimit) -> None:
        self._app = app
        self._settings = settings
        self._guesses = guesses

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

        answer = self._app
        try:
            self._check(HTTPConnection(scope), scope["method"])
        except HTTPException as refused:
            answer = JSONResponse({"detail": refused.detail}, refused.status_code, headers=refused.headers)
        await answer(scope, receive, send_guarded)

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
