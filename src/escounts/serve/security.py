"""Who may ask for what: host names, origins, the token, and the headers every answer carries.

A service on loopback trusts its machine but not the pages open in its browser: a foreign page is kept out by
the Host header (DNS rebinding), by Origin and Sec-Fetch-Site, and by a header that forms cannot send.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from escounts.serve.settings import Settings

GUARD_HEADER = "x-escounts"
COOKIE = "escounts_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/api/session", "/healthz"})

HEADERS: Mapping[str, str] = {
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


def token_matches(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


class Guard:
    """ASGI middleware: refuses before any handler runs, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

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

        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            status, detail = refusal
            extra = {"www-authenticate": "Bearer"} if status == 401 else {}
            response = JSONResponse({"detail": detail}, status, headers=extra)
            await response(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        path, method = scope["path"], scope["method"]
        host = headers.get("host", "")
        if self._settings.loopback and _host_name(host) not in LOOPBACK_NAMES:
            return 421, "this service answers to localhost only"
        guarded = path.startswith("/api/") or path == "/metrics"
        if guarded and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "requests from other sites are refused"
        if method not in SAFE_METHODS:
            origin = headers.get("origin")
            if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
                return 403, "requests from other sites are refused"
            if GUARD_HEADER not in headers:
                return 403, "send the header X-Escounts: 1 with requests that change something"
        if guarded and path not in OPEN_PATHS and not self._known(headers):
            return 401, "a token is needed: Authorization: Bearer TOKEN, or open the address that was printed"
        return None

    def _known(self, headers: Headers) -> bool:
        token = self._settings.token
        if token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token_matches(given.strip(), token):
            return True
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), session_value(token).encode())


def _host_name(host: str) -> str:
    """The name in a Host header without port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
