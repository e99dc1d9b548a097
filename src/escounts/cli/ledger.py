"""Which videos of an output folder are finished, and with which settings, so that a second run skips them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from escounts.errors import OutputError
from escounts.system.atomic_files import append_json, file_state, json_lines, remove_partials

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
