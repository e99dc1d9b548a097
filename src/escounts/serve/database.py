"""Videos, jobs, results and labels in one SQLite file (WAL): a kill loses nothing that was finished."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from escounts.serve.schemas import Job, SavedLabels, Training, Video
from escounts.system.atomic_files import atomic_file

SCHEMA_VERSION = 1
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS videos (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL,
  created REAL NOT NULL, expires REAL, duration REAL, width INTEGER, height INTEGER, fps REAL
);
CREATE TABLE IF NOT EXISTS jobs (
  id TEXT PRIMARY KEY, video TEXT NOT NULL REFERENCES videos(id) ON DELETE CASCADE, state TEXT NOT NULL,
  request TEXT NOT NULL, crashes INTEGER NOT NULL DEFAULT 0, error TEXT, created REAL NOT NULL,
  started REAL, finished REAL, model TEXT, count INTEGER, confidence REAL, unsure INTEGER
);
CREATE TABLE IF NOT EXISTS results (
  job TEXT PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE, document TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS labels (
  video TEXT PRIMARY KEY REFERENCES videos(id) ON DELETE CASCADE,
  action TEXT NOT NULL, spans TEXT NOT NULL, updated REAL NOT NULL, job TEXT, revision INTEGER
);
CREATE TABLE IF NOT EXISTS trainings (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, videos TEXT NOT NULL, created REAL NOT NULL,
  finished REAL, error TEXT, report TEXT
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs(state, created);
CREATE INDEX IF NOT EXISTS jobs_by_video ON jobs(video, created);
PRAGMA user_version = {SCHEMA_VERSION};
"""


