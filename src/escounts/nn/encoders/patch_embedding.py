"""Non-overlapping patches of a clip, projected: the first layer of every transformer encoder here."""

from __future__ import annotations

from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """One Linear over every patch of time × height × width, and a LayerNorm where asked for.

    The same numbers as a convolution whose stride is its kernel, as one matrix product.
    """

    def __init__(self, patch: tuple[int, int, int], width: int, *, norm: bool = False) -> None:
        super().__init__()
        self.patch = patch
        self.proj = nn.Linear(3 * patch[0] * patch[1] * patch[2], width)
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        """(B, T, 3, H, W) → (B, T / p, H / q, W / r, width), for patches of p×q×r."""
        batch, frames, colours, height, width = frames_BTCHW.shape
        p, q, r = self.patch
        if frames % p or height % q or width % r:
            raise ValueError(f"{frames} frames of {height}×{width} pixels do not divide into patches of {p}×{q}×{r}")
        blocks = frames_BTCHW.reshape(batch, frames // p, p, colours, height // q, q, width // r, r)
        # the order of a Conv3d kernel inside a patch: colour, time, height, width
        patches_BTHWC = blocks.permute(0, 1, 4, 6, 3, 2, 5, 7).flatten(4)
        out: Tensor = self.norm(self.proj(patches_BTHWC))
        return out


def linear_from_convolution(kernel: Tensor) -> Tensor:
    """The Linear weight (out, in·p·q·r) of a patch convolution's kernel (out, in, p, q, r)."""
    return kernel.flatten(1)
