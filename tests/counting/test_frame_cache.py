"""A video's images, kept while they are few."""

from collections.abc import Iterator

import numpy as np

from escounts.counting.multi_rate import FrameCache


class Reader:
    def __init__(self, count: int) -> None:
        self.images = [np.full((4, 4, 3), k, np.uint8) for k in range(count)]
        self.readings = 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.readings += 1
        yield from self.images


def same(replay: FrameCache, reader: Reader) -> bool:
    return [id(image) for image in replay] == [id(image) for image in reader.images]


def test_what_fits_is_read_once() -> None:
    reader = Reader(10)
    replay = FrameCache(reader, limit=10 * 48)
    assert same(replay, reader) and same(replay, reader)
    assert reader.readings == 1


def test_what_does_not_fit_is_read_again_and_nothing_of_it_is_kept() -> None:
    reader = Reader(10)
    replay = FrameCache(reader, limit=10 * 48 - 1)
    assert same(replay, reader) and same(replay, reader)
    assert reader.readings == 2 and replay._kept is None


def test_a_reading_that_broke_off_is_not_taken_for_the_video() -> None:
    reader = Reader(10)
    replay = FrameCache(reader, limit=1000)
    broken = iter(replay)
    next(broken)
    del broken
    assert same(replay, reader) and reader.readings == 2


def test_forgotten_images_are_read_again_and_not_kept_again() -> None:
    reader = Reader(3)
    replay = FrameCache(reader, limit=1000)
    assert same(replay, reader)
    replay.forget()
    assert same(replay, reader) and same(replay, reader)
    assert reader.readings == 3
