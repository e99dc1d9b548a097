"""What Python users meet: tables, notebooks, frames of their own; and the command line's small manners."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from command import run
from movies import beside, bouncing, write_movie

import escounts
from escounts.errors import EscountsError
from escounts.output import png
from escounts.research.evaluation.report import video_report
from escounts.research.training.predictions import Prediction
from escounts.results import CountResult


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> CountResult:
    path = write_movie(tmp_path_factory.mktemp("comfort") / "four.mp4", bouncing(4, 6.0))
    return escounts.count(path, model="spectral")


def test_arrays_are_counted_like_their_video(result: CountResult) -> None:
    """In a list, one after another, or as one array; grey ones, too."""
    pictures = bouncing(4, 6.0)
    for frames in (
        pictures,
        iter(pictures),
        np.stack(pictures),
        [picture.mean(2).astype(np.uint8) for picture in pictures],
    ):
        found = escounts.count(frames, fps=30, model="spectral")
        assert (found.count, found.duration, found.video) == (result.count, 6.0, "frames")


def test_an_exemplar_of_arrays_is_cut_from_them_beyond_the_encoded_stretch() -> None:
    counter = escounts.load("lite", device="cpu")
    encoded = counter.encode(bouncing(6, 6.0), fps=30, start=3.0)
    assert encoded.count(exemplars=[(0.0, 1.0)]).count == 3
    assert counter.count(beside(bouncing(4, 6.0), bouncing(6, 6.0)), fps=30, region="50%,0%,50%,100%").count == 6


def test_a_large_frame_is_kept_small_and_may_be_used_again() -> None:
    frame = np.zeros((900, 1600, 3), np.uint8)

    def camera() -> Any:
        for picture in bouncing(4, 6.0, size=(1600, 900)):
            frame[:] = picture
            yield frame

    found = escounts.count(camera(), fps=30, model="spectral", region="25%,0%,50%,100%")
    assert found.count == 4 and found.region == "64,0,128,144"


@pytest.mark.parametrize(
    ("frames", "fps", "reason"),
    [
        ([np.zeros((8, 8, 3), np.uint8)] * 9, None, "frames together with fps="),
        ([np.zeros((8, 8, 3), np.uint8)], 30, "fewer than two"),
        ([np.zeros((8, 8, 3), np.float32)] * 9, 30, "frame 0 is float32"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)], 30, "several sizes"),
        ([np.zeros((8, 8, 3), np.uint8)] * 9, 0, "frames a second above 0"),
        ("no.mp4", 30, "no such file"),
        (3, 30, "it takes a name or a path"),
    ],
)
def test_wrong_frames_are_one_sentence(frames: Any, fps: float | None, reason: str) -> None:
    with pytest.raises(EscountsError, match=reason):
        escounts.count(frames, fps=fps, model="spectral")


def test_a_table_for_pandas(result: CountResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EscountsError, match="pip install pandas"):
        result.to_dataframe()
    fake = ModuleType("pandas")
    fake.DataFrame = lambda rows, columns: (rows, columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", fake)
    rows, columns = result.to_dataframe()
    assert columns == list(rows[0]) == ["start_s", "end_s", "seconds", "score", "region"]
    assert [row["end_s"] for row in rows] == [one.end for one in result.repetitions]


def test_a_notebook_shows_the_number_and_the_picture(result: CountResult, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = result._repr_html_()
    assert "four.mp4: 4 repetitions" in shown and "data:image/png;base64," in shown

    def missing(_: CountResult) -> None:
        raise escounts.EscountsError("matplotlib") from None

    monkeypatch.setattr(png, "figure", missing)
    monkeypatch.setattr(png, "OutputError", escounts.EscountsError)
    assert "4 repetitions" in result._repr_html_() and "<img" not in result._repr_html_()


def test_small_manners(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, result: CountResult
) -> None:
    command = partial(run, capsys, monkeypatch)
    for words in ((), ("count",), ("train",), ("serve",)):
        done = command(*words, "-h")
        assert done.code == 0 and done.out.startswith("Usage: ")
    done = command("count", "https://example.org/v.mp4", "--model", "spectral")
    assert (
        done.code == 1
        and "https://example.org/v.mp4: an address; `escounts watch ADDRESS`" in done.err
        and len(done.err.splitlines()) == 1
    )
    done = command("count", result.video, "--model", "spectral", "-q")
    assert len(done.out.splitlines()) == 1 and done.err == ""


def test_the_shell_completes_commands() -> None:
    asked = {"_ESCOUNTS_COMPLETE": "bash_complete", "COMP_WORDS": "escounts co", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['escounts']; from escounts.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,count\n"


def test_a_line_per_evaluated_video() -> None:
    row = Prediction("folder", "", "squats.mp4", "squat", 8, 9.6, 20.0, 2.0, 0.0, 1.0, (), ())
    assert video_report([row]).splitlines()[1].split() == ["squats.mp4", "8", "9.60", "+2"]
