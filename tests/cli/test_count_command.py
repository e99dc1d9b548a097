"""Manners of `escounts count`: exit codes, streams, skipping, interrupting."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command import finish, run, spawn
from movies import bouncing, looped, write_movie

from escounts.cli.count_jobs import output_names, videos_among
from escounts.models.checkpoint import save_network
from escounts.nn.network import LITE_TINY, Network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.mp4 with four repetitions, b/a.mp4 with six, a text file."""
    place = tmp_path_factory.mktemp("videos")
    (place / "b").mkdir()
    write_movie(place / "a.mp4", bouncing(4, 6.0))
    write_movie(place / "b" / "a.mp4", bouncing(6, 6.0))
    (place / "notes.txt").write_text("nothing to see")
    return place


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> partial:  # type: ignore[type-arg]
    return partial(run, capsys, monkeypatch)


COUNT = ("count", "--model", "spectral")


def test_one_video(escounts: partial, folder: Path) -> None:  # type: ignore[type-arg]
    done = escounts(*COUNT, folder / "a.mp4")
    assert done.code == 0 and done.err == ""
    assert done.out.startswith("a.mp4: 4 repetitions, agreement 0.") and "not a probability" in done.out
    assert "\x1b" not in done.out, "no colours or bars in a pipe"


def test_folder_and_formats(escounts: partial, folder: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    done = escounts(*COUNT, folder, "-o", tmp_path / "out", "-f", "json,csv,srt,text,html")
    assert done.code == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("."))
    assert names == sorted(
        stem + suffix
        for stem in ("a.mp4", f"{(folder / 'b').name}-a.mp4")
        for suffix in (".json", ".csv", ".srt", ".txt", ".html")
    )
    assert json.loads((tmp_path / "out" / "b-a.mp4.json").read_text())["count"] == 6
    assert done.err.count("wrote ") == 10


def test_json_on_stdout_is_clean(escounts: partial, folder: Path) -> None:  # type: ignore[type-arg]
    done = escounts(*COUNT, folder / "a.mp4", folder / "missing.mp4", folder / "b" / "a.mp4", "--json")
    results = [json.loads(line) for line in done.out.splitlines()]
    assert [result["count"] for result in results] == [4, 6]
    assert {"count", "repetitions", "confidence", "density", "unsure", "timings"} <= set(results[0])
    assert done.code == 1 and done.err.count("\n") == 1 and "missing.mp4: no such file" in done.err


