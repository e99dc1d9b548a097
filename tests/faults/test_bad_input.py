"""The table of bad input: each gives one clear line, the right exit code and nothing half-written."""

from __future__ import annotations

import os
import struct
import tempfile
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from command import NOBODY, as_nobody, finish, run, spawn
from movies import bouncing, levels, write_movie

Make = Callable[[Path], Path]


def missing(place: Path) -> Path:
    return place / "missing.mp4"


def folder_without_videos(place: Path) -> Path:
    (place / "texts").mkdir()
    (place / "texts" / "a.txt").write_text("text")
    return place / "texts"


def empty(place: Path) -> Path:
    (place / "empty.mp4").touch()
    return place / "empty.mp4"


def text(place: Path) -> Path:
    (place / "text.mp4").write_text("This is a letter, not a video.\n" * 200)
    return place / "text.mp4"


def truncated(place: Path) -> Path:
    """The index of an mp4 stands at its end: cut off, nothing can be read."""
    path = write_movie(place / "cut.mp4", bouncing(4, 4.0))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return path


def truncated_streamed(place: Path) -> Path:
    """With the index at the start, the beginning can be read; the rest is missing."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (48, 64, 3), np.uint8) for _ in range(120)]
    path = write_movie(place / "streamed.mp4", pictures, container_options={"movflags": "+faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def sound(place: Path) -> Path:
    with wave.open(str(place / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\0\1" * 8000)
    return place / "sound.wav"


def one_frame(place: Path) -> Path:
    return write_movie(place / "one.mp4", levels(1))


def picture(place: Path) -> Path:
    return write_movie(
        place / "one.png", levels(1), codec="png", pixel_format="rgb24", container_format="image2",
        container_options={"update": "1"},
    )  # fmt: skip


def _gif(path: Path, width: int, height: int) -> Path:
    """Two tiny pictures in a GIF whose header claims any size."""
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    picture = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    path.write_bytes(screen + picture * 2 + b"\x3b")
    return path


def huge(place: Path) -> Path:
    return _gif(place / "huge.gif", 20_000, 20_000)


def no_size(place: Path) -> Path:
    return _gif(place / "zero.gif", 0, 0)


def _raw_avi(path: Path, width: int, height: int) -> Path:
    """Raw pictures, whose size only the header knows, in an AVI that claims another one."""
    write_movie(path, levels(4, size=(64, 48)), codec="rawvideo")
    path.write_bytes(path.read_bytes().replace(struct.pack("<II", 64, 48), struct.pack("<II", width, height)))
    return path


def huge_raw(place: Path) -> Path:
    return _raw_avi(place / "huge.avi", 20_000, 20_000)


def no_size_raw(place: Path) -> Path:
    return _raw_avi(place / "zero.avi", 0, 0)


TABLE: list[tuple[Make, str]] = [
    (missing, "no such file"),
    (folder_without_videos, "no videos in this folder"),
    (empty, "the file is empty"),
    (text, "no video FFmpeg can read"),
    (truncated, "cut off before its index"),
    (truncated_streamed, "truncated: breaks off at"),
    (sound, "sound only, no picture"),
    (one_frame, "only one frame"),
    (picture, "only one frame"),
    (huge, "more than 134,217,728 pixels"),
    (huge_raw, "no usable picture size: none, or more than 134,217,728 pixels"),
    (no_size, "no video FFmpeg can read"),
    (no_size_raw, "no usable picture size"),
]


@pytest.mark.parametrize(("make", "says"), TABLE, ids=[make.__name__ for make, _ in TABLE])
def test_bad_videos(
    make: Make, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = make(tmp_path)
    out = tmp_path / "out"
    done = run(capsys, monkeypatch, "count", bad, "--model", "spectral", "-o", out, "-f", "json,csv,srt,html")
    assert done.code == 1 and done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"escounts: {bad}") and says in lines[0]
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("exemplar", "code", "says"),
    [
        ("9-11", 1, "runs past the end of the video, which lasts 4.0"),
        ("other.mp4@1-2", 1, "other.mp4: no such file"),
        ("2-2", 2, "is empty"),
        ("3-2", 2, "ends before it starts"),
        ("soon", 2, "soon"),
        ("1-1.03", 1, "hardly a frame"),
    ],
)
def test_bad_exemplars(
    exemplar: str,
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    video = write_movie(tmp_path / "fine.mp4", bouncing(4, 4.0))
    out = tmp_path / "out"
    monkeypatch.chdir(tmp_path)
    done = run(capsys, monkeypatch, "count", video, "--model", "spectral", "--exemplar", exemplar, "-o", out)
    assert done.code == code and done.out == "" and says in done.err
    assert len(done.err.splitlines()) == 1
    assert not out.exists() or list(out.iterdir()) == []


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder another user can reach: pytest's own are private, and made so again by every pytest that starts."""
    with tempfile.TemporaryDirectory(prefix="escounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_unreadable_video(open_place: Path) -> None:
    video = write_movie(open_place / "secret.mp4", bouncing(4, 4.0))
    video.chmod(0o000)
    done = finish(spawn("count", video, "--model", "spectral", before=as_nobody(), cwd=open_place))
    assert done.code == 1 and done.err == f"escounts: {video}: permission denied\n"


def test_output_folder_not_writable(open_place: Path) -> None:
    video = write_movie(open_place / "fine.mp4", bouncing(4, 4.0))
    closed = open_place / "closed"
    closed.mkdir(mode=0o555)
    for target in (closed, closed / "deeper"):
        done = finish(spawn("count", video, "--model", "spectral", "-o", target, before=as_nobody(), cwd=open_place))
        assert done.code == 2 and done.out == "" and len(done.err.splitlines()) == 1
        assert "cannot be written" in done.err and "Permission denied" in done.err
    assert list(closed.iterdir()) == []
    video.chmod(0o644)
    if os.getuid() == 0:
        os.chown(closed, NOBODY, NOBODY)
        closed.chmod(0o755)
        done = finish(spawn("count", video, "--model", "spectral", "-o", closed, before=as_nobody(), cwd=open_place))
        assert done.code == 0, done.err  # the same user, where writing is allowed


@pytest.mark.parametrize("kind", ["json", "html", "png", "mp4"])
def test_disk_full_while_writing(tmp_path: Path, kind: str) -> None:
    """Files may grow to 3,000 bytes only: writing breaks in the middle, as on a full disk."""
    video = write_movie(tmp_path / "fine.mp4", bouncing(4, 8.0))
    limit = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "import escounts.counter, matplotlib.font_manager\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    done = finish(spawn("count", video, "--model", "spectral", "-o", tmp_path / "out", "-f", kind, before=limit))
    assert done.code == 1 and done.out.startswith("fine.mp4: 4 repetitions"), "the count is printed all the same"
    lines = done.err.splitlines()
    assert (
        len(lines) == 1
        and "cannot be written: File too large" in lines[0]
        and f"fine.{kind[:1]}" in lines[0].replace("counted.", "")
    )
    assert list((tmp_path / "out").iterdir()) == []
