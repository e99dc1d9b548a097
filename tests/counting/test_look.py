"""Which parts of a video show one motion, by looks of two numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from escounts.counting.look import SIDE, Looks, Mark, read_looks, small_picture
from escounts.counting.views import Window
from escounts.decision.rules import RULES
from escounts.system.arrays import Array, Array32, Image

FAR = 3 * RULES.look_same
RATE = 5.0


def looks(*levels: float, cells: int = 50, scenes: Sequence[int] | None = None) -> Looks:
    """Parts of 10 s each, all at one level, in a scene of their own unless scenes are given; repetitions of 2 s swing
    around the level."""
    swing = np.sin(np.arange(cells * len(levels)) * 2 * np.pi / 10)
    values = np.stack([np.repeat(levels, cells), swing], 1).astype(np.float32)
    begins = range(0, len(values), cells) if scenes is None else scenes
    return Looks(values, coloured(*range(0, 250, 50)[: len(levels)], cells=cells), list(begins), 100.0, RATE)


def coloured(*greys: int, cells: int) -> Image:
    """Small pictures of parts that are grey throughout."""
    return np.repeat(np.array(greys, np.uint8), cells)[:, None].repeat(3, 1)


def everywhere(what: Looks) -> Array:
    return np.ones(len(what.values_TD))


def paused(what: Looks) -> Array32:
    """A view's density: repetitions pause for a second at each of the parts' ends."""
    return (np.arange(len(what.values_TD)) % 50 >= RATE)[None].astype(np.float32)


def mark(what: Looks, start: float) -> Mark:
    return Mark(what.of(start, start + 2.0), start + 1.0)


def test_scenes_that_look_alike_are_one_motion() -> None:
    film = looks(0.0, FAR, 0.5, 2 * FAR)
    motions = film.motions(everywhere(film), paused(film), 2.0, [mark(film, 104.0)])
    assert list(motions.motion) == [0, 1, 0, 2]
    assert motions.borders.tolist() == [100.0, 110.0, 120.0, 130.0, 140.0]
    times = np.array([99.0, 105.0, 115.0, 125.0, 135.0, 150.0])
    shown = [True, True, False, True, False, False]
    marked, unclear = motions.marked(times, np.ones(6, np.float32))
    assert marked.tolist() == shown and not unclear
    little = np.array([1, 1, 0.3, 1, 2, 0], np.float32)  # of less than a repetition nobody knows what it is
    assert motions.marked(times, little)[0].tolist() == [True, True, True, True, False, False]
    assert motions.marked(times[4:], little[4:])[0].tolist() == [False, False]
    assert motions.likeness(np.array([105.0, 115.0])).round(2).tolist() == [1.0, 0.01]


def test_the_marked_motion_is_number_nought_wherever_it_lies() -> None:
    film = looks(0.0, FAR)
    assert list(film.motions(everywhere(film), paused(film), 2.0, [mark(film, 114.0)]).motion) == [1, 0]
    assert list(film.motions(everywhere(film), paused(film), 2.0).motion) == [0, 1]
    assert [one.motion for one in film.motions(everywhere(film), paused(film), 2.0).stretches] == [0, 1]


def test_two_marks_are_one_motion() -> None:
    film = looks(0.0, FAR, 2 * FAR)
    marks = [mark(film, 104.0), mark(film, 124.0)]
    assert list(film.motions(everywhere(film), paused(film), 2.0, marks).motion) == [0, 1, 0]


def test_within_a_scene_a_sudden_change_parts_and_a_slow_one_does_not() -> None:
    sudden = looks(0.0, FAR, scenes=[0])
    motions = sudden.motions(everywhere(sudden), paused(sudden), 2.0, [mark(sudden, 104.0)])
    assert list(motions.motion) == [0, 1]
    assert motions.borders[1] == pytest.approx(110.0, abs=0.4)
    slow = Looks(np.linspace([0, 0], [FAR, 0], 300, dtype=np.float32), coloured(0, cells=300), [0], 0.0, RATE)
    assert list(slow.motions(everywhere(slow), paused(slow), 2.0, [mark(slow, 4.0)]).motion) == [0]


def test_where_repetitions_go_on_at_one_pace_a_change_is_the_cameras() -> None:
    size = 0.95 * RULES.look_camera
    panned = looks(0.0, size, scenes=[0])
    even = np.ones((1, 100), np.float32)
    views = np.concatenate([paused(panned), even])
    for density, motion in ((paused(panned), [0, 1]), (even, [0]), (views, [0])):
        assert list(panned.motions(everywhere(panned), density, 2.0, [mark(panned, 104.0)]).motion) == motion
    faster = np.repeat(np.array([[1.0, 1.3]], np.float32), 50, 1)
    assert list(panned.motions(everywhere(panned), faster, 2.0, [mark(panned, 104.0)]).motion) == [0, 1]
    # Behind a cut; more than a camera changes; something else altogether.
    for other in (looks(0.0, size), looks(0.0, 0.95 * RULES.look_side, scenes=[0]), looks(0.0, FAR, scenes=[0])):
        assert list(other.motions(everywhere(other), even, 2.0, [mark(other, 104.0)]).motion) == [0, 1]


def test_another_motion_may_begin_soon_after_a_cut() -> None:
    film = looks(2 * FAR, FAR, scenes=[0, 42])
    film.values_TD[42:50, 0] = 0.0  # one and a half seconds of a third
    assert film.motions(everywhere(film), paused(film), 2.0).borders.tolist() == [100.0, 108.4, 110.0, 120.0]


def test_a_part_looks_as_it_does_where_it_repeats() -> None:
    film = looks(0.0, FAR, scenes=[0])  # one scene: the first half repeats, then somebody walks away
    level = np.concatenate([film.values_TD, film.values_TD[:50]]).clip(max=RULES.look_same)
    calm = Looks(level, coloured(0, cells=150), [0, 100], 100.0, RATE)
    weight = np.repeat([1.0, 0.0, 1.0], 50)
    assert list(calm.motions(weight, paused(calm), 2.0, [mark(calm, 104.0)]).motion) == [0, 0]


def test_a_mark_of_another_video_may_be_like_nothing() -> None:
    film = looks(0.0, FAR)
    far = Mark(np.array([-FAR, 0.0], np.float32), None)
    motions = film.motions(everywhere(film), paused(film), 2.0, [far])
    assert 0 not in motions.motion and motions.distance.min() > RULES.look_same


@pytest.mark.parametrize(
    ("distance", "grey", "cells", "repetitions", "counted"),
    [
        (8.0, 20, 30, 4.0, True),  # a shot from another side
        (8.0, 20, 60, 2.0, True),  # a longer one of a slow motion
        (8.0, 20, 60, 4.0, False),  # a set of its own
        (8.0, 20, 30, 5.0, False),  # a set of a fast motion
        (8.0, 90, 30, 4.0, False),  # elsewhere
        (20.0, 20, 30, 4.0, False),  # something else altogether
    ],
)
def test_a_short_shot_in_the_same_colours_is_the_same_motion_with_a_doubt(
    distance: float, grey: int, cells: int, repetitions: float, counted: bool
) -> None:
    values = np.repeat(np.array([[0.0, 0.0], [distance, 0.0]], np.float32), [50, cells], 0)
    pictures = np.concatenate([coloured(0, cells=50), coloured(grey, cells=cells)])
    film = Looks(values, pictures, [0, 50], 0.0, RATE)
    motions = film.motions(everywhere(film), paused(film), 2.0, [mark(film, 4.0)])
    assert list(motions.motion) == [0, 1]
    times, density = np.array([5.0, 10.0 + cells / 10]), np.array([5, repetitions], np.float32)
    shown, unclear = motions.marked(times, density)
    assert shown.tolist() == [True, counted] and unclear == counted


@pytest.mark.parametrize(
    ("distance", "grey", "cells", "unclear"),
    [(10.0, 20, 25, True), (10.0, 20, 15, False), (10.0, 90, 25, False), (20.0, 20, 25, False)],
)
def test_a_long_time_in_the_same_colours_with_nothing_counted_is_a_doubt(
    distance: float, grey: int, cells: int, unclear: bool
) -> None:
    levels = np.repeat([0.0, distance, -distance], [50, cells, cells])  # seen from two more sides
    values = np.stack([levels, np.zeros(len(levels))], 1).astype(np.float32)
    pictures = np.concatenate([coloured(0, cells=50), coloured(grey, cells=2 * cells)])
    film = Looks(values, pictures, [0, 50, 50 + cells], 0.0, RATE)
    motions = film.motions(everywhere(film), paused(film), 2.0, [mark(film, 4.0)])
    assert list(motions.motion) == [0, 1, 2]
    shown, doubt = motions.marked(np.array([5.0, 11.0, 10.5 + cells / RATE]), np.array([5, 0, 0.1], np.float32))
    assert shown.all() and doubt == unclear


@pytest.mark.parametrize(("scenes", "repetitions", "counted"), [([0, 30], 4, True), ([0], 4, False), ([0], 2, True)])
def test_without_a_cut_another_side_is_shown_for_two_repetitions_only(
    scenes: list[int], repetitions: float, counted: bool
) -> None:
    one = looks(0.0, 0.8 * RULES.look_side, cells=30)
    film = Looks(one.values_TD, coloured(0, 20, cells=30), scenes, one.start, one.rate)
    motions = film.motions(everywhere(film), np.zeros((1, 60), np.float32), 2.0, [mark(film, 102.0)])
    assert list(motions.motion) == [0, 1]
    shown, unclear = motions.marked(np.array([103.0, 109.0]), np.array([4, repetitions], np.float32))
    assert shown.tolist() == [True, counted] and unclear == counted


def test_a_change_that_lasts_parts_where_a_short_one_of_its_size_does_not() -> None:
    size = 10.0
    assert RULES.look_borders[0][1] > size > RULES.look_borders[1][1]
    lasting = looks(0.0, size, scenes=[0])
    assert list(lasting.motions(everywhere(lasting), paused(lasting), 2.0, [mark(lasting, 104.0)]).motion) == [0, 1]
    values = lasting.values_TD.copy()
    values[65:, 0] = 0.0
    short = Looks(values, lasting.pictures_TP, [0], 100.0, RATE)
    assert list(short.motions(everywhere(short), paused(short), 2.0, [mark(short, 104.0)]).motion) == [0]


def test_a_small_picture_has_the_mean_colours_of_its_squares() -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    image[:4, :4] = (10, 20, 30)
    image[:2, 4:8] = 100
    small = np.frombuffer(small_picture(image), np.uint8).reshape(SIDE, SIDE, 3)
    assert small[0, 0].tolist() == [10, 20, 30] and small[0, 1].tolist() == [50] * 3 and small[1:].sum() == 0


class Store:
    """Looks of windows: each cell's is its number."""

    def read_looks(self, window: Window) -> Array32:
        assert window.offset is not None
        return np.arange(window.start, window.start + window.cells, dtype=np.float32)[:, None]


def test_looks_of_overlapping_windows_and_of_a_still_part() -> None:
    windows = [Window(0, 4, None), Window(4, 8, 0), Window(8, 8, 8), Window(16, 4, None)]
    found = read_looks(Store(), windows, 18)  # type: ignore[arg-type]
    assert found is not None
    assert found[:, 0].tolist() == [4.0] * 4 + [float(cell) for cell in range(4, 16)] + [15.0] * 2
    assert read_looks(Store(), [Window(0, 4, None)], 4) is None  # type: ignore[arg-type]