def test_a_bad_file_does_not_stop_the_others(escounts: partial, folder: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    done = escounts(*COUNT, bad, folder / "a.mp4", "-q")
    assert done.code == 1 and "4 repetitions" in done.out
    assert done.err.splitlines() == [f"escounts: {bad}: {done.err.splitlines()[0].split(': ', 2)[2]}"]


def test_finished_files_are_skipped(escounts: partial, folder: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    asked = (*COUNT, folder / "a.mp4", "-o", tmp_path, "-f", "json")
    assert "4 repetitions" in escounts(*asked).out
    again = escounts(*asked)
    assert (
        again.code == 0 and again.out.startswith("a.mp4: 4 repetitions") and "finished already; --force" in again.out
    )
    assert escounts(*asked, "-q").out.startswith("a.mp4: 4 repetitions")
    assert json.loads(escounts(*asked, "--json").out)["count"] == 4, "the kept result is printed"
    assert "4 repetitions" in escounts(*asked, "--force").out
    assert "2 repetitions" in escounts(*asked, "--to", "3").out, "other settings: counted again"
    (tmp_path / "a.json").unlink()
    assert "4 repetitions" in escounts(*asked).out


def test_a_retrained_model_counts_again(escounts: partial, folder: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    checkpoint = tmp_path / "mine.safetensors"
    asked = ("count", "--model", checkpoint, folder / "a.mp4", "-o", tmp_path / "out")
    save_network(checkpoint, Network(LITE_TINY))
    assert "wrote" in escounts(*asked).err
    assert "finished already" in escounts(*asked).out
    save_network(checkpoint, Network(LITE_TINY))
    assert "wrote" in escounts(*asked).err


def test_another_video_under_the_exemplars_name_counts_again(
    escounts: partial,  # type: ignore[type-arg]
    folder: Path,
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark.mp4"
    asked = (*COUNT, folder / "a.mp4", "-o", tmp_path / "out", "--exemplar", f"{mark}@1-2")
    shutil.copy(folder / "a.mp4", mark)
    assert "wrote" in escounts(*asked).err and "finished already" in escounts(*asked).out
    shutil.copy(folder / "b" / "a.mp4", mark)
    assert "wrote" in escounts(*asked).err
    mark.unlink()
    gone = escounts(*asked)
    assert gone.code == 1 and "mark.mp4: no such file" in gone.err


def test_exemplars_and_ranges(escounts: partial, folder: Path) -> None:  # type: ignore[type-arg]
    video = folder / "a.mp4"
    assert "4 repetitions" in escounts(*COUNT, video, "--exemplar", "1.5-3.0").out
    assert "2 repetitions" in escounts(*COUNT, video, "--exemplar", "0-3.0").out
    other = f"{folder / 'b' / 'a.mp4'}@1-2"
    assert "repetitions" in escounts(*COUNT, video, "--exemplar", other, "--exemplar", "0-1.5").out
    assert "2 repetitions" in escounts(*COUNT, video, "--from", "1.5", "--to", "4.5").out
    assert "2 repetitions" in escounts(*COUNT, video, "--from", "0:01.5", "--to", "0:04.5").out, "as it is printed"
    short = escounts(*COUNT, video, "--exemplar", "1.5-1.52")
    assert short.code == 1 and "hardly a frame" in short.err
    unit = escounts(*COUNT, video, "--unit", "side")
    assert unit.code == 1 and "does not tell cycles from sides" in unit.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing argument"),
        (("VIDEO", "-f", "json,bmp"), "known formats: text, json"),
        (("VIDEO", "--model", "nothing"), "unknown model 'nothing'; known: default"),
        (("VIDEO", "--from", "4", "--to", "2"), "--to 2 must come after --from 4"),
        (("VIDEO", "--to", "nan"), "'nan' is not a time; write seconds (5 or 5.5), m:s (0:05.5)"),
        (("VIDEO", "--from", "-1"), "is not a time"),
        (("VIDEO", "--from", "soon"), "'soon' is not a time"),
        (("VIDEO", "--unit", "leg"), "'leg' is not one of"),
        (("VIDEO", "--exemplar", "2"), "exemplar"),
        (("VIDEO", "--exemplar", "3-3"), "is empty"),
        (("VIDEO", "--device", "tpu"), "'tpu' is not one of"),
        (("VIDEO", "--colour"), "No such option"),
    ],
)
def test_wrong_use_is_exit_code_2(escounts: partial, folder: Path, arguments: tuple[str, ...], says: str) -> None:  # type: ignore[type-arg]
    done = escounts("count", *(str(folder / "a.mp4") if a == "VIDEO" else a for a in arguments))
    assert done.code == 2 and done.out == "" and says in done.err and "Traceback" not in done.err


def test_interrupt_keeps_what_is_finished(folder: Path, tmp_path: Path) -> None:
    """Ctrl-C during the second, long video: the first one's files are there, whole; nothing of the second."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 255, (180, 320, 3), np.uint8) for _ in range(8)]
    looped(tmp_path / "z.mp4", noise, 750)
    process = spawn(*COUNT, folder / "a.mp4", tmp_path / "z.mp4", "-o", tmp_path / "out", "-f", "json,csv")
    deadline, record = time.monotonic() + 30, tmp_path / "out" / ".escounts-finished.jsonl"
    while not (record.exists() and '"about"' in record.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130 and "interrupted" in done.err and "Traceback" not in done.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"a.json", "a.csv", ".escounts-finished.jsonl"}
    assert json.loads((tmp_path / "out" / "a.json").read_text())["count"] == 4


def test_the_doctor_says_what_needs_pyarrow(escounts: partial, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (line,) = [line for line in escounts("doctor").out.splitlines() if "pyarrow" in line]
    assert "escounts batch" in line and "[batch]" in line


def test_models_and_doctor(escounts: partial) -> None:  # type: ignore[type-arg]
    models = escounts("models")
    assert models.code == 0 and "spectral" in models.out and "trained on: nothing" in models.out
    listed = json.loads(escounts("models", "--json").out)
    assert sum(entry["default"] for entry in listed) == 1
    doctor = escounts("doctor")
    assert doctor.code == 0 and "video written and read back: 10 of 10 frames" in doctor.out
    lines = [line for line in doctor.out.splitlines() if line.startswith("ok ")]
    assert len(lines) <= 9 and max(map(len, lines)) < 160, "what works is said in few words"
    assert "the default model (lite) loads" in doctor.out
    assert "VIT_B" not in doctor.out, "where weights come from is what `escounts models` is for"


def test_help_does_not_load_torch() -> None:
    done = finish(spawn("--help", before="import atexit\natexit.register(lambda: print('torch' in sys.modules))"))
    assert done.code == 0 and done.out.rstrip().endswith("False")


def test_names_of_outputs_never_collide(tmp_path: Path) -> None:
    videos = [tmp_path / name for name in ("x/a.mp4", "y/a.mp4", "y/a.avi", "z/b.mp4", "q/x/a.mp4")]
    names = [name for _, name in output_names(videos)]
    assert names == ["a.mp4", "y-a.mp4", "a.avi", "b", "x-a.mp4"] and len(set(names)) == 5


def test_inputs_once_and_without_own_outputs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.counted.mp4").write_bytes(b"")
    given = videos_among([folder / "a.mp4", tmp_path, folder])
    empty = (tmp_path, f"{tmp_path}: no videos in this folder")
    assert given == [(folder / "a.mp4", ""), empty, (folder / "b" / "a.mp4", "")], "in the order given"
