"""Live sessions: one process each, started when a page opens its camera and ended when nothing more comes."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import secrets
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from escounts.errors import EscountsError
from escounts.sandbox import Reports
from escounts.serve.live_worker import LiveOptions, run
from escounts.serve.settings import Settings

State = Literal["starting", "ready", "counting", "ended", "failed"]
IDLE, UNUSED = 20.0, 120.0
"""Seconds without frames after which a session is ended; and before the first ones, while somebody gets in place."""
KEPT = 8
"""Sessions that are over and can still be asked about."""
LAST_SECONDS = 15.0
"""For the last repetitions, once a session is ended."""

log = logging.getLogger(__name__)


class LiveRefused(EscountsError):
    """A session that cannot begin, or cannot take what was sent. status: the HTTP status that says so."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status


@dataclass(eq=False)
class LiveSession:
    """One session as the server sees it. known: what its process reported last."""

    id: str
    client: str
    process: BaseProcess
    connection: Connection
    began: float
    heard: float
    state: State = "starting"
    error: str | None = None
    known: dict[str, Any] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def view(self) -> dict[str, Any]:
        """What a client is told."""
        return {**self.known, "id": self.id, "state": self.state, "error": self.error}

    def send(self, command: str, argument: object) -> None:
        """To the process; one at a time, and never after its end."""
        if self.state in ("ended", "failed"):
            raise LiveRefused(self.error or "this live count has ended; begin another")
        if self.state == "starting":
            raise LiveRefused("the model is still being loaded; wait until `state` is ready")
        if not self.sending.acquire(blocking=False):
            raise LiveRefused("the frames before these are still being taken; send one request at a time")
        try:
            self.connection.send((command, argument))
        except OSError as error:
            raise LiveRefused("the process of this live count is gone; begin another") from error
        finally:
            self.sending.release()

    def end(self, state: State, error: str | None = None) -> None:
        if self.state not in ("ended", "failed"):
            self.state, self.error = state, error
        self.process.kill()
        self.over.set()


class LiveSessions:
    """Starts, feeds and ends sessions. May be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}

    @property
    def running(self) -> int:
        with self._lock:
            return sum(not session.over.is_set() for session in self._sessions.values())

    def begin(self, client: str, *, model: str | None, assume_repeats: bool) -> LiveSession:
        """A new session for a client, which may have one at a time. model: its name, None for the server's own."""
        with self._lock:
            active = [session for session in self._sessions.values() if not session.over.is_set()]
            if any(session.client == client for session in active):
                raise LiveRefused("a live count from this address is running already; end it first")
            if len(active) >= self._settings.max_live:
                raise LiveRefused(f"{len(active)} live counts are running already; try again later", 429)
            for done in [key for key, session in self._sessions.items() if session.over.is_set()][:-KEPT]:
                del self._sessions[done]
            session = self._start(client, model or self._settings.model, assume_repeats)
            self._sessions[session.id] = session
        threading.Thread(target=self._follow, args=(session,), name="live", daemon=True).start()
        return session

    def find(self, session_id: str) -> LiveSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise LiveRefused("there is no such live count; it may have ended long ago", 404)
        return session

    def take(self, session_id: str, frames: list[tuple[float, bytes]]) -> LiveSession:
        """Frames with their time in seconds, as JPEG; they are counted meanwhile, not waited for."""
        session = self.find(session_id)
        session.heard = time.monotonic()
        session.send("frames", frames)
        if session.state == "ready":
            session.state, session.began = "counting", session.heard
        return session

    def mark(self, session_id: str, start: float, end: float) -> LiveSession:
        """One repetition to look for, from now on."""
        session = self.find(session_id)
        session.send("mark", (start, end))
        return session

    def end(self, session_id: str) -> LiveSession:
        """No more frames: wait for the last repetitions."""
        session = self.find(session_id)
        if session.state == "counting":
            with contextlib.suppress(LiveRefused):
                session.send("end", None)
                session.over.wait(LAST_SECONDS)
        session.end("ended")
        return session

    def stop(self) -> None:
        """The server stops."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.end("ended", "the server was stopped")

    def _start(self, client: str, model: str, assume_repeats: bool) -> LiveSession:
        settings = self._settings
        options = LiveOptions(
            model=model,
            device=settings.devices[0] if settings.devices else "auto",
            memory=settings.worker_memory,
            threads=settings.worker_threads,
            scratch=str(settings.renders),
            assume_repeats=assume_repeats,
        )
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=run, args=(theirs, options), name="escounts-live", daemon=True)
        process.start()
        theirs.close()
        now = time.monotonic()
        return LiveSession(secrets.token_hex(16), client, process, ours, began=now, heard=now)

    def _follow(self, session: LiveSession) -> None:
        """Read what the process reports until it ends, or has had its time."""
        reports = Reports(session.connection, 2)
        try:
            while not session.over.is_set():
                report = reports.take(0.5)
                if report is not None:
                    self._hear(session, *report)
                reason = self._too_long(session)
                if reason is not None:
                    session.end("ended", reason)
        except (EOFError, OSError):
            pass  # it is gone
        except ValueError as error:  # forged: the process is no longer ours
            log.warning("a live count is ended: %s", error)
        session.end("failed", "its process ended unexpectedly; begin another")
        session.process.join(5)
        with session.sending:
            reports.close()

    @staticmethod
    def _hear(session: LiveSession, kind: str, value: Any) -> None:
        if kind == "ready" and session.state == "starting":
            session.state, session.heard = "ready", time.monotonic()
        elif kind == "failed":
            session.end("failed", str(value))
        else:
            if not isinstance(value, dict):
                raise ValueError(f"what is known of a live count is not a {type(value).__name__}")
            session.known = value
            if kind == "ended":
                session.end("ended")

    def _too_long(self, session: LiveSession) -> str | None:
        """Why a session is ended by the server; None: it is not."""
        now = time.monotonic()
        patience = IDLE if session.state == "counting" else UNUSED
        if session.state == "starting" and now - session.began > UNUSED:
            return f"the model was not loaded within {UNUSED:g} s; try again when the machine is less busy"
        if session.state != "starting" and now - session.heard > patience:
            return f"no frames came for {patience:g} s"
        if session.state == "counting" and now - session.began > self._settings.live_seconds:
            return f"a live count may last {self._settings.live_seconds:g} s on this server"
        return None
