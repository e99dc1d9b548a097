"""What can be evaluated, behind one interface: a head on tokens (stored, or encoded as they are needed), a model that
counts video files, and the constant that every method must beat.

A model opens an annotated video once and counts it as often as there are evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from escounts.counter import Counter
from escounts.errors import DataError, VideoError
from escounts.nn.encoders.interface import Encoder
from escounts.research.datasets.annotations import Dataset, VideoAnnotation
from escounts.research.datasets.encoding import encode_exemplars, encode_video
from escounts.research.datasets.tokens import TokenLayout, TokenStore, VideoTokens
from escounts.research.training.batches import ExemplarChoice
from escounts.research.training.predictions import (
    ExemplarTokens,
    Prediction,
    decode_tokens,
    decode_videos,
    decoded_together,
    head_of,
    map_kind,
    prediction_of,
)
from escounts.results import DensityMap, ExemplarSpan
from escounts.system.arrays import Array32
from escounts.system.atomic_files import file_state


@dataclass(frozen=True)
class EvalSpec:
    """One evaluation of one model. dataset: None for the model's own. shots: exemplars given to every video, and
    where they come from. shifts: K of section 3.3."""

    dataset: str | None = None
    shots: int = 0
    exemplars: Literal["same", "other"] = "same"
    shifts: int = 4

    @property
    def given(self) -> str:
        """Its exemplars, as files and messages name them."""
        return f"{self.shots}-{self.exemplars}" if self.shots else "0-none"

    @property
    def label(self) -> str:
        """How files and messages name it."""
        return f"{self.given}-K{self.shifts}"


Count = Callable[[EvalSpec, Sequence[ExemplarChoice]], Prediction]
"""Counts the opened video as an evaluation says, with the exemplars chosen for it."""
REMEMBERED_EXEMPLARS = 64
"""Videos whose exemplars are kept when they are encoded as they are needed."""


class EvaluatedModel(Protocol):
    """name: as the table prints it. identity: everything that decides its counts, as JSON values."""

    name: str
    identity: Mapping[str, Any]

    def offered(self, video: VideoAnnotation) -> int:
        """How many exemplars a video can give."""
        ...

    def fingerprint(self, video: VideoAnnotation) -> str | None:
        """What the video is now: a count of another one is stale. None: it is not here."""
        ...

    def open(self, video: VideoAnnotation) -> Count:
        """The expensive half, done once; raises VideoError or DataError when the video cannot be used."""
        ...


class TokenSource:
    """A dataset's tokens: from a store where they are in it, else encoded from the videos, one at a time."""

    def __init__(
        self,
        dataset: Dataset,
        layout: TokenLayout,
        *,
        store: TokenStore | None = None,
        encoder: Encoder | None = None,
        root: Path | None = None,
    ) -> None:
        """Either a store, or an encoder and the folder with the videos, or both."""
        self.dataset, self.layout, self.store, self.encoder, self.root = dataset, layout, store, encoder, root
        self._exemplars = lru_cache(REMEMBERED_EXEMPLARS)(self._encode_exemplars)

    def offered(self, video: VideoAnnotation) -> int:
        """Exemplars that a video can give."""
        if self.store is not None and video.name in self.store:
            return self.store.entries[video.name].exemplars
        return min(len(video.exemplars), self.layout.exemplars) if self._file(video) else 0

    def fingerprint(self, video: VideoAnnotation) -> str | None:
        """The hash of stored tokens, or size and time of the file; None when there is neither."""
        if self.store is not None and video.name in self.store:
            entry = self.store.entries[video.name]
            return entry.sha256[:16] if entry.cells else None
        file = self._file(video)
        return None if file is None else file_fingerprint(file)

    def tokens(self, video: VideoAnnotation) -> VideoTokens:
        """A video's sequences at every offset."""
        if self.store is not None and video.name in self.store:
            return self.store.load(video.name)
        file, encoder = self._found(video)
        # Exemplars are encoded where they are asked for: each costs as much as a window.
        return encode_video(file, video, encoder, replace(self.layout, exemplars=0))

    def exemplar(self, name: str, index: int) -> tuple[Tensor, tuple[float, float]]:
        """One exemplar's tokens (T, H, W, C) and its span in seconds."""
        if self.store is not None and name in self.store:
            return self.store.exemplar(name, index)
        made = self._exemplars(name)
        start, end = made.exemplar_spans[index]
        return made.exemplars[index], (float(start), float(end))

    def _encode_exemplars(self, name: str) -> VideoTokens:
        video = self.dataset.find(name)
        file, encoder = self._found(video)
        return encode_exemplars(file, video, encoder, self.layout)

    def _file(self, video: VideoAnnotation) -> Path | None:
        return None if self.root is None or self.encoder is None else self.dataset.locate(self.root, video)

    def _found(self, video: VideoAnnotation) -> tuple[Path, Encoder]:
        file = self._file(video)
        if file is None or self.encoder is None:
            raise VideoError(f"no video of {video.name} under {self.root}")
        return file, self.encoder


