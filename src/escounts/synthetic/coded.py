"""What codecs do: still pictures through real ones, and drawn videos through a plain coarse one.

A codec refreshes a picture at every key frame and lets it drift in between, so a photograph pulses. To a network that
looks for returning change this is a rhythm; these stretches teach it that it is not one.

`squeeze_frames` is a codec in its plainest form, fast enough for every batch: every frame is the one before it plus a
quantised difference, in a cosine transform of square blocks, and at key frames the picture itself.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.strokes import send
from escounts.synthetic.timeline import chance, log_uniform, seeded

Frames = npt.NDArray[np.uint8]
Picture = npt.NDArray[np.float32]

RATE = 30.0
"""Frames per second of a coded stretch, the rate at which videos are read."""
SECONDS = 26.0
"""Long enough for a window of 128 cells at five frames per second."""
CODECS = {"libx264": 0.45, "mpeg4": 0.25, "libvpx-vp9": 0.15, "mpeg2video": 0.1, "libx265": 0.05}
"""Encoders and how often each is drawn."""
HEIGHTS = (180, 240, 360, 480)
SOURCE_RATES = (15, 24, 25, 30, 50)
SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abfgcd")
"""Lit parts of a seven-segment digit, 0 to 9."""


@dataclass(frozen=True)
class StillRecipe:
    """How one still is filmed and coded. fade: brightness added over the whole stretch, 0..255; clock: a running
    clock is drawn in a corner."""

    codec: str
    height: int
    rate: int
    gop: int
    quality: float
    fade: float
    clock: bool
    seed: int


def draw_recipe(seed: int) -> StillRecipe:
    """The recipe of still number `seed`."""
    rng = seeded(seed, 41)
    names, shares = zip(*CODECS.items(), strict=True)
    return StillRecipe(
        codec=str(rng.choice(names, p=np.array(shares) / sum(shares))),
        height=int(rng.choice(HEIGHTS)),
        rate=int(rng.choice(SOURCE_RATES)),
        gop=round(log_uniform(rng, 8, 250)),
        quality=float(rng.uniform(0, 1)),
        fade=float(rng.uniform(-90, 90)) if chance(rng, 0.15) else 0.0,
        clock=chance(rng, 0.2),
        seed=seed,
    )


def coded_still(picture: Frames, recipe: StillRecipe, *, size: int = 144, seconds: float = SECONDS) -> Frames:
    """(n, size, size, 3) a picture (H, W, 3) as a video of `seconds` that was encoded and decoded, at RATE."""
    # PyAV is what reads and writes videos; a machine that only trains on drawn motion need not have it.
    import av  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    rng = seeded(recipe.seed, 42)
    height = recipe.height
    width = 2 * round(height * rng.uniform(0.6, 1.8) / 2)
    still = _enlarged(picture, height, width, rng)
    count = int(seconds * recipe.rate)
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream: Any = container.add_stream(recipe.codec, rate=recipe.rate, options=_options(recipe))
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", recipe.gop
        stream.codec_context.time_base = Fraction(1, recipe.rate)
        pixels, drawn = np.zeros(0, np.uint8), -1.0
        for number in range(count):
            # A fade changes every frame, a clock every second, a photograph never.
            moment = number / count if recipe.fade else number // recipe.rate if recipe.clock else 0.0
            if moment != drawn:
                shown = still + recipe.fade * number / count
                shown = _with_clock(shown, number // recipe.rate, recipe.seed) if recipe.clock else shown
                pixels, drawn = shown.clip(0, 255).astype(np.uint8), moment
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.seek(0)
    coded: Any
    with av.open(file) as coded:
        small = [_small(frame, size) for frame in coded.decode(video=0)]
    at = np.minimum((np.arange(int(seconds * RATE)) * recipe.rate / RATE).astype(int), len(small) - 1)
    return np.asarray(np.stack(small)[at], np.uint8)


def _small(frame: Any, size: int) -> Frames:
    reduced = frame.reformat(width=size, height=size, format="rgb24", interpolation="AREA")
    return np.asarray(reduced.to_ndarray(), dtype=np.uint8)


def _options(recipe: StillRecipe) -> dict[str, str]:
    """Constant quality, or a rate of bits that a still seldom needs and a key frame exceeds."""
    poor = recipe.quality
    rate = {"b": str(round(80_000 * 20 ** (1 - poor)))}
    if recipe.codec == "libvpx-vp9":
        return {"deadline": "realtime", "cpu-used": "8", **rate}
    if recipe.codec not in ("libx264", "libx265"):
        return rate
    by_quality = {"crf": str(round(18 + 18 * poor))} if recipe.seed % 4 else rate
    if recipe.codec == "libx265":
        return {"preset": "ultrafast", "x265-params": "log-level=none:pools=1", **by_quality}
    return {"preset": "veryfast", "threads": "1", **by_quality}


def _enlarged(picture: Frames, height: int, width: int, rng: np.random.Generator) -> Picture:
    """The picture at the size of a video, with the fine detail that an enlarged small one lacks."""
    rows = np.linspace(0, picture.shape[0] - 1, height)
    columns = np.linspace(0, picture.shape[1] - 1, width)
    r0, c0 = rows.astype(int), columns.astype(int)
    r1, c1 = np.minimum(r0 + 1, picture.shape[0] - 1), np.minimum(c0 + 1, picture.shape[1] - 1)
    down, across = (rows - r0)[:, None, None], (columns - c0)[None, :, None]
    large = picture.astype(np.float32)
    top = large[r0][:, c0] * (1 - across) + large[r0][:, c1] * across
    bottom = large[r1][:, c0] * (1 - across) + large[r1][:, c1] * across
    detail = rng.normal(size=(height, width, 1)) * rng.uniform(0, 10)
    detail[:, 1:] = 0.6 * detail[:, 1:] + 0.4 * detail[:, :-1]
    enlarged: Picture = (top * (1 - down) + bottom * down + detail).astype(np.float32)
    return enlarged


def _with_clock(still: Picture, second: int, seed: int) -> Picture:
    """The still with minutes and seconds in one corner."""
    shown = still.copy()
    unit = max(2, still.shape[0] // (40 + seed % 30))
    left = unit if seed % 2 else still.shape[1] - 24 * unit
    top = unit if seed % 3 else still.shape[0] - 10 * unit
    colour = 255.0 if seed % 5 else 0.0
    for place, digit in enumerate(f"{second // 60:02d}{second % 60:02d}"):
        x = left + 5 * unit * place + (2 * unit if place > 1 else 0)
        parts = {
            "a": (0, 0, 1, 3), "g": (3, 0, 1, 3), "d": (6, 0, 1, 3), "f": (0, 0, 4, 1), "b": (0, 2, 4, 1),
            "e": (3, 0, 4, 1), "c": (3, 2, 4, 1),
        }  # fmt: skip
        for name in SEGMENTS[int(digit)]:
            row, column, tall, wide = parts[name]
            y = top + row * unit
            shown[y : y + tall * unit, x + column * unit : x + (column + wide) * unit] = colour
    return shown


BLOCKS = (4, 8)
"""Pixels of a block's side."""
KEY_FRAMES = (8, 16, 32)
"""Frames from one key frame to the next."""
DEAD_ZONE = 0.35
"""A coefficient is rounded up from 1 - this part of a step on; what is smaller than that is dropped."""


