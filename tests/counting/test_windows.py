"""Windows, time shifts and stitching."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escounts.counting.maps import Stitcher, filled, shift_starts, triangle, windows


def test_paper_windows() -> None:
    """64 raw frames sampled every 4 are 16 samples; 150 frames are 38 samples: two whole windows and a tail."""
    found = list(windows(range(0, 150, 4), size=16, starts=[0]))
    assert [sequence for sequence, _ in found] == [0, 0, 0]
    assert found[1][1] == list(range(64, 128, 4))
    assert found[2][1] == [128, 132, 136, 140, 144, 148]


def test_a_window_is_filled_with_its_last_image() -> None:
    images = [np.full((2, 3, 3), value, np.uint8) for value in (5, 7)]
    assert filled(images, 4)[:, 0, 0, 0].tolist() == [5, 7, 7, 7]
    assert filled(images, 2).shape == (2, 2, 3, 3)


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 6))
def test_every_sequence_is_the_video_from_its_start_on(samples: int, size: int, shifts: int) -> None:
    starts = shift_starts(size, min(shifts, size))
    sequences: list[list[int]] = [[] for _ in starts]
    order = []
    for sequence, held in windows(range(samples), size=size, starts=starts):
        assert 0 < len(held) <= size
        sequences[sequence] += held
        order.append(held[0])
    assert sequences == [list(range(start, samples)) for start in starts]
    assert order == sorted(order)


def test_windows_come_as_soon_as_they_are_full() -> None:
    taken: list[int] = []

    def samples() -> Iterator[int]:
        for sample in range(100):
            taken.append(sample)
            yield sample

    found = windows(samples(), size=8, starts=[0, 4])
    assert [(next(found)[0], len(taken)) for _ in range(3)] == [(0, 8), (1, 12), (0, 16)]


@pytest.mark.parametrize("starts", [[], [4, 0], [0, 8], [-1, 0]])
def test_bad_starts_are_named(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="need ascending starts"):
        list(windows(range(10), size=8, starts=starts))


def test_shift_starts() -> None:
    assert shift_starts(16, 4, multiple=2) == [0, 4, 8, 12]
    assert shift_starts(16, 1) == [0]
    assert shift_starts(16, 3, multiple=2) == [0, 4, 10]
    with pytest.raises(ValueError, match="9 shifts"):
        shift_starts(16, 9, multiple=2)


@given(st.integers(1, 120), st.integers(2, 30), st.integers(1, 4))
def test_stitching_a_map_cut_up_gives_it_back(cells: int, size: int, shifts: int) -> None:
    truth = np.random.default_rng(0).normal(size=cells).tolist()
    stitcher = Stitcher(cells)
    stitcher.add([], 0)
    starts = shift_starts(size, min(shifts, size))
    begins = list(starts)
    for sequence, piece in windows(truth, size=size, starts=starts):
        # what the model says of padding must not count
        stitcher.add(piece + [1e6] * (size - len(piece)), begins[sequence], weights=triangle(size))
        begins[sequence] += size
    np.testing.assert_allclose(stitcher.result(), truth, atol=1e-9)


def test_uncovered_cells_are_zero_and_borders_are_cut() -> None:
    stitcher = Stitcher(5)
    stitcher.add([1.0, 2.0, 3.0], -1)
    stitcher.add([4.0, 5.0], 4)
    assert stitcher.result().tolist() == [2.0, 3.0, 0.0, 0.0, 4.0]
    with pytest.raises(ValueError, match="must match"):
        stitcher.add([1.0, 2.0], 0, weights=[1.0])


def test_weights_decide_where_maps_disagree() -> None:
    stitcher = Stitcher(2)
    stitcher.add([1.0, 1.0], 0, weights=[3.0, 1.0])
    stitcher.add([5.0, 5.0], 0, weights=[1.0, 3.0])
    assert stitcher.result().tolist() == [2.0, 4.0]
