"""One marked repetition as the default model keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from escounts.counting.views import View
from escounts.system.arrays import Array32


@dataclass(frozen=True)
class MultiRateExemplar:
    """An exemplar: its tokens at every view where it fits, (16, H, W, C), and how long it lasts in seconds.

    video: what it was cut from; its length counts only there, another video has its own tempo. moves: by more than
    compression does. cuts: seconds at which the film is cut inside it: its tokens are of one side alone. start: the
    second at which it begins. look: what it looks like; None where the model keeps no looks.
    """

    tokens: dict[View, Tensor]
    seconds: float
    video: object
    moves: bool = True
    cuts: tuple[float, ...] = ()
    start: float = 0.0
    look: Array32 | None = None
