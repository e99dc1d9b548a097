"""Encoded videos a worker keeps, so that a recount does not decode again; bounded, the oldest go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any


def footprint(thing: object, _seen: set[int] | None = None) -> int:
    """Bytes of the arrays and tensors reachable from an object's attributes and containers."""
    seen = set() if _seen is None else _seen
    if id(thing) in seen or thing is None or isinstance(thing, (str, bytes, int, float, bool, type)):
        return 0
    seen.add(id(thing))
    size = getattr(thing, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(thing, dict):
        return sum(footprint(value, seen) for value in thing.values())
    if isinstance(thing, (list, tuple, set, frozenset)):
        return sum(footprint(value, seen) for value in thing)
    names = list(getattr(thing, "__dict__", {}))
    names += [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return sum(footprint(getattr(thing, name, None), seen) for name in names)


class EncodingCache:
    """Least recently used encodings within a number of bytes and of videos. Safe to call from any thread.

    shared: objects that every encoding refers to (the model) and that must not be counted for each of them.
    """

    def __init__(self, *, max_bytes: int, max_videos: int, shared: tuple[object, ...] = ()) -> None:
        self._max_bytes = max_bytes
        self._max_videos = max_videos
        self._shared = shared
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Any] = OrderedDict()

    def get(self, video_id: str) -> Any | None:
        """The encoding, now the most recently used, or None."""
        with self._lock:
            if video_id not in self._entries:
                return None
            self._entries.move_to_end(video_id)
            return self._entries[video_id]

    def put(self, video_id: str, encoding: object) -> None:
        """Keep an encoding. One that is alone larger than the limit is kept until the next one comes."""
        with self._lock:
            self._entries[video_id] = encoding
            self._entries.move_to_end(video_id)
            while len(self._entries) > 1 and (self._bytes() > self._max_bytes or len(self) > self._max_videos):
                self._entries.popitem(last=False)

    def forget(self, video_id: str) -> None:
        with self._lock:
            self._entries.pop(video_id, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def names(self) -> list[str]:
        with self._lock:
            return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _bytes(self) -> int:
        """Measured anew each time: an encoding grows when an exemplar asks for a faster view."""
        shared = {id(thing) for thing in self._shared}
        return sum(footprint(encoding, set(shared)) for encoding in self._entries.values())
