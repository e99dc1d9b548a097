"""Which videos of an output folder are finished, and with which settings, so that a second run skips them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from escounts.errors import OutputError
from escounts.output.atomic import write_text

LEDGER = ".escounts-finished.json"


class Ledger:
    """The record of one output folder: output name → settings, video size and age, files written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._folder = folder
        self._entries: dict[str, dict[str, Any]] = {}
        try:
            loaded = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return  # none yet, or damaged: then everything is counted again
        if isinstance(loaded, dict):
            self._entries = loaded

    def has(self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str]) -> bool:
        """True if these files of this very video were written with these settings and are still there."""
        entry = self._entries.get(name)
        if entry is None or entry.get("settings") != dict(settings) or entry.get("video") != stamp(video):
            return False
        return set(files) <= set(entry.get("files", [])) and all((self._folder / f).exists() for f in files)

    def add(self, name: str, video: Path, settings: Mapping[str, Any], files: Sequence[str]) -> None:
        """Remember a finished video; files of an earlier run with the same settings stay listed."""
        before = self._entries.get(name, {})
        same = before.get("settings") == dict(settings) and before.get("video") == stamp(video)
        kept = before.get("files", []) if same else []
        self._entries[name] = {
            "video": stamp(video),
            "settings": dict(settings),
            "files": sorted({*kept, *files}),
        }
        write_text(self._path, json.dumps(self._entries, ensure_ascii=False, indent=1) + "\n")


def stamp(video: Path) -> list[Any]:
    """What tells a changed video from the same one: its path, size in bytes and time of change."""
    try:
        status = video.stat()
    except OSError as error:
        raise OutputError(f"{video}: {error.strerror or error}") from error
    return [str(video.resolve()), status.st_size, status.st_mtime_ns]
