"""A video that says how far it has been read. Imported by worker processes alone: it opens files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from escounts.video import Frame, Video


class WatchedVideo(Video):
    """A video whose frames call `reading.progress(seconds read, seconds in all)` of the thread that reads them.

    reading: one for each thread; without the attribute, or with None, nobody is told. What the call raises ends
    the reading.
    """

    def __init__(self, path: str, reading: threading.local) -> None:
        super().__init__(path)
        self._reading = reading

    def frames(self, **options: Any) -> Iterator[Frame]:
        progress = getattr(self._reading, "progress", None)
        for frame in super().frames(**options):
            if progress is not None:
                progress(frame.time, self.info.duration)
            yield frame
