"""Times to maps and back: hand-computed cases, and properties that hold for any annotation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escounts.counting.maps import density_map, period_map, pseudo_spans, rate_map
from escounts.decision.spans import find_peaks
from escounts.results import DensityMap

SIGMAS = st.sampled_from([0, 0.25, 0.5, 0.75, 1.0, "variable"])


@st.composite
def back_to_back(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Repetitions in order, with gaps, at least half a cell long."""
    spans, time = [], 0.0
    for _ in range(draw(st.integers(0, 12))):
        time += draw(st.floats(0, 20))
        length = draw(st.floats(0.5, 30))
        spans.append((time, time + length))
        time += length
    return spans


def test_bump_by_hand() -> None:
    # Middle at 2.5 cells = the centre of cell 2; neighbours weigh exp(-1 / (2 * 0.25)) = exp(-2), then exp(-8).
    total = 1 + 2 * math.exp(-2) + 2 * math.exp(-8)
    expected = np.array([math.exp(-8), math.exp(-2), 1, math.exp(-2), math.exp(-8)]) / total
    np.testing.assert_allclose(density_map([(2.0, 3.0)], cells=5, step=1.0), expected, atol=1e-15)


def test_border_mass_is_mirrored_back() -> None:
    total = 1 + 2 * math.exp(-2) + 2 * math.exp(-8)
    values = density_map([(0.0, 1.0)], cells=4, step=1.0)
    expected = np.array([1 + math.exp(-2), math.exp(-2) + math.exp(-8), math.exp(-8), 0]) / total
    np.testing.assert_allclose(values, expected, atol=1e-15)


def test_repetitions_in_one_cell_add_up() -> None:
    values = density_map([(2.0, 2.2), (2.3, 2.5), (2.6, 2.8)], cells=5, step=1.0, sigma=0)
    assert values.tolist() == [0, 0, 3, 0, 0]


def test_start_and_step_are_seconds() -> None:
    values = density_map([(11.0, 12.0)], cells=10, step=0.5, start=10.0, sigma=0)
    assert np.flatnonzero(values).tolist() == [3]


def test_middle_outside_is_dropped_or_kept() -> None:
    spans = [(0.0, 1.0), (9.0, 13.0)]
    assert density_map(spans, cells=10, step=1.0).sum() == pytest.approx(1)
    kept = density_map(spans, cells=10, step=1.0, sigma=0, outside="keep")
    assert kept.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_variable_width_follows_the_length() -> None:
    short = density_map([(10.0, 12.0)], cells=40, step=1.0, sigma="variable")
    long = density_map([(1.0, 21.0)], cells=40, step=1.0, sigma="variable")
    spread = [math.sqrt(float((v * (np.arange(40) + 0.5 - 11) ** 2).sum())) for v in (short, long)]
    assert spread[0] == pytest.approx(0.5, rel=0.1)
    assert spread[1] == pytest.approx(5.0, rel=0.05)


@given(back_to_back(), SIGMAS, st.floats(0.3, 8))
@settings(max_examples=60, deadline=None)
def test_sum_is_the_number_of_repetitions(spans: list[tuple[float, float]], sigma: float, step: float) -> None:
    end = spans[-1][1] if spans else 5.0
    cells = math.ceil(end / step) + 1
    values = density_map(spans, cells=cells, step=step, sigma=sigma)
    assert values.sum() == pytest.approx(len(spans), abs=1e-9)
    assert rate_map(spans, cells=cells, step=step).sum() == pytest.approx(len(spans), abs=1e-9)
    assert (values >= 0).all()


@given(back_to_back(), st.integers(1, 6), SIGMAS)
@settings(max_examples=40, deadline=None)
def test_shifting_by_whole_windows_shifts_the_map(
    spans: list[tuple[float, float]], windows: int, sigma: float
) -> None:
    window = 8
    cells = math.ceil((spans[-1][1] if spans else 0) + 20)
    late = [(a + windows * window, b + windows * window) for a, b in spans]
    here = density_map(spans, cells=cells, step=1.0, sigma=0)
    there = density_map(late, cells=cells + windows * window, step=1.0, sigma=0)
    np.testing.assert_allclose(there[windows * window :], here, atol=1e-9)
    np.testing.assert_allclose(
        density_map(late, cells=cells, step=1.0, start=windows * window, sigma=sigma),
        density_map(spans, cells=cells, step=1.0, sigma=sigma),
        atol=1e-6,
    )


