"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from escounts.errors import DataError, OutputError
from escounts.system.atomic_files import atomic_file, lock_folder, remove_partials, write_bytes, write_text


def test_a_file_replaces_the_older_one_with_everyday_permissions(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.txt"
    write_bytes(path, b"one")
    write_text(path, "zwölf\n")
    assert path.read_bytes() == "zwölf\n".encode()
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert [file.name for file in path.parent.iterdir()] == ["x.txt"]


@pytest.mark.parametrize("broken", [KeyboardInterrupt, ValueError])
def test_when_the_block_breaks_the_older_file_stays(tmp_path: Path, broken: type[BaseException]) -> None:
    path = tmp_path / "x.txt"
    path.write_text("older")
    with pytest.raises(broken), atomic_file(path) as partial:
        partial.write_text("half")
        raise broken
    assert [file.read_text() for file in tmp_path.iterdir()] == ["older"]


def test_what_the_system_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match=r"x\.txt: cannot be written: No space left on device"):
        write_text(tmp_path / "x.txt", "text")
    assert not list(tmp_path.iterdir())


def test_the_longest_name_a_folder_takes(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 125 + ".json")
    write_text(path, "{}")
    assert path.exists()


def test_sweeping_takes_what_the_killed_left_and_nothing_else(tmp_path: Path) -> None:
    """Of other programs' half-written files, a download's, none."""
    old, new, others = ".x.txt.0123abcd.partial", ".x.txt.4567abcd.partial", ".film.mp4.partial"
    for name, age in (("x.txt", 100.0), (old, 100.0), (new, 0.0), (others, 100.0)):
        (tmp_path / name).touch()
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    remove_partials(tmp_path, older=50.0)
    assert sorted(file.name for file in tmp_path.iterdir()) == [others, new, "x.txt"]
    remove_partials(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [others, "x.txt"]
    remove_partials(tmp_path / "absent")


def test_others_may_read_what_a_writer_kept_to_itself(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    with atomic_file(tmp_path / "written") as partial:
        partial.unlink()
        os.close(os.open(partial, os.O_CREAT | os.O_WRONLY, 0o600))
    assert (tmp_path / "written").stat().st_mode == plain.stat().st_mode


def test_a_folder_is_held_by_one_at_a_time_and_free_after_a_kill(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, stdin=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(DataError, match="busy"):
        lock_folder(tmp_path, DataError("busy"))
    holder.kill()
    holder.wait()
    lock_folder(tmp_path, DataError("busy")).release()


def test_a_folder_that_cannot_be_held_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # as on a read-only disk: there can be no such file
    with pytest.raises(OutputError, match="cannot be written to"):
        lock_folder(tmp_path, DataError("busy"))


HOLD = """
import sys
from pathlib import Path
from escounts.system.atomic_files import lock_folder
from escounts.errors import DataError
lock = lock_folder(Path(sys.argv[1]), DataError("busy"))
print("held", flush=True)
sys.stdin.read()
"""
