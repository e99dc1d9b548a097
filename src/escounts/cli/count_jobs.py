"""Counting many videos: from what was typed to videos and names of outputs; counted one at a time in this process, or
several in processes of their own.

Whatever a file does, it does to itself alone: any exception is that file's failure, and a process that dies takes one
video with it. The ledger of an output folder says which videos are finished, so that a second
run skips them.
"""

from __future__ import annotations

import collections
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import escounts
from escounts.cli import collector_paused
from escounts.errors import EscountsError, OutputError, VideoError, explained
from escounts.models.catalogue import counting_sandbox
from escounts.output import FORMATS
from escounts.output.json import from_dict
from escounts.system.atomic_files import append_json, file_state, json_lines, remove_partials
from escounts.system.task_processes import TaskError, answers, divided
from escounts.video.decoding import image_files
from escounts.video.files import video_files

if TYPE_CHECKING:
    from escounts.counter import Counter
    from escounts.results import CountResult

LEDGER = ".escounts-finished.jsonl"


class Ledger:
    """The record of one output folder: output name → settings, video size and age, files written.

    One line per finished video, appended; the last one of a name counts. Before files are written a line reserves
    their names: a file that no line names is somebody else's, and is not written over.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._folder = folder
        self._entries: dict[str, dict[str, Any]] = {}
        self._own_files: set[str] = set()
        self.owners: dict[str, list[Any]] = {}
        """Output name → `file_identity` of the video that has it."""
        remove_partials(folder)
        self._read()

    def _read(self) -> None:
        for entry in json_lines(self._path):
            with suppress(ValueError, KeyError, TypeError):
                if "claimed" in entry:
                    self._own(entry["claimed"], entry["video"], entry["files"])
                    if before := self._entries.get(entry["claimed"]):  # these files were about to be replaced
                        before["files"] = [file for file in before["files"] if file not in entry["files"]]
                else:
                    self._own(entry["name"], entry["video"], entry["files"])
                    self._entries[entry["name"]] = entry

    def _own(self, name: str, video: list[Any], files: Sequence[str]) -> None:
        path, _size, _changed = video
        if not (isinstance(files, (list, tuple)) and all(isinstance(text, str) for text in (name, path, *files))):
            raise ValueError("a line that no version wrote")
        self.owners[name] = video
        self._own_files.update(files)

    def foreign_files(self, files: Sequence[str]) -> list[str]:
        """Those of these files that exist and that no run of escounts wrote or was about to write."""
        found = [file for file in files if file not in self._own_files and os.path.lexists(self._folder / file)]
        if found:
            self._read()  # another process may be writing here, too
        return [file for file in found if file not in self._own_files]

    def drop_if_empty(self) -> None:
        """Remove a record that names no file that is there: nothing could be written."""
        self._read()
        if not self._entries and not any(os.path.lexists(self._folder / file) for file in self._own_files):
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def about(
        self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str]
    ) -> Mapping[str, Any] | None:
        """What was noted of this very video, if these files were written with these settings and are still there."""
        if not self._is_same(name, video, settings):
            return None
        entry = self._entries[name]
        about = entry.get("about", {})
        there = set(files) <= set(entry.get("files", [])) and all((self._folder / f).exists() for f in files)
        return about if there and isinstance(about, dict) else None

    def stale(self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str]) -> list[str]:
        """Files of this video, beside `files`, from other settings or from before the video changed."""
        if name not in self._entries or self._is_same(name, video, settings):
            return []
        before = self._entries[name]["files"]
        return [file for file in before if file not in files and (self._folder / file).exists()]

    def add(
        self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str], about: Mapping[str, Any]
    ) -> None:
        """Remember a finished video and what to say of it again; files of an earlier run with the same settings stay
        listed."""
        kept = self._entries[name].get("files", []) if self._is_same(name, video, settings) else []
        entry = {
            "name": name,
            "video": file_identity(video),
            "settings": dict(settings),
            "files": sorted({*kept, *files}),
            "about": dict(about),
        }
        self._entries[name] = entry
        self._own(name, file_identity(video), files)
        try:
            append_json(self._path, entry)
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror or error}") from error

    def _is_same(self, name: str, video: Path, settings: Mapping[str, Any]) -> bool:
        """Whether the entry of that name is of this very video and these settings."""
        entry = self._entries.get(name, {})
        return entry.get("settings") == dict(settings) and entry.get("video") == file_identity(video)


def reserve_files(folder: Path, name: str, video: Path, files: Sequence[str]) -> None:
    """Note in a folder's record, before they are written, which files are to be those of a video."""
    with suppress(OSError):  # what cannot be written says so itself
        append_json(folder / LEDGER, {"claimed": name, "video": file_identity(video), "files": list(files)})


def file_identity(file: Path) -> list[Any]:
    """A file as a run finds it again: its path, size in bytes and time of change."""
    try:
        return [str(file.resolve()), *file_state(file)]
    except OSError as error:
        raise OutputError(f"{file}: {error.strerror or error}") from error


ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""How an address begins; a path's two slashes are one."""


