"""The database: what is finished stays finished, what hangs together goes together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from serving import REQUEST, uploaded

from escounts.serve.database import Database
from escounts.serve.schemas import Job

DOCUMENT = {"model": "spectral", "count": 4, "confidence": 0.5, "unsure": False, "repetitions": []}


@pytest.fixture()
def database(tmp_path: Path) -> Database:
    database = Database(tmp_path / "test.sqlite")
    for name, created in (("a", 1.0), ("b", 2.0)):
        database.add_video(uploaded(name, created=created, expires=created + 100))
    return database


def queue(database: Database, job: str, video: str = "a", created: float = 1.0) -> None:
    assert database.add_job(Job(id=job, video=video, request=REQUEST, created=created))


def test_it_is_kept_in_wal_mode(database: Database, tmp_path: Path) -> None:
    assert sqlite3.connect(tmp_path / "test.sqlite").execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_second_opening_sees_everything(database: Database, tmp_path: Path) -> None:
    queue(database, "j")
    database.finish_job("j", DOCUMENT)
    database.save_labels("a", "squat", [(0.5, 1.0)])
    again = Database(tmp_path / "test.sqlite")
    job = again.job("j")
    assert job is not None
    assert (job.state, job.count, job.ended) == ("done", 4, True)
    assert again.result("j") == DOCUMENT
    assert again.labels("a")[0].pairs == ((0.5, 1.0),)
    assert [video.id for video in again.videos()] == ["b", "a"]


def test_what_was_running_is_queued_again(database: Database) -> None:
    queue(database, "was-running")
    queue(database, "was-done")
    database.start_job("was-running")
    database.finish_job("was-done", DOCUMENT)
    assert database.recover() == 1
    job = database.job("was-running")
    assert job is not None
    assert (job.state, job.crashes, job.started) == ("queued", 0, None)
    assert database.totals() == {"queued": 1, "done": 1}


def test_recounts_go_before_first_counts(database: Database) -> None:
    queue(database, "done", "b", 1.0)
    database.finish_job("done", DOCUMENT)
    queue(database, "first-count", "a", 2.0)
    queue(database, "recount", "b", 3.0)
    assert [job.id for job in database.queued()] == ["recount", "first-count"]


def test_deleting_a_video_takes_its_jobs_results_and_labels(database: Database) -> None:
    queue(database, "j")
    database.finish_job("j", DOCUMENT)
    database.save_labels("a", "", [])
    database.delete_video("a")
    assert (database.job("j"), database.result("j"), database.labels()) == (None, None, [])
    assert database.add_job(Job(id="late", video="a", request=REQUEST, created=1.0)) is False


def test_a_result_that_comes_after_its_job_was_deleted_is_dropped(database: Database) -> None:
    queue(database, "j")
    database.delete_job("j")
    database.finish_job("j", DOCUMENT)
    assert database.result("j") is None


def test_a_crash_is_counted_and_a_cancelled_neighbour_is_not(database: Database) -> None:
    queue(database, "j")
    database.requeue("j", crashed=True)
    database.requeue("j", crashed=False)
    job = database.job("j")
    assert job is not None
    assert job.crashes == 1


def test_what_has_expired(database: Database) -> None:
    assert [video.id for video in database.expired(101.5)] == ["a"]
    assert database.expired(100.0) == []


def test_a_failed_statement_changes_nothing(database: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        database.add_video(uploaded("a"))
    assert len(database.videos()) == 2


@pytest.mark.parametrize("columns", ["", ", job TEXT", ", job TEXT, revision INTEGER"])
def test_labels_of_an_older_database_are_kept_and_can_be_changed(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as old:
        old.execute(f"CREATE TABLE labels (video TEXT PRIMARY KEY, action TEXT, spans TEXT, updated REAL{columns})")
        old.execute("INSERT INTO labels (video, action, spans, updated) VALUES ('v', 'squat', '[[0.5, 1.5]]', 3.0)")
    database = Database(path)
    (label,) = database.labels()
    assert (label.video, label.action, label.pairs, label.updated) == ("v", "squat", ((0.5, 1.5),), 3.0)
    assert (label.job, label.revision) == (None, 1)
    changed = database.save_labels("v", "squat", [(0.5, 1.0)], revision=1)
    assert changed is not None and changed.revision == 2
    database.close()
