"""Files damaged at random are read as far as they can be, or refused with a VideoError: never anything else."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from movies import bouncing, write_movie

from escounts.errors import VideoError
from escounts.video.files import Video

SOURCES = {
    "a.mp4": {},
    "a.mkv": {},
    "a.ts": {},
    "a.gif": {"codec": "gif", "pixel_format": "rgb8"},
    "a.avi": {"codec": "mjpeg", "pixel_format": "yuvj420p"},
    "a.webm": {"codec": "libvpx"},
}


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Cut off, bytes changed anywhere, a piece missing, or the header's bytes changed."""
    broken = bytearray(data)
    way = rng.integers(4)
    if way == 0:
        return bytes(broken[: rng.integers(1, len(broken))])
    if way == 1:
        place = rng.integers(len(broken))
        del broken[place : place + rng.integers(1, 200)]
        return bytes(broken)
    reach = len(broken) if way == 2 else min(800, len(broken))
    for _ in range(rng.integers(1, 12)):
        broken[rng.integers(reach)] = rng.integers(256)
    return bytes(broken)


@pytest.mark.parametrize("name", SOURCES)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    options = SOURCES[name]
    source = write_movie(tmp_path / name, bouncing(2, 1.0, rate=10), rate=10, **options)  # type: ignore[arg-type]
    target = tmp_path / f"damaged{source.suffix}"
    rng = np.random.default_rng(5)
    read = refused = 0
    for _ in range(60):
        target.write_bytes(damaged(source.read_bytes(), rng))
        try:
            for frame in islice(Video(target).frames(size=(16, 16), rate=10), 100):
                assert frame.image.shape == (16, 16, 3)
            read += 1
        except VideoError as error:
            assert str(error).startswith(str(target)) or "cannot be converted" in str(error)
            assert "\n" not in str(error)
            refused += 1
    assert read > 5 and refused > 0
