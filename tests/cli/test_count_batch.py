"""Many videos: one bad one is one failure, whatever it does; a table at the end, several at once."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from command import finish, run, spawn
from movies import bouncing, looped, write_movie
from warm_processes import warm_processes

from escounts.cli.count_jobs import Ledger, output_names, reserve_files
from escounts.cli.display import MOST_ROWS, Row, table
from escounts.counting.spectral import Spectral

COUNT = ("count", "--model", "spectral")


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> partial:  # type: ignore[type-arg]
    return partial(run, capsys, monkeypatch)


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Two videos of four and six repetitions, and a file that is not a video."""
    place = tmp_path / "in"
    place.mkdir()
    bad = place / "bad.mp4"
    bad.write_text("not a video")
    return [write_movie(place / "a.mp4", bouncing(4, 4.0)), bad, write_movie(place / "c.mp4", bouncing(6, 4.0))]


def test_a_table_and_a_summary(escounts: partial, three: list[Path], tmp_path: Path) -> None:  # type: ignore[type-arg]
    done = escounts(*COUNT, *three, "--summary", tmp_path / "summary.csv")
    assert done.code == 1
    end = done.out[done.out.rindex("\nvideo ") + 1 :].splitlines()
    assert end[0].split() == ["video", "count", "confidence"] and end[-1] == "3 videos: 2 counted, 2 unsure, 1 failed"
    assert end[1].split()[:2] == ["a.mp4", "4"] and end[2].split()[:2] == ["bad.mp4", "failed"]
    assert [f"{n} of 3" in done.err for n in (1, 2, 3)] == [True] * 3
    rows = list(csv.DictReader((tmp_path / "summary.csv").open(newline="")))
    assert [(row["status"], row["count"], row["unsure"]) for row in rows] == [
        ("counted", "4", "yes"),
        ("failed", "", ""),
        ("counted", "6", "yes"),
    ]
    assert "no video FFmpeg can read" in rows[1]["reason"] and rows[0]["confidence_kind"] == "agreement"


def test_several_at_once_say_the_same(escounts: partial, three: list[Path], tmp_path: Path) -> None:  # type: ignore[type-arg]
    done = escounts(*COUNT, *three, "--jobs", "2", "-o", tmp_path / "out", "-f", "json")
    assert done.code == 1 and "3 videos: 2 counted, 2 unsure, 1 failed" in done.out and "3 of 3 done" in done.err
    assert {path.name for path in (tmp_path / "out").glob("*.json")} == {"a.json", "c.json"}
    again = escounts(*COUNT, *three, "--jobs", "2", "-o", tmp_path / "out", "-f", "json")
    assert "0 counted, 2 finished before" in again.out


def test_rows_are_in_the_order_given_whatever_ends_first(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
) -> None:
    slow = looped(tmp_path / "slow.mp4", bouncing(1, 2.0, size=(320, 240)), 30)
    given = [slow, tmp_path / "missing.mp4", three[2], three[1], three[0]]
    with warm_processes():
        done = escounts(*COUNT, *given, "--jobs", "2", "--summary", tmp_path / "summary.csv")
    assert done.out.index("c.mp4: 6 repetitions") < done.out.index("slow.mp4: 30 repetitions"), (
        "the slow one ends later"
    )
    rows = list(csv.DictReader((tmp_path / "summary.csv").open(newline="")))
    assert [row["video"] for row in rows] == [str(path) for path in given]
    end = done.out[done.out.rindex("\nvideo ") + 1 :].splitlines()
    assert [line.split()[0] for line in end[1:-1]] == [path.name for path in given]


def test_quiet_says_the_headlines_and_nothing_else(escounts: partial, three: list[Path], tmp_path: Path) -> None:  # type: ignore[type-arg]
    done = escounts(*COUNT, three[0], three[2], "-q", "-o", tmp_path / "out", "--summary", tmp_path / "summary.csv")
    assert done.code == 0 and done.err == "" and (tmp_path / "summary.csv").exists()
    assert [line.split(":")[0] for line in done.out.splitlines()] == ["a.mp4", "c.mp4"]


