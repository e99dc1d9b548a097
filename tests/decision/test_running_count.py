"""A count that never goes back, from estimates that do."""

from dataclasses import replace

import numpy as np

from escounts.decision.running_count import RunningCount
from escounts.results import DensityMap, Repetition


def density(*rates: float, start: float = 0.0) -> DensityMap:
    """A second of ten cells for each number of repetitions a second."""
    return DensityMap(np.repeat(np.array(rates, np.float32) / 10, 10), start, 0.1, "rate")


def settle(count: RunningCount, map_: DensityMap) -> list[tuple[float, float]]:
    """Tell it the same estimate, and again when another second has passed."""
    found = [*count.update(map_), *count.update(later(map_, 1.0))]
    return [(round(r.start, 2), round(r.end, 2)) for r in found]


def later(map_: DensityMap, seconds: float) -> DensityMap:
    """The same estimate with nothing after it."""
    return replace(map_, values=np.append(map_.values, np.zeros(round(seconds * 10), np.float32)))


def test_an_estimate_has_to_stand_for_a_second() -> None:
    count = RunningCount()
    assert count.update(density(1, 1, 1)) == []
    assert count.update(later(density(1, 1), 1.5)) == [] and count.count == 0  # it says two now
    assert len(count.update(later(density(1, 1, 1), 1.0))) == 2
    assert len(count.update(later(density(1, 1, 1), 2.0))) == 1


def test_on_a_slow_machine_two_estimates_are_enough() -> None:
    count = RunningCount()
    assert count.update(density(1, 1, 1)) == []
    assert len(count.update(density(1, 1, 1, 1, 1, 1, 1))) == 3


def test_repetitions_lie_where_the_running_sum_passes_whole_numbers() -> None:
    count = RunningCount()
    assert settle(count, density(0, 1, 0, 0, 1)) == [(1.0, 2.0), (4.0, 5.0)]
    assert count.count == 2 and count.open < 1e-6


def test_a_smaller_estimate_takes_nothing_back_and_the_next_repetitions_make_up_for_it() -> None:
    count = RunningCount()
    settle(count, density(2, 2))
    assert count.count == 4
    assert settle(count, density(1, 1)) == [] and count.count == 4 and count.open == 0
    assert settle(count, density(1, 1, 1, 1)) == [] and count.count == 4
    assert settle(count, density(1, 1, 1, 1, 1)) == [(4.0, 5.0)]


def test_what_is_final_is_counted_once() -> None:
    count = RunningCount()
    settle(count, density(1, 1, 1))
    count.make_final(density(1, 1, 1), 20)
    assert settle(count, density(1, start=2.0)) == []
    assert settle(count, density(1, 1, start=2.0)) == [(3.0, 4.0)]
    assert count.count == 4


def test_the_end_rounds_and_a_new_stretch_begins_at_zero() -> None:
    count = RunningCount()
    assert len(count.update(density(1, 0.8), over=True)) == 2, "0.6 would be a rest that is cut off, and not one more"
    assert len(RunningCount().update(density(1, 0.6), over=True)) == 1
    count.close()
    assert settle(count, density(1, start=9.0)) == [(9.0, 10.0)]
    assert count.count == 3


def spans(found: list[Repetition]) -> list[tuple[float, float]]:
    return [(round(r.start, 2), round(r.end, 2)) for r in found]


def test_an_exemplar_counts_anew_and_names_every_repetition() -> None:
    count = RunningCount()
    settle(count, density(2, 2))
    assert spans(count.restart(density(1, 1))) == [(0.0, 1.0), (1.0, 2.0)]
    assert count.count == 2
    assert settle(count, density(1, 1, 1)) == [(2.0, 3.0)]


def test_after_an_exemplar_the_next_repetition_begins_where_the_last_one_ended() -> None:
    count = RunningCount()
    settle(count, density(1, 1, 1))
    assert spans(count.restart(density(0.5, 0.5, 0.5))) == [(0.0, 2.0)] and round(count.open, 2) == 0.5
    assert settle(count, density(0.5, 0.5, 0.5, 0.5)) == [(2.0, 4.0)]


def test_an_exemplar_leaves_what_is_not_remembered_and_cuts_no_repetition_short() -> None:
    count = RunningCount()
    settle(count, density(0.8, 0.8, 0.8, 0.8, 0.8))  # each 1.25 s: 4 of them
    count.make_final(density(0.8, 0.8, 0.8, 0.8, 0.8), 20)  # 1.6 of them
    found = count.restart(density(0.8, 0.8, 0.8, start=2.0))
    assert spans(found) == [(2.5, 3.8), (3.8, 5.0)] and count.count == 4, "the second one ends at 2.5"
    count = RunningCount()
    settle(count, density(1, 1, 1, 1))
    count.make_final(density(1, 1, 1, 1), 20)
    assert spans(count.restart(density(2, 2, start=2.0))) == [(2.0, 2.5), (2.5, 3.0), (3.0, 3.5), (3.5, 4.0)]
    assert count.count == 6, "two before, and four"


def test_an_exemplar_after_a_gap_counts_nothing_before_it_again() -> None:
    count = RunningCount()
    settle(count, density(1, 1, 1))
    count.close()
    settle(count, density(1, 1, start=60.0))
    assert count.count == 5
    assert spans(count.restart(density(0.5, 0.5, start=60.0))) == [(60.0, 62.0)] and count.count == 4


def test_what_is_counted_is_forgotten_with_what_was_seen() -> None:
    count = RunningCount()
    for start in range(0, 1000, 10):
        settle(count, density(*[1] * 10, start=float(start)))
        count.make_final(density(*[1] * 10, start=float(start)), 100)
    assert count.count == 1000 and len(count._recent) <= 1
    for _ in range(20):
        settle(count, density(1, 1, start=2000.0))
        count.close()
    assert len(count._recent) <= 1
