"""Which videos are to be counted, how, and what each is called in the results."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from escounts.errors import VideoError
from escounts.file_kinds import VIDEO_SUFFIXES
from escounts.video import video_files
from escounts.zoo import catalogue


@dataclass(frozen=True)
class Settings:
    """How every video of a batch is counted. limit: seconds that one video may take before it is given up."""

    model: str = "default"
    device: str = "auto"
    exemplars: tuple[str, ...] = ()
    thorough: bool = False
    assume_repeats: bool = False
    limit: float = 3600.0

    def fingerprint(self) -> dict[str, Any]:
        """What a result depends on."""
        values = asdict(self)
        del values["device"], values["limit"]
        return {**values, "weights": catalogue.weights_sha256(self.model)}


@dataclass(frozen=True)
class Task:
    """One video to be counted. id: the same for the same file and settings, another where either changes."""

    id: str
    video: str


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether fsspec is asked for it (s3://bucket/videos) rather than the file system."""
    return "://" in str(path)


def find_tasks(inputs: Iterable[str | os.PathLike[str]], settings: Settings) -> list[Task]:
    """The videos among files, folders and addresses of either, each once, in order."""
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    found: dict[str, Task] = {}
    fingerprint = settings.fingerprint()
    for given in inputs:
        before = len(found)
        for video, state in _in_storage(str(given)) if is_address(given) else _in_folder(Path(given)):
            text = json.dumps([video, state, fingerprint], sort_keys=True)
            found.setdefault(video, Task(hashlib.sha256(text.encode()).hexdigest()[:24], video))
        if len(found) == before:
            raise VideoError(f"{given}: no videos there; give videos, folders of videos, or addresses of either")
    return list(found.values())


def _in_folder(path: Path) -> Iterator[tuple[str, list[Any]]]:
    """(absolute path, size and time of change) of a video, or of each below a folder."""
    if not path.exists():
        raise VideoError(f"{path}: no such file or folder")
    for video in video_files(path) if path.is_dir() else [path]:
        status = video.stat()
        yield str(video.resolve()), [status.st_size, status.st_mtime_ns]


def _in_storage(address: str) -> Iterator[tuple[str, list[Any]]]:
    import fsspec  # noqa: PLC0415 - the extra [batch]

    try:
        storage, path = fsspec.core.url_to_fs(address)
        entries = storage.find(path, detail=True)
    except (ImportError, OSError, ValueError) as error:
        raise VideoError(f"{address}: cannot be listed: {error}") from error
    for name, entry in sorted(entries.items()):
        if Path(name).suffix.lower() in VIDEO_SUFFIXES:
            changed = next((str(entry[key]) for key in ("ETag", "etag", "mtime", "LastModified") if key in entry), "")
            yield storage.unstrip_protocol(name), [entry.get("size"), changed]
