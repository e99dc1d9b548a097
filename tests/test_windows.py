"""Windows, time shifts and stitching."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escounts.windows import FrameSampling, Stitcher, TimeSampling, Window, shift_starts, triangle, windows


def test_paper_windows() -> None:
    """64 raw frames sampled every 4 are 16 samples; 150 frames are 38 samples: two whole windows and a tail."""
    sampling = FrameSampling(every=4)
    found = list(windows(sampling.samples(150), size=16))
    assert found == [Window(0, 16, 16), Window(16, 16, 16), Window(32, 16, 6)]
    assert sampling.frames(found[1]).tolist() == list(range(64, 128, 4))
    assert sampling.frames(found[2]).tolist() == [128, 132, 136, 140, 144, 148] + [148] * 10


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 40), st.integers(0, 30))
def test_windows_cover_every_sample(samples: int, size: int, stride: int, first: int) -> None:
    stride = min(stride, size)
    cover = np.zeros(samples + size, dtype=int)
    found = list(windows(samples, size=size, stride=stride, first=first))
    for window in found:
        cover[window.start : window.start + window.real] += 1
    assert (cover[first:samples] > 0).all()
    assert (cover[samples:] == 0).all() and (cover[: min(first, samples)] == 0).all()
    # No window is there for nothing: each but the first adds samples the one before did not have.
    assert all(a.start + a.size < samples for a in found[:-1])


@given(st.integers(1, 200), st.integers(1, 5), st.integers(2, 20))
def test_shifting_by_whole_windows_shifts_the_windows(samples: int, by: int, size: int) -> None:
    here = list(windows(samples, size=size))
    there = list(windows(samples + by * size, size=size))
    assert [(w.start + by * size, w.real) for w in here] == [(w.start, w.real) for w in there[by:]]


def test_seconds_do_not_depend_on_the_frame_rate() -> None:
    """The frames nearest to the sampled times show the same moments at 24 and at 60 frames a second."""
    sampling = TimeSampling(rate=10.0, start=0.5)
    assert sampling.samples(2.0) == 15
    times = sampling.times(Window(10, 8, 5))
    assert times.tolist() == pytest.approx([1.5, 1.6, 1.7, 1.8, 1.9, 1.9, 1.9, 1.9])
    for fps in (24, 60):
        nearest = np.rint(times * fps) / fps
        assert np.abs(nearest - times).max() <= 0.5 / fps + 1e-9


def test_shift_starts() -> None:
    assert shift_starts(16, 4, multiple=2) == [0, 4, 8, 12]
    assert shift_starts(16, 1) == [0]
    assert shift_starts(16, 3, multiple=2) == [0, 4, 10]
    with pytest.raises(ValueError, match="9 shifts"):
        shift_starts(16, 9, multiple=2)


@given(st.integers(1, 120), st.integers(2, 30), st.integers(1, 30), st.integers(1, 4))
def test_stitching_a_map_cut_up_gives_it_back(cells: int, size: int, stride: int, shifts: int) -> None:
    truth = np.random.default_rng(0).normal(size=cells)
    stitcher = Stitcher(cells)
    stitcher.add(truth[:0], 0)
    for first in shift_starts(size, min(shifts, size)):
        for window in windows(cells, size=size, stride=min(stride, size), first=first):
            piece = np.full(size, 1e6)  # what the model says of padding must not count
            piece[: window.real] = truth[window.start : window.start + window.real]
            stitcher.add(piece, window.start, weights=triangle(size))
    np.testing.assert_allclose(stitcher.result(), truth, atol=1e-9)
    assert (stitcher.coverage > 0).all()


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


@pytest.mark.parametrize(("size", "stride"), [(0, 1), (4, 0), (4, 5)])
def test_bad_windows_are_named(size: int, stride: int) -> None:
    with pytest.raises(ValueError, match="1 ≤ stride ≤ size"):
        list(windows(10, size=size, stride=stride))
