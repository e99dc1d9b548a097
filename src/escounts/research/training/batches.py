"""What makes a batch: which videos, which exemplars each gets (pure functions of (seed, step)), and their stored
tokens near the device, read once and kept while they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from escounts.nn.device import to_device
from escounts.research.datasets.annotations import VideoAnnotation
from escounts.research.datasets.tokens import TokenStore

Rng = np.random.Generator


@dataclass(frozen=True)
class ExemplarSampling:
    """Sections 3.1 and 4.1 of the paper. shots: sizes |S| drawn from, each as likely. other_video: p, the chance
    that an exemplar is of another video. same_class: that video shows the same action (False: any other)."""

    shots: tuple[int, ...] = (0, 1, 2)
    other_video: float = 0.4
    same_class: bool = True

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 0:
            raise ValueError(f"shots is {self.shots}; it takes numbers from 0, such as (0, 1, 2)")
        if not 0 <= self.other_video <= 1:
            raise ValueError(f"other_video is {self.other_video}; it takes a probability between 0 and 1")


ExemplarChoice = tuple[str, int]
"""One exemplar: name of the video it is of, and its place among that video's exemplars."""


class ExemplarSampler:
    """Draws exemplars for a video from itself or from another video of the same action."""

    def __init__(
        self,
        videos: Sequence[VideoAnnotation],
        exemplars: Mapping[str, int],
        config: ExemplarSampling | None = None,
    ) -> None:
        """exemplars: how many each video has to offer."""
        self.config = config or ExemplarSampling()
        self.exemplars = exemplars
        self._offering = [video.name for video in videos if exemplars.get(video.name, 0)]
        self._by_action: dict[str, list[str]] = {}
        for video in videos:
            if video.action and exemplars.get(video.name, 0):
                self._by_action.setdefault(video.action, []).append(video.name)

    def choose(self, video: VideoAnnotation, shots: int, rng: Rng) -> list[ExemplarChoice]:
        """That many exemplars, each of another video with the config's probability; none means zero-shot (z_0).

        A video without other videos of its action draws from itself, one without repetitions from others; when
        neither offers any, there are none. Repetitions of one video are drawn without repeats while they last.
        """
        choices: list[ExemplarChoice] = []
        unused: dict[str, list[int]] = {}
        for _ in range(shots):
            source = self._source(video, rng, rng.random() < self.config.other_video)
            if source is None:
                return []
            if not unused.get(source):
                unused[source] = list(rng.permutation(self.exemplars[source]))
            choices.append((source, int(unused[source].pop())))
        return choices

    def _source(self, video: VideoAnnotation, rng: Rng, other: bool) -> str | None:
        own = video.name if self.exemplars.get(video.name, 0) else None
        if own and not other:
            return own
        pool = self._by_action.get(video.action or "", []) if self.config.same_class else self._offering
        others = len(pool) - (video.name in pool)
        if not others:
            return own
        pick = int(rng.integers(others))
        # The pool without the video itself, counted rather than copied.
        names = (name for name in pool if name != video.name)
        return next(name for place, name in enumerate(names) if place == pick)


MIXING = 16
BLUR = 0.05
"""Share by which a video's length is taken as longer or shorter when videos of about one length are gathered."""


