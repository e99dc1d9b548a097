"""Which videos of an output folder are finished, and with which settings, so that a second run skips them."""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from escounts.errors import OutputError
from escounts.system.atomic_files import remove_partials

LEDGER = ".escounts-finished.jsonl"


class Ledger:
    """The record of one output folder: output name → settings, video size and age, files written.

    One line per finished video, appended, the last one of a name counts: thousands of videos cost no more each
    than one does, and a line that broke off in a crash is passed over. Before files are written a line claims their
    names: a file that lies in the folder and that no line names is somebody else's, and is not written over.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._folder = folder
        self._entries: dict[str, dict[str, Any]] = {}
        self._ours: set[str] = set()
        self.owners: dict[str, list[Any]] = {}
        """Output name → `stamp` of the video whose it is."""
        remove_partials(folder)
        self._read()

    def _read(self) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return  # none yet
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, IndexError, RecursionError):
                entry = jsonlib.loads(line)
                if "claimed" in entry:
                    self._take(entry["claimed"], entry["video"], entry["files"])
                    if before := self._entries.get(entry["claimed"]):  # these files were about to be replaced
                        before["files"] = [file for file in before["files"] if file not in entry["files"]]
                else:
                    self._take(entry["name"], entry["video"], entry["files"])
                    self._entries[entry["name"]] = entry

    def _take(self, name: str, video: list[Any], files: Sequence[str]) -> None:
        path, _size, _changed = video
        if not (isinstance(files, (list, tuple)) and all(isinstance(text, str) for text in (name, path, *files))):
            raise ValueError("a line that no version wrote")
        self.owners[name] = video
        self._ours.update(files)

    def strangers(self, files: Sequence[str]) -> list[str]:
        """Those of these files that are there and that nobody here wrote or was about to write."""
        found = [file for file in files if file not in self._ours and os.path.lexists(self._folder / file)]
        if found:
            self._read()  # another process may be writing here, too
        return [file for file in found if file not in self._ours]

    def drop_if_empty(self) -> None:
        """Remove a record that names no file that is there: nothing could be written."""
        self._read()
        if not self._entries and not any(os.path.lexists(self._folder / file) for file in self._ours):
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def about(
        self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str]
    ) -> Mapping[str, Any] | None:
        """What was noted of this very video, if these files were written with these settings and are still there."""
        entry = self._entries.get(name)
        if entry is None or entry.get("settings") != dict(settings) or entry.get("video") != stamp(video):
            return None
        there = set(files) <= set(entry.get("files", [])) and all((self._folder / f).exists() for f in files)
        about = entry.get("about", {})
        return about if there and isinstance(about, dict) else None

    def stale(self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str]) -> list[str]:
        """Files of this video that lie there from other settings, or of a video that has changed, beside `files`."""
        entry = self._entries.get(name)
        if entry is None or (entry.get("settings") == dict(settings) and entry.get("video") == stamp(video)):
            return []
        return [file for file in entry["files"] if file not in files and (self._folder / file).exists()]

    def add(
        self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str], about: Mapping[str, Any]
    ) -> None:
        """Remember a finished video and what is worth saying about it again; files of an earlier run with the same
        settings stay listed."""
        before = self._entries.get(name, {})
        same = before.get("settings") == dict(settings) and before.get("video") == stamp(video)
        kept = before.get("files", []) if same else []
        entry = {
            "name": name,
            "video": stamp(video),
            "settings": dict(settings),
            "files": sorted({*kept, *files}),
            "about": dict(about),
        }
        self._entries[name] = entry
        self._take(name, stamp(video), files)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                # A line that broke off must not swallow this one.
                file.write("\n" + jsonlib.dumps(entry) + "\n")  # ASCII: a name need not be UTF-8
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror or error}") from error


def claim(folder: Path, name: str, video: Path, files: Sequence[str]) -> None:
    """Note in a folder's record, before they are written, which files are to be those of a video."""
    line = jsonlib.dumps({"claimed": name, "video": stamp(video), "files": list(files)})
    with suppress(OSError), (folder / LEDGER).open("a", encoding="utf-8") as file:  # what cannot be written says so
        file.write(f"\n{line}\n")


def stamp(file: Path) -> list[Any]:
    """What tells a changed video or checkpoint from the same one: its path, size in bytes and time of change."""
    try:
        status = file.stat()
    except OSError as error:
        raise OutputError(f"{file}: {error.strerror or error}") from error
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]
