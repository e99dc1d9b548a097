"""escounts counts repetitions in videos: how many, when, and how sure.

>>> import escounts
>>> result = escounts.count("squats.mp4")
>>> result.count, result.repetitions[0].start, result.confidence
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from escounts.errors import EscountsError

if TYPE_CHECKING:
    from escounts.batching.batch import batch
    from escounts.counter import Counter, EncodedVideo, count, load
    from escounts.decision.repetitions import RepetitionSet
    from escounts.live import watch
    from escounts.results import CountResult, DensityMap, ExemplarSpan, Hypothesis, Repetition
    from escounts.video.files import Video

__version__ = "0.1.0"
__all__ = [
    "CountResult",
    "Counter",
    "DensityMap",
    "EncodedVideo",
    "EscountsError",
    "ExemplarSpan",
    "Hypothesis",
    "Repetition",
    "RepetitionSet",
    "Video",
    "batch",
    "count",
    "load",
    "watch",
]

# Loaded when first asked for, so that training needs no video library and `escounts --help` neither torch nor numpy.
_LATER = {
    **dict.fromkeys(("CountResult", "DensityMap", "ExemplarSpan", "Hypothesis", "Repetition"), "escounts.results"),
    "RepetitionSet": "escounts.decision.repetitions",
    "batch": "escounts.batching.batch",
    "Counter": "escounts.counter",
    "EncodedVideo": "escounts.counter",
    "count": "escounts.counter",
    "load": "escounts.counter",
    "Video": "escounts.video.files",
    "watch": "escounts.live",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'escounts' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
