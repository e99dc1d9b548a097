"""The folder a service keeps its things in: which folders are taken, what is left alone, how a removal begins,
and how its database is made anew.

A file is removed only when this service made it: uploads are named by an id, nothing else is touched. What is
removed goes to `trash/` first and stays there for some days, or until the disk needs the room. A rebuilt database is
the old one where it is sound, else its last copy; and knows of every upload.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from escounts.errors import EscountsError
from escounts.serve.database import SCHEMA_VERSION, Database
from escounts.serve.schemas import SavedLabels, Video
from escounts.serve.settings import MEBIBYTE, Settings
from escounts.system.atomic_files import write_text

log = logging.getLogger(__name__)
MARKER = "escounts-data.json"
MARK = {"format": "escounts serve data folder", "version": 1}
OWN_NAMES = frozenset({MARKER, "lock", "videos", "renders", "models", "trash", "lost+found"})
UPLOAD = re.compile(r"[0-9a-f]{32}(\.[a-z0-9]{1,5})?")
TRASH_ENTRY = re.compile(r"(\d{10,})-[\w.-]+")
LABELS_FILE = "labels.csv"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The disk is full, or what the account may keep on it."""
DISK_RESERVE = 256 * MEBIBYTE
LEAST_ROOM = MEBIBYTE
"""Bytes without which no database can be opened: its log and what is shared about it are files, too."""


@dataclass(frozen=True)
class DataFolder:
    """The data folder of one service."""

    settings: Settings

    def check(self, *, rebuild: bool = False) -> None:
        """Raise EscountsError for a folder that holds somebody else's files. Changes nothing."""
        data = self.settings.data
        if not data.exists() or (data / MARKER).exists() or self._is_empty():
            return
        recognised = self.settings.database.exists() or bool(self.uploads())
        if rebuild and recognised:
            return
        hint = f"; if it was one, run: escounts serve --data {data} --rebuild" if recognised else ""
        raise EscountsError(
            f"{data} holds files and is not a data folder of escounts serve. Nothing was changed. "
            f"Give --data a new or empty folder{hint}"
        )

    def prepare(self) -> None:
        """Make the folders, readable by their owner only, and mark the folder as ours."""
        settings = self.settings
        for folder in (settings.data, settings.videos, settings.renders, settings.models, settings.trash):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (settings.data / MARKER).exists():
            write_text(settings.data / MARKER, json.dumps(MARK) + "\n")

    def open_database(self) -> Database:
        """The database, which must be sound, and must not be empty while there are uploads."""
        path = self.settings.database
        advice = (
            "The uploads are untouched. Put a copy of the database back, or rebuild it from the files: "
            f"escounts serve --data {self.settings.data} --rebuild"
        )
        uploads = self.uploads()
        if not path.exists() and uploads:
            raise EscountsError(f"{path} is missing and {len(uploads)} uploads are there. {advice}")
        try:
            database = self._opened()
        except sqlite3.DatabaseError as error:
            raise EscountsError(f"{path} is damaged ({error}). {advice}") from error
        if uploads and not database.videos(limit=1):
            database.close()
            raise EscountsError(f"{path} is empty and {len(uploads)} uploads are there. {advice}")
        return database

    def _opened(self) -> Database:
        """The database. A full disk is not damage: the trash gives way; where that is not enough, it says so."""
        path = self.settings.database
        for again in (True, False):
            try:
                _check_sound(path)
                return Database(path)
            except sqlite3.DatabaseError as error:
                if self.free_bytes() >= LEAST_ROOM:
                    raise
                if not again:
                    raise EscountsError(
                        f"{path} cannot be opened: its disk is full. Nothing was changed; make room and start again"
                    ) from error
                self.empty_trash()
        raise AssertionError

    def uploads(self) -> set[str]:
        """Names of the files in videos/ that are named as this service names uploads."""
        return {path.name for path in _entries(self.settings.videos) if UPLOAD.fullmatch(path.name)}

    def unknown_files(self, rows: Iterable[Video]) -> list[str]:
        """Files in videos/ that no row names, sorted; they are never touched."""
        known = {row.file for row in rows if row.source != "media"} | {LABELS_FILE}
        return sorted(p.name for p in _entries(self.settings.videos) if p.name not in known)

    def set_aside(self, name: str, paths: Iterable[Path], record: dict[str, Any] | None = None) -> Path:
        """Move files to an entry of the trash, with what the database knew of them; returns the entry's folder.

        On a disk without room even for the entry they are removed: somebody is trying to free it. Uploads that were
        put on another disk, by a link or a mount, are copied.
        """
        entry = self.settings.trash / f"{int(time.time())}-{name}"
        try:
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            if record is not None:
                write_text(entry / "record.json", json.dumps(record))
        except (OSError, EscountsError) as error:
            log.warning("%s: no record could be kept in the trash: %s", name, error)
        for path in paths:
            with suppress(FileNotFoundError):
                if not entry.is_dir():
                    path.unlink()
                    continue
                try:
                    shutil.move(path, entry / path.name)
                except OSError as error:
                    if error.errno not in NO_ROOM:
                        raise
                    (entry / path.name).unlink(missing_ok=True)  # what of a copy had room
                    path.unlink()
        return entry

    def discard(self, video: Video, labels: Sequence[SavedLabels], drawn_for: Iterable[str]) -> None:
        """Move a video's file, if it is ours, to the trash with what is known of it; remove what was drawn for it and
        for its jobs."""
        ours = video.source != "media" and UPLOAD.fullmatch(video.file)
        if ours or labels:
            about = {**video.model_dump(exclude={"labelled", "labelled_count", "action", "job"}), "file": video.file}
            said = [{**label.model_dump(), "video": label.video, "spans": label.pairs} for label in labels]
            files = [self.settings.videos / video.file] if ours else []
            self.set_aside(video.id, files, {"video": about, "labels": said})
        for owner in (video.id, *drawn_for):
            for render in self.settings.renders.glob(f"{owner}.*"):
                render.unlink(missing_ok=True)
        self.empty_trash()

    def discarded(self) -> Iterator[tuple[Path, Video, list[SavedLabels]]]:
        """Entry, row and labels of every video in the trash whose record and file are there, the newest first."""
        for entry in sorted(_entries(self.settings.trash), reverse=True):
            if not TRASH_ENTRY.fullmatch(entry.name):
                continue
            try:
                record = json.loads((entry / "record.json").read_text(encoding="utf-8"))
                video = Video(**record["video"])
                labels = [SavedLabels(**label) for label in record["labels"]]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # torn files, a database, or what somebody else put there
            root = self.settings.media_root
            kept = video.source == "media" and root is not None and (root / video.file).is_file()
            if kept or (UPLOAD.fullmatch(video.file) and (entry / video.file).is_file()):
                yield entry, video, labels

    def empty_trash(self, *, needed: int = 0) -> None:
        """Remove entries older than `trash_days`; and the oldest while `needed` bytes have no room on the disk."""
        oldest = time.time() - self.settings.trash_days * 86400
        for entry in sorted(_entries(self.settings.trash)):
            match = TRASH_ENTRY.fullmatch(entry.name)
            if match is not None and (int(match[1]) <= oldest or self.free_bytes() < DISK_RESERVE + needed):
                shutil.rmtree(entry, ignore_errors=True)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.settings.data).free

    def _is_empty(self) -> bool:
        """Nothing but our own empty folders and the lock of a start that went no further."""
        settings = self.settings
        strange = [path for path in _entries(settings.data) if path.name not in OWN_NAMES]
        folders = (settings.videos, settings.renders, settings.models, settings.trash)
        inside = [path for folder in folders for path in _entries(folder)]
        return not strange and not inside


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _check_sound(path: Path) -> None:
    """Raise sqlite3.DatabaseError for a damaged file, EscountsError for one of a later version."""
    if not path.exists():
        return
    (verdict,) = _query(path, "PRAGMA quick_check(1)")[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(str(verdict).split()))
    (version,) = _query(path, "PRAGMA user_version")[0]
    if version > SCHEMA_VERSION:
        raise EscountsError(
            f"{path} was written by a later version of escounts (format {version}; this one knows "
            f"{SCHEMA_VERSION}). Use that version, or give --data another folder"
        )


