"""Which counts are possible, and how sure their unit is."""

from __future__ import annotations

import pytest

from escounts.decision.rules import RULES
from escounts.decision.units import possible_counts, unit_certainty


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
    two = possible_counts(4.0, repeats=1.0, alternates=2 * RULES.live_from)
    assert unit_certainty(two) == RULES.two_units
    assert unit_certainty(possible_counts(4.0, repeats=1.0, alternates=0.6)) == pytest.approx(0.7)
    assert unit_certainty(possible_counts(4.0, repeats=1.0, alternates=RULES.live_from)) == 1.0
