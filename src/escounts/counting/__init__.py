"""From a video to what a model says of it; and what every counting model is: it encodes a video once, and estimates
its density many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from escounts.decision.decide import Decision

if TYPE_CHECKING:
    from escounts.video.files import Video

Progress = Callable[[float, float], None]
"""Called with (seconds of video done, seconds of video in all); what it raises ends the work."""


def part_of(progress: Progress | None, before: float, share: float) -> Progress | None:
    """The progress of one pass of several: it fills `share` of the whole, after the part `before` it."""
    if progress is None:
        return None
    return lambda done, total: progress(before * total + share * done, total)


EncodedExemplar = Any
"""An exemplar in the model's own form, made by Encoding.encode_exemplar and given to Encoding.estimate."""


class Encoding(Protocol):
    """One video, encoded: asked as often as you like, cheap unless the video has to be read again.

    A short exemplar may ask for a rate that is not encoded yet. The call that meets it first reads the video once
    more, reports to its `progress`, and keeps what it encoded: the encoding grows.
    """

    start: float
    """First second that is encoded."""
    end: float
    """Last second that is encoded."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds in memory now; hours of tokens lie in a temporary file and are not counted."""
        ...

    def encode_exemplar(self, start: float, end: float, *, progress: Progress | None = None) -> EncodedExemplar:
        """The exemplar between two times of this video; it may be used on any encoding of the same model."""
        ...

    def estimate(
        self,
        exemplars: Sequence[EncodedExemplar] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        assume_repeats: bool = False,
        progress: Progress | None = None,
    ) -> Decision:
        """The answer between start and end, given exemplars, or zero-shot when there are none."""
        ...


class CountingModel(Protocol):
    """A counter's engine: a baseline without weights, the default model, or a paper configuration."""

    name: str
    unsure_below: float
    """Confidence under which a result is called unsure; where it is not a calibrated probability, all are."""

    def encode(
        self,
        video: Video,
        *,
        start: float = 0.0,
        end: float | None = None,
        progress: Progress | None = None,
    ) -> Encoding:
        """Decode and encode the video between start and end seconds, in bounded memory."""
        ...
