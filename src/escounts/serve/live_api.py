"""Counting a camera while it runs, over HTTP: begin, send frames and hear the count, end."""

from __future__ import annotations

import asyncio
import math
import struct
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import BaseModel, Field

from escounts.serve.access import GUARDED, PROBLEMS, USUAL_PROBLEMS, Services
from escounts.serve.live_sessions import LiveRefused, LiveSession
from escounts.serve.schemas import Span, Strict
from escounts.serve.security import client_address
from escounts.serve.settings import MEBIBYTE
from escounts.serve.training_api import other_model

router = APIRouter(prefix="/api/live", tags=["live"], responses={**USUAL_PROBLEMS, 409: PROBLEMS[409]})

HEAD = struct.Struct("<dI")
MOST_FRAMES, MOST_BYTES = 120, 4 * MEBIBYTE
"""In one request."""
LiveId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
FRAMES_BODY = {
    "requestBody": {
        "required": True,
        "description": "Frames one after the other: the time in seconds (float64), the number of bytes (uint32), "
        f"both little-endian, and a JPEG picture of so many bytes. At most {MOST_FRAMES} frames and 4 MiB.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


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
    state: Literal["starting", "ready", "counting", "ended", "failed"]
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

    @classmethod
    def of(cls, session: LiveSession) -> LiveCount:
        return cls.model_validate(session.view())


@router.post("", status_code=201, dependencies=GUARDED)
def begin(service: Services, request: Request, wanted: LiveRequest) -> LiveCount:
    """Begin a live count: a process loads the model. Frames are taken once `state` is ready, or counting.

    One per client; it ends after 20 s without frames (120 s before the first ones).
    """
    model = None if wanted.model is None else other_model(service, wanted.model)
    client = client_address(request.scope)
    return LiveCount.of(_tried(service.live.begin, client, model=model, assume_repeats=wanted.assume_repeats))


@router.get("/{live_id}")
def state(service: Services, live_id: LiveId) -> LiveCount:
    """The count as it stands."""
    return LiveCount.of(_tried(service.live.find, live_id))


@router.post("/{live_id}/frames", dependencies=GUARDED, openapi_extra=FRAMES_BODY)
async def frames(service: Services, request: Request, live_id: LiveId) -> LiveCount:
    """Send the next frames, a few at a time, one request after the other; the answer is the count as it stands."""
    parsed = parse_frames(await request.body())
    return LiveCount.of(await asyncio.to_thread(_tried, service.live.take, live_id, parsed))


@router.post("/{live_id}/exemplars", dependencies=GUARDED)
def exemplar(service: Services, live_id: LiveId, span: Span) -> LiveCount:
    """Mark one repetition of the last two minutes: what is remembered is counted anew like it."""
    return LiveCount.of(_tried(service.live.mark, live_id, span.start, span.end))


@router.delete("/{live_id}", dependencies=GUARDED)
def end(service: Services, live_id: LiveId) -> LiveCount:
    """End it: the answer has the last repetitions."""
    return LiveCount.of(_tried(service.live.end, live_id))


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


def _tried(act: Any, *arguments: Any, **options: Any) -> LiveSession:
    try:
        session: LiveSession = act(*arguments, **options)
    except LiveRefused as error:
        raise HTTPException(error.status, str(error)) from error
    return session