def test_any_exception_is_one_files_failure(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = Spectral.encode

    def broken(self: Spectral, video: object, **options: object) -> object:
        if Path(str(video.path)).name == "a.mp4":  # type: ignore[attr-defined]
            raise IndexError("tuple index out of range")
        return encode(self, video, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Spectral, "encode", broken)
    done = escounts(*COUNT, three[0], three[2], "-q")
    assert done.code == 1 and "6 repetitions" in done.out and "Traceback" not in done.err
    assert "a.mp4: IndexError in " in done.err and "escounts doctor" in done.err and "maintainers" in done.err


def test_what_a_killed_run_left_half_written_is_swept_by_the_next(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
) -> None:
    left = tmp_path / "out" / ".a.json.0123abcd.partial"
    left.parent.mkdir()
    left.write_text('{"half')
    assert escounts(*COUNT, three[0], "-q", "-o", tmp_path / "out", "-f", "json").code == 0
    assert {path.name for path in left.parent.iterdir()} == {"a.json", ".escounts-finished.jsonl"}


def test_a_count_whose_file_cannot_be_written_is_printed(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        done = escounts(*COUNT, three[0], "-o", tmp_path / "out", "-f", "json")
    assert done.code == 1 and "4 repetitions" in done.out and "No space left" in done.err
    assert not (tmp_path / "out" / "a.json").exists()
    done = escounts(*COUNT, three[0], "-o", tmp_path / "out", "-f", "json")
    assert done.code == 0 and "finished before" not in done.out, "it is counted again next time"
    assert (tmp_path / "out" / "a.json").exists()


def test_files_that_count_did_not_write_are_not_written_over(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
) -> None:
    """A film's own subtitles lie beside it under the very name that -f srt would take."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.srt").write_text("mine")
    done = escounts(*COUNT, three[0], three[2], "-q", "-o", out, "-f", "json,srt")
    assert done.code == 1 and "a.mp4: not counted" in done.err and "a.srt is there and was not written" in done.err
    assert (out / "a.srt").read_text() == "mine" and not (out / "a.json").exists()
    assert "6 repetitions" in done.out and (out / "c.srt").exists(), "the others go on"
    assert escounts(*COUNT, three[0], "-q", "-o", out, "-f", "json,srt", "--force").code == 0
    assert "4" in (out / "a.srt").read_text()
    assert escounts(*COUNT, three[0], "-q", "-o", out, "-f", "srt", "--from", "0.1").code == 0, "it is ours now"


def test_what_a_killed_run_was_about_to_write_is_its_own(three: list[Path], tmp_path: Path) -> None:
    """Written, and killed before it was noted as finished: the next run takes it for what it is."""
    reserve_files(tmp_path, "a", three[0], ["a.json"])
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.csv").write_text("mine")
    assert Ledger(tmp_path).foreign_files(["a.json", "a.csv", "a.png"]) == ["a.csv"]


def test_a_video_of_the_same_name_does_not_write_over_the_count_of_another(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
) -> None:
    other = tmp_path / "other" / "a.mp4"
    other.parent.mkdir()
    shutil.copy(three[2], other)
    out = tmp_path / "out"
    for video in (three[0], other, three[0], other):
        assert escounts(*COUNT, video, "-q", "-o", out, "-f", "json").code == 0
    counts = {path.name: json.loads(path.read_text())["count"] for path in out.glob("*.json")}
    assert counts == {"a.json": 4, "a.mp4.json": 6}
    three[0].rename(moved := tmp_path / "a.mp4")
    names = [name for video in (other, moved) for _, name in output_names([video], Ledger(out).owners)]
    assert names == ["a.mp4", "a"], "each keeps its own, moved or not"


def test_a_video_that_is_taken_away_while_it_is_counted_is_one_failure(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is counted and its file written, but which file that was of can no longer be noted."""
    encode = Spectral.encode

    def taken(self: Spectral, video: object, **options: object) -> object:
        encoding = encode(self, video, **options)  # type: ignore[arg-type]
        three[0].unlink(missing_ok=True)
        return encoding

    monkeypatch.setattr(Spectral, "encode", taken)
    done = escounts(*COUNT, three[0], three[2], "-o", tmp_path / "out", "-f", "json")
    assert done.code == 1 and "a.mp4: 4 repetitions" in done.out and "c.mp4: 6 repetitions" in done.out
    assert f"escounts: {three[0]}: No such file" in done.err and "2 videos: 2 counted" in done.out


def test_loops_pipes_and_odd_names(escounts: partial, three: list[Path], tmp_path: Path) -> None:  # type: ignore[type-arg]
    place = three[0].parent
    (place / "loop.mp4").symlink_to(place / "loop.mp4")
    os.mkfifo(place / "pipe.mp4")
    odd = place / os.fsdecode(b"caf\xe9.mp4")
    three[0].rename(odd)
    done = escounts(*COUNT, place, place / "loop.mp4", "-o", tmp_path / "out", "-f", "json,csv,srt,text,html", "-q")
    assert done.code == 1 and "caf�.mp4: 4 repetitions" in done.out and "6 repetitions" in done.out
    assert "loop.mp4" in done.err and "pipe.mp4" not in done.err and "Traceback" not in done.err
    assert (tmp_path / "out" / os.fsdecode(b"caf\xe9.json")).exists()
    assert "caf�.mp4: 4 repetitions" in escounts(*COUNT, odd, "-o", tmp_path / "out", "-f", "json").out, "kept"


def test_no_name_commands_the_terminal(
    escounts: partial,  # type: ignore[type-arg]
    three: list[Path],
    tmp_path: Path,
) -> None:
    """Names come with the files of strangers: a line each, and no escape sequence reaches the terminal."""
    odd = "\x1b]0;mine\x07\n\x9b2J"
    shutil.copy(three[0], tmp_path / f"good{odd}.mp4")
    (tmp_path / f"bad{odd}.mp4").write_text("not a video")
    for options in ((), ("-q",), ("--json",)):
        done = escounts(*COUNT, *tmp_path.glob("*.mp4"), *options)
        assert done.code == 1 and not set("\x1b\x07\x9b\r") & set(done.out + done.err)
        assert all(line.startswith(("escounts: ", "2 of 2", "1 of 2")) for line in done.err.splitlines())
    assert json.loads(done.out)["video"].endswith(f"good{odd}.mp4"), "in JSON it is the name that it is"
    assert len(done.out.splitlines()) == 1


def test_nobody_reads_on(three: list[Path], tmp_path: Path) -> None:
    """`escounts count … | head -1` stops: without counting the rest."""
    code = "from escounts.cli import main; main()"
    copies = [tmp_path / f"{i}.mp4" for i in range(60)]
    for copy in copies:
        copy.write_bytes(three[2].read_bytes())
    arguments = [*COUNT, three[0], *copies, "--json", "-o", tmp_path / "out", "-f", "json"]
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=theirs, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    assert os.read(ours, 100).startswith(b'{"schema"')
    os.close(ours)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and err == ""
    assert len(list((tmp_path / "out").glob("*.json"))) < 40


def test_an_interrupt_that_looks_like_one_files_failure_ends_the_batch(three: list[Path]) -> None:
    """FFmpeg turns Ctrl-C into an error of its own: the batch ends all the same."""
    before = (
        "import signal\n"
        "from escounts.counting.spectral import Spectral\n"
        "from escounts.errors import VideoError\n"
        "def encode(self, video, **options):\n"
        "    try:\n        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n        raise VideoError('Immediate exit requested') from None\n"
        "Spectral.encode = encode\n"
    )
    done = finish(spawn(*COUNT, three[0], three[2], before=before))
    assert done.code == 130 and "interrupted" in done.err and "c.mp4" not in done.out + done.err


def _children() -> set[int]:
    """Processes that this one has started, in whatever way."""
    return {child.pid or 0 for child in multiprocessing.active_children()}


def test_a_process_that_dies_takes_one_video_with_it(three: list[Path], tmp_path: Path) -> None:
    """Killed from outside, as the system does when memory runs out."""
    from escounts.cli.count_jobs import Task, side_by_side

    long = looped(tmp_path / "long.mp4", bouncing(1, 2.0, size=(320, 240), rate=10), 300, rate=10)
    tasks = [Task(v, v.stem, {}, None, ()) for v in (long, three[0], three[2])]
    outcomes = {}
    earlier = _children()  # of tests before this one in the same process
    with warm_processes():
        counting = side_by_side("spectral", "cpu", tasks, jobs=2)
        task, done = next(counting)
        outcomes[task.name] = done
        os.kill(min(_children() - earlier), 9)
        outcomes |= {task.name: done for task, done in counting}
    assert len(outcomes) == 3 and sum(result is not None for result, _, _ in outcomes.values()) == 2
    (failure,) = (failure for _, failure, _ in outcomes.values() if failure)
    assert "its process died (SIGKILL: out of memory, or killed)" in failure


def test_of_very_many_videos_the_table_shows_those_to_look_at() -> None:
    about = {"count": 3, "confidence": 0.99, "confidence_kind": "probability", "unsure": False}
    rows = [Row(Path(f"{i}.mp4"), "counted", about | {"unsure": i == 7}) for i in range(MOST_ROWS + 20)]
    lines = table([*rows, Row(Path("x.mp4"), "failed", reason="x.mp4: broken")]).splitlines()
    assert [line.split()[0] for line in lines] == ["video", "7.mp4", "x.mp4", "…", "121"]
    assert lines[-1] == "121 videos: 120 counted, 1 unsure, 1 failed"