def draw_squeeze(rng: np.random.Generator, config: GeneratorConfig) -> float:
    """The step of the quantiser for one video, in levels of 255; 0 for most."""
    return log_uniform(rng, 12.0, 70.0) if chance(rng, config.squeeze) else 0.0


def squeeze_frames(frames_BTCHW: Tensor, step_B: Tensor, *, seeds: Sequence[int]) -> Tensor:
    """The frames, 0..255, as they come out of the codec. step_B: of each video's quantiser, in levels of 255.

    seeds: of each video; decides the size of its blocks and how often a key frame comes.
    """
    length, _, height, width = frames_BTCHW.shape[1:]
    sides = [side for side in BLOCKS if height % side == 0 and width % side == 0] or [1]
    spacings = [every for every in KEY_FRAMES if length % every == 0] or [length]
    alike: dict[tuple[int, int], list[int]] = {}
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        alike.setdefault((int(rng.choice(sides)), int(rng.choice(spacings))), []).append(row)
    coded = torch.empty_like(frames_BTCHW)
    for (side, every), rows in alike.items():
        at = send(np.array(rows), frames_BTCHW.device)
        coded[at] = _coded(frames_BTCHW[at], step_B[at], side, every)
    return coded


def _coded(frames_BTCHW: Tensor, step_B: Tensor, side: int, every: int) -> Tensor:
    """The same of videos with blocks of side × side pixels and a key frame every so many frames."""
    videos, length, _, height, width = frames_BTCHW.shape
    basis = _cosines(side, frames_BTCHW)
    # Groups of pictures do not know each other: all are coded side by side.
    groups = frames_BTCHW.reshape(videos * length // every, every, 3, height // side, side, width // side, side)
    step = step_B.repeat_interleave(length // every)[:, None, None, None, None, None] * (side / 8)
    shown = torch.zeros_like(groups[:, 0])
    coded = torch.empty_like(groups)
    for frame in range(every):
        wanted = torch.einsum("ij,gchjwk,lk->gchiwl", basis, groups[:, frame] - shown, basis) / step
        kept = wanted.sign() * (wanted.abs() + DEAD_ZONE).floor() * step
        shown = shown + torch.einsum("ji,gchjwk,kl->gchiwl", basis, kept, basis)
        coded[:, frame] = shown
    return coded.reshape(frames_BTCHW.shape)


def _cosines(side: int, like: Tensor) -> Tensor:
    """(side, side) the orthonormal cosine transform, one basis function per row."""
    at = torch.arange(side, device=like.device, dtype=torch.float32)
    rows = torch.cos(math.pi / side * (at[None] + 0.5) * at[:, None]) * math.sqrt(2 / side)
    rows[0] /= math.sqrt(2)
    return rows.to(like.dtype)
