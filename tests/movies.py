"""Tiny videos made by PyAV: what the tests of reading, counting and writing look at."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]


def write_movie(
    path: Path | Any,
    pictures: Iterable[Picture],
    *,
    rate: float = 30,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    container_format: str | None = None,
    rotation: float | None = None,
    times: Sequence[float] | None = None,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    source_format: str = "rgb24",
) -> Path:
    """Encode pictures (height x width x 3, or x 4 with source_format="rgba"). times: seconds of each frame."""
    target = str(path) if isinstance(path, Path) else path
    with av.open(target, "w", format=container_format, options=container_options or {}) as container:
        stream: av.VideoStream | None = None
        for index, picture in enumerate(pictures):
            if stream is None:
                quality = {"crf": "8", "preset": "ultrafast"} if codec == "libx264" else {}
                added = container.add_stream(
                    codec, rate=Fraction(rate).limit_denominator(1001), options={**quality, **(options or {})}
                )
                assert isinstance(added, av.VideoStream)
                stream = added
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = pixel_format
                if times is not None:
                    stream.codec_context.time_base = Fraction(1, 1000)
                if rotation is not None:
                    stream.set_display_rotation(rotation)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=source_format)
            if times is not None:
                frame.pts, frame.time_base = round(times[index] * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        assert stream is not None, "no pictures"
        container.mux(stream.encode(None))
    return path


def looped(path: Path, pictures: Sequence[Picture], times: int, *, rate: int = 30) -> Path:
    """The same pictures again and again: each is encoded once, so that a long video is made at once."""
    coded = io.BytesIO()
    write_movie(coded, pictures, rate=rate, codec="mjpeg", pixel_format="yuvj420p", container_format="matroska")
    coded.seek(0)
    with av.open(coded, "r") as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for turn in range(times):
            source.seek(0)
            packets = [packet for packet in source.demux(video=0) if packet.size]
            for index, packet in enumerate(packets):  # every picture is whole by itself: none is out of order
                packet.stream, packet.time_base = stream, Fraction(1, rate)
                packet.pts = packet.dts = turn * len(packets) + index
                target.mux(packet)
    return path


def levels(count: int, *, size: tuple[int, int] = (64, 48), step: int = 8) -> list[Picture]:
    """Plain grey pictures, each `step` brighter than the one before: the brightness tells which frame it is."""
    width, height = size
    return [np.full((height, width, 3), (step * index) % 256, np.uint8) for index in range(count)]


def level(image: Picture, *, step: int = 8) -> int:
    """Which picture of `levels` an image is."""
    return round(float(image.mean()) / step)


def bouncing(
    repetitions: float,
    seconds: float,
    *,
    rate: float = 30,
    size: tuple[int, int] = (96, 64),
    still_before: float = 0.0,
    still_after: float = 0.0,
) -> list[Picture]:
    """A bright block that goes up and down `repetitions` times in `seconds`, between two still stretches."""
    width, height = size
    pictures = []
    backdrop = np.random.default_rng(3).integers(40, 90, (height, width, 3), np.uint8)
    for index in range(round((still_before + seconds + still_after) * rate)):
        time = min(max(index / rate - still_before, 0.0), seconds)
        up = 0.5 - 0.5 * np.cos(2 * np.pi * repetitions * time / seconds)
        top = round((height - 24) * (1 - up)) + 2
        picture = backdrop.copy()
        picture[top : top + 20, width // 3 : width // 3 + 24] = (240, 200, 60)
        pictures.append(picture)
    return pictures


def beside(*videos: Sequence[Picture]) -> list[Picture]:
    """Videos of one height side by side, as long as the longest; a shorter one rests on its last picture."""
    longest = max(len(video) for video in videos)
    held = [[*video, *[video[-1]] * (longest - len(video))] for video in videos]
    return [np.concatenate(pictures, axis=1) for pictures in zip(*held, strict=True)]


def noise(seconds: float, *, rate: float = 30, size: tuple[int, int] = (96, 64)) -> list[Picture]:
    """A block on a random walk: it moves all the time and has no repetitions."""
    width, height = size
    rng = np.random.default_rng(11)
    place = np.cumsum(rng.normal(0, 1.5, (round(seconds * rate), 2)), axis=0)
    pictures = []
    for x, y in place:
        picture = np.full((height, width, 3), 70, np.uint8)
        left, top = int(30 + x) % (width - 20), int(20 + y) % (height - 20)
        picture[top : top + 18, left : left + 18] = 220
        pictures.append(picture)
    return pictures


def endless_gif(path: Path, frames: int, *, delay: int) -> Path:
    """Frames of one pixel, delay in hundredths of a second: some 24 bytes each."""
    screen = b"GIF89a" + struct.pack("<HHBBB", 16, 16, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    control = b"\x21\xf9\x04\x00" + struct.pack("<H", delay) + b"\x00\x00"
    picture = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    path.write_bytes(screen + (control + picture) * frames + b"\x3b")
    return path


def says_two_seconds(path: Path) -> Path:
    """An mkv of two minutes whose header says two seconds."""
    write_movie(path, levels(12, step=40), times=[10.0 * index for index in range(12)], codec="ffv1")
    return with_stated_duration(path, 2.0)


def with_stated_duration(path: Path, seconds: float) -> Path:
    """Write another duration into the header of an mkv."""
    data = path.read_bytes()
    at = data.index(b"\x44\x89\x88")  # Duration, an eight-byte float of milliseconds
    path.write_bytes(data[: at + 3] + struct.pack(">d", 1000 * seconds) + data[at + 11 :])
    return path
