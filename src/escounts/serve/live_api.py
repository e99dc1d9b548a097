"""Counting a camera while it runs, over HTTP: begin, send frames and hear the count, end.

One process per session, started when a page opens its camera and ended when nothing more comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, Field

from escounts.serve.live_worker import run
from escounts.serve.schemas import GUARDED, RowId, Services, Span, Strict
from escounts.serve.security import client_address
from escounts.serve.settings import MEBIBYTE, Settings
from escounts.serve.training_api import other_model
from escounts.system.processes import Child

router = APIRouter(prefix="/api/live", tags=["live"])

HEAD = struct.Struct("<dI")
MOST_FRAMES, MOST_BYTES = 120, 4 * MEBIBYTE
"""In one request."""
FRAMES_BODY = {
    "requestBody": {
        "required": True,
        "description": "Frames one after the other: the time in seconds (float64), the number of bytes (uint32), "
        f"both little-endian, and a JPEG picture of so many bytes. At most {MOST_FRAMES} frames and 4 MiB.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
State = Literal["starting", "ready", "counting", "ended", "failed"]
ENDINGS: tuple[State, ...] = ("ended", "failed")
IDLE, UNUSED = 20.0, 120.0
"""Seconds without frames after which a session is ended; and before the first ones, while somebody gets in place."""
KEPT = 8
"""Sessions that are over and can still be asked about."""
LAST_SECONDS = 15.0
"""For the last repetitions, once a session is ended."""

log = logging.getLogger(__name__)


class LiveRequest(Strict):
    """A live count to begin."""

    model: Annotated[str, Field(max_length=80)] | None = Field(
        default=None, description="A name of GET /api/models; null for the server's own."
    )
    assume_repeats: bool = False


class Stretch(BaseModel):
    """From start to end, in seconds of the session."""

    start: float
    end: float


class LiveDensity(BaseModel):
    """The density map of the last 30 s, as it is estimated now: repetitions per cell of `step` seconds."""

    start: float = 0.0
    step: float = 0.1
    values: list[float] = []


class LiveCount(BaseModel):
    """A live count as it stands. time: how far it has been seen. open: share of the repetition that is going on."""

    id: str
    state: State = "starting"
    error: str | None = Field(default=None, description="Why it failed, or why the server ended it.")
    problem: str | None = Field(default=None, description="Why the newest exemplar was not taken.")
    time: float = 0.0
    count: int = Field(default=0, description="Never goes back, except when an exemplar is marked.")
    open: float = 0.0
    rate: float = Field(default=0.0, description="Repetitions per second, now.")
    confidence: float = 0.0
    dropped: int = Field(default=0, description="Frames that came too fast to be looked at.")
    repetitions: list[Stretch] = Field(default=[], description="Of the last 30 s.")
    gaps: list[Stretch] = Field(default=[], description="Where nothing was seen, in the last 30 s.")
    exemplars: list[Stretch] = []
    density: LiveDensity = LiveDensity()


@dataclass(eq=False)
class LiveSession:
    """One session as the server sees it. known: what its process reported last. Times on the monotonic clock."""

    known: LiveCount
    client: str
    process: Child
    began: float
    heard: float
    state: State = "starting"
    error: str | None = None
    over: threading.Event = field(default_factory=threading.Event)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def view(self) -> LiveCount:
        """What a client is told."""
        return self.known.model_copy(update={"state": self.state, "error": self.error})

    def send(self, command: str, argument: object) -> None:
        """To the process; one at a time, and never after its end."""
        if self.state in ENDINGS:
            raise HTTPException(409, self.error or "this live count has ended; begin another")
        if self.state == "starting":
            raise HTTPException(409, "the model is still being loaded; wait until `state` is ready")
        if not self.sending.acquire(blocking=False):
            raise HTTPException(409, "the frames before these are still being taken; send one request at a time")
        try:
            self.process.send((command, argument))
        except OSError as error:
            raise HTTPException(409, "the process of this live count is gone; begin another") from error
        finally:
            self.sending.release()

    def take(self, frames: list[tuple[float, bytes]]) -> LiveCount:
        """Frames with their time in seconds, as JPEG; they are counted meanwhile, not waited for."""
        self.heard = time.monotonic()
        self.send("frames", frames)
        if self.state == "ready":
            self.state, self.began = "counting", self.heard
        return self.view()

    def hear(self, kind: str, value: Any) -> None:
        """A report of the process; ValueError where it has no reason to send it, or it holds something else."""
        if kind == "ready" and self.state == "starting":
            self.state, self.heard = "ready", time.monotonic()
        elif kind == "failed":
            self.end("failed", str(value))
        else:
            if not isinstance(value, dict):
                raise ValueError(f"what is known of a live count is not a {type(value).__name__}")
            self.known = LiveCount.model_validate({**value, "id": self.known.id})
            if kind == "ended":
                self.end("ended")

    def end(self, state: State, error: str | None = None) -> None:
        if self.state not in ENDINGS:
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
                raise HTTPException(409, "a live count from this address is running already; end it first")
            if len(active) >= self._settings.max_live:
                raise HTTPException(429, f"{len(active)} live counts are running already; try again later")
            for done in [key for key, session in self._sessions.items() if session.over.is_set()][:-KEPT]:
                del self._sessions[done]
            session = self._start(client, self._settings.loadable(model or self._settings.model), assume_repeats)
            self._sessions[session.known.id] = session
        threading.Thread(target=self._follow, args=(session,), name="live", daemon=True).start()
        return session

    def find(self, session_id: str) -> LiveSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise HTTPException(404, "there is no such live count; it may have ended long ago")
        return session

    def stop(self) -> None:
        """The server stops."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.end("ended", "the server was stopped")

    def _start(self, client: str, model: str, assume_repeats: bool) -> LiveSession:
        device = self._settings.devices[0] if self._settings.devices else "auto"
        options = self._settings.of_process(device, model)
        sandbox = self._settings.confined(self._settings.renders, ())
        now = time.monotonic()
        process = Child(run, options, assume_repeats, sandbox=sandbox)
        return LiveSession(LiveCount(id=secrets.token_hex(16)), client, process, began=now, heard=now)

    def _follow(self, session: LiveSession) -> None:
        """Read what the process reports until it ends, or has had its time."""
        try:
            while not session.over.is_set():
                report = session.process.take(0.5)
                if report is not None:
                    session.hear(*report)
                reason = self._too_long(session)
                if reason is not None:
                    session.end("ended", reason)
        except (EOFError, OSError):
            pass  # it is gone
        except ValueError as error:  # forged: the process is no longer ours
            log.warning("a live count is ended: %s", error)
        session.end("failed", "its process ended unexpectedly; begin another")
        session.process.end()

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


