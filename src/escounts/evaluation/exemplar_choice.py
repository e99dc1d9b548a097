"""Exemplars at inference (Table 4): from the counted video, or from another training video of its action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from zlib import crc32

import numpy as np

from escounts.datasets.annotations import VideoAnnotation
from escounts.training.sampling import ExemplarChoice, ExemplarSampler, ExemplarSampling


def choose_exemplars(
    videos: Sequence[VideoAnnotation],
    train: Sequence[VideoAnnotation],
    offered: Mapping[str, int],
    *,
    shots: int,
    kind: Literal["same", "other"],
    seed: int = 0,
) -> dict[str, list[ExemplarChoice]]:
    """Exemplars for every video, always the same ones for a seed; fewer where fewer repetitions are offered.

    kind "same": repetitions of the video itself; "other": of training videos of its action, never of itself.
    offered: exemplars that each video can give. A video that has none is counted zero-shot.
    """
    pool = [*train, *videos] if kind == "same" else list(train)
    sampling = ExemplarSampling(other_video=float(kind == "other"))
    sampler = ExemplarSampler([video for video in pool if offered.get(video.name)], offered, sampling)
    chosen = {}
    for video in videos:
        rng = np.random.default_rng((seed, crc32(video.name.encode())))
        wanted = min(shots, offered.get(video.name, 0)) if kind == "same" else shots
        choices = sampler.choose(video, wanted, rng)
        chosen[video.name] = [choice for choice in choices if choice.other == (kind == "other")]
    return chosen