def _query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        return connection.execute(statement).fetchall()


BESIDE = ("", "-wal", "-shm")
REMEMBERED = ("videos", "jobs", "labels")


def rebuild(folder: DataFolder) -> dict[str, int]:
    """Put a new database in place of the old one, which is kept in the trash. Uploads are not touched.

    Returns how many videos, jobs and labels it holds, and how many are nameless: only the file was left.
    """
    path = folder.settings.database
    aside = folder.set_aside("database", ())
    fresh = path.with_name(f"{path.name}.rebuilt")
    try:
        for ending in BESIDE:
            if Path(f"{path}{ending}").exists():  # without a copy in the trash it is not replaced
                shutil.copy2(f"{path}{ending}", aside / f"{path.name}{ending}")
            Path(f"{fresh}{ending}").unlink(missing_ok=True)
        totals = _made_anew(fresh, aside / path.name, folder)
    except (OSError, sqlite3.Error) as error:
        for ending in BESIDE:
            Path(f"{fresh}{ending}").unlink(missing_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise EscountsError(f"{path} cannot be rebuilt: {reason}. Nothing was changed") from error
    for ending in BESIDE[1:]:  # a log of the old database must not be played into the new one
        Path(f"{path}{ending}").unlink(missing_ok=True)
    fresh.replace(path)
    return totals


def _made_anew(fresh: Path, old: Path, folder: DataFolder) -> dict[str, int]:
    """Write a new database there: the old one if it is sound, else its last copy, with a row for every upload."""
    source = next((path for path in (old, folder.settings.backup) if _has_videos(path)), None)
    if source is not None:
        with closing(sqlite3.connect(source)) as kept, closing(sqlite3.connect(fresh)) as made:
            kept.backup(made)
    database = Database(fresh)
    try:
        uploads = folder.uploads()
        for video in database.videos(limit=-1):
            if video.source != "media" and video.file not in uploads:
                database.delete_video(video.id)
        nameless = _take_files(database, folder)
        return {table: database.number(table) for table in REMEMBERED} | {"nameless": nameless}
    finally:
        database.close()


def _has_videos(path: Path) -> bool:
    """Whether this is a database that can be used and knows of a video."""
    try:
        _check_sound(path)
        return path.exists() and bool(_query(path, "SELECT id FROM videos LIMIT 1"))
    except sqlite3.Error:
        return False


def _take_files(database: Database, folder: DataFolder) -> int:
    """A row for every upload that has none. Its name is lost, and it is kept until somebody deletes it."""
    known = {row.file for row in database.videos(limit=-1)}
    lost = sorted(folder.uploads() - known)
    for file in lost:
        state = (folder.settings.videos / file).stat()
        name = f"recovered-{file[:8]}{Path(file).suffix}"
        database.add_video(
            Video(id=file[:32], name=name, source="upload", file=file, size=state.st_size, created=state.st_mtime)
        )
    return len(lost)