class TokenModel:
    """A decoder, or another head, on tokens.

    coming: videos that will be counted, in this order. Where they are stored, many are decoded together.
    """

    def __init__(
        self,
        name: str,
        network: nn.Module,
        source: TokenSource,
        *,
        identity: Mapping[str, Any],
        by_window: bool = False,
        device: torch.device | str = "cpu",
        coming: Sequence[VideoAnnotation] = (),
    ) -> None:
        self.name, self.source, self.by_window = name, source, by_window
        self.device = torch.device(device)
        self.head = head_of(network).to(self.device).eval()
        self.identity = identity
        groups = () if source.store is None else decoded_together(coming, source.store)
        self._group = {video.name: tuple(group) for group in groups for video in group}
        self._decoded: dict[tuple[str, int], Array32] = {}

    def offered(self, video: VideoAnnotation) -> int:
        return self.source.offered(video)

    def fingerprint(self, video: VideoAnnotation) -> str | None:
        return self.source.fingerprint(video)

    def open(self, video: VideoAnnotation) -> Count:
        tokens = self.source.tokens(video)

        def count(spec: EvalSpec, chosen: Sequence[ExemplarChoice]) -> Prediction:
            return self._count(video, tokens, spec, chosen)

        return count

    def _count(
        self, video: VideoAnnotation, tokens: VideoTokens, spec: EvalSpec, chosen: Sequence[ExemplarChoice]
    ) -> Prediction:
        exemplars = []
        for name, index in chosen:
            shot_THWC, (start, end) = self.source.exemplar(name, index)
            # Another video has its own tempo: the length of its repetitions says nothing here.
            exemplars.append((shot_THWC, (end - start) / tokens.step if name == video.name else 0.0))
        values = self._map(tokens, exemplars, spec.shifts)
        given = spec.exemplars if exemplars else "none"
        return self.row(video, tokens, values, shots=len(exemplars), exemplars=given)

    def _map(self, tokens: VideoTokens, exemplars: Sequence[ExemplarTokens], shifts: int) -> Array32:
        """A video's map; zero-shot it comes with those of its group, of which the last one is remembered."""
        layout, by_window = self.source.layout, self.by_window
        group, store = self._group.get(tokens.name), self.source.store
        if exemplars or group is None or store is None:
            return decode_tokens(
                self.head, tokens, layout, exemplars, shifts=shifts, by_window=by_window, device=self.device
            )
        if (tokens.name, shifts) not in self._decoded:
            videos = []
            for video in group:
                with suppress(DataError):  # one that is damaged says so when its turn comes, and costs no other
                    videos.append(tokens if video.name == tokens.name else store.load(video.name))
            maps = decode_videos(self.head, videos, layout, shifts=shifts, by_window=by_window, device=self.device)
            same = any(name == tokens.name for name, _ in self._decoded)  # another K of the group at hand
            decoded = {(video.name, shifts): values for video, values in zip(videos, maps, strict=True)}
            self._decoded = (self._decoded if same else {}) | decoded
        return self._decoded[tokens.name, shifts]

    def row(self, video: VideoAnnotation, tokens: VideoTokens, values: Array32, **about: Any) -> Prediction:
        """The row of a map that was made of its tokens."""
        density = DensityMap(values, 0.0, tokens.step, map_kind(self.head))
        dataset = self.source.dataset.name
        return prediction_of(video, density, duration=tokens.duration, dataset=dataset, model=self.name, **about)


