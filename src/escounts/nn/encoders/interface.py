"""What every encoder declares and does: frames of one window in, tokens T'×H'×W'×C out; and the smallest one,
`patches`.

`patches` has no training and no weights to fetch, small enough for tests and quick tables: a frame is squashed to
32×32 and cut into 4×4 patches; a token is the low frequencies (cosine transform) of its patch and of its change to
the next frame. What repeats in the picture repeats in the tokens.

Tensor suffixes: B windows, T frames in (time cells out), C channels, H W space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from escounts.system.arrays import Image

Tensors: TypeAlias = Mapping[str, Tensor]
Read: TypeAlias = tuple[dict[str, Tensor], dict[str, Any]]
"""What a reader makes of a public file: tensors under our names, and encoder options that the file implies."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class EncoderSpec:
    """How frames reach an encoder and what comes out; nothing about these is assumed elsewhere.

    name: its name in the registry. channels: C of a token. window_frames: frames of one window, `every` raw
    frames apart. size: height and width of a frame in pixels. mean, std: per RGB channel, of values in 0..1.
    cells, grid: T' and (H', W') of one window's tokens. exemplar_frames: frames of an exemplar, spread evenly
    over its span. fps: None when windows are cut in raw frames, else the rate at which frames are sampled.
    A frame is scaled to `size` on its shorter side and its middle is taken, as the public encoders were
    trained; with an fps (the encoders that were trained here) the whole frame is squashed to size × size.
    """

    name: str
    channels: int
    window_frames: int = 16
    every: int = 4
    size: int = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    cells: int = 8
    grid: tuple[int, int] = (14, 14)
    exemplar_frames: int = 16
    fps: float | None = None

    @property
    def frames_per_cell(self) -> int:
        """Frames of a window that a time cell stands for."""
        return self.window_frames // self.cells

    def read_size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) in pixels at which a video of that shape is read, before `cut`."""
        if self.fps is not None:
            return self.size, self.size
        scale = self.size / min(width, height)
        # a frame far longer than wide is squashed rather than read at many times the pixels that are used
        longest = 4 * self.size
        return min(longest, round(width * scale)), min(longest, round(height * scale))

    def cut(self, image: Image) -> Image:
        """The middle size × size of an image (H, W, 3) that was read at read_size."""
        top, left = (image.shape[0] - self.size) // 2, (image.shape[1] - self.size) // 2
        return image[top : top + self.size, left : left + self.size]


class Encoder(nn.Module):
    """Base of all encoders: a spec, a normalisation, and a forward from pixels to tokens."""

    spec: EncoderSpec

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        """Tokens (B, T', H', W', C) of normalised float frames (B, T, 3, H, W)."""
        raise TypeError(f"{type(self).__name__} does not define forward")

    def normalise(self, frames: Tensor) -> Tensor:
        """Float frames from uint8 RGB (..., 3, H, W) of 0..255, on this encoder's device, in its dtype."""
        weight = next(self.parameters(), torch.empty(0))  # none learnt: float32 on the CPU
        mean, inverse = _levels(self.spec.mean, self.spec.std, weight.device)
        return ((frames.to(weight.device, torch.float32) - mean) * inverse).to(weight.dtype)


@lru_cache(maxsize=32)
def _levels(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and reciprocal spread in levels of 8 bits, (3, 1, 1). Cached: to bring them to a GPU, the host waits."""
    with torch.inference_mode(False):
        levels = [torch.tensor(values, device=device).mul(255.0).view(3, 1, 1) for values in (mean, std)]
        return levels[0], levels[1].reciprocal()


def without(tensors: Tensors, *patterns: str) -> dict[str, Tensor]:
    """The tensors of a public file but for those that no encoder needs (a classifier), by glob patterns."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


SIZE, GRID, PATCH_FREQUENCIES = 32, 4, 4
PATCH_CHANNELS = 2 * 3 * PATCH_FREQUENCIES**2
_DIFFERENCE_GAIN = 3.0


class PatchesEncoder(Encoder):
    """Frames (B, T, 3, 32, 32) → tokens (B, T, 4, 4, 96): one time cell a frame, at 10 frames per second."""

    def __init__(self) -> None:
        super().__init__(
            EncoderSpec(
                name="patches",
                channels=PATCH_CHANNELS,
                window_frames=128,
                every=1,
                size=SIZE,
                mean=(0.5, 0.5, 0.5),
                std=(0.25, 0.25, 0.25),
                cells=128,
                grid=(GRID, GRID),
                fps=10.0,
            )
        )
        self.basis = nn.Parameter(cosine_basis(SIZE // GRID, PATCH_FREQUENCIES), requires_grad=False)

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        change_BTCHW = torch.cat([frames_BTCHW[:, 1:], frames_BTCHW[:, -1:]], 1) - frames_BTCHW
        x = torch.cat([frames_BTCHW, _DIFFERENCE_GAIN * change_BTCHW], 2)
        patch = SIZE // GRID
        cut = x.reshape(*x.shape[:3], GRID, patch, GRID, patch)
        tokens = torch.einsum("btchpwq,fp,gq->bthwcfg", cut, self.basis, self.basis)
        return tokens.flatten(4)


def cosine_basis(length: int, frequencies: int) -> Tensor:
    """The first rows of the orthonormal cosine transform, (frequencies, length)."""
    place = (torch.arange(length) + 0.5) * math.pi / length
    rows = torch.cos(torch.arange(frequencies)[:, None] * place[None])
    return rows / rows.square().sum(1, keepdim=True).sqrt()
