"""A database made anew: from what can still be read of the old one, its last copy, and the uploads themselves."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from escounts.serve.data_folder import DataFolder
from escounts.serve.database import Database, JobRow, LabelRow, TrainingRow, VideoRow

COLUMNS: dict[str, tuple[str, ...]] = {
    "videos": tuple(field.name for field in fields(VideoRow)),
    "jobs": tuple(field.name for field in fields(JobRow)),
    "results": ("job", "document"),
    "labels": tuple(field.name for field in fields(LabelRow)),
    "trainings": tuple(field.name for field in fields(TrainingRow)),
}
BESIDE = ("", "-wal", "-shm")
REMEMBERED = ("videos", "jobs", "labels")


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuilt database holds. nameless: uploads of which only the file was left."""

    videos: int
    jobs: int
    labels: int
    nameless: int


def rebuild(folder: DataFolder) -> Rebuilt:
    """Put a new database in place of the old one, which is kept in the trash. Uploads are not touched."""
    path = folder.settings.database
    aside = folder.set_aside("database", ())
    for ending in BESIDE:
        with suppress(FileNotFoundError):
            shutil.copy2(f"{path}{ending}", aside / f"{path.name}{ending}")
    fresh = path.with_name(f"{path.name}.rebuilt")
    for ending in BESIDE:
        Path(f"{fresh}{ending}").unlink(missing_ok=True)
    database = Database(fresh)
    for source in (aside / path.name, folder.settings.backup):
        if source.exists():
            _take_rows(source, database, folder)
    nameless = _take_files(database, folder)
    totals = {table: database.number(table) for table in REMEMBERED}
    database.close()
    for ending in BESIDE[1:]:  # a log of the old database must not be played into the new one
        Path(f"{path}{ending}").unlink(missing_ok=True)
    fresh.replace(path)
    return Rebuilt(**totals, nameless=nameless)


def _take_rows(source: Path, database: Database, folder: DataFolder) -> None:
    """Copy every row that can be read and is not there yet; videos only where their file is there."""
    uploads = folder.uploads()
    for table, columns in COLUMNS.items():
        rows = _readable_rows(source, table, columns)
        if table == "videos":
            rows = [row for row in rows if row["source"] == "media" or row["file"] in uploads]
        database.restore(table, columns, [tuple(row[name] for name in columns) for row in rows])


def _readable_rows(source: Path, table: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of a table up to the first damaged page from the front, and from the back."""
    found: dict[Any, dict[str, Any]] = {}
    connection = sqlite3.connect(source)
    connection.row_factory = sqlite3.Row
    try:
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid {order}"):
                    values = dict(row)
                    found.setdefault(values[columns[0]], {name: values.get(name) for name in columns})
    finally:
        connection.close()
    return list(found.values())


def _take_files(database: Database, folder: DataFolder) -> int:
    """A row for every upload that has none. Its name is lost, and it is kept until somebody deletes it."""
    known = {row.file for row in database.videos(limit=-1)}
    lost = sorted(folder.uploads() - known)
    for file in lost:
        state = (folder.settings.videos / file).stat()
        name = f"recovered-{file[:8]}{Path(file).suffix}"
        database.add_video(VideoRow(file[:32], name, "upload", file, state.st_size, state.st_mtime))
    return len(lost)