class Database:
    """Every statement the service runs. Safe to call from any thread.

    One connection writes, under a lock; every thread reads over one of its own, so that no page waits for a
    write to reach the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = self._connect()
        self._lock = threading.RLock()
        self._readers: list[sqlite3.Connection] = []
        self._own = threading.local()
        with self._lock:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.executescript(SCHEMA)
            known = {row["name"] for row in self._connection.execute("PRAGMA table_info(labels)")}
            for column, kind in (("job", "TEXT"), ("revision", "INTEGER")):
                if column not in known:  # labels of 0.1.0: somebody's work
                    self._connection.execute(f"ALTER TABLE labels ADD COLUMN {column} {kind}")
            self._connection.execute("UPDATE labels SET revision = 1 WHERE revision IS NULL")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=5.0)
        connection.row_factory = sqlite3.Row
        return connection

    def close(self) -> None:
        with self._lock:
            for connection in (*self._readers, self._connection):
                connection.close()

    def back_up(self, target: Path) -> None:
        """Copy the whole database to another file, put in its place once it is whole."""
        with (
            atomic_file(target) as partial,
            closing(self._connect()) as source,
            closing(sqlite3.connect(partial)) as copy,
        ):
            source.backup(copy)

    @property
    def changes(self) -> int:
        """Grows with every change; the same number twice means that there was none."""
        return self._connection.total_changes

    def number(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._rows(f"SELECT COUNT(*) FROM {table}")[0][0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended some of them already
                    self._connection.execute("ROLLBACK")
                raise

    def _insert(self, table: str, row: Video | Job | Training) -> None:
        columns = self._rows(f"PRAGMA table_info({table})")
        values = {column["name"]: getattr(row, column["name"]) for column in columns}
        for name in {"request", "videos"} & values.keys():
            values[name] = json.dumps(values[name])
        marks = ", ".join("?" * len(values))
        with self._transaction() as connection:
            connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", (*values.values(),))

    def _update(self, table: str, row_id: str, **values: object) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        with self._transaction() as connection:
            connection.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*values.values(), row_id))

    def _delete(self, table: str, row_id: str) -> None:
        """A row and, by the foreign keys, what belongs to it."""
        with self._transaction() as connection:
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (row_id,))

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        reader: sqlite3.Connection | None = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._own.reader = self._connect()
            with self._lock:
                self._readers.append(reader)
        return reader.execute(query, values).fetchall()

    # videos

    def add_video(self, video: Video) -> None:
        self._insert("videos", video)

    def video(self, video_id: str) -> Video | None:
        return next(self._videos("WHERE id = ?", video_id), None)

    def videos(self, limit: int = 500) -> list[Video]:
        """The newest first."""
        return [*self._videos("ORDER BY created DESC, id LIMIT ?", limit)]

    def media_video(self, file: str) -> Video | None:
        """The row of a file under the media root, if it was counted before."""
        return next(self._videos("WHERE source = 'media' AND file = ?", file), None)

    def expired(self, now: float) -> list[Video]:
        """Videos whose time is over. One with labels never expires: somebody's work hangs on it."""
        return [*self._videos("WHERE expires <= ? AND id NOT IN (SELECT video FROM labels)", now)]

    def _videos(self, which: str, *values: Any) -> Iterator[Video]:
        return (Video(**row) for row in self._rows(f"SELECT * FROM videos {which}", *values))

    def describe_video(self, video_id: str, *, duration: float, width: int, height: int, fps: float) -> None:
        self._update("videos", video_id, duration=duration, width=width, height=height, fps=fps)

    def delete_video(self, video_id: str) -> None:
        self._delete("videos", video_id)

    # jobs

    def add_job(self, job: Job) -> bool:
        """Queue a job; False when its video has been deleted meanwhile."""
        try:
            self._insert("jobs", job)
        except sqlite3.IntegrityError:
            return False
        return True

    def job(self, job_id: str) -> Job | None:
        return next(self._jobs("WHERE id = ?", job_id), None)

    def jobs(self, video_id: str | None = None, limit: int = 500) -> list[Job]:
        """The newest first, of one video or of all."""
        where, values = ("WHERE video = ?", (video_id,)) if video_id else ("", ())
        return [*self._jobs(f"{where} ORDER BY created DESC, id LIMIT ?", *values, limit)]

    def queued(self) -> list[Job]:
        """What waits, the oldest first; recounts of a video that has a result go before first counts."""
        again = "EXISTS (SELECT 1 FROM jobs AS d WHERE d.video = jobs.video AND d.state = 'done')"
        return [*self._jobs(f"WHERE state = 'queued' ORDER BY {again} DESC, created, id")]

    def _jobs(self, which: str, *values: Any) -> Iterator[Job]:
        return (Job(**row) for row in self._rows(f"SELECT * FROM jobs {which}", *values))

    def totals(self) -> dict[str, int]:
        """How many jobs are in each state."""
        rows = self._rows("SELECT state, COUNT(*) FROM jobs GROUP BY state")
        return {str(row[0]): int(row[1]) for row in rows}

    def start_job(self, job_id: str) -> None:
        self._update("jobs", job_id, state="running", started=time.time())

    def requeue(self, job_id: str, *, crashed: bool) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'queued', started = NULL, crashes = crashes + ? WHERE id = ?",
                (int(crashed), job_id),
            )

    def recover(self) -> int:
        """At start: what was running when the server went away is queued again. Returns how many."""
        with self._transaction() as connection:
            statement = "UPDATE jobs SET state = 'queued', started = NULL WHERE state = 'running'"
            return connection.execute(statement).rowcount

    def end_job(self, job_id: str, state: str, *, error: str | None = None) -> None:
        self._update("jobs", job_id, state=state, error=error, finished=time.time())

    def finish_job(self, job_id: str, document: dict[str, Any]) -> None:
        """Job and result in one transaction: a job that is done has its result."""
        with self._transaction() as connection:
            found = [document[name] for name in ("model", "count", "confidence", "unsure")]
            updated = connection.execute(
                "UPDATE jobs SET state = 'done', error = NULL, finished = ?, model = ?, count = ?, "
                "confidence = ?, unsure = ? WHERE id = ?",
                (time.time(), *found, job_id),
            ).rowcount
            if updated:
                result = (job_id, json.dumps(document))
                connection.execute("INSERT OR REPLACE INTO results (job, document) VALUES (?, ?)", result)

    def say_again(self, job_id: str, request: dict[str, Any], document: dict[str, Any]) -> None:
        """A finished job in the unit that a person chose: what is asked for, and the count that lists show."""
        shown = {name: document[name] for name in ("count", "confidence", "unsure")}
        self._update("jobs", job_id, request=json.dumps(request), **shown)

    def result(self, job_id: str) -> dict[str, Any] | None:
        rows = self._rows("SELECT document FROM results WHERE job = ?", job_id)
        return dict(json.loads(rows[0][0])) if rows else None

    def delete_job(self, job_id: str) -> None:
        self._delete("jobs", job_id)

    # labels

    def save_labels(
        self,
        video_id: str,
        action: str,
        spans: Sequence[tuple[float, float]],
        *,
        job: str | None = None,
        revision: int | None = None,
    ) -> SavedLabels | None:
        """revision: of the labels that these replace, 0 for none; where others were saved meanwhile, nothing is saved
        and None returned. Without it these replace whatever is there."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT revision FROM labels WHERE video = ?", (video_id,)).fetchall()
            before = rows[0][0] if rows else 0
            if revision not in (None, before):
                return None
            about = {"video": video_id, "action": action, "spans": spans, "job": job, "revision": before + 1}
            label = SavedLabels.model_validate({**about, "updated": time.time()})
            connection.execute(
                "INSERT OR REPLACE INTO labels (video, action, spans, updated, job, revision)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (video_id, action, json.dumps(label.pairs), label.updated, job, label.revision),
            )
        return label

    def labels(self, video_id: str | None = None) -> list[SavedLabels]:
        """Those saved first coming first, of one video or of all."""
        where, values = ("WHERE video = ?", (video_id,)) if video_id else ("", ())
        rows = self._rows(f"SELECT * FROM labels {where} ORDER BY updated", *values)
        return [SavedLabels(**row) for row in rows]

    # trainings

    def add_training(self, training: Training) -> None:
        self._insert("trainings", training)

    def end_training(
        self, training_id: str, state: str, *, error: str | None = None, report: str | None = None
    ) -> None:
        """report: what it did, as JSON."""
        self._update("trainings", training_id, state=state, error=error, report=report, finished=time.time())

    def trainings(self, training_id: str | None = None) -> list[Training]:
        """The newest first; of one id."""
        where, values = ("WHERE id = ?", (training_id,)) if training_id else ("", ())
        rows = self._rows(f"SELECT * FROM trainings {where} ORDER BY created DESC, id LIMIT 200", *values)
        return [Training(**row) for row in rows]
