"""The data folder: nobody's files are lost, whatever the folder was before and whatever became of the database."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving import REQUEST, Client, Command, eventually, service_running, uploaded

from escounts.errors import EscountsError
from escounts.serve.data_folder import MARKER, DataFolder, rebuild
from escounts.serve.database import Database
from escounts.serve.schemas import Job, Training, Video
from escounts.serve.settings import Settings

DOCUMENT = {"model": "spectral", "count": 4, "confidence": 0.5, "unsure": False, "repetitions": []}
SCORE = {"right": 0, "within_one": 0, "error": 1.0}
REPORT = json.dumps({"helped": True, "message": "", "before": SCORE, "after": SCORE, "videos": []})
IDS = [letter * 32 for letter in "abc"]


def start(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`escounts serve` on a folder it refuses."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from escounts.cli import main; main()",
            "serve",
            "--port",
            "0",
            "--data",
            str(data),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def filled(data: Path) -> Settings:
    """A data folder with three uploads: counted, labelled, and neither."""
    settings = Settings(data=data, devices=())
    folder = DataFolder(settings)
    folder.prepare()
    database = folder.open_database()
    for number, video in enumerate(IDS):
        (settings.videos / f"{video}.mp4").write_bytes(b"video %d" % number)
        database.add_video(uploaded(video, name=f"clip{number}.mp4", created=1.0 + number))
    database.add_job(Job(id="d" * 32, video=IDS[0], request=REQUEST, created=1.0))
    database.finish_job("d" * 32, DOCUMENT)
    database.save_labels(IDS[1], "squat", [(0.5, 1.0)])
    database.close()
    return settings


def test_a_folder_of_somebody_else_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "holiday.mp4").write_bytes(b"mine")
    (tmp_path / "videos" / "notes.txt").write_text("mine too")
    before = snapshot(tmp_path)
    for options in ([], ["--rebuild"]):
        refused = start(tmp_path, *options)
        assert refused.returncode == 2
        assert "not a data folder of escounts" in refused.stderr
        assert "new or empty folder" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert snapshot(tmp_path) == before


def test_a_link_to_a_disk_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "videos").symlink_to(tmp_path / "not mounted")
    refused = start(tmp_path)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
    assert f"{tmp_path / 'videos'} is there and is no folder" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]


def test_an_empty_folder_is_taken_and_marked(tmp_path: Path) -> None:
    with service_running(tmp_path / "new", devices=()) as (_, service):
        assert json.loads((tmp_path / "new" / MARKER).read_text())["format"] == "escounts serve data folder"
        assert service.unknown_files == []


def test_unknown_files_are_left_and_listed(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    strange = {"holiday.mp4": b"mine", "half.mp4.part": b"mine", f"{'e' * 32}.mp4": b"no row"}
    for name, content in strange.items():
        (settings.videos / name).write_bytes(content)
    (settings.renders / ".plan.partial").write_bytes(b"mine")
    server = Command(tmp_path)
    code, output = server.interrupt()
    assert code == 0
    assert "3 unknown files" in output
    assert "holiday.mp4" in output
    assert {name: (settings.videos / name).read_bytes() for name in strange} == strange
    assert (settings.renders / ".plan.partial").read_bytes() == b"mine"


@pytest.mark.parametrize("harm", ["unmarked", "missing", "zero", "emptied", "garbage", "torn"])
def test_a_lost_database_stops_the_start_and_is_rebuilt(tmp_path: Path, harm: str) -> None:
    settings = filled(tmp_path)
    path = settings.database
    if harm == "unmarked":
        (tmp_path / MARKER).unlink()
    elif harm == "missing":
        path.unlink()
    elif harm == "zero":
        path.write_bytes(b"")
    elif harm == "emptied":
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM videos")
    elif harm == "garbage":
        path.write_bytes(b"not a database" * 1000)
    else:
        content = path.read_bytes()
        path.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    before = snapshot(settings.videos)
    refused = start(tmp_path)
    assert refused.returncode == 2
    assert "--rebuild" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert snapshot(settings.videos) == before
    server = Command(tmp_path, "--rebuild")
    with Client(server.address) as client:
        assert {video["id"] for video in client.get("/api/videos").json()} == set(IDS)
    assert "rebuilt the database: 3 videos" in server.interrupt()[1]
    assert snapshot(settings.videos) == before


def test_a_rebuild_takes_names_counts_and_labels_from_the_copy(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    database = Database(settings.database)
    database.back_up(settings.backup)
    database.close()
    settings.database.write_bytes(b"garbage" * 4000)
    (settings.videos / f"{IDS[2]}.mp4").unlink()
    (settings.videos / f"{'f' * 32}.mp4").write_bytes(b"later than the copy")
    rebuilt = rebuild(DataFolder(settings))
    assert rebuilt == {"videos": 3, "jobs": 1, "labels": 1, "nameless": 1}
    again = Database(settings.database)
    assert {row.name for row in again.videos()} == {"clip0.mp4", "clip1.mp4", "recovered-ffffffff.mp4"}
    assert again.labels(IDS[1])[0].pairs == ((0.5, 1.0),)
    assert again.result("d" * 32) == DOCUMENT
    assert any(p.read_bytes().startswith(b"garbage") for p in settings.trash.rglob("escounts.sqlite"))


def test_a_running_service_keeps_a_copy_of_its_database(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    with service_running(tmp_path, devices=()) as (_, service):
        service.maintain()
        eventually(settings.backup.exists)  # the queue's own thread may be making it
        assert len(Database(settings.backup).videos()) == 3


def test_a_rebuild_of_a_sound_database_loses_nothing(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    database = Database(settings.database)
    database.add_training(Training(id="e" * 32, name="mine", videos=[], created=1.0))
    database.end_training("e" * 32, "done", report=REPORT)
    trainings = database.trainings()
    database.close()
    rebuilt = rebuild(DataFolder(settings))
    assert rebuilt == {"videos": 3, "jobs": 1, "labels": 1, "nameless": 0}
    assert Database(settings.database).trainings() == trainings != []


def test_what_is_deleted_is_moved_aside_and_goes_later(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    with service_running(tmp_path, devices=()) as (address, service), Client(address) as client:
        assert client.delete(f"/api/videos/{IDS[1]}").status_code == 204
        (entry,) = settings.trash.iterdir()
        assert (entry / f"{IDS[1]}.mp4").read_bytes() == b"video 1"
        assert json.loads((entry / "record.json").read_text())["labels"][0]["action"] == "squat"
        (settings.trash / "mine").mkdir()
        entry.rename(settings.trash / f"{int(time.time() - 4 * 86400)}-{IDS[1]}")
        service.maintain()
        assert [path.name for path in settings.trash.iterdir()] == ["mine"]


@pytest.mark.parametrize("full", [None, errno.ENOSPC, errno.EDQUOT])
def test_uploads_on_another_disk_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int | None
) -> None:
    """videos/ as a link to a larger disk, or mounted: nothing was moved to the trash, every DELETE was a 500."""
    settings = filled(tmp_path)
    rename, copy = os.rename, shutil.copyfile

    def from_another_disk(source: Path, target: Path) -> None:
        if settings.videos in Path(source).parents:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    def copied(source: Path, target: Path, **options: bool) -> str:
        if full is not None:
            Path(target).write_bytes(b"vid")
            raise OSError(full, os.strerror(full))
        return str(copy(source, target, **options))

    monkeypatch.setattr(os, "rename", from_another_disk)
    monkeypatch.setattr(shutil, "copyfile", copied)
    with service_running(tmp_path, devices=()) as (address, _), Client(address) as client:
        assert client.delete(f"/api/videos/{IDS[1]}").status_code == 204
    (entry,) = settings.trash.iterdir()
    kept = entry / f"{IDS[1]}.mp4"
    assert kept.read_bytes() == b"video 1" if full is None else not kept.exists()
    assert not (settings.videos / f"{IDS[1]}.mp4").exists() and (settings.videos / f"{IDS[0]}.mp4").exists()


def test_labels_csv_does_not_name_a_deleted_video(tmp_path: Path) -> None:
    filled(tmp_path)
    table = tmp_path / "videos" / "labels.csv"
    with service_running(tmp_path, devices=()) as (address, service), Client(address) as client:
        service.database.describe_video(IDS[2], duration=9.0, width=64, height=64, fps=25.0)
        client.put(f"/api/videos/{IDS[2]}/labels", json={"spans": [{"start": 1.0, "end": 2.0}]})
        assert f"{IDS[2]}.mp4" in table.read_text() and f"{IDS[1]}.mp4" in table.read_text()
        assert client.delete(f"/api/videos/{IDS[1]}").status_code == 204
        assert f"{IDS[2]}.mp4" in table.read_text() and f"{IDS[1]}.mp4" not in table.read_text()


def test_the_trash_gives_way_when_the_disk_is_short_of_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(filled(tmp_path))
    folder.set_aside("x", [folder.settings.videos / f"{IDS[0]}.mp4"])
    folder.empty_trash()
    assert list(folder.settings.trash.iterdir())
    monkeypatch.setattr(DataFolder, "free_bytes", lambda self: 0)
    folder.empty_trash()
    assert not list(folder.settings.trash.iterdir())


def test_a_database_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    with sqlite3.connect(settings.database) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(EscountsError, match="later version"):
        DataFolder(settings).open_database()


def full(disk: Path) -> None:
    """Fill a disk to its last byte."""
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass


def test_a_full_disk_is_not_taken_for_a_damaged_database(tiny_disk: Path) -> None:
    settings = filled(tiny_disk / "data")
    full(tiny_disk)
    before = settings.database.read_bytes()
    with pytest.raises(EscountsError, match=r"its disk is full\. Nothing was changed"):
        DataFolder(settings).open_database()
    with pytest.raises(EscountsError, match="cannot be rebuilt: No space left"):
        rebuild(DataFolder(settings))
    assert settings.database.read_bytes() == before and list(settings.trash.iterdir()) == []
    (tiny_disk / "filler").unlink()
    assert len(DataFolder(settings).open_database().videos()) == 3


def test_on_a_full_disk_what_was_deleted_gives_way_to_the_start(tiny_disk: Path) -> None:
    settings = filled(tiny_disk / "data")
    folder = DataFolder(settings)
    (settings.videos / f"{'e' * 32}.mp4").write_bytes(b"x" * 1_500_000)
    folder.set_aside("deleted", [settings.videos / f"{'e' * 32}.mp4"])
    full(tiny_disk)
    assert len(folder.open_database().videos()) == 3
    assert list(settings.trash.iterdir()) == []


def test_a_database_that_cannot_be_kept_is_not_replaced(tmp_path: Path) -> None:
    settings = filled(tmp_path)
    settings.trash.rmdir()
    settings.trash.write_text("no folder can be made here")
    before = settings.database.read_bytes()
    with pytest.raises(EscountsError, match=r"cannot be rebuilt.*Nothing was changed"):
        rebuild(DataFolder(settings))
    assert settings.database.read_bytes() == before
    assert len(DataFolder(settings).open_database().videos()) == 3


@pytest.mark.parametrize(
    ("source", "file"), [("media", "notes.txt"), ("upload", "notes.txt"), ("upload", "../plan.txt")]
)
def test_deleting_a_video_takes_only_what_was_uploaded(tmp_path: Path, source: str, file: str) -> None:
    """A file of the media root of the same name, or a row that names somebody's file: nothing is moved or removed."""
    settings = filled(tmp_path)
    folder = DataFolder(settings)
    for mine in (settings.videos / "notes.txt", tmp_path / "plan.txt"):
        mine.write_bytes(b"mine")
    before = snapshot(tmp_path)
    folder.discard(Video(id="f" * 32, name="x.mp4", source=source, file=file, size=4, created=1.0), [], [])
    after = snapshot(tmp_path)
    assert {name: after.get(name) for name in before if "sqlite" not in name} == {
        name: data for name, data in before.items() if "sqlite" not in name
    }