def test_rate_map_by_hand() -> None:
    values = rate_map([(0.5, 2.5), (2.5, 3.5)], cells=5, step=1.0)
    np.testing.assert_allclose(values, [0.25, 0.5, 0.25 + 0.5, 0.5, 0])
    assert rate_map([(3.0, 3.0)], cells=5, step=1.0).tolist() == pytest.approx([0, 0, 0, 1, 0])
    # Half of a repetition inside a stretch is half a repetition.
    assert rate_map([(0.0, 10.0)], cells=5, step=1.0).sum() == pytest.approx(0.5)
    assert rate_map([], cells=3, step=1.0).tolist() == [0, 0, 0]


def test_period_map_by_hand() -> None:
    assert period_map([(1.0, 4.0), (4.0, 6.0)], cells=8, step=1.0).tolist() == [0, 3, 3, 3, 2, 2, 0, 0]
    assert period_map([(3.0, 9.0)], cells=4, step=2.0, start=2.0).tolist() == [3, 3, 3, 0]


def test_pseudo_spans() -> None:
    assert pseudo_spans(4, 1.0, 3.0) == [(1.0, 1.5), (1.5, 2.0), (2.0, 2.5), (2.5, 3.0)]
    assert pseudo_spans(0, 1.0, 3.0) == []
    with pytest.raises(ValueError, match="-1 repetitions"):
        pseudo_spans(-1, 0.0, 1.0)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ((-1.0, 2.0), "repetition 1 starts at -1.0: a time cannot be negative"),
        ((2.0, 1.0), "repetition 1 ends at 1.0, before its start at 2.0"),
        ((0.0, math.nan), "finite"),
    ],
)
def test_bad_spans_are_named(span: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        density_map([span], cells=4, step=1.0)
    with pytest.raises(ValueError, match=message):
        rate_map([span], cells=4, step=1.0)


def test_peaks() -> None:
    assert find_peaks([0, 1, 0, 2, 2, 2, 0, 1]).tolist() == [1, 4, 7]
    assert find_peaks([0, 1, 0, 2, 2, 2, 0, 1], above=1).tolist() == [4]
    assert find_peaks([3, 1, 2]).tolist() == [0, 2]
    assert find_peaks([1, 1, 1]).tolist() == []
    assert find_peaks([]).tolist() == []


def as_map(values: np.ndarray, kind: str, *, start: float = 0.0, step: float = 1.0) -> DensityMap:
    return DensityMap(values.astype(np.float32), start, step, kind)  # type: ignore[arg-type]


@given(st.lists(st.floats(-0.2, 1.5), min_size=1, max_size=80), st.sampled_from(["peaks", "rate"]))
@settings(max_examples=200, deadline=None)
def test_as_many_repetitions_as_the_count(values: list[float], kind: str) -> None:
    density = as_map(np.array(values), kind, start=3.0, step=0.5)
    found = density.repetitions()
    assert len(found) == max(0, round(density.count))
    end = 3.0 + 0.5 * len(values)
    for this, following in pairwise(found):
        assert this.end <= following.start + 1e-6
    for one in found:
        assert 3.0 - 1e-6 <= one.start <= one.end <= end + 1e-6


def test_peaks_give_back_evenly_spaced_repetitions() -> None:
    spans = [(4.0 + 6 * i, 10.0 + 6 * i) for i in range(5)]
    found = as_map(density_map(spans, cells=40, step=1.0), "peaks").repetitions()
    for one, (start, end) in zip(found, spans, strict=True):
        middle = (start + end) / 2
        assert one.start < middle < one.end
        assert (one.start + one.end) / 2 == pytest.approx(middle, abs=1.0)
    # Neighbours meet half-way; a pause is nobody's.
    assert found[0].end == pytest.approx(found[1].start)
    assert found[0].start > 2.0


def test_a_pause_between_peaks_belongs_to_nobody() -> None:
    spans = [(0.0, 4.0), (4.0, 8.0), (8.0, 12.0), (60.0, 64.0), (64.0, 68.0), (68.0, 72.0)]
    found = as_map(density_map(spans, cells=80, step=1.0), "peaks").repetitions()
    assert found[2].end < 15 and found[3].start > 57


@given(st.integers(1, 9), st.floats(2.5, 9), st.floats(0, 10), st.integers(0, 5), st.floats(4, 20))
@settings(max_examples=60, deadline=None)
def test_rate_gives_back_the_repetitions(count: int, length: float, lead: float, later: int, pause: float) -> None:
    """Repetitions begin where the motion begins, also after a pause."""
    spans = [(lead + i * length, lead + (i + 1) * length) for i in range(count)]
    again = spans[-1][1] + pause
    spans += [(again + i * length, again + (i + 1) * length) for i in range(later)]
    cells = math.ceil(spans[-1][1]) + 6
    found = as_map(rate_map(spans, cells=cells, step=1.0), "rate").repetitions()
    assert len(found) == len(spans)
    for one, (start, end) in zip(found, spans, strict=True):
        assert one.start == pytest.approx(start, abs=0.25)
        assert one.end == pytest.approx(end, abs=0.25)


def test_a_flicker_of_the_gate_does_not_split_a_repetition() -> None:
    values = rate_map([(i * 10.0, (i + 1) * 10.0) for i in range(4)], cells=40, step=1.0)
    values[15] = 0.0
    found = as_map(values, "rate").repetitions()
    np.testing.assert_allclose([one.start for one in found], [0, 10, 20, 30], atol=0.8)


@pytest.mark.parametrize(
    ("total", "count", "borders"),
    [
        (2.6, 2, [30, 130, 230]),  # a rest that does not count is left out, half of it at either end
        (2.75, 3, [0, 100, 200, 275]),  # one that counts is a repetition that is cut short
        (3.1, 3, [0, 310 / 3, 620 / 3, 310]),  # no rest: the sum is not that exact
    ],
)
def test_repetitions_of_a_video_that_cuts_them_off_last_what_they_last(
    total: float, count: int, borders: list[float]
) -> None:
    going_on = as_map(np.full(round(100 * total), 0.01), "rate").repetitions(count)
    assert [going_on[0].start, *(one.end for one in going_on)] == pytest.approx(borders, abs=0.6)
    pausing = as_map(np.concatenate([np.zeros(100), np.full(260, 0.01), np.zeros(100)]), "rate").repetitions(2)
    assert [one.end - one.start for one in pausing] == pytest.approx([130, 130], abs=0.6), (
        "the motion's own begin and end"
    )


def test_of_two_stretches_each_lacks_what_its_end_of_the_video_cuts_off() -> None:
    values = np.concatenate([np.full(240, 0.01), np.zeros(200), np.full(240, 0.01)])
    found = as_map(values, "rate").repetitions(4)
    assert [one.start for one in found] == pytest.approx([40, 140, 440, 540], abs=0.6)
    assert [one.end for one in found] == pytest.approx([140, 240, 540, 640], abs=0.6)


def test_nothing_repeats() -> None:
    assert as_map(np.zeros(20), "rate").repetitions() == ()
    assert as_map(np.zeros(20), "peaks").repetitions() == ()
    assert as_map(np.zeros(0), "rate").repetitions() == ()


def test_an_exemplar_sets_the_phase_of_a_rate() -> None:
    density = DensityMap(np.full(100, 0.05, np.float32), start=0.0, step=0.1, kind="rate")  # 5 in 10 s
    plain = [r.end for r in density.repetitions()]
    assert plain == pytest.approx([2.0, 4.0, 6.0, 8.0, 10.0], abs=0.02)
    early = density.repetitions(anchors=[2.6, 4.6])
    assert [r.start for r in early] == pytest.approx([0.6, 2.6, 4.6, 6.6, 8.6], abs=0.02)
    late = density.repetitions(anchors=[3.4, 5.4])
    assert [r.end for r in late] == pytest.approx([1.4, 3.4, 5.4, 7.4, 9.4], abs=0.02)
    assert len(early) == len(late) == 5
