"""The words of the picture and of the report: they name the places, stay inside, and lie on no frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from movies import bouncing, write_movie

import escounts
from escounts.results import CountResult, Track

pytest.importorskip("matplotlib", reason="needs escounts[plot]")

from matplotlib.figure import Figure

from escounts.output.png import draw, write_html

REASONS = tuple(f"place {number}: the views disagree: 4.0 and 9.0" for number in range(1, 9))


@pytest.fixture(scope="module")
def portrait(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("words") / "portrait.mp4", bouncing(4, 4.0, size=(120, 240)))


@pytest.fixture(scope="module")
def result(portrait: Path) -> CountResult:
    found = escounts.count(portrait, model="spectral")
    tracks = [
        Track(f"0,{top},120,120", 2, "cycle", 0.7, True, found.repetitions[first : first + 2])
        for top, first in ((0, 0), (120, 2))
    ]
    return replace(found, unsure=True, confidence_kind="probability", reasons=REASONS, tracks=tuple(tracks))


def test_the_words_stay_in_the_picture_and_off_its_frames(
    result: CountResult, portrait: Path, tmp_path: Path
) -> None:
    figure = Figure(figsize=(10, 4), dpi=150)
    draw(figure, result, portrait)
    figure.savefig(tmp_path / "drawn.png")
    boxes = {text.get_text(): text.get_window_extent() for text in figure.texts}
    assert all(0 <= box.x0 <= box.x1 <= figure.bbox.x1 for box in boxes.values())
    left, right = boxes["in 2 places (2 + 2)"], next(box for said, box in boxes.items() if said.startswith("place 1"))
    assert left.x1 < right.x0
    frames = [axes.get_window_extent() for axes in figure.axes if axes.images]
    assert frames and all(frame.y1 <= min(box.y0 for box in boxes.values()) for frame in frames)


def test_the_report_names_the_places(result: CountResult, tmp_path: Path) -> None:
    write_html(result, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "repetitions in 2 places (2 + 2)</span>" in page and "place 2  0,120,120,120  2 repetitions" in page
    write_html(replace(result, tracks=()), tmp_path / "r.html")
    assert "place" not in (tmp_path / "r.html").read_text().split("Not sure")[0].split("<body>")[1]
