"""A video's small images, read once: kept while they are few, read again where they are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from escounts.arrays import Image


class FrameCache:
    """Iterates over a video's images as often as it is asked; each time the same ones.

    read: reads the video from its beginning. limit: bytes that are kept; of a video that has more, nothing is.
    An image that comes twice (a video slower than the base rate) is held once and counted twice.
    """

    def __init__(self, read: Callable[[], Iterable[Image]], *, limit: int) -> None:
        self._read, self._limit = read, limit
        self._kept: list[Image] | None = None

    def __iter__(self) -> Iterator[Image]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Image] = []
        room = self._limit
        for image in self._read():
            room -= image.nbytes
            if room >= 0:
                kept.append(image)
            elif kept:
                kept = []
            yield image
        if room >= 0:
            self._kept = kept

    def forget(self) -> None:
        """Nothing is kept any longer, and nothing will be."""
        self._kept, self._limit = None, 0
