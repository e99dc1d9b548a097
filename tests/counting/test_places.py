"""Places of the picture: two are counted by themselves, one stays one, and what crosses the picture is said."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from movies import Picture, beside, bouncing, write_movie

import escounts
from escounts.counting import places
from escounts.counting.places import TRAVELS, Places
from escounts.errors import EscountsError
from escounts.output.json import from_dict, to_dict
from escounts.system.arrays import Array32
from escounts.video.files import Video
from escounts.video.lag_maps import SIDE
from escounts.video.regions import Region

SIZE = (160, 120)
LEFT, RIGHT = "0,0,160,120", "160,0,160,120"


def walking(seconds: float, *, rate: float = 30) -> list[Picture]:
    """A block that goes up and down once a second on its way from the left to the right."""
    backdrop = np.random.default_rng(5).integers(40, 90, (120, 320, 3), np.uint8)
    pictures = []
    for index in range(round(seconds * rate)):
        picture = backdrop.copy()
        top = round(50 - 40 * np.cos(2 * np.pi * index / rate))
        left = round(280 * index / (seconds * rate))
        picture[top : top + 24, left : left + 24] = (240, 200, 60)
        pictures.append(picture)
    return pictures


@pytest.fixture(scope="module")
def counter() -> escounts.Counter:
    return escounts.load("lite", device="cpu")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places") / "two.mp4"
    return write_movie(path, beside(bouncing(5, 8.0, size=SIZE), bouncing(8, 8.0, size=SIZE)))


def test_two_beside_each_other_are_counted_by_themselves(counter: escounts.Counter, two: Path) -> None:
    result = counter.count(two, each=True)
    assert [(track.region, track.count) for track in result.tracks] == [(LEFT, 5), (RIGHT, 8)]
    assert result.count == 13 == len(result.repetitions) and result.raw_count == pytest.approx(13, abs=0.7)
    assert result.confidence == min(track.confidence for track in result.tracks)
    assert [one.end for one in result.repetitions] == sorted(one.end for one in result.repetitions)
    assert from_dict(json.loads(json.dumps(to_dict(result)))).tracks[1].region == RIGHT
    with pytest.raises(EscountsError, match="several places"):
        result.in_unit("side")


def test_one_is_one_place_and_counted_as_ever(counter: escounts.Counter, tmp_path: Path) -> None:
    path = write_movie(tmp_path / "one.mp4", bouncing(5, 8.0, size=SIZE))
    result = counter.count(path, each=True)
    assert [(track.region, track.count) for track in result.tracks] == [("0,0,160,120", 5)]
    assert result.count == counter.count(path).count == 5 and TRAVELS not in result.reasons


@pytest.mark.parametrize(("tempo", "counts"), [(1.0, [[5, 5], [5, 8]]), (1.2, [[5], [5, 8]])])
def test_halves_in_doubt_are_two_places_only_with_two_tempos(
    counter: escounts.Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tempo: float, counts: list[list[int]]
) -> None:
    halves = tuple(Region(left, 0.0, 50.0, 100.0, percent=True) for left in (0.0, 50.0))
    monkeypatch.setattr(places, "find_places", lambda *_, **__: Places(halves, tempo=tempo))
    for right, found in zip((5, 8), counts, strict=True):
        pictures = beside(bouncing(5, 8.0, size=SIZE), bouncing(right, 8.0, size=SIZE))
        result = counter.count(write_movie(tmp_path / f"{right}.mp4", pictures), each=True)
        assert [track.count for track in result.tracks] == found


def test_after_a_place_without_repetitions_no_other_is_counted(
    counter: escounts.Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = tuple(Region(left, 0.0, 50.0, 100.0, percent=True) for left in (0.0, 50.0))
    monkeypatch.setattr(places, "find_places", lambda *_, **__: Places(halves))
    widths = list[int]()

    def noted(counter: escounts.Counter, video: Video, **given: Any) -> escounts.EncodedVideo:
        widths.append(video.info.width)
        return encode(counter, video, **given)

    encode = escounts.Counter.encode
    monkeypatch.setattr(escounts.Counter, "encode", noted)
    pictures = beside(bouncing(0, 8.0, size=SIZE), bouncing(5, 8.0, size=SIZE))
    result = counter.count(write_movie(tmp_path / "still.mp4", pictures), each=True)
    assert [track.count for track in result.tracks] == [5] and len(widths) == 2 and widths[1] == 2 * widths[0]


@pytest.mark.parametrize("clip", ["0219", "0389", "0546"])
def test_one_body_whose_halves_move_unlike_is_one_place(counter: escounts.Counter, shared: Path, clip: str) -> None:
    """Their halves have one tempo; each was two places, and counted twice."""
    assert len(counter.count(shared / "clips" / "pool" / f"{clip}.mp4", each=True).tracks) == 1


def found_in(monkeypatch: pytest.MonkeyPatch, maps: Array32) -> Places:
    """The places of difference maps (GRID, GRID, T, L)."""
    monkeypatch.setattr(places, "lag_maps", lambda _: maps)
    black = [np.zeros((SIDE, SIDE, 3), np.uint8)] * 30
    return places.find_places(black, lambda images: np.zeros((len(images), 8, 8, 1), np.float32), seconds=3.0)


def two_rhythms(strength: float, columns: int) -> Array32:
    """The left columns change by as much of what the others do, in a rhythm of their own."""
    maps = np.random.default_rng(3).random((2, 60, 30), np.float32)
    beside = [strength**2 * maps[0]] * columns + [maps[1]] * (places.GRID - columns)
    return np.stack([np.stack(beside)] * places.GRID)


def test_a_narrow_place_in_which_little_moves_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_in(monkeypatch, two_rhythms(0.15, columns=2))
    assert [str(place) for place in found.regions] == ["0%,0%,25%,100%", "25%,0%,75%,100%"]


def test_one_of_two_who_rests_does_not_cross_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = two_rhythms(0.6, columns=4)
    maps[:, 4:, 40:] = 0.0
    found = found_in(monkeypatch, maps)
    assert not found.travels and len(found.regions) == 2


def test_places_of_a_region_lie_in_the_whole_picture(counter: escounts.Counter, tmp_path: Path) -> None:
    still = bouncing(0, 8.0, size=(80, 120))
    pictures = beside(still, bouncing(5, 8.0, size=SIZE), bouncing(8, 8.0, size=SIZE))
    path = write_movie(tmp_path / "three.mp4", pictures)
    result = counter.count(path, each=True, region="80,0,320,120")
    assert [(track.region, track.count) for track in result.tracks] == [("80,0,160,120", 5), ("240,0,160,120", 8)]
    assert result.region == "80,0,320,120"


def test_what_crosses_the_picture_is_counted_as_one_and_said(counter: escounts.Counter, tmp_path: Path) -> None:
    path = write_movie(tmp_path / "walks.mp4", walking(8.0))
    result = counter.count(path, each=True)
    assert len(result.tracks) == 1 and TRAVELS in result.reasons and result.unsure
    assert result.unsure_below is not None and result.confidence < result.unsure_below


def test_files_show_every_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, two: Path, tmp_path: Path
) -> None:
    command = partial(run, capsys, monkeypatch)
    done = command("count", two, "--each", "--device", "cpu", "-o", tmp_path, "-f", "json,csv,mp4,heat.png")
    assert done.code == 0 and "13 repetitions in 2 places (5 + 8)" in done.out
    assert f"place 2  {RIGHT}  8 repetitions, confidence" in done.out
    assert re.search(r"\n +\d+  0:0.* score 0\.\d\d  place 2\n", done.out), "whose each is"
    assert "--exemplar" not in done.out, "which is not taken with places"
    rows = (tmp_path / "two.csv").read_text().splitlines()[1:]
    assert sum(f'"{LEFT}"' in row for row in rows) == 5 and sum(f'"{RIGHT}"' in row for row in rows) == 8
    document = json.loads((tmp_path / "two.json").read_text())
    assert [track["count"] for track in document["tracks"]] == [5, 8]
    frame = [frame.image.astype(int) for frame in Video(tmp_path / "two.counted.mp4").frames()][-1]
    orange, blue = frame[60:118, 157:159].mean((0, 1)), frame[60:118, 161:163].mean((0, 1))
    assert orange[0] > orange[2] + 60 and blue[2] > blue[0] + 60, "each place has an outline of its own colour"


def test_the_heat_lies_where_something_repeats(counter: escounts.Counter, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    still = bouncing(0, 6.0, size=SIZE)
    path = write_movie(tmp_path / "right.mp4", beside(still, bouncing(5, 6.0, size=SIZE)))
    counter.count(path).save(tmp_path / "right.heat.png")
    drawn = np.asarray(image.open(tmp_path / "right.heat.png").convert("RGB")).astype(int)
    red = drawn[..., 0] - drawn[..., 2]
    assert red[:, 213:237].mean() > red[:, :150].mean() + 40


def test_what_each_does_not_take(counter: escounts.Counter, two: Path) -> None:
    with pytest.raises(EscountsError, match="count that place with region"):
        counter.count(two, each=True, exemplars=[(1.0, 2.0)])
    with pytest.raises(EscountsError, match="'spectral' does not look for places"):
        escounts.count(two, model="spectral", each=True)
