"""The two small protocols every counting model meets: encode a video once, estimate its density many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from escounts.results import Estimate

if TYPE_CHECKING:
    from escounts.video import Video

Progress = Callable[[float, float], None]
"""Called with (seconds of video done, seconds of video in all)."""

Shot = Any
"""An exemplar in the model's own form, made by Encoding.shot and given to Encoding.estimate."""


class Encoding(Protocol):
    """One video, encoded. Cheap to ask, as often as you like."""

    start: float
    """First second that is encoded."""
    end: float
    """Last second that is encoded."""

    def shot(self, start: float, end: float) -> Shot:
        """The exemplar between two times of this video; it may be used on any encoding of the same model."""
        ...

    def estimate(
        self,
        shots: Sequence[Shot] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
    ) -> Estimate:
        """Density between start and end, given exemplars, or zero-shot when there are none."""
        ...


class CountingModel(Protocol):
    """A counter's engine: a baseline without weights, the default model, or a paper configuration."""

    name: str
    unsure_below: float
    """Confidence under which a result is called unsure."""

    def encode(
        self,
        video: Video,
        *,
        start: float = 0.0,
        end: float | None = None,
        thorough: bool = False,
        progress: Progress | None = None,
    ) -> Encoding:
        """Decode and encode the video between start and end seconds, in bounded memory."""
        ...
