"""The token store: a dataset's videos, encoded once, on disk in float16.

One safetensors file per video (it can be memory-mapped), an index with the sha256 of each, and the layout: which
encoder made the tokens, how they were pooled, at which offsets. A file is whole or absent, so a killed encoding
resumes, and the finished store is the same byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from escounts.errors import DataError, OutputError
from escounts.models.store import file_sha256
from escounts.system.arrays import Array
from escounts.system.atomic_files import lock_folder, remove_partials, write_bytes
from escounts.system.config_codec import from_plain

INDEX = "index.json"
LAYOUT = "layout.json"
VIDEOS = "videos"
HALF = 2
"""Bytes of a float16."""


@dataclass(frozen=True)
class TokenLayout:
    """What the tokens of a store are.

    encoder: name in the registry. identity: sha256 of its weights. channels: C of a token. grid: H, W that are
    stored, after pooling; exemplar_grid, exemplar_cells: the same and T of an exemplar. window_cells: time
    cells of one encoder window. every: raw frames between sampled frames, when fps is None; else fps: sampled
    frames a second. frames_per_cell: sampled frames a cell stands for. offsets: cells at which the stored
    sequences start. exemplars: most repetitions of a video that are stored as exemplars. padding: what fills the
    last window of a video, its last frame again or, as in the released code, the mean colour.
    """

    encoder: str
    identity: str
    channels: int
    grid: tuple[int, int]
    exemplar_grid: tuple[int, int]
    exemplar_cells: int
    window_cells: int
    every: int
    fps: float | None
    frames_per_cell: int
    offsets: tuple[int, ...]
    exemplars: int
    padding: Literal["last", "mean"] = "last"

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> TokenLayout:
        """From a store's layout file; what a later version may have added is left out."""
        return from_plain(cls, values, ignore_unknown=True)

    def step(self, fps: float) -> float:
        """Seconds of a cell in a video of that raw frame rate."""
        if self.fps is not None:
            return self.frames_per_cell / self.fps
        return self.frames_per_cell * self.every / fps

    def video_bytes(self, seconds: float, fps: float, exemplars: int) -> int:
        """Estimate of what one video takes on disk."""
        cells = seconds / self.step(fps)
        sequence = sum(max(cells - offset, 0.0) for offset in self.offsets)
        token = self.channels * HALF
        shots = min(exemplars, self.exemplars) * self.exemplar_cells * _area(self.exemplar_grid)
        return int((sequence * _area(self.grid) + shots) * token)

    def differences(self, other: TokenLayout, *, of_kind: bool = False) -> list[str]:
        """Fields in which two layouts differ, as `field: ours, not theirs`; of_kind: only those that make tokens
        another kind, not how many of them are stored."""
        mine, theirs = asdict(self), asdict(other)
        names = [name for name in mine if not (of_kind and name in ("offsets", "exemplars"))]
        return [f"{name}: {mine[name]}, not {theirs[name]}" for name in names if mine[name] != theirs[name]]


@dataclass(frozen=True)
class VideoTokens:
    """One encoded video.

    sequences: offset in cells → tokens (T, H, W, C) float16 from that cell on. exemplars: (R, T, H, W, C)
    float16 with their spans in seconds (R, 2). step: seconds of a cell. duration: seconds.
    """

    name: str
    sequences: Mapping[int, Tensor]
    exemplars: Tensor
    exemplar_spans: Array
    step: float
    duration: float


@dataclass(frozen=True)
class IndexEntry:
    """file: name under videos/. cells: length of the sequence at offset 0. exemplars: how many are stored."""

    file: str
    sha256: str
    bytes: int
    cells: int
    exemplars: int
    step: float
    duration: float


class TokenStore:
    """A finished or growing store, for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layout = read_layout(path)
        try:
            entries = json.loads((path / INDEX).read_text())
            self.entries = {name: IndexEntry(**entry) for name, entry in entries.items()}
        except FileNotFoundError:
            raise DataError(f"{path} has no {INDEX}: the encoding did not finish; run it again") from None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path / INDEX} cannot be read: {error}; encode again, what is whole is kept") from error

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    @property
    def bytes(self) -> int:
        """Size of all token files."""
        return sum(entry.bytes for entry in self.entries.values())

    def require(self, layout: TokenLayout) -> None:
        """Refuse a store whose tokens are of another kind than that layout's."""
        differences = self.layout.differences(layout, of_kind=True)
        if differences:
            raise DataError(f"{self.path} holds other tokens ({'; '.join(differences)}); encode into a new folder")

    def verify(self) -> list[str]:
        """Names whose file is missing, short, or not what was written."""
        short, folder = self.incomplete(list(self.entries)), self.path / VIDEOS
        return [n for n, e in self.entries.items() if n in short or file_sha256(folder / e.file) != e.sha256]

    def incomplete(self, names: Sequence[str]) -> list[str]:
        """Names whose file is missing or of another size than was written; quick, reads no tokens."""
        paths = {name: self.path / VIDEOS / self.entries[name].file for name in names}
        return [n for n, path in paths.items() if not path.is_file() or path.stat().st_size != self.entries[n].bytes]

    def load(self, name: str, offset: int | None = None) -> VideoTokens:
        """The tokens of a video, all its sequences or the one at an offset (in cells)."""
        entry = self.entries.get(name)
        if entry is None:
            raise DataError(f"{self.path} has no tokens of {name}; encode the dataset again to add it")
        return read_video(self.path / VIDEOS / entry.file, offset)

    def exemplar(self, name: str, index: int) -> tuple[Tensor, tuple[float, float]]:
        """One stored exemplar (T, H, W, C) and its span in seconds, without reading the others."""
        path = self.path / VIDEOS / self.entries[name].file
        with _opened(path) as handle:
            tokens: Tensor = handle.get_slice("exemplars")[index]
            spans = handle.get_tensor("exemplar_spans")
        return tokens, (float(spans[index, 0]), float(spans[index, 1]))


