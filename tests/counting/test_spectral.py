"""The classical method on signals whose period is known."""

from __future__ import annotations

import numpy as np
import pytest

from escounts.counting.periodicity import (
    Period,
    best_path,
    candidates,
    lag_profile,
    local_lengths,
    moving_mean,
    nearby_max,
    recurrence,
    settled,
    template_match,
)
from escounts.counting.spectral import WINDOW, SpectralEncoding, _agreement


def swing(period: float, frames: int, features: int = 6, seed: int = 0) -> np.ndarray:
    """A periodic vector signal with two harmonics, other phases in every feature."""
    rng = np.random.default_rng(seed)
    time = 2 * np.pi * np.arange(frames)[:, None] / period
    first, second = rng.uniform(0, 6.28, (2, features))
    return (np.sin(time + first) + 0.6 * np.sin(2 * time + second)).astype(np.float32)  # type: ignore[no-any-return]


def grey(cycles: float, seconds: float, rate: float = 30.0) -> np.ndarray:
    """Thumbnails of a motion with so many cycles, frames x 256, uint8."""
    frames = round(seconds * rate)
    signal = swing(frames / cycles, frames, 256)
    return np.clip(110 + 30 * signal, 0, 255).astype(np.uint8)  # type: ignore[no-any-return]


def test_lag_profile_is_one_at_the_period_and_nowhere_above() -> None:
    profile = lag_profile(swing(25, 200), 60)
    assert profile[0] == pytest.approx(1.0) and profile[25] == pytest.approx(1.0, abs=1e-3)
    assert profile.max() <= 1.0 + 1e-6 and profile[10:16].max() < 0.7


@pytest.mark.parametrize("period", [7.4, 12.0, 23.7, 51.3])
def test_periods_are_found_to_a_fraction_of_a_frame(period: float) -> None:
    found = candidates(lag_profile(swing(period, 600), 360))
    chosen = best_path([found], octave_share=0.75, stiffness=1.0)[0]
    assert chosen is not None and chosen.length == pytest.approx(period, rel=0.02)


def test_path_keeps_its_octave() -> None:
    """One window prefers the double period; its neighbours hold it."""
    windows = [[Period(20, 0.9), Period(40, 0.9)]] * 2 + [[Period(20, 0.66), Period(40, 0.9)]]
    windows += [[Period(20, 0.9), Period(40, 0.9)]] * 2
    path = best_path(windows, octave_share=0.75, stiffness=2.0)
    assert [period.length for period in path if period] == [20] * 5
    wanted = best_path(windows, octave_share=0.75, stiffness=2.0, wanted=38.0)
    assert [period.length for period in wanted if period] == [40] * 5


def test_path_jumps_over_windows_without_candidates() -> None:
    path = best_path([[Period(20, 0.5)], [], [Period(21, 0.5)]], octave_share=0.75, stiffness=1.0)
    assert [period and period.length for period in path] == [20, None, 21]


def test_recurrence_ends_where_the_motion_ends() -> None:
    signal = np.zeros((300, 6), np.float32)
    signal[100:220] = swing(30, 120)
    alike = recurrence(signal, 30)
    assert alike[105:215].min() > 0.8
    assert alike[:60].max() < 0.2 and alike[260:].max() < 0.2


def test_settled_fills_gaps_and_drops_islands() -> None:
    flags = np.zeros(100, bool)
    flags[20:40] = flags[43:60] = flags[80:84] = True
    assert np.flatnonzero(settled(flags, shortest_gap=5, shortest_run=10)).tolist() == list(range(20, 60))


def test_moving_mean_and_nearby_max() -> None:
    values = np.array([0, 0, 6, 0, 0, 0], np.float32)
    assert moving_mean(values, 3).tolist() == [0, 2, 2, 2, 0, 0]
    assert nearby_max(values.astype(float), 1).tolist() == [0, 6, 6, 6, 0, 0]


def test_template_is_found_where_it_was_cut() -> None:
    signal = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    match = template_match(signal, signal[70:90])
    assert match.argmax() == 70 and match[70] == pytest.approx(1.0, abs=1e-5) and len(match) == 181