@router.post("", status_code=201, dependencies=GUARDED)
def begin(service: Services, request: Request, wanted: LiveRequest) -> LiveCount:
    """Begin a live count: a process loads the model. Frames are taken once `state` is ready, or counting.

    One per client; it ends after 20 s without frames (120 s before the first ones).
    """
    model = None if wanted.model is None else other_model(service, wanted.model)
    client = client_address(request)
    return service.live.begin(client, model=model, assume_repeats=wanted.assume_repeats).view()


@router.get("/{live_id}")
def state(service: Services, live_id: RowId) -> LiveCount:
    """The count as it stands."""
    return service.live.find(live_id).view()


@router.post("/{live_id}/frames", dependencies=GUARDED, openapi_extra=FRAMES_BODY)
async def frames(service: Services, request: Request, live_id: RowId) -> LiveCount:
    """Send the next frames, a few at a time, one request after the other; the answer is the count as it stands."""
    parsed = parse_frames(await request.body())
    return await asyncio.to_thread(service.live.find(live_id).take, parsed)


@router.post("/{live_id}/exemplars", dependencies=GUARDED)
def exemplar(service: Services, live_id: RowId, span: Span) -> LiveCount:
    """Mark one repetition of the last two minutes: what is remembered is counted anew like it."""
    session = service.live.find(live_id)
    session.send("mark", (span.start, span.end))
    return session.view()


@router.delete("/{live_id}", dependencies=GUARDED)
def end(service: Services, live_id: RowId) -> LiveCount:
    """End it: the answer has the last repetitions."""
    session = service.live.find(live_id)
    if session.state == "counting":
        with contextlib.suppress(HTTPException):
            session.send("end", None)
            session.over.wait(LAST_SECONDS)
    session.end("ended")
    return session.view()


def parse_frames(body: bytes) -> list[tuple[float, bytes]]:
    """(seconds, JPEG bytes) of each frame of a request; HTTPException where the body is something else."""
    if len(body) > MOST_BYTES:
        raise HTTPException(413, f"{len(body)} bytes of frames; one request may hold {MOST_BYTES}")
    found: list[tuple[float, bytes]] = []
    at = 0
    while at < len(body):
        if at + HEAD.size > len(body):
            raise HTTPException(422, f"the body ends within the head of frame {len(found) + 1}")
        seconds, size = HEAD.unpack_from(body, at)
        at += HEAD.size
        if not (math.isfinite(seconds) and 0 <= seconds <= 1e6):
            raise HTTPException(422, f"frame {len(found) + 1} has the time {seconds}; seconds from 0 on are wanted")
        if found and seconds <= found[-1][0]:
            raise HTTPException(422, f"frame {len(found) + 1} is not later than the one before it ({seconds:g} s)")
        if size == 0 or at + size > len(body):
            raise HTTPException(422, f"frame {len(found) + 1} is said to have {size} bytes; {len(body) - at} follow")
        found.append((seconds, body[at : at + size]))
        at += size
    if not 1 <= len(found) <= MOST_FRAMES:
        raise HTTPException(422, f"{len(found)} frames; one request holds 1 to {MOST_FRAMES}")
    return found