class TokenWriter:
    """The one writer of a store; use as a context. What is there already is kept."""

    def __init__(self, path: Path, layout: TokenLayout) -> None:
        self.path = path
        self.layout = layout
        self.entries: dict[str, IndexEntry] = {}

    def __enter__(self) -> TokenWriter:
        (self.path / VIDEOS).mkdir(parents=True, exist_ok=True)
        busy = DataError(f"{self.path} is being written by another process; wait or choose another")
        self._lock = lock_folder(self.path, busy)
        if (self.path / LAYOUT).exists():
            differences = read_layout(self.path).differences(self.layout)
            if differences:
                self._lock.release()
                what = "; ".join(differences)
                raise DataError(f"{self.path} holds other tokens ({what}); encode into a new folder")
        else:
            write_bytes(self.path / LAYOUT, _json(asdict(self.layout)))
        remove_partials(self.path)
        remove_partials(self.path / VIDEOS)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def has(self, name: str) -> bool:
        """Whether a whole file of that video is there; it is then taken into the index."""
        path = self.path / VIDEOS / file_name(name)
        if not path.exists():
            return False
        try:
            video = read_video(path)
        except DataError as error:
            if isinstance(error.__cause__, OSError):
                raise  # it cannot be read now, for want of a right or of memory: that is no reason to delete it
            path.unlink()
            return False
        self.entries[name] = _entry(path, video)
        return True

    def write(self, video: VideoTokens) -> None:
        """Store one video, whole or not at all."""
        self.entries[video.name] = _entry(write_video(self.path, video), video)

    def finish(self) -> TokenStore:
        """Write the index; the store can then be read. What an earlier encoding indexed (another split, another
        division of the same videos) stays while its file is there."""
        earlier: dict[str, Any] = {}
        if (self.path / INDEX).exists():
            with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):  # a torn one is made anew
                earlier = {
                    name: entry
                    for name, entry in json.loads((self.path / INDEX).read_text()).items()
                    if (self.path / VIDEOS / entry["file"]).exists()
                }
        entries = earlier | {name: asdict(entry) for name, entry in self.entries.items()}
        entries = {name: entries[name] for name in sorted(entries)}
        write_bytes(self.path / INDEX, _json(entries))
        return TokenStore(self.path)


def write_video(store: Path, video: VideoTokens) -> Path:
    """One video's file in a store, whole or not at all; whoever holds the store's TokenWriter takes it into the index
    (`has`). The file."""
    path = store / VIDEOS / file_name(video.name)
    # Copies: sequences may be views of one another, which safetensors does not take.
    tensors = {
        f"offset_{offset}": tokens.half().clone(memory_format=torch.contiguous_format)
        for offset, tokens in video.sequences.items()
    }
    tensors["exemplars"] = video.exemplars.half().contiguous()
    tensors["exemplar_spans"] = torch.from_numpy(video.exemplar_spans.reshape(-1, 2).astype(np.float64))
    # One metadata entry: safetensors keeps no order among several, and files must be reproducible.
    about = json.dumps({"name": video.name, "step": video.step, "duration": video.duration})
    try:
        write_bytes(path, save(tensors, metadata={"video": about}))
    except OutputError as error:
        raise OutputError(f"{error}; what was written before is kept, run again to go on") from error
    return path


def read_layout(path: Path) -> TokenLayout:
    """The layout of a store."""
    try:
        return TokenLayout.from_plain(json.loads((path / LAYOUT).read_text()))
    except FileNotFoundError:
        raise DataError(f"{path} is not a token store: no {LAYOUT} in it; make one with escounts encode") from None
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise DataError(f"{path / LAYOUT} cannot be read: {error}") from error


def read_video(path: Path, offset: int | None = None) -> VideoTokens:
    """One video's file; only the sequence at an offset when that is given."""
    with _opened(path) as handle:
        about = json.loads((handle.metadata() or {}).get("video", "null"))
        if about is None:
            raise DataError(f"{path} is not a token file")
        names: list[str] = list(handle.keys())
        keys = [key for key in names if key.startswith("offset_")]
        offsets = sorted(int(key.removeprefix("offset_")) for key in keys)
        if offset is not None and offset not in offsets:
            raise DataError(f"{path} has no sequence at offset {offset}; it has {offsets}")
        wanted = offsets if offset is None else [offset]
        return VideoTokens(
            name=about["name"],
            sequences={at: handle.get_tensor(f"offset_{at}") for at in wanted},
            exemplars=handle.get_tensor("exemplars"),
            exemplar_spans=handle.get_tensor("exemplar_spans").numpy(),
            step=about["step"],
            duration=about["duration"],
        )


def file_name(name: str) -> str:
    """A file name for a video name: readable, and unique by a hash."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", name)[-80:]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:10]}.safetensors"


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="pt") as handle:
            yield handle
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is damaged or missing ({error}); delete it and encode again") from error


def _entry(path: Path, video: VideoTokens) -> IndexEntry:
    cells = len(video.sequences[min(video.sequences)]) if video.sequences else 0
    return IndexEntry(
        file=path.name,
        sha256=file_sha256(path),
        bytes=path.stat().st_size,
        cells=cells,
        exemplars=len(video.exemplars),
        step=video.step,
        duration=video.duration,
    )


def _area(grid: tuple[int, int]) -> int:
    return grid[0] * grid[1]


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
