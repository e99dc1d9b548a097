"""`batch` and `serve` on a full disk, under a clock that jumps, and with videos that somebody writes to meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from command import finish, spawn
from movies import bouncing, write_movie
from serving import Client, service_running

from escounts.errors import VideoError
from escounts.video.files import Video

BATCH = ("batch", "--model", "spectral", "--jobs", "1")
YEARS = 3 * 365 * 86400
JUMPS = pytest.mark.parametrize("jump", [-YEARS, YEARS], ids=["three years back", "three years on"])


def rows(folder: Path) -> dict[str, tuple[str, int | None]]:
    """Of every gathered row: name of the video → status and count."""
    found = [row for part in folder.glob("part-*.parquet") for row in parquet.read_table(part).to_pylist()]
    return {Path(row["video"]).name: (row["status"], row["count"]) for row in found}


@contextlib.contextmanager
def written_to(video: Path) -> Iterator[None]:
    """Somebody goes on writing behind the end of the video, and stops."""
    stop = threading.Event()

    def write() -> None:
        with video.open("ab") as file:
            while not stop.wait(0.002):
                file.write(b"\0" * 8)
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_batch_on_a_full_disk_says_so_and_goes_on_where_it_was(small_disk: Path, videos: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 13 * 4096)
    full = finish(spawn(*BATCH, videos, "--out", small_disk / "out"), timeout=300)
    assert full.code == 2 and "No space left" in full.err and "Traceback" not in full.err, full.err
    filler.unlink()
    again = finish(spawn(*BATCH, videos, "--out", small_disk / "out"), timeout=300)
    assert again.code == 0, again.err
    assert rows(small_disk / "out") == {f"v{k}.mp4": ("counted", 3) for k in range(3)}
    assert not list((small_disk / "out").rglob(".*.partial"))


@JUMPS
def test_a_batch_under_a_clock_that_jumps_counts_nothing_twice(videos: Path, tmp_path: Path, jump: int) -> None:
    moved = f"import time; real = time.time; time.time = lambda: real() + {jump}\n"
    parts = []
    for before in ("", moved, ""):
        done = finish(spawn(*BATCH, videos, "--out", tmp_path, before=before), timeout=300)
        assert done.code == 0, done.err
        parts.append(sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.glob("part-*.parquet")))
    assert parts[0] == parts[1] == parts[2], "counted again"
    assert rows(tmp_path) == {f"v{k}.mp4": ("counted", 3) for k in range(3)}


@JUMPS
def test_a_service_under_a_clock_that_jumps_counts_and_destroys_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """What has expired by the new clock is in the trash with its record; what is labelled stays."""
    video = write_movie(tmp_path / "a.mp4", bouncing(3, 3.0, size=(64, 48)))
    real = time.time
    with service_running(tmp_path / "data") as (address, service), Client(address) as client:
        labelled, other = (client.send_video(video, name)["id"] for name in ("a.mp4", "b.mp4"))
        client.ended(client.start_count(labelled)["id"])
        client.put(f"/api/videos/{labelled}/labels", json={"action": "jump", "spans": [{"start": 0, "end": 1}]})
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        later = client.send_video(video, "later.mp4")["id"]
        assert client.ended(client.start_count(later)["id"])["state"] == "done"
        service.maintain()
        there = {entry["id"] for entry in client.get("/api/videos").json()}
        assert {labelled, later} <= there
        kept = [path for path in (tmp_path / "data").rglob(f"{other}*.mp4") if path.stat().st_size]
        assert len(kept) == 1 and (other in there or kept[0].with_name("record.json").exists())
        assert client.get("/healthz").json()["status"] == "ok"


def test_a_video_that_is_written_to_is_an_error_of_its_own(tmp_path: Path) -> None:
    video = Video(write_movie(tmp_path / "a.mkv", bouncing(3, 3.0, size=(64, 48))))
    frames = video.frames()
    next(frames)
    with video.path.open("ab") as file:
        file.write(b"\0" * 8)
    with pytest.raises(VideoError, match="it was changed while it was read; count it again when nobody writes it"):
        list(frames)
    assert len(list(Video(video.path).frames())) == 90


def test_a_batch_of_videos_that_are_written_to_counts_them_afterwards(tmp_path: Path) -> None:
    video = write_movie(tmp_path / "a.mkv", bouncing(3, 3.0, size=(64, 48)))
    with written_to(video):
        busy = finish(spawn(*BATCH, video, "--out", tmp_path / "out"), timeout=300)
    assert busy.code == 1 and "it was changed while it was read" in busy.err and "Traceback" not in busy.err
    quiet = finish(spawn(*BATCH, video, "--out", tmp_path / "out"), timeout=300)
    assert quiet.code == 0 and "0 of them errors; 3 repetitions" in quiet.out, quiet.out


def test_a_service_says_of_a_video_that_is_written_to_that_it_is(tmp_path: Path) -> None:
    """One that is offered by `--media-root`: uploads are the service's own."""
    (tmp_path / "media").mkdir()
    video = write_movie(tmp_path / "media" / "a.mkv", bouncing(3, 3.0, size=(64, 48)))
    with service_running(tmp_path / "data", media_root=tmp_path / "media") as (address, _), Client(address) as client:
        entry = client.post("/api/media", json={"file": "a.mkv"}).json()
        with written_to(video):
            busy = client.ended(client.start_count(entry["id"])["id"])
        assert busy["state"] == "failed" and "it was changed while it was read" in busy["error"]
        quiet = client.ended(client.start_count(entry["id"])["id"])
        assert quiet["state"] == "done" and quiet["result"]["count"] == 3
