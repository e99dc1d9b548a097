"""heat.png: where in the picture something repeats, over a frame of the video, with the box and count of each place.

A cell is as hot as its brightness returns to what it was one lag before, at the lag at which it does so best, times
how much it moves. That needs no model: it is the same map whatever counted.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from escounts.errors import OutputError
from escounts.output.mp4 import overlays
from escounts.results import CountResult
from escounts.system.arrays import Array32
from escounts.system.atomic_files import atomic_file
from escounts.system.extras import install_command
from escounts.video.files import Video
from escounts.video.lag_maps import RATE, SIDE, blocks, lag_maps, windows_of

GRID = 16
"""Cells of a side."""
LONGEST_SIDE = 1280
"""Pixels of the picture's longer side at most."""
OPAQUE = 0.65
"""How much of the frame the hottest cell covers."""
COLOUR = np.array([255, 90, 20], np.float32)
"""Of the heat."""
MOTION = 0.25
"""A cell counts with its motion to this power: a small figure beside a large one is hot, too."""
TYPICAL = 95
"""Percentile of cells that is fully hot: one flashing cell does not make the others cold."""


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """A PNG as large as the video, up to LONGEST_SIDE. Needs the [plot] extra and the video."""
    if video is None:
        raise OutputError(f"{path}: a heat map needs the video itself")
    try:
        from PIL import Image as Picture  # noqa: PLC0415 - the extra [plot]
    except ImportError as error:
        raise OutputError(f"{path}: a heat map needs pillow; install it with: {install_command('plot')}") from error
    whole = Video(video)
    looked_at = whole if result.region is None else whole.cropped(result.region)
    first, last = result.range
    images = (frame.image for frame in looked_at.frames(size=(SIDE, SIDE), start=first, end=last, rate=RATE))
    heat = heat_of([lag_maps(blocks(window, GRID)) for window in windows_of(images, last - first)])
    scale = min(1.0, LONGEST_SIDE / max(whole.info.width, whole.info.height))
    size = max(2, round(whole.info.width * scale)), max(2, round(whole.info.height * scale))
    frame = next(whole.frames(size=size, start=(first + last) / 2), None) or next(whole.frames(size=size))
    image = frame.image.astype(np.float32)
    left, top, wide, high = looked_at.info.region or (0, 0, whole.info.width, whole.info.height)
    inside = image[
        round(top * scale) : round((top + high) * scale), round(left * scale) : round((left + wide) * scale)
    ]
    shares = np.asarray(
        Picture.fromarray(heat).resize((inside.shape[1], inside.shape[0]), Picture.Resampling.BICUBIC), np.float32
    )
    share = OPAQUE * np.clip(shares, 0.0, 1.0)[..., None]
    inside[:] = inside * (1 - share) + COLOUR * share
    drawn = image.round().astype(np.uint8)
    if result.tracks or result.region is not None:
        for draw in overlays(result, whole.info, scale):
            draw(drawn, math.inf, True)
    with atomic_file(path) as temporary:
        Picture.fromarray(drawn).save(temporary, format="PNG")


def heat_of(maps: list[Array32]) -> Array32:
    """How hot each cell is, (rows, columns), 0 to about 1; maps: of windows, (rows, columns, T, lags)."""
    if not maps:
        return np.zeros((GRID, GRID), np.float32)
    lags = min(window.shape[3] for window in maps)
    profile = np.mean([window[..., :lags].mean(2) for window in maps], axis=0)
    before = np.maximum.accumulate(profile, axis=2)
    after = np.maximum.accumulate(profile[..., ::-1], axis=2)[..., ::-1]
    hill = np.minimum(before, after)
    depth = ((hill - profile) / (hill + 1e-6)).max(2)
    heat = depth * profile.mean(2) ** MOTION
    return np.asarray(heat / max(float(np.percentile(heat, TYPICAL)), 1e-6), np.float32)