def test_local_lengths_follow_a_drift() -> None:
    phase = np.cumsum(1 / np.linspace(24, 34, 500))
    signal = np.stack([np.sin(2 * np.pi * phase), np.cos(2 * np.pi * phase)], 1).astype(np.float32)
    lengths = local_lengths(lambda part, lags: lag_profile(signal[part], lags), 29.0, 500)
    assert lengths[60] == pytest.approx(25.5, rel=0.06) and lengths[-60] == pytest.approx(32.5, rel=0.06)


@pytest.mark.parametrize(("cycles", "seconds"), [(4, 10.0), (12, 10.0), (40, 60.0), (70, 200.0)])
def test_cycles_are_counted(cycles: int, seconds: float) -> None:
    estimate = SpectralEncoding(grey(cycles, seconds), 0.0, 30.0).estimate()
    assert estimate.density.count == pytest.approx(cycles, rel=0.03)
    assert estimate.density.kind == "rate" and estimate.density.step == pytest.approx(1 / 30)


def test_count_does_not_depend_on_what_surrounds_the_stretch() -> None:
    """Windows slide from the start of the asked range: a stretch of a long video counts as itself."""
    thumbnails = grey(90, 3 * WINDOW)
    whole = SpectralEncoding(thumbnails, 0.0, 30.0)
    part = SpectralEncoding(thumbnails[300:1200], 10.0, 30.0)
    inside = whole.estimate(start=10.0, end=40.0)
    assert inside.density.count == pytest.approx(part.estimate().density.count, rel=1e-6)
    assert inside.density.start == 10.0 and len(inside.density.values) == 900


def test_exemplar_selects_its_action() -> None:
    """Two motions one after the other: the exemplar of the first closes the gate on the second."""
    first, second = swing(30, 600, 256, seed=1), swing(30, 600, 256, seed=2)
    thumbnails = np.clip(110 + 30 * np.concatenate([first, second]), 0, 255).astype(np.uint8)
    encoding = SpectralEncoding(thumbnails, 0.0, 30.0)
    both = encoding.estimate().density.count
    only = encoding.estimate([encoding.encode_exemplar(5.0, 6.0)]).density
    assert both == pytest.approx(40, abs=1.5)
    assert only.values[:480].sum() == pytest.approx(16, abs=0.5) and only.values[720:].sum() < 1.0


def test_a_still_picture_does_not_repeat() -> None:
    estimate = SpectralEncoding(np.full((300, 256), 90, np.uint8), 0.0, 30.0).estimate()
    assert estimate.density.count == 0.0 and 0.4 < estimate.confidence < 0.6


@pytest.mark.parametrize(("evidence", "agreement"), [(1e4, 0.0), (-1e4, 1.0)])
def test_agreement_has_an_end_however_much_speaks_for_it(evidence: float, agreement: float) -> None:
    """Ten hours of slides, plain and drawn, have more evidence than any film: it was an OverflowError."""
    assert _agreement(evidence, 0.0, exemplar=False) == agreement
    assert _agreement(evidence, 9.0, exemplar=False) == _agreement(evidence, 9.0, exemplar=True) == 1 - agreement


@pytest.fixture(scope="module")
def two_minutes() -> tuple[SpectralEncoding, float]:
    """A hundred cycles, and what is counted of them in the usual windows."""
    encoding = SpectralEncoding(grey(100, 120.0), 0.0, 30.0)
    return encoding, encoding.estimate().density.count


@pytest.mark.parametrize(("window", "hop"), [(12.0, 3.0), (20.0, 10.0), (40.0, 10.0)])
def test_count_hardly_changes_with_the_window(
    window: float, hop: float, two_minutes: tuple[SpectralEncoding, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours are counted in overlapping windows; their length is no part of the answer (within 2 %)."""
    encoding, usual = two_minutes
    monkeypatch.setattr("escounts.counting.spectral.WINDOW", window)
    monkeypatch.setattr("escounts.counting.spectral.HOP", hop)
    assert encoding.estimate().density.count == pytest.approx(usual, rel=0.02)
