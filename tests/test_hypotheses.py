"""Which counts are possible, and what a mark that is a frame off may change."""

from __future__ import annotations

import pytest

from escounts.hypotheses import known_unit, mark_certainty, possible_counts, unit_certainty
from escounts.results import LIVE


def test_a_motion_of_two_sides_is_answered_by_cycles_with_sides_beside_it() -> None:
    first, second, *others = possible_counts(4.1, repeats=0.95, alternates=0.8)
    assert (first.count, first.unit, second.count, second.unit) == (4, "cycle", 8, "side")
    assert first.p + second.p + sum(one.p for one in others) == pytest.approx(1.0, abs=1e-3)
    assert others[0].count == 0 and others[0].unit is None


def test_sides_round_the_sum_not_the_rounded_cycles() -> None:
    counts = {one.unit: one.count for one in possible_counts(5.44, repeats=1.0, alternates=1.0)}
    assert counts == {"cycle": 5, "side": 11}


def test_of_a_cycle_that_is_cut_off_a_side_may_be_whole() -> None:
    counts = {one.unit: one.count for one in possible_counts(3.6, repeats=1.0, alternates=1.0, rest=3.4 / 3.6)}
    assert counts == {"cycle": 3, "side": 7}


def test_no_repetitions_comes_first_only_where_it_is_the_likelier() -> None:
    assert possible_counts(6.0, repeats=0.49, alternates=0.0)[0].count == 0
    assert possible_counts(6.0, repeats=0.51, alternates=0.0)[0].count == 6


def test_an_improbable_unit_is_not_listed() -> None:
    assert [one.unit for one in possible_counts(6.0, repeats=1.0, alternates=0.001)] == ["cycle"]


def test_a_count_is_not_surer_than_its_unit() -> None:
    two = possible_counts(4.0, repeats=1.0, alternates=2 * LIVE)
    assert unit_certainty(two) == pytest.approx(1 - LIVE)
    assert unit_certainty(possible_counts(4.0, repeats=1.0, alternates=LIVE)) == 1.0


@pytest.mark.parametrize(
    ("counted", "expected"),
    [(139.0, 188.0), (192.0, 192.0), (95.0, 95.0), (120.0, 94.0), (310.0, 188.0), (60.0, 47.0)],
)
def test_a_count_between_two_units_goes_to_the_nearer_one(counted: float, expected: float) -> None:
    """Speed rope: 94 cycles, 188 sides; a count within 15 % of a unit is left as the exemplar has it."""
    assert known_unit(counted, 94.0, certainty=0.8) == pytest.approx(expected)


def test_without_a_count_to_compare_with_the_exemplar_decides() -> None:
    assert known_unit(12.0, 0.0, certainty=0.8) == 12.0
    assert known_unit(139.0, 94.0, certainty=0.2) == 139.0


def test_a_mark_of_nearly_everything_is_as_likely_wrong_as_right() -> None:
    assert mark_certainty(1.0, 8.0, share=0.95) == 0.5
    assert mark_certainty(1.0, 1.6, share=0.95) == 1.0, "the video holds one, says the count without it"
    assert mark_certainty(4.0, 8.0, share=0.2) == 1.0, "there is room for others like it"
