"""Where a film was cut, and that nothing is looked for across a cut. Random weights: arithmetic, not accuracy."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch

from escounts.counting.changes import GRID, SHORTEST, by_scenes
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import View, best_window
from escounts.nn.network import LITE_TINY, Network
from escounts.results import EXEMPLAR_CUT
from escounts.system.arrays import Image


def filmed(frames: int, *, level: int = 40, period: float = 30.0) -> list[Image]:
    """A bright square that goes to and fro before a grey wall."""
    images = np.full((frames, 64, 64, 3), level, np.uint8)
    for t in range(frames):
        x = int(20 + 15 * np.sin(2 * np.pi * t / period))
        images[t, 20:40, x : x + 12] = 220
    return list(images)


def begins(images: Iterable[Image]) -> list[int]:
    return [frame for frame, (_, begun) in enumerate(by_scenes(images)) if begun]


def test_all_images_come_in_their_order() -> None:
    images = filmed(500) + filmed(300, level=120)
    assert all(one is other for one, (other, _) in zip(images, by_scenes(images), strict=True))


@pytest.mark.parametrize("at", [200, 203, 206, 211])
def test_a_cut_begins_a_scene_where_every_view_has_a_cell(at: int) -> None:
    first, second = begins(filmed(at) + filmed(300, level=120))
    assert first == 0
    assert second % GRID == 0 and abs(second - at) <= GRID // 2


def test_a_film_without_cuts_is_one_scene() -> None:
    assert begins(filmed(600)) == [0]
    assert begins(filmed(3)) == [0]
    assert begins([]) == []


def test_scenes_are_not_shorter_than_a_set_takes() -> None:
    short = SHORTEST - 2 * GRID
    assert begins(filmed(short) + filmed(400, level=120)) == [0]
    assert begins(filmed(400) + filmed(short, level=120)) == [0]
    # Of two cuts near each other the first one counts.
    assert begins(filmed(300) + filmed(short, level=120) + filmed(300, level=200)) == [0, 300]


def test_a_flash_a_fade_and_a_film_that_cuts_all_the_time_are_no_cuts() -> None:
    flash = filmed(600)
    flash[300] = np.full_like(flash[300], 250)
    fade = [image for level in range(40, 200) for image in filmed(1, level=level)]
    assert begins(flash) == [0]
    assert begins(filmed(300) + fade + filmed(300, level=200)) == [0]
    assert begins([image for k in range(80) for image in filmed(8, level=40 + 60 * (k % 2))]) == [0]


@pytest.mark.parametrize("hold", [16, 20, 30, 60])
def test_a_film_whose_pictures_come_slowly_is_not_cut_at_each_of_them(hold: int) -> None:
    images = filmed(900, period=150)
    slow = [images[frame // hold * hold] for frame in range(900)]
    lamp = [filmed(1, level=40 + 60 * (frame // hold % 2))[0] for frame in range(900)]
    assert begins(slow) == begins(lamp) == [0]


def test_a_motion_after_slides_is_a_scene() -> None:
    slides = [np.full((64, 64, 3), level, np.uint8) for level in (200, 160) for _ in range(96)]
    assert begins(slides + filmed(300)) == [0, 192]


@pytest.fixture(scope="module")
def model() -> MultiRateModel:
    torch.manual_seed(0)
    return MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=(View(1),))


def test_no_window_reaches_over_a_cut_in_whatever_pass_it_is_encoded(model: MultiRateModel) -> None:
    encoding = model.encode_images(filmed(300) + filmed(420, level=120))
    encoding.encode([View(1), View(4)])
    for view, windows in encoding.windows.items():
        cut = 300 // view.divisor
        assert all(window.start >= cut or window.start + window.cells <= cut for window in windows)
        covered = np.zeros(view.cells(720), bool)
        for window in windows:
            covered[window.start : window.start + window.cells] = True
        assert covered.all()


def test_a_clip_after_itself_is_the_clip_twice(model: MultiRateModel) -> None:
    """It becomes brighter and brighter, so that the first picture is unlike the last one."""
    clip = [image + np.uint8(t // 12) for t, image in enumerate(filmed(360))]
    once, twice = (model.encode_images(images) for images in (clip, clip + clip))
    assert twice._scenes == [0, 360]
    for one, two in zip(once.evidence(), twice.evidence(), strict=True):
        # The last frame of the first half knows the one after it; all others are as they were.
        assert np.allclose(np.tile(one.density, 2)[:-1], two.density[:-1], atol=2e-3)


def test_an_exemplar_of_one_scene_counts_in_both(model: MultiRateModel) -> None:
    encoding = model.encode_images(filmed(300) + filmed(420, level=120))
    exemplar = encoding.encode_exemplar(11.0, 12.0)
    assert encoding.estimate([exemplar]).density.values.shape == (720,)


@pytest.mark.parametrize("view", [View(6), View(3), View(1)])
def test_an_exemplar_right_after_a_cut_is_not_looked_for_before_it(model: MultiRateModel, view: View) -> None:
    """The middle of the short scene before is nearer to it than that of the window that shows it."""
    encoding = model.encode_images(filmed(144) + filmed(600, level=120))
    encoding.encode([view])
    before, after = encoding.windows[view][0], 144 // view.divisor
    assert before.start + before.cells <= after
    assert best_window(encoding.windows[view], 5.0 * view.rate, 6.0 * view.rate).start == after
    assert best_window(encoding.windows[view], 3.6 * view.rate, 4.6 * view.rate).start < after


def test_an_exemplar_right_after_a_still_title_moves(model: MultiRateModel) -> None:
    title = [np.full((64, 64, 3), 200, np.uint8)] * 144
    assert model.encode_images(title + filmed(600)).encode_exemplar(5.0, 6.0).moves


def test_an_exemplar_across_a_cut_says_so(model: MultiRateModel) -> None:
    """One side of it is taken, which nobody was told. Cuts lie on a grid: one at an end of it is not inside."""
    encoding = model.encode_images(filmed(300) + filmed(420, level=120), start=2.0)
    assert encoding.encode_exemplar(11.2, 12.9).cuts == (12.0,)
    assert encoding.encode_exemplar(11.0, 12.1).cuts == encoding.encode_exemplar(11.9, 13.0).cuts == ()
    across = encoding.estimate([encoding.encode_exemplar(13.0, 14.0), encoding.encode_exemplar(11.2, 12.9)])
    assert across.details[EXEMPLAR_CUT] == 12.0
    assert EXEMPLAR_CUT not in encoding.estimate([encoding.encode_exemplar(13.0, 14.0)]).details