class LengthBatches:
    """Batches of videos of about one length, in an order that changes every epoch.

    Videos are shuffled, sorted by about their length within stretches of MIXING batches, cut, and the batches
    shuffled: little padding, and still chance who meets whom, also when an epoch is one stretch. The last batch of
    an epoch is filled from its first videos.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, seed: int = 0) -> None:
        if not lengths:
            raise ValueError("no videos to make batches of")
        self.lengths = np.asarray(lengths)
        self.batch_size = min(batch_size, len(lengths))
        self.seed = seed
        self.steps_per_epoch = -(-len(lengths) // self.batch_size)
        self._known: tuple[int, list[list[int]]] = (-1, [])

    def batch(self, step: int) -> list[int]:
        """Indices of the videos of a global step."""
        epoch, place = divmod(step, self.steps_per_epoch)
        known = self._known  # taken and set whole: batches are made ahead in another thread
        if known[0] != epoch:
            known = self._known = (epoch, self._order(epoch))
        return known[1][place]

    def _order(self, epoch: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, epoch, 1))
        order = rng.permutation(len(self.lengths))
        short = self.steps_per_epoch * self.batch_size - len(order)
        order = np.concatenate([order, order[:short]])
        stretch = MIXING * self.batch_size
        pieces = [order[i : i + stretch] for i in range(0, len(order), stretch)]
        about = self.lengths * rng.uniform(1 - BLUR, 1 + BLUR, len(self.lengths))
        ordered = np.concatenate([piece[np.argsort(about[piece], kind="stable")] for piece in pieces])
        batches = ordered.reshape(self.steps_per_epoch, self.batch_size)
        return [batch.tolist() for batch in batches[rng.permutation(len(batches))]]


def share(items: Sequence[int], rank: int, world: int) -> list[tuple[int, int]]:
    """(place in the global batch, item) of the part that one process trains on; all parts are equally long."""
    if len(items) % world:
        raise ValueError(
            f"a batch of {len(items)} videos cannot be shared by {world} processes; "
            f"choose a batch size that {world} divides"
        )
    return [(place, item) for place, item in enumerate(items) if place % world == rank]


HOST_LIMIT = 2 << 30
"""Bytes kept when training on a CPU."""
ONE_COPY = 256 << 20
"""Bytes of tokens that go to a device in one copy when videos are read ahead: each copy costs a wait."""
DEVICE_SHARE = 0.4
"""Share of a GPU's free memory that tokens may take."""


class TokenCache:
    """Sequences and exemplars of a store, on a device; beyond the limit they are read anew each time."""

    def __init__(self, store: TokenStore, device: torch.device) -> None:
        self.store = store
        self.device = device
        self.limit = _limit(device)
        self.bytes = 0
        self._kept: dict[tuple[str, str, int], Tensor] = {}
        self._spans: dict[tuple[str, int], tuple[float, float]] = {}

    def sequence(self, name: str, offset: int) -> Tensor:
        """Tokens (T, H, W, C) of a video from an offset on, float16."""
        return self._get(("sequence", name, offset), lambda: self.store.load(name, offset).sequences[offset])

    def exemplar(self, name: str, index: int) -> tuple[Tensor, tuple[float, float]]:
        """Tokens (T, H, W, C) of one exemplar, and its span in seconds."""

        def read() -> Tensor:
            tokens, self._spans[name, index] = self.store.exemplar(name, index)
            return tokens

        tokens = self._get(("exemplar", name, index), read)
        return tokens, self._spans[name, index]

    def preload(self, names: Iterable[str]) -> None:
        """Read videos whole, each file once, before training asks for them piece by piece; many go to the device in
        one copy, of which each piece is a view."""
        pieces: list[tuple[tuple[str, str, int], Tensor]] = []
        waiting = 0
        for name in names:
            video = self.store.load(name)
            for index, span in enumerate(video.exemplar_spans.tolist()):
                self._spans[name, index] = (span[0], span[1])
                pieces.append((("exemplar", name, index), video.exemplars[index]))
            pieces += [(("sequence", name, offset), tokens) for offset, tokens in video.sequences.items()]
            waiting += self.store.entries[name].bytes
            if waiting >= ONE_COPY:
                self._keep_together(pieces)
                pieces, waiting = [], 0
        self._keep_together(pieces)

    def _keep_together(self, pieces: Sequence[tuple[tuple[str, str, int], Tensor]]) -> None:
        if not pieces or self.bytes + sum(tokens.nbytes for _, tokens in pieces) > self.limit:
            return
        moved = to_device(torch.cat([tokens.flatten() for _, tokens in pieces]), self.device)
        parts = torch.split(moved, [tokens.numel() for _, tokens in pieces])
        for (key, tokens), part in zip(pieces, parts, strict=True):
            self._kept[key] = part.view(tokens.shape)
        self.bytes += moved.nbytes

    def _get(self, key: tuple[str, str, int], read: Callable[[], Tensor]) -> Tensor:
        kept = self._kept.get(key)
        return self._keep(key, read()) if kept is None else kept

    def _keep(self, key: tuple[str, str, int], read: Tensor) -> Tensor:
        tokens = to_device(read, self.device)
        size = tokens.numel() * tokens.element_size()
        if self.bytes + size <= self.limit:
            self._kept[key] = tokens
            self.bytes += size
        return tokens


def _limit(device: torch.device) -> int:
    if device.type != "cuda":
        return HOST_LIMIT
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * DEVICE_SHARE)
