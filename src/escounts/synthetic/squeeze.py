"""What a codec with too few bits makes of a drawn video: blocks, smears, and small motion that is not shown.

A codec in its plainest form: every frame is the one before it plus a quantised difference, in a cosine transform of
square blocks, and at key frames the picture itself. There is no motion compensation. Real codecs are in `coded`; they
are too slow for every batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import chance, log_uniform
from escounts.synthetic.strokes import send

BLOCKS = (4, 8)
"""Pixels of a block's side."""
KEY_FRAMES = (8, 16, 32)
"""Frames from one key frame to the next."""
DEAD_ZONE = 0.35
"""A coefficient is rounded up from 1 - this part of a step on; what is smaller than that is dropped."""


def draw_squeeze(rng: np.random.Generator, config: GeneratorConfig) -> float:
    """The step of the quantiser for one video, in levels of 255; 0 for most."""
    return log_uniform(rng, *config.squeeze_step) if chance(rng, config.squeeze) else 0.0


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
