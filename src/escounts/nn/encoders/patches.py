"""`patches`: an encoder without training or weights to fetch, small enough for tests and quick tables.

A frame is squashed to 32×32 and cut into 4×4 patches; a token is the low frequencies (cosine transform) of its
patch and of its change to the next frame. What repeats in the picture repeats in the tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from escounts.nn.encoders.interface import Encoder, EncoderSpec

SIZE, GRID, FREQUENCIES = 32, 4, 4
CHANNELS = 2 * 3 * FREQUENCIES**2
_DIFFERENCE_GAIN = 3.0


class PatchesEncoder(Encoder):
    """Frames (B, T, 3, 32, 32) → tokens (B, T, 4, 4, 96): one time cell a frame, at 10 frames per second."""

    def __init__(self) -> None:
        super().__init__(
            EncoderSpec(
                name="patches",
                channels=CHANNELS,
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
        self.basis = nn.Parameter(cosine_basis(SIZE // GRID, FREQUENCIES), requires_grad=False)

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
