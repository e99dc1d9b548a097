"""The tasks of a batch: which videos are to be counted, how, and what each is called in the results; and the process
that counts one: whatever a video does to it, the one who asked gets a row."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import escounts
from escounts import __version__
from escounts.errors import EscountsError, VideoError
from escounts.exemplars import exemplar_list, states_of_videos
from escounts.models import catalogue
from escounts.system.arguments import USUAL, Check, optional, positive, text
from escounts.system.atomic_files import file_state
from escounts.system.sandbox import Sandbox
from escounts.system.task_processes import TaskError, TaskProcess
from escounts.video import VIDEO_SUFFIXES
from escounts.video.files import video_files
from escounts.video.regions import region

if TYPE_CHECKING:
    from escounts.counter import Counter, WantedUnit

Row = dict[str, Any]
"""What is known of one video: the columns of `row_schema` (rows.py) by name."""


LATER_SETTINGS: dict[str, Any] = {"start": 0.0, "end": None, "region": None, "unit": "auto"}
"""Settings that rows of earlier versions do not know, with what was true of them: those rows stay valid."""


def _written_exemplars(name: str, value: Any) -> list[str]:
    return [text(f"{name}[{index}]", one) for index, one in enumerate(exemplar_list(name, value))]


SETTING_CHECKS: dict[str, Check] = {
    **USUAL,
    "exemplars": _written_exemplars,
    "limit": positive,
    "region": optional(region),
}


@dataclass(frozen=True)
class Settings:
    """How every video of a batch is counted. limit: seconds that one video may take before it is given up.

    start, end: seconds of each video that are counted; region: the box of the picture; unit: what is counted.
    """

    model: str = "default"
    device: str = "auto"
    exemplars: tuple[str, ...] = ()
    assume_repeats: bool = False
    limit: float = 3600.0
    start: float = 0.0
    end: float | None = None
    region: str | None = None
    unit: WantedUnit = "auto"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            SETTING_CHECKS[name](name, value)

    @property
    def counting(self) -> dict[str, Any]:
        """What `Counter.count` takes beside the video, under its names."""
        values = asdict(self)
        for name in ("model", "device", "limit"):
            del values[name]
        return values

    def fingerprint(self) -> dict[str, Any]:
        """What a result depends on."""
        values = {"model": self.model, **self.counting}
        for name, unchanged in LATER_SETTINGS.items():
            if values[name] == unchanged:
                del values[name]
        videos = states_of_videos(self.exemplars)
        shown = {"exemplar_videos": videos} if videos else {}
        older = {"thorough": False}  # an option of 0.1.0: the rows of a batch that it began keep their ids
        return {**values, **shown, **older, "weights": catalogue.weights_sha256(self.model)}


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
        there = False
        for video, state in _in_storage(str(given)) if is_address(given) else _in_folder(Path(given)):
            there = True  # though it may have been given before, by another name
            text = json.dumps([video, state, fingerprint], sort_keys=True)
            found.setdefault(video, Task(hashlib.sha256(text.encode()).hexdigest()[:24], video))
        if not there:
            raise VideoError(f"{given}: no videos there; give videos, folders of videos, or addresses of either")
    return list(found.values())


def _in_folder(path: Path) -> Iterator[tuple[str, list[Any]]]:
    """(absolute path, size and time of change) of a video, or of each below a folder."""
    if not path.exists():
        raise VideoError(f"{path}: no such file or folder")
    for video in video_files(path) if path.is_dir() else [path]:
        state: list[int] = []
        with suppress(OSError):  # a link that leads nowhere, or round in a circle: counting it says so
            state = file_state(video)
        yield os.path.realpath(video), state


def storage_of(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path on it. Raises EscountsError that names the driver that is missing;
    OSError and ValueError are fsspec's."""
    import fsspec  # noqa: PLC0415 - the extra [batch]

    try:
        storage, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        if not missing.name:
            raise EscountsError(f"{address}: {' '.join(str(error).split())}") from error
        package = missing.name.partition(".")[0]  # of fsspec's drivers the package has the module's name
        raise EscountsError(f"{address}: this needs {package}: pip install {package}") from error
    return storage, str(path)


