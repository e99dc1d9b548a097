"""When repetitions happen, and the clock that drives a motion by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.timeline import (
    AFTER,
    BEFORE,
    DURING,
    SHORTEST,
    Timeline,
    clock_of,
    clock_without_repetitions,
    draw_period,
    draw_timeline,
    frame_times,
    seeded,
    there_and_back,
    warp_phase,
)

CONFIG = GeneratorConfig()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.sampled_from([48, 64, 128]), alternating=st.booleans())
def test_schedule_is_ordered_and_within_the_recipe(seed: int, length: int, alternating: bool) -> None:
    rng = seeded(seed)
    period = draw_period(rng, CONFIG, length, alternating=alternating)
    timeline = draw_timeline(rng, CONFIG, length, period=period, alternating=alternating)
    for (start, end), (after, _) in zip(timeline.spans, timeline.spans[1:], strict=False):
        assert start < end <= after + 1e-9
    for start, end in timeline.spans:
        assert SHORTEST - 1e-9 <= end - start <= 1.2 * CONFIG.period[1] + 1e-9
        assert end > 0 and start < length
    assert len(timeline.sides) == (2 * len(timeline.spans) if alternating else 0)
    for index, (start, end) in enumerate(timeline.spans if alternating else ()):
        left, right = timeline.sides[2 * index : 2 * index + 2]
        assert left[0] == start and left[1] == right[0] and right[1] == end


def test_periods_cover_the_whole_range() -> None:
    periods = [draw_period(seeded(1, i), CONFIG, 128, alternating=False) for i in range(400)]
    assert min(periods) < 2.7 and max(periods) > 60
    assert 0.25 < np.mean(np.array(periods) < 8) < 0.5, "a good third of the repetitions are fast"


def test_single_is_one_whole_repetition() -> None:
    for seed in range(40):
        timeline = draw_timeline(seeded(seed), CONFIG, 96, period=20.0, single=True)
        assert len(timeline.spans) == 1
        start, end = timeline.spans[0]
        assert start >= 0 and end <= 96


def test_clock_knows_phase_unit_and_stage() -> None:
    timeline = Timeline(12, 4.0, ((2.0, 6.0), (7.0, 11.0)))
    clock = clock_of(timeline, frame_times(12, 1, 1.0))
    assert clock.stage.tolist() == [BEFORE] * 2 + [DURING] * 9 + [AFTER]
    assert clock.rep.tolist() == [-1, -1, 0, 0, 0, 0, -1, 1, 1, 1, 1, -1]
    np.testing.assert_allclose(clock.phase[2:6], [0.125, 0.375, 0.625, 0.875])
    assert clock.phase[6] == 0


def test_sides_alternate_within_a_cycle() -> None:
    timeline = Timeline(8, 8.0, ((0.0, 8.0),), ((0.0, 4.0), (4.0, 8.0)))
    clock = clock_of(timeline, frame_times(8, 1, 1.0))
    assert clock.side.tolist() == [0] * 4 + [1] * 4
    np.testing.assert_allclose(clock.phase[:4], clock.phase[4:])


def test_subframes_lie_within_their_frame() -> None:
    times = frame_times(3, 3, 0.9).reshape(3, 3)
    np.testing.assert_allclose(times.mean(1), [0.5, 1.5, 2.5])
    assert (np.floor(times) == np.arange(3)[:, None]).all()


def test_stray_clocks_never_make_a_rhythm() -> None:
    times = frame_times(128, 1, 1.0)
    once = clock_without_repetitions(seeded(2), times, "pass").position
    assert once is not None
    steps = np.diff(once)
    assert (steps >= 0).all() or (steps <= 0).all()
    still = clock_without_repetitions(seeded(2), times, "frozen").position
    assert still is not None and np.ptp(still) == 0
    for seed in range(20):
        walk = clock_without_repetitions(seeded(seed), times, "wander").position
        assert walk is not None and walk.min() >= 0 and walk.max() <= 1
    with pytest.raises(ValueError, match="expected one of"):
        clock_without_repetitions(seeded(0), times, "backwards")


def test_warped_phase_stays_monotone() -> None:
    phase = np.linspace(0, 1, 200)
    for first, second in ((0.6, 0.35), (-0.6, -0.35), (0.0, 0.95)):
        warped = warp_phase(phase, first, second)
        assert (np.diff(warped) > 0).all()
        np.testing.assert_allclose(warped[[0, -1]], [0, 1], atol=1e-12)


def test_there_and_back_starts_and_ends_at_rest() -> None:
    along = there_and_back(np.linspace(0, 1, 101), 0.3, 0.5)
    assert along[0] == along[-1] == 0
    assert along.max() == pytest.approx(1.0) and along.argmax() == 30


def test_config_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="shortest < longest"):
        GeneratorConfig(period=(9.0, 4.0))
    with pytest.raises(ValueError, match="siblings always repeat"):
        GeneratorConfig(negative=0.5, sibling=0.6)
    with pytest.raises(ValueError, match="nothing is left to draw"):
        GeneratorConfig(clips=0.0, motion=0.0, procedural=0.0)
