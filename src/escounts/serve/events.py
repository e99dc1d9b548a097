"""Progress from the supervising thread to any number of listening browsers, as server-sent events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

HEARTBEAT_SECONDS = 15.0
BACKLOG = 256


class EventHub:
    """Publishes from any thread to listeners' asyncio queues; a slow listener loses its oldest events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[dict[str, Any] | None], asyncio.AbstractEventLoop] = {}
        self._closed = False

    def publish(self, event: dict[str, Any]) -> None:
        with self._lock:
            for queue, loop in self._listeners.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_offer, queue, event)

    def close(self) -> None:
        """End every stream, so that the server can stop without waiting for open pages."""
        with self._lock:
            self._closed = True
            for queue, loop in self._listeners.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_offer, queue, None)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def listen(self) -> AsyncIterator[dict[str, Any] | None]:
        """Events as they come; None after a silence, to keep the connection known to be alive."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(BACKLOG)
        with self._lock:
            if self._closed:
                return
            self._listeners[queue] = asyncio.get_running_loop()
        try:
            yield None
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except (TimeoutError, asyncio.TimeoutError):
                    yield None
                    continue
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                del self._listeners[queue]


def _offer(queue: asyncio.Queue[dict[str, Any] | None], event: dict[str, Any] | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(event)


def as_text(kind: str, event: dict[str, Any] | None) -> str:
    """One event in the wire format of server-sent events; None is a comment."""
    if event is None:
        return ": still here\n\n"
    return f"event: {kind}\ndata: {json.dumps(event)}\n\n"
