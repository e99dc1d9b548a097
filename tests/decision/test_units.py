"""Which counts are possible, and what a mark that is a frame off may change."""

from __future__ import annotations

import numpy as np
import pytest

from escounts.decision.evidence import Evidence
from escounts.decision.rules import RULES
from escounts.decision.units import in_marked_unit, marked_units, possible_counts, unit_certainty


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


@pytest.mark.parametrize(
    ("counted", "lengths", "expected"),
    [
        (139.0, 188.0, 188.0),
        (192.0, 188.0, 192.0),
        (95.0, 94.0, 95.0),
        (120.0, 94.0, 94.0),
        (310.0, 188.0, 188.0),
        (60.0, 47.0, 47.0),
        (96.0, 175.0, 188.0),
    ],
)
def test_a_count_between_two_units_or_of_another_than_the_mark_goes_to_the_one_that_is_meant(
    counted: float, lengths: float, expected: float
) -> None:
    """Speed rope: 94 cycles, 188 sides; a count within 15 % of the unit is left as the exemplar has it. The last: a
    mark of one side, a frame too long, made the network count cycles."""
    (count, p), *others = marked_units(counted, 94.0, lengths=lengths, frames=6.0, certainty=0.8)
    assert count == pytest.approx(expected)
    assert p > 0.7 and p + sum(other for _, other in others) == pytest.approx(1.0)


def test_a_mark_between_two_units_leaves_both_of_them_open() -> None:
    (count, p), (other, also), _ = marked_units(96.0, 94.0, lengths=129.0, frames=7.0, certainty=0.7)
    assert (count, other) == (96.0, 188.0), "the network's word, and what the mark's length is as near to"
    assert p < 0.9 and also > RULES.other_mark_from


def test_a_mark_as_long_as_none_of_the_units_does_not_decide() -> None:
    (count, p), *_ = marked_units(139.0, 94.0, lengths=27.0, frames=9.0, certainty=0.8)
    assert count == 188.0 and p < 0.9, "the network's word is left, and that is not enough to be sure"


def test_without_a_count_to_compare_with_the_exemplar_decides() -> None:
    assert marked_units(12.0, 0.0, certainty=0.8, lengths=94.0, frames=6.0) == [(12.0, 1.0)]
    assert marked_units(139.0, 94.0, certainty=0.2, lengths=94.0, frames=6.0) == [(139.0, 1.0)]


@pytest.mark.parametrize(("frames", "named"), [(7.0, True), (5.0, False)])
def test_the_other_unit_is_named_where_a_short_mark_does_not_settle_it(frames: float, named: bool) -> None:
    """900 frames at 9.6 a cycle: a mark of 5 is a side, one of 7 lies between."""
    view = Evidence(30.0, np.full(900, 94 / 900, np.float32), np.ones(900, np.float32), np.ones(900, np.float32))
    counted = np.full(900, (96 if named else 188) / 900, np.float32)
    density, p, units = in_marked_unit(counted, [view], 94.0, [frames])
    assert float(density.sum()) == pytest.approx(96 if named else 188, rel=1e-3)
    if named:
        assert [(one.count, one.unit) for one in units] == [(96, "cycle"), (188, "side")]
        assert p == pytest.approx(units[0].p, abs=1e-3) and p < 0.9
    else:
        assert units == () and p > 0.9
