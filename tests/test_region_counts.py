"""Counting one box of the picture: in Python, on the command line and in batches, and what files say of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command import run
from movies import beside, bouncing, write_movie

import escounts
from escounts.batching import read_ahead
from escounts.batching.tasks import Settings, find_tasks
from escounts.errors import EscountsError
from escounts.output.json import from_dict, to_dict
from escounts.output.png import frames_at
from escounts.video.files import Video

LEFT, RIGHT = "0%,0%,50%,100%", "50%,0%,50%,100%"
COUNTS = {LEFT: 4, RIGHT: 6}


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four repetitions on the left, six on the right, 192 x 64 pixels."""
    path = tmp_path_factory.mktemp("two") / "two.mp4"
    return write_movie(path, beside(bouncing(4, 6.0), bouncing(6, 6.0)))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> partial:  # type: ignore[type-arg]
    return partial(run, capsys, monkeypatch)


def test_a_region_is_counted_by_itself(video: Path) -> None:
    found = {box: escounts.count(video, model="spectral", region=box) for box in (LEFT, RIGHT)}
    assert {box: result.count for box, result in found.items()} == COUNTS
    assert found[RIGHT].region == "96,0,96,64" and from_dict(to_dict(found[RIGHT])).region == "96,0,96,64"
    assert escounts.count(video, model="spectral").region is None


def test_an_encoded_region_takes_exemplars_from_inside_it(video: Path) -> None:
    """Also where the exemplar lies outside the encoded stretch: it is cut from the same box."""
    counter = escounts.load("lite", device="cpu")
    encoded = counter.encode(video, region=(0, 0, 96, 64), start=3.0)
    assert encoded.count(exemplars=[(0.0, 1.5)]).count == 2
    assert [reference.info.region for reference in counter._references.values()] == [(0, 0, 96, 64)]


def test_a_wrong_region_is_one_sentence(video: Path) -> None:
    wrong_ones: list[tuple[str | tuple[int, ...], str]] = [
        ("left", "it takes x,y,width,height"),
        ((90, 0, 200, 64), "does not lie in the picture"),
    ]
    for wrong, reason in wrong_ones:
        with pytest.raises(EscountsError, match=reason):
            escounts.count(video, model="spectral", region=wrong)


def test_files_name_the_region(command: partial, video: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    formats = "json,csv,text,html,png,mp4"
    done = command("count", "--model", "spectral", video, "--region", LEFT, "-o", tmp_path, "-f", formats)
    assert done.code == 0 and "region 0,0,96,64" in done.out
    assert json.loads((tmp_path / "two.json").read_text())["region"] == "0,0,96,64"
    assert (tmp_path / "two.csv").read_text().splitlines()[1].count('"0,0,96,64"') == 1
    assert "0,0,96,64" in (tmp_path / "two.html").read_text()
    assert frames_at(video, [1.0], height=64, region="0,0,96,64")[0].shape == (64, 96, 3)
    drawn = next(Video(tmp_path / "two.counted.mp4").frames()).image.astype(int)
    border, beyond = drawn[20:60, 94:96], drawn[20:60, 98:190]
    assert border[..., 0].mean() > 150 > beyond[..., 0].mean() + 40, "the counted box has an outline"


def test_another_region_is_counted_again(command: partial, video: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    for box, count in COUNTS.items():
        assert command("count", "--model", "spectral", video, "--region", box, "-o", tmp_path).code == 0
        assert json.loads((tmp_path / "two.json").read_text())["count"] == count


@pytest.mark.parametrize("name", ["count", "batch"])
def test_a_mistyped_region_is_wrong_use(command: partial, video: Path, name: str) -> None:  # type: ignore[type-arg]
    done = command(name, video, "--region", "left")
    assert done.code == 2 and "it takes x,y,width,height in pixels" in done.err


def test_batch_counts_a_region_between_two_times(command: partial, video: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    options = ("--model", "spectral", "--region", RIGHT, "--from", "0:02", "--to", "5", "--out", tmp_path / "out")
    done = command("batch", video, *options)
    assert done.code == 0
    assert "1 videos, 0 of them errors; 3 repetitions in 1 videos, none in 0; 1 unsure" in done.out
    (row,) = escounts.batch([video], out=tmp_path / "out", settings=_settings("spectral")).to_pylist()
    assert (row["count"], row["region"]) == (3, "96,0,96,64")


def _settings(model: str) -> Settings:
    return Settings(model=model, device="auto", region=RIGHT, start=2.0, end=5.0)


def test_what_is_read_ahead_is_the_region_between_two_times(video: Path, tmp_path: Path) -> None:
    settings = _settings("lite")
    (task,) = find_tasks([video], settings)
    counting = read_ahead.counter_of_read(settings)
    read = read_ahead.reader(tmp_path, 2**30, settings, counting(None)["reading"])(task)
    assert read is not None
    row = counting((task, json.loads(json.dumps(read))))
    direct = counting((task, None))
    assert row == direct and row["region"] == "96,0,96,64"
    assert np.fromfile(read["images"], np.uint8).size == 90 * 128 * 128 * 3


def test_ids_of_rows_without_the_new_settings_stay(video: Path) -> None:
    assert "region" not in Settings(model="spectral").fingerprint()
    assert _settings("spectral").fingerprint()["region"] == RIGHT