def _in_storage(address: str) -> Iterator[tuple[str, list[Any]]]:
    try:
        storage, path = storage_of(address)
        entries = storage.find(path, detail=True)
    except (OSError, ValueError) as error:
        raise VideoError(f"{address}: cannot be listed: {error}") from error
    for name, entry in sorted(entries.items()):
        if Path(name).suffix.lower() in VIDEO_SUFFIXES:
            changed = next((str(entry[key]) for key in ("ETag", "etag", "mtime", "LastModified") if key in entry), "")
            yield storage.unstrip_protocol(name), [entry.get("size"), changed]


class CountingProcess(TaskProcess[Task, Row]):
    """Counts one video at a time in a process of its own.

    >>> with CountingProcess(settings) as process:
    ...     row = process.ask(task)
    """

    def __init__(self, settings: Settings, *, threads: int | None = None, sandbox: Sandbox | None = None) -> None:
        """threads: cores that it may use; all when None. sandbox: what it is confined to."""
        super().__init__(_counter, settings, limit=settings.limit, threads=threads, sandbox=sandbox)

    def ask(self, task: Task) -> Row:
        """The video's row, an error row where it cannot be counted. Raises EscountsError where no video can be."""
        return whole_row(task, super().ask)


def whole_row(task: Task, answer: Callable[[Task], Row]) -> Row:
    """What is known of a video once it was asked for: `answer` gives a part of its row, or raises TaskError."""
    began = time.monotonic()
    try:
        counted = answer(task)
    except TaskError as error:
        named = str(error) if task.video in str(error) else f"{task.video}: {error}"
        counted = {"status": "error", "error": named}
    return {"id": task.id, "video": task.video, "escounts": __version__, **counted, "spent": time.monotonic() - began}


def _counter(settings: Settings) -> Callable[[Task], Row]:
    """In the process: the model, loaded; it answers each task with a part of a row."""
    counter = same_on_every_machine(escounts.load(settings.model, device=settings.device))
    return lambda task: row_of(counter, task, settings)


def same_on_every_machine(counter: Counter) -> Counter:
    """The counter, in float32 on every CPU unless ESCOUNTS_PRECISION is set: a video's row must not depend on which
    of several machines, with bf16 units or without, counted it."""
    if "torch" not in sys.modules:
        return counter  # a model without a network
    from escounts.nn.device import PRECISION_VARIABLE  # noqa: PLC0415 - torch: the parent process needs none of it

    model: Any = counter.model
    if hasattr(model, "precision") and model.device.type == "cpu" and PRECISION_VARIABLE not in os.environ:
        model.precision = "float32"
    return counter


def row_of(counter: Any, task: Task, settings: Settings, *, video: Any = None) -> Row:
    """The counted part of a video's row. video: it, opened; None: the task's address is."""
    read_ahead = video is not None  # of its region alone
    fetch = video is None and is_address(task.video)
    folder = Path(tempfile.mkdtemp(prefix="escounts-")) if fetch else None
    try:
        video = video or (task.video if folder is None else fetched(task.video, folder))
        result = counter.count(video, **{**settings.counting, **({"region": None} if read_ahead else {})})
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return {
        "status": "counted",
        "count": result.count,
        "raw_count": result.raw_count,
        "confidence": result.confidence,
        "unsure": result.unsure,
        "unit": result.unit,
        "starts": [repetition.start for repetition in result.repetitions],
        "ends": [repetition.end for repetition in result.repetitions],
        "duration": result.duration,
        "model": result.model,
        "region": result.region,
    }


def fetched(address: str, folder: Path) -> str:
    """A copy of a stored video: decoders jump about in a file, which object storage answers slowly."""
    target = str(folder / os.path.basename(address))
    storage, path = storage_of(address)
    storage.get_file(path, target)
    return target