class FileModel:
    """A model that counts video files: `lite`, `spectral`, any checkpoint that counts on its own."""

    def __init__(
        self, name: str, counter: Counter, dataset: Dataset, root: Path, *, identity: Mapping[str, Any]
    ) -> None:
        self.name, self.counter, self.dataset, self.root = name, counter, dataset, root
        self.identity = identity

    def offered(self, video: VideoAnnotation) -> int:
        return len(video.exemplars) if self.dataset.locate(self.root, video) else 0

    def fingerprint(self, video: VideoAnnotation) -> str | None:
        file = self.dataset.locate(self.root, video)
        return None if file is None else file_fingerprint(file)

    def open(self, video: VideoAnnotation) -> Count:
        file = self.dataset.locate(self.root, video)
        if file is None:
            raise VideoError(f"no video of {video.name} under {self.root}")
        end = None if video.duration is None else video.begin + video.duration
        encoded = self.counter.encode(file, start=video.begin, end=end)

        def count(spec: EvalSpec, chosen: Sequence[ExemplarChoice]) -> Prediction:
            exemplars = [self._span(video, choice) for choice in chosen]
            result = encoded.count(exemplars)
            return prediction_of(
                video,
                replace(result.density, start=result.density.start - video.begin),
                duration=result.range[1] - result.range[0],
                dataset=self.dataset.name,
                shots=len(exemplars),
                exemplars=spec.exemplars if exemplars else "none",
                model=self.name,
            )

        return count

    def _span(self, video: VideoAnnotation, choice: ExemplarChoice) -> ExemplarSpan:
        name, index = choice
        other = video if name == video.name else self.dataset.find(name)
        start, end = other.exemplars[index]
        file = None if other is video else self.dataset.locate(self.root, other)
        if other is not video and file is None:
            raise VideoError(f"no video of {other.name} under {self.root}, whose repetition is the exemplar")
        return ExemplarSpan(other.begin + start, other.begin + end, None if file is None else str(file))


class MapFunction:
    """A function from an annotated video to its density map, as a model: zero-shot, with no file to open.

    here: names of the videos that it has a map of; None for all.
    """

    def __init__(
        self,
        name: str,
        dataset: Dataset,
        density_map: Callable[[VideoAnnotation], DensityMap],
        *,
        identity: Mapping[str, Any],
        here: Container[str] | None = None,
    ) -> None:
        self.name, self.dataset, self.identity = name, dataset, identity
        self._density_map, self._here = density_map, here

    def offered(self, video: VideoAnnotation) -> int:
        return 0

    def fingerprint(self, video: VideoAnnotation) -> str | None:
        return "any" if self._here is None or video.name in self._here else None

    def open(self, video: VideoAnnotation) -> Count:
        seconds, dataset = video.duration or 1.0, self.dataset.name
        row = prediction_of(video, self._density_map(video), duration=seconds, dataset=dataset, model=self.name)
        return lambda spec, chosen: row


def mean_count(dataset: Dataset) -> MapFunction:
    """Always the mean count of the training videos: what a method must beat to have learnt anything."""
    mean = float(np.mean([video.count for video in dataset.split("train")]))

    def density_map(video: VideoAnnotation) -> DensityMap:
        return DensityMap(np.array([mean], np.float32), 0.0, video.duration or 1.0, "rate")

    return MapFunction("mean count", dataset, density_map, identity={"constant": mean})


def file_fingerprint(path: Path) -> str:
    """Size and time of change: enough to see that a video was replaced."""
    return "-".join(map(str, file_state(path)))
