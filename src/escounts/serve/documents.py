"""A CountResult as the JSON document the service stores and sends, and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from escounts.results import CountResult, DensityMap, ExemplarSpan, Repetition

VERSION = 1


def to_document(result: CountResult, *, video: str, exemplar_videos: Mapping[str, str]) -> dict[str, Any]:
    """JSON-able form of a result.

    video: the name to show instead of the file's path. exemplar_videos: path → video id, for exemplars that
    come from another video.
    """
    return {
        "version": VERSION,
        "video": video,
        "model": result.model,
        "count": int(result.count),
        "raw_count": float(result.raw_count),
        "confidence": float(result.confidence),
        "unsure": bool(result.unsure),
        "duration": float(result.duration),
        "range": [float(second) for second in result.range],
        "repetitions": [
            {"start": float(r.start), "end": float(r.end), "score": float(r.score)}
            for r in result.repetitions
        ],
        "density": {
            "start": float(result.density.start),
            "step": float(result.density.step),
            "kind": result.density.kind,
            "values": [round(float(value), 6) for value in result.density.values],
        },
        "exemplars": [
            {
                "start": float(e.start),
                "end": float(e.end),
                "video": exemplar_videos.get(e.video, e.video) if e.video is not None else None,
            }
            for e in result.exemplars
        ],
        "timings": {name: float(value) for name, value in result.timings.items()},
        "details": {name: float(value) for name, value in result.details.items()},
    }


def to_result(document: Mapping[str, Any]) -> CountResult:
    """The frozen result, as the output writers take it."""
    density = document["density"]
    first, last = document["range"]
    return CountResult(
        video=document["video"],
        model=document["model"],
        count=document["count"],
        raw_count=document["raw_count"],
        repetitions=tuple(Repetition(**repetition) for repetition in document["repetitions"]),
        density=DensityMap(
            np.asarray(density["values"], dtype=np.float32),
            density["start"],
            density["step"],
            density["kind"],
        ),
        confidence=document["confidence"],
        unsure=document["unsure"],
        duration=document["duration"],
        range=(first, last),
        exemplars=tuple(ExemplarSpan(**exemplar) for exemplar in document["exemplars"]),
        timings=document["timings"],
        details=document["details"],
    )
