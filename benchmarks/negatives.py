"""Ten seconds in which there are no repetitions: photographs through codecs, noise, pans, fades, cuts, a clock; and
real stretches. Photographs are frames of the real clips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from labelled import read_table
from report import ROOT
from transformed import Images, Pictures, encoded, read

from escounts.video.files import Video

SECONDS, RATE = 10, 30
PHOTOGRAPH_SIDE = 640
"""Pixels of a photograph's longer side, at most; ten seconds of it are in memory at once."""
CODECS: dict[str, tuple[str, dict[str, str], str]] = {
    "x264": ("libx264", {"crf": "23"}, "yuv420p"),
    "mpeg4": ("mpeg4", {}, "yuv420p"),
    "vp9": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}, "yuv420p"),
    "x265": ("libx265", {"preset": "veryfast", "x265-params": "log-level=none"}, "yuv420p"),
    "mjpeg": ("mjpeg", {}, "yuvj420p"),
    "x264, key frame every 8": ("libx264", {"crf": "23", "g": "8"}, "yuv420p"),
    "x264, key frame every 30": ("libx264", {"crf": "23", "g": "30"}, "yuv420p"),
    "mpeg4, key frame every 30": ("mpeg4", {"g": "30"}, "yuv420p"),
}
"""By what the table says: encoder, options, pixel format. The first five at their default settings."""
FIVE = tuple(CODECS)[:5]
TALKING = ("reader", "speaker", "singer", "looks into the camera")


@dataclass(frozen=True)
class Negative:
    """A stretch without repetitions. group: the row of the table it belongs to. pictures: makes or reads it."""

    group: str
    name: str
    pictures: Callable[[], Pictures]


def photographs(folder: Path, count: int, *, fresh: bool = False) -> list[tuple[str, Images]]:
    """Frames of `count` different clips of the pool, fresh ones of footage without a licence: (name, (H, W, 3)).

    Thresholds were chosen with the pool's in view. Clips without a licence are never trained on; those of twenty were
    counted once (18 of them in mpeg4, which led to START of counting/changes.py), so others are taken here.
    """
    found = []
    rows = [
        row for row in read_table(folder / ("footage.csv" if fresh else "pool.csv")) if float(row["duration_s"]) > 2
    ]
    if fresh:
        rows = [row for row in rows if row["licence"] == "none"]
    step = max(1, len(rows) // count)
    for row in rows[step // 2 if fresh else 0 :: step][:count]:
        video = Video(folder / row["file"])
        shrink = min(1.0, PHOTOGRAPH_SIDE / max(video.info.width, video.info.height))
        width, height = (2 * round(side * shrink / 2) for side in (video.info.width, video.info.height))
        found.append((row["file"], next(video.frames(start=1.0, size=(width, height))).image))
    return found


def generated(folder: Path, count: int) -> Iterator[Negative]:
    """Every group over `count` photographs."""
    shots = photographs(folder, count)
    for name, photo in shots:
        for group, codec in CODECS.items():
            yield Negative(f"still, {group}", name, partial(_still, photo, *codec))
    for name, photo in photographs(folder, 2 * count, fresh=True):
        for group in FIVE:
            yield Negative(f"fresh still, {group}", name, partial(_still, photo, *CODECS[group]))
    for index, (name, photo) in enumerate(shots):
        others = [shots[(index + k) % count][1] for k in range(6)]
        yield Negative("sensor noise", name, partial(_noise, photo, index))
        yield Negative("slow pan", name, partial(_pan, photo))
        yield Negative("slow fade", name, partial(_fade, photo))
        yield Negative("running clock", name, partial(_clock, photo))
        yield Negative("cuts", name, partial(_cuts, others, index))


def real_stretches(folder: Path, limit: int | None) -> Iterator[Negative]:
    """The stretches of nothing_repeats.csv in which something happens but does not repeat."""
    table = read_table(ROOT / "benchmarks" / "nothing_repeats.csv")
    rows = [row for row in table if row["kind"] == "nothing"]
    for row in rows[:limit]:
        if not (folder / row["file"]).is_file():
            print(f"left out, not here: {row['file']}")
            continue
        talking = any(word in row["what"] for word in TALKING)
        pictures = partial(read, folder / row["file"], start=float(row["start_s"]), end=float(row["end_s"]))
        name = f"{row['file']} from {row['start_s']} s: {row['what']}"
        yield Negative("talking" if talking else "real stretches", name, pictures)


def _still(photo: Images, codec: str, options: dict[str, str], pixel_format: str) -> Pictures:
    return encoded(_film(np.repeat(photo[None], SECONDS * RATE, 0)), codec, options, pixel_format=pixel_format)


def _film(images: Images) -> Pictures:
    return Pictures(images, np.arange(len(images)) / RATE, float(RATE))


def _x264(film: Pictures) -> Pictures:
    return encoded(film, "libx264", {"preset": "veryfast", "crf": "23"})


def _noise(photo: Images, seed: int) -> Pictures:
    """As a sensor sees it in the dark: each frame has noise of its own."""
    rng = np.random.default_rng(seed)
    grains = (rng.normal(0, 6, photo.shape) for _ in range(SECONDS * RATE))
    return _film(np.stack([np.clip(photo + grain, 0, 255).astype(np.uint8) for grain in grains]))


def _pan(photo: Images) -> Pictures:
    """From the left to the right third, once."""
    width = photo.shape[1]
    part = width * 2 // 3 // 2 * 2
    lefts = np.linspace(0, width - part, SECONDS * RATE).astype(int)
    return _x264(_film(np.stack([photo[:, left : left + part] for left in lefts])))


def _fade(photo: Images) -> Pictures:
    """From black over five seconds, and back."""
    light = 1 - np.abs(np.linspace(-1, 1, SECONDS * RATE))
    return _x264(_film(np.stack([(photo * share).astype(np.uint8) for share in light])))


def _clock(photo: Images) -> Pictures:
    """A still with digits in a corner that change every second."""
    glyphs = np.random.default_rng(7).integers(0, 2, (10, 5, 3)).astype(np.uint8) * 255
    images = np.repeat(photo[None], SECONDS * RATE, 0)
    for index, image in enumerate(images):
        second = index // RATE
        for place, digit in enumerate(((second // 10) % 10, second % 10)):
            glyph = np.kron(glyphs[digit], np.ones((6, 6), np.uint8))[: image.shape[0] - 8]
            image[8 : 8 + len(glyph), 8 + 24 * place : 8 + 24 * place + 18] = glyph[..., None]
    return _x264(_film(images))


def _cuts(photos: list[Images], seed: int) -> Pictures:
    """From photograph to photograph at uneven times."""
    rng = np.random.default_rng(seed)
    height = min(photo.shape[0] for photo in photos)
    width = min(photo.shape[1] for photo in photos)
    borders = np.sort(rng.choice(np.arange(20, SECONDS * RATE - 20), len(photos) - 1, replace=False))
    which = np.searchsorted(borders, np.arange(SECONDS * RATE), side="right")
    return _x264(_film(np.stack([photos[k][:height, :width] for k in which])))
