"""Encoded videos a worker keeps, so that a recount does not decode again; bounded, the oldest go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Protocol


class Sized(Protocol):
    """What knows its size in memory, in bytes."""

    @property
    def nbytes(self) -> int: ...


class EncodingCache:
    """Least recently used encodings within a number of bytes and of videos. Safe to call from any thread."""

    def __init__(self, *, max_bytes: int, max_videos: int) -> None:
        self._max_bytes = max_bytes
        self._max_videos = max_videos
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Any] = OrderedDict()

    def get(self, video_id: str) -> Any | None:
        """The encoding, now the most recently used, or None."""
        with self._lock:
            if video_id not in self._entries:
                return None
            self._entries.move_to_end(video_id)
            return self._entries[video_id]

    def put(self, video_id: str, encoding: Sized) -> None:
        """Keep an encoding. One that is alone larger than the limit is kept until the next one comes."""
        with self._lock:
            self._entries[video_id] = encoding
            self._entries.move_to_end(video_id)
            while len(self._entries) > 1 and (self._bytes() > self._max_bytes or len(self) > self._max_videos):
                self._entries.popitem(last=False)

    def forget(self, video_id: str) -> None:
        """Drop a video's encodings, of whatever model."""
        with self._lock:
            for name in [name for name in self._entries if name.split("@")[0] == video_id]:
                del self._entries[name]

    def forget_model(self, model: str) -> None:
        """Drop the encodings that a model other than the worker's made."""
        with self._lock:
            for name in [name for name in self._entries if name.partition("@")[2] == model]:
                del self._entries[name]

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
        return sum(encoding.nbytes for encoding in self._entries.values())