def videos_among(inputs: Sequence[Path]) -> list[tuple[Path, str]]:
    """Files as they are, folders as the videos in them (or as a folder of images); each video once.

    Returns, in the order given, each video with "" and each input that holds none with the reason.
    """
    found: dict[Path, tuple[Path, str]] = {}
    for given in inputs:
        try:
            if ADDRESS.match(str(given)) and not given.exists():
                address = str(given).replace(":/", "://", 1)
                raise VideoError(
                    f"{address}: an address; `escounts watch ADDRESS` counts what it sends, and a file is counted "
                    "once it is downloaded"
                )
            if not given.is_dir():
                inside = [given]
            else:
                inside = [path for path in video_files(given) if not path.name.endswith(".counted.mp4")]
                if not inside:
                    images = len(image_files(given))
                    raise VideoError(f"{given}: no videos in this folder" + (", one image" if images else ""))
            for path in inside:
                found.setdefault(_real(path), (path, ""))
        except EscountsError as error:
            found.setdefault(given, (given, str(error)))
        except (OSError, ValueError) as error:
            reason = f"{given}: {(getattr(error, 'strerror', None) or str(error)).lower()}"
            found.setdefault(given, (given, reason))
    return list(found.values())


def output_names(
    videos: Sequence[Path], owners: Mapping[str, Sequence[Any]] | None = None
) -> Iterator[tuple[Path, str]]:
    """Each video with a name for its outputs: its stem, or more of its path where stems are equal.

    owners: by name, the `file_identity` of the video that has it already, and keeps it.
    """
    owners = owners or {}
    named = {owner[0]: name for name, owner in owners.items()}
    taken: set[str] = set()
    stems = collections.Counter(_real(video).stem for video in videos)
    for video in videos:
        path = _real(video)
        choices = [path.name, f"{path.parent.name}-{path.name}"]
        if str(path) in named:
            choices.insert(0, named[str(path)])
        elif stems[path.stem] == 1:
            choices.insert(0, path.stem)
        numbered = (f"{path.parent.name}-{path.name}-{number}" for number in count(2))
        free = (choice for choice in chain(choices, numbered) if choice not in taken)
        name = next(choice for choice in free if choice not in owners or _is_owner(owners[choice], path))
        taken.add(name)
        yield video, name


def _is_owner(owner: Sequence[Any], path: Path) -> bool:
    """Whether a `file_identity` is of this video, or of what was this video before it was moved."""
    try:
        return owner[0] == str(path) or list(owner[1:]) == file_identity(path)[1:]
    except EscountsError:  # counting it says why
        return False


def _real(path: Path) -> Path:
    """Without links. Path.resolve raises where links go round in a circle; opening the video says so."""
    return Path(os.path.realpath(path))


Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Task:
    """One video to count. name: of its files, without their endings. counting: what `Counter.count` takes beside the
    video. folder: None writes nothing."""

    video: Path
    name: str
    counting: dict[str, Any]
    folder: Path | None
    formats: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """Names of the files it writes."""
        return [self.name + FORMATS[kind].suffix for kind in self.formats]


Done = tuple["CountResult | None", "str | None", list[str]]
"""The result, None where counting failed; what went wrong, in counting or in writing; the files written."""


def attempt(counter: Counter, task: Task, progress: Progress | None = None) -> Done:
    """Count one video and write its files. A count whose files cannot be written is a count all the same, and a file
    that cannot be written keeps no other from being written."""
    result = None
    written: list[str] = []
    failures: list[str] = []
    try:
        result = counter.count(task.video, **task.counting, progress=progress)
        if task.folder is None:
            return result, None, []
        reserve_files(task.folder, task.name, task.video, task.files)
    except Exception as error:
        return result, explained(error, f"{task.video}: "), []
    for kind, file in zip(task.formats, task.files, strict=True):
        try:
            FORMATS[kind].write(result, task.folder / file, video=task.video, progress=progress)
            written.append(file)
        except Exception as error:
            failures.append(explained(error, f"{task.video}: "))
    return result, "; ".join(failures) or None, written


@contextmanager
def remembered_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C raises as ever, and is remembered: a library may turn it into an error that looks like one file's."""
    pressed: list[int] = []

    def handle(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before not in (None, signal.SIG_IGN)
    if ours:
        signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(pressed)
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def side_by_side(
    model: str, device: str, tasks: Sequence[Task], jobs: int, *, sandbox: bool = False
) -> Iterator[tuple[Task, Done]]:
    """Count in `jobs` processes, in the order in which they end. A process that dies fails the video it had.

    sandbox: confine them; EscountsError where this machine cannot.
    """
    videos, folders = [task.video for task in tasks], {task.folder for task in tasks if task.folder is not None}
    exemplars = tasks[0].counting["exemplars"] if sandbox else ()
    places = counting_sandbox(model, exemplars, readable=videos, writable=folders) if sandbox else nullcontext()
    with places as confined:
        options: dict[str, Any] = {"attempts": 1, "sandbox": confined}
        processes = divided(counting_work, (device,), min(jobs, len(tasks)), lambda place: (model, place), **options)
        for task, answer in answers(tasks, processes):
            if isinstance(answer, TaskError):
                yield task, (None, f"{task.video}: {answer}", [])
                continue
            document, failure, written = answer
            result = None if document is None else replace(from_dict(document), video=str(task.video))
            yield task, (result, failure, written)


DoneValues = tuple[dict[str, Any] | None, str | None, list[str]]
"""`Done` as JSON values."""


def counting_work(model: str, device: str) -> Callable[[Task], DoneValues]:
    """In a process: what `attempt` finds of each task, as JSON values."""
    with collector_paused():
        counter = escounts.load(model, device=device)

    def work(task: Task) -> DoneValues:
        result, failure, written = attempt(counter, task)
        return None if result is None else result.to_dict(), failure, written

    return work
