"""Exemplars at inference (Table 4): from the counted video, or from another training video of its action."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from escounts.datasets.annotations import VideoAnnotation
from escounts.datasets.tokens import TokenStore
from escounts.training.predictions import Exemplars, ExemplarSource
from escounts.training.sampling import ExemplarSampler, ExemplarSampling


def exemplars_for(
    store: TokenStore,
    videos: Sequence[VideoAnnotation],
    train: Sequence[VideoAnnotation],
    *,
    shots: int,
    kind: Exemplars,
    seed: int = 0,
) -> ExemplarSource:
    """Exemplars for every video, always the same ones for a seed; fewer where fewer repetitions are stored.

    kind "same": repetitions of the video itself; "other": of training videos of its action, never of itself.
    A video that has none is counted zero-shot.
    """
    pool = [*train, *videos] if kind == "same" else list(train)
    offered = {video.name: store.entries[video.name].exemplars for video in pool if video.name in store}
    sampling = ExemplarSampling(other_video=float(kind == "other"))
    sampler = ExemplarSampler([video for video in pool if video.name in offered], offered, sampling)
    found = {}
    for video in videos:
        if video.name not in store:
            continue
        rng = np.random.default_rng((seed, crc32(video.name.encode())))
        wanted = min(shots, offered.get(video.name, 0)) if kind == "same" else shots
        choices = sampler.choose(video, wanted, rng)
        own = store.entries[video.name].step
        given = []
        for choice in choices:
            if choice.other != (kind == "other"):
                continue
            tokens, (start, end) = store.exemplar(choice.video, choice.index)
            given.append((tokens, 0.0 if choice.other else (end - start) / own))
        found[video.name] = given
    return found
