"""A full disk, a folder that may not be written to, a clock that jumps, two runs at once, too little memory."""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import finish, run, spawn
from movies import bouncing, write_movie

from escounts.cli.count import check_writable

COUNT = ("count", "--model", "spectral", "-q")


def counts(folder: Path) -> dict[str, int]:
    return {path.name: json.loads(path.read_text())["count"] for path in sorted(folder.glob("*.json"))}


def test_a_full_disk_and_then_a_read_only_one(small_disk: Path, videos: Path) -> None:
    """What fits is whole, the rest is reported and printed; with room again the second run completes."""
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 13 * 4096)
    full = finish(spawn(*COUNT, videos, "-o", small_disk / "out", "-f", "json"), timeout=300)
    assert full.code == 1 and "Traceback" not in full.err
    assert "No space left" in full.err
    assert all(count == 3 for count in counts(small_disk / "out").values())
    assert not list((small_disk / "out").glob(".*.partial"))
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    closed = finish(spawn(*COUNT, videos, "-o", small_disk / "out", "-f", "json"), timeout=300)
    assert closed.code in (1, 2) and "Read-only file system" in closed.err and "Traceback" not in closed.err
    subprocess.run(["mount", "-o", "remount,rw,size=4m", str(small_disk)], check=True)
    again = finish(spawn(*COUNT, videos, "-o", small_disk / "out", "-f", "json"), timeout=300)
    assert again.code == 0, again.err
    assert counts(small_disk / "out") == {"v0.json": 3, "v1.json": 3, "v2.json": 3}


def test_two_runs_on_one_folder(videos: Path, tmp_path: Path) -> None:
    both = [spawn(*COUNT, videos, "-o", tmp_path, "-f", "json,csv") for _ in range(2)]
    for process in both:
        done = finish(process, timeout=300)
        assert done.code == 0, done.err
    assert counts(tmp_path) == {"v0.json": 3, "v1.json": 3, "v2.json": 3}
    assert not list(tmp_path.glob(".*.partial"))


def test_runs_that_begin_together_find_their_folder_writable(tmp_path: Path) -> None:
    """Each tries it with a file; one took away the other's."""
    with ThreadPoolExecutor(4) as four:
        list(four.map(check_writable, [tmp_path] * 200))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jump", [-3 * 365 * 86400, 3 * 365 * 86400], ids=["three years back", "three years on"])
def test_a_clock_that_jumps(videos: Path, tmp_path: Path, jump: int) -> None:
    """Files from another time are neither swept away while somebody writes them nor counted again."""
    first = finish(spawn(*COUNT, videos, "-o", tmp_path, "-f", "json"), timeout=300)
    assert first.code == 0, first.err
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    moved = f"import time; real = time.time; time.time = lambda: real() + {jump}\n"
    second = finish(spawn(*COUNT, videos, "-o", tmp_path, "-f", "json", before=moved), timeout=300)
    assert second.code == 0, second.err
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")} == written, "counted again"
    old = tmp_path / ".left.json.12345678.partial"
    old.write_bytes(b"half")
    os.utime(old, (time.time() + abs(jump), time.time() + abs(jump)))  # written "tomorrow"
    third = finish(spawn(*COUNT, videos, "-o", tmp_path, "-f", "json"), timeout=300)
    assert third.code == 0 and counts(tmp_path) == {"v0.json": 3, "v1.json": 3, "v2.json": 3}


def test_too_little_memory_is_one_line(videos: Path, tmp_path: Path) -> None:
    large = write_movie(tmp_path / "large.mp4", bouncing(3, 0.5, size=(3840, 2160), rate=10), rate=10)
    limit = "import escounts.counter, escounts.models.from_checkpoint, escounts.output\n"
    limit += "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
    limit += "resource.setrlimit(resource.RLIMIT_AS, (used + 30 * 2**20,) * 2)\n"
    done = finish(spawn(*COUNT, large, before=limit), timeout=300)
    assert done.code == 1 and "Traceback" not in done.err and len(done.err.splitlines()) == 1, done.err


@pytest.mark.parametrize(
    "command",
    [
        ("encode", "folder", "--root", "VIDEOS", "--encoder", "patches", "--device", "cpu", "--tokens", "OUT"),
        ("evaluate", "spectral", "--data", "folder", "--root", "VIDEOS", "--out", "OUT"),
        ("train", "folder", "--root", "VIDEOS", "--init", "none", "--device", "cpu", "--out", "OUT"),
        ("batch", "VIDEOS", "--model", "spectral", "--out", "OUT"),
    ],
    ids=lambda command: command[0],
)
def test_a_place_where_no_folder_can_be_made_is_one_line(
    command: tuple[str, ...],
    videos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a read-only disk, which needs root to be tried."""
    (tmp_path / "file").write_text("no folder")
    (videos / "labels.csv").write_text("file,count\nv0.mp4,3\nv1.mp4,3\nv2.mp4,3\n")
    named = {"VIDEOS": str(videos), "OUT": str(tmp_path / "file" / "out")}
    done = run(capsys, monkeypatch, *(named.get(word, word) for word in command))
    assert done.code == 2 and len(done.err.splitlines()) == 1, done.err
    assert "file" in done.err and "directory" in done.err
    assert (tmp_path / "file").read_text() == "no folder"
