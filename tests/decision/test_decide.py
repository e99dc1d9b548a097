"""Choice between views, features of an estimate, calibration."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from escounts.decision.decide import Asked, decide, p_alternates, p_repeats
from escounts.decision.doubts import Footage
from escounts.decision.evidence import Evidence, choice_features, choose_views, features, repeats_features
from escounts.decision.rules import CHOICE, FEATURES, REPEATS, Calibration
from escounts.decision.units import without_unit_doubt
from escounts.research.training.calibration import (
    Trial,
    calibrate,
    fit_alternates,
    fit_floor,
    fit_repeats,
    logistic,
)


def opinion(rate: float, count: float, sure: float, frames: int = 300) -> Evidence:
    flat = np.ones(frames, np.float32)
    return Evidence(rate, flat * np.float32(count / frames), flat * np.float32(sure), flat * np.float32(sure))


def saying(repeats: float, alternates: float = 0.0, *, count: float = 8.0, sure: float = 0.6) -> Evidence:
    flat = np.ones(300, np.float32)
    return replace(
        opinion(10, count, sure), repeats=flat * np.float32(repeats), alternates=flat * np.float32(alternates)
    )


SURE = Calibration(weights=(6.0, *(0.0,) * 8), nothing_weights=(6.0, *(0.0,) * 8), unsure_below=0.9)
"""Sure of everything: what it is not sure of, something else lowered."""


def half_open() -> Evidence:
    """Four seconds from the start on and two from the sixth are clear; between them the gate is half open."""
    view = opinion(10, 8, 0.9)
    view.gate[120:186] = 0.5
    return view


def test_whether_anything_repeats_is_fitted_on_what_the_views_say_of_the_video() -> None:
    rng = np.random.default_rng(0)
    trials = [Trial(0.0, [saying(rng.normal(-1.0))]) for _ in range(60)]
    trials += [Trial(8.0, [saying(rng.normal(4.0))]) for _ in range(60)]
    weights = fit_repeats(trials, Calibration())
    fitted = Calibration(repeats=weights)
    zero = [choose_views(t.evidence, fitted)[0].sum() == 0 for t in trials]
    assert np.mean(zero[:60]) >= 0.95 and np.mean(zero[60:]) < 0.1
    assert p_repeats([saying(5.0)], fitted) > 0.9 > 0.1 > p_repeats([saying(-3.0)], fitted)
    # Who knows that it repeats is not told otherwise; a view that says nothing keeps the floor.
    assert choose_views([saying(-3.0)], fitted, repeats=True)[0].sum() == pytest.approx(8, rel=1e-4)
    assert fit_repeats([Trial(8.0, [opinion(10, 8, 0.9)]), Trial(0.0, [opinion(10, 5, 0.2)])], Calibration()) == ()


@pytest.mark.parametrize(
    ("count", "heard"),
    [(5.0, 1.0), (24.0, 3.0), (60.0, 3.0), (0.1, 1.0)],
    ids=[
        "slow enough for both",
        "fewer than three pictures at 5",
        "fewer at 10, too: the faster one",
        "nothing to see",
    ],
)
def test_a_view_too_slow_for_a_motion_does_not_say_whether_it_repeats(count: float, heard: float) -> None:
    """Ten seconds. The view at 5 per second says -1, the one at 10 says 3."""
    flat = np.ones(300, np.float32)
    slow, middle, fast = (
        replace(opinion(rate, count if rate == 30 else 0.1, sure), repeats=flat * np.float32(says))
        for rate, sure, says in ((5.0, 0.1, -1.0), (10.0, 0.1, 3.0), (30.0, 1.0, 9.0))
    )
    values = repeats_features([slow, middle, fast], Calibration().choice)
    assert values[REPEATS.index("repeats")] == pytest.approx(heard)


def test_alternation_is_fitted_on_the_view_that_says_it_loudest() -> None:
    rng = np.random.default_rng(0)
    trials = [Trial(8.0, [saying(3.0, -2.0), saying(3.0, rng.normal(-1.5))]) for _ in range(60)]
    trials += [Trial(8.0, [saying(3.0, -2.0), saying(3.0, rng.normal(1.5))], alternates=True) for _ in range(60)]
    fitted = Calibration(alternates=fit_alternates(trials))
    assert p_alternates([saying(3.0, -2.0), saying(3.0, 2.0)], fitted) > 0.8
    assert p_alternates([saying(3.0, -2.0)], fitted) < 0.2
    undecided = p_alternates([saying(3.0, -2.0), saying(3.0, 0.0)], fitted)
    assert undecided == pytest.approx(0.5, abs=0.08)  # half of the trials do


def test_calibrations_of_the_version_before_still_load() -> None:
    old = '{"weights": [1, 2, 3, 4, 5, 6, 7], "choice": [0, 1, 0, 0, 0], "nothing_below": 0.3, "unsure_below": 0.93}'
    loaded = Calibration.from_json(old)
    assert loaded.repeats == () and loaded.nothing_below == 0.3
    assert Calibration.from_json(Calibration(repeats=(1.0, 2.0, 3.0, 4.0)).to_json()).repeats == (1.0, 2.0, 3.0, 4.0)


def test_the_surest_view_speaks() -> None:
    density, chosen = choose_views([opinion(5, 4, 0.3), opinion(10, 8, 0.9)], Calibration())
    assert chosen == [1] and density.sum() == pytest.approx(8, rel=1e-4)


def test_two_views_that_agree_outweigh_a_surer_one() -> None:
    views = [opinion(5, 4, 0.75), opinion(10, 8, 0.7), opinion(30, 8.1, 0.65)]
    by_surety, with_support = Calibration(), Calibration(choice=(0.0, 3.0, 5.0, -3.0, 0.0))
    assert choose_views(views, by_surety)[1] == [0]
    assert choose_views(views, with_support)[1] == [1]


def test_a_view_with_few_cells_a_repetition_is_doubted() -> None:
    # 20 repetitions in ten seconds: at 5 frames a second a repetition is two and a half frames at most
    views = [opinion(5, 20, 0.8), opinion(10, 12, 0.75)]
    values = choice_features(views)[:, CHOICE.index("few_cells")]
    assert values[0] > 0 == values[1]
    assert choose_views(views, Calibration(choice=(0.0, 1.0, 0.0, 0.0, -1.0)))[1] == [1]


def test_the_choice_is_fitted_on_which_view_was_right() -> None:
    rng = np.random.default_rng(0)
    trials = []
    for _ in range(200):
        truth = float(rng.integers(3, 20))
        alias, *right = rng.uniform(0.4, 0.9, 3)
        trials.append(
            Trial(truth, [opinion(5, truth / 2, alias), opinion(10, truth, right[0]), opinion(30, truth, right[1])])
        )
    fitted = calibrate(trials)
    wrong = [opinion(5, 4, 0.9), opinion(10, 8, 0.5), opinion(30, 8, 0.5)]
    assert choose_views(wrong, Calibration())[1] == [0]
    assert choose_views(wrong, fitted)[1] != [0]


def test_the_floor_answers_nothing_to_what_does_not_repeat() -> None:
    nothing = [Trial(0.0, [opinion(10, 5, 0.4 + 0.004 * k)]) for k in range(50)]
    floor = fit_floor(nothing, Calibration())
    zero = [choose_views(t.evidence, Calibration(nothing_below=floor))[0].sum() == 0 for t in nothing]
    assert 0.95 <= np.mean(zero) < 1.0
    assert fit_floor([Trial(5.0, [opinion(10, 5, 0.9)])], Calibration(nothing_below=0.17)) == 0.17


def test_the_floor_counts_what_stands_behind_a_view() -> None:
    floor = Calibration(nothing_below=0.35)  # certainty of opinion(…, 0.55) is 0.30
    agree = [opinion(5, 8, 0.55), opinion(10, 8, 0.55)]
    differ = [opinion(5, 3, 0.55), opinion(10, 8, 0.55)]
    assert choose_views(agree, floor)[0].sum() == pytest.approx(8, rel=1e-3)
    assert choose_views(differ, floor)[0].sum() == 0
    assert choose_views(differ, floor, repeats=True)[0].sum() > 0


def test_long_videos_choose_block_by_block() -> None:
    half = 3600
    first = Evidence(
        5,
        *(
            np.r_[np.full(half, a), np.full(half, b)].astype(np.float32)
            for a, b in ((0.01, 0.02), (0.9, 0.2), (0.9, 0.2))
        ),
    )
    second = Evidence(
        10,
        *(
            np.r_[np.full(half, a), np.full(half, b)].astype(np.float32)
            for a, b in ((0.03, 0.04), (0.2, 0.9), (0.2, 0.9))
        ),
    )
    density, chosen = choose_views([first, second], Calibration())
    assert chosen[0] == 0 and chosen[-1] == 1
    assert density[0] == pytest.approx(0.01) and density[-1] == pytest.approx(0.04)


def test_features_have_their_names_and_agreement_is_seen() -> None:
    agreeing = [opinion(5, 8, 0.5), opinion(10, 8.2, 0.9), opinion(30, 8.1, 0.4)]
    split = [opinion(5, 4, 0.5), opinion(10, 8.2, 0.9), opinion(30, 16, 0.4)]
    place = FEATURES.index("agreement")
    values = []
    for views in (agreeing, split):
        density, chosen = choose_views(views, Calibration())
        values.append(features(views, density, chosen))
    assert len(values[0]) == len(FEATURES)
    assert values[0][place] == 1.0 and values[1][place] == 0.0


def test_an_exemplar_may_change_the_unit_and_nothing_else() -> None:
    view = opinion(10, 8, 0.9)
    counts = (8.0, 4.0, 16.0, 6.0, 0.0)  # the same, both sides, one side, no unit, nothing
    place = FEATURES.index("unit")
    same, both, one, none, nothing = (
        features([view], view.density, [0], zero_shot_count=count)[place] for count in counts
    )
    assert same == pytest.approx(1.0, abs=0.01) and min(both, one) > 0.6
    assert none < 0.25 and nothing < 0.01
    assert features([view], view.density, [0])[place] == 0


def test_confidence_rises_where_the_count_without_the_exemplar_agrees() -> None:
    view = [opinion(10, 8, 0.5)]
    right, wrong = Trial(8.0, view, view), Trial(16.0, [opinion(10, 12, 0.5)], view)
    fitted = calibrate([right] * 30 + [wrong] * 30)
    agreeing, not_agreeing = (
        decide(view, fitted, asked=Asked(exemplars=1, without=[opinion(10, count, 0.5)])).confidence
        for count in (8.0, 12.0)
    )
    assert agreeing > 0.85 and not_agreeing < 0.3


def test_that_nothing_repeats_has_weights_of_its_own() -> None:
    missed, nothing, lively = ([opinion(10, 8, certainty)] for certainty in (0.5, 0.1, 0.6))
    trials = [Trial(8.0, missed)] * 30 + [Trial(0.0, nothing)] * 27 + [Trial(0.0, lively)] * 3
    fitted = calibrate(trials)  # the three lively ones lift the floor above what is missed
    chances = []
    for views in (missed, nothing):
        decision = decide(views, fitted)
        assert decision.count == 0
        chances.append(decision.confidence)
    assert chances[0] < 0.3 and chances[1] > 0.7


def test_cells_of_a_repetition_are_those_of_the_view_that_speaks() -> None:
    for rate, cells in ((10.0, 20.0), (5.0, 10.0)):  # five repetitions in 300 frames, ten seconds
        view = opinion(rate, 5, 0.9)
        values = features([view], view.density, [0])
        assert np.exp(values[FEATURES.index("cells")]) == pytest.approx(cells, rel=1e-4)


def test_logistic_recovers_a_known_rule() -> None:
    rng = np.random.default_rng(0)
    inputs = np.c_[np.ones(4000), rng.normal(size=4000)]
    outcome = rng.random(4000) < 1 / (1 + np.exp(-(0.5 + 2 * inputs[:, 1])))
    assert logistic(inputs, outcome.astype(float)) == pytest.approx([0.5, 2.0], abs=0.2)


def test_calibrated_confidence_ranks_right_above_wrong() -> None:
    trials = [Trial(8.0, [opinion(10, 8, 0.9)])] * 30 + [Trial(3.0, [opinion(10, 8, 0.2)])] * 30
    fitted = calibrate(trials)
    sure, unsure = ([opinion(10, 8, s)] for s in (0.9, 0.2))
    high, low = (decide(views, fitted).confidence for views in (sure, unsure))
    assert high > 0.85 and low < 0.15


def test_calibration_survives_json() -> None:
    calibration = Calibration(weights=(1.0,) * len(FEATURES), choice=(0.0, 1.0, 2.0, 3.0, 4.0), unsure_below=0.7)
    assert Calibration.from_json(calibration.to_json()) == calibration
    older = calibration.to_json().replace('"choice": [0.0, 1.0, 2.0, 3.0, 4.0]', '"view_weights": null')
    assert Calibration.from_json(older).choice == Calibration().choice
    shorter = calibration.to_json().replace('"weights": [1.0, ', '"weights": [', 1)
    assert Calibration.from_json(shorter).weights == (*(1.0,) * (len(FEATURES) - 1), 0.0)


def test_a_motion_that_is_seen_once_repeats_nothing() -> None:
    once = opinion(5, 1.4, 0.9)
    assert choose_views([once], Calibration())[0].sum() == 0
    assert choose_views([once], Calibration(), repeats=True)[0].sum() == pytest.approx(1.4, rel=1e-4)
    assert choose_views([opinion(5, 1.6, 0.9)], Calibration())[0].sum() == pytest.approx(1.6, rel=1e-4)


def _shut_at_the_end(rate: float = 30.0) -> Evidence:
    """300 frames with a repetition every 20, of which a fast view does not see the last one and a half."""
    gate = np.ones(300, np.float32)
    gate[270:] = 0.05
    return Evidence(rate, gate * np.float32(1 / 20), gate, np.full(300, 0.8, np.float32))


def test_a_fast_view_takes_the_ends_from_slow_ones() -> None:
    fast, slow = _shut_at_the_end(), opinion(5.0, 15, 1.0)
    assert fast.count() == pytest.approx(13.5, abs=0.1)
    mended = fast.with_open_edges([slow, fast], [0, 300])
    assert mended.count() == pytest.approx(15, abs=0.1)
    assert mended.gate[280] == pytest.approx(1.0)
    # Away from the ends of a scene a fast view sees as well as any: its pause is a pause.
    assert fast.with_open_edges([slow, fast], [0, 400]).count() == fast.count()
    assert fast.with_open_edges([slow, fast], [0, 300, 900]).count() == mended.count()
    # Slow views that see nothing there either leave it shut, and of a slow view nothing changes.
    assert fast.with_open_edges([_shut_at_the_end(5.0), fast], [0, 300]).count() == pytest.approx(
        fast.count(), abs=0.01
    )
    assert slow.with_open_edges([fast, slow], [0, 300]) is slow
    assert fast.with_open_edges([fast], [0, 300]) is fast


def test_a_mark_of_nearly_everything_is_as_likely_wrong_as_right() -> None:
    def counted(count: float, without: float, share: float) -> tuple[float, tuple[str, ...]]:
        asked = Asked(exemplars=1, marked=(300 * share,), without=[opinion(10, without, 0.9)])
        decision = decide([opinion(10, count, 0.9)], SURE, asked=asked)
        return decision.confidence, decision.reasons

    low, reasons = counted(1.0, 8.0, 0.95)
    assert low == 0.5 and reasons == ("the exemplar is 95% of what was counted, and without it the count is 8",)
    high, none = counted(1.0, 1.6, 0.95)
    assert high > 0.9 and none == (), "the video holds one without the mark, too"
    assert counted(4.0, 8.0, 0.2)[0] > 0.9, "there is room for others like it"


def test_whatever_lowers_a_confidence_leaves_its_reason() -> None:
    view = opinion(10, 8, 0.9)
    plain = Asked(exemplars=1, without=[view])
    sure = decide([view], SURE, asked=plain)
    assert not sure.unsure and sure.reasons == ()
    both: list[dict[str, Any]] = [{"unlike": True}, {"unclear": True}, {"unlike": True, "unclear": True}]
    for doubts in both:
        lowered = decide([view], SURE, asked=replace(plain, **doubts))
        assert lowered.confidence == 0.5 and lowered.unsure and len(lowered.reasons) == len(doubts)


def test_two_live_units_are_a_reason_and_a_unit_that_a_person_gives_takes_it_away() -> None:
    sides = replace(SURE, repeats=(5.0, 0.0, 0.0, 0.0), alternates=(2.0, 0.0))
    decision = decide([saying(3.0, 2.0, sure=0.9)], sides)
    assert decision.unsure and decision.reasons == ("two units are possible: 8 as cycles (0.56), 16 as sides (0.44)",)
    confidence, reasons = without_unit_doubt(
        decision.confidence, decision.details, decision.reasons, decision.hypotheses
    )
    assert confidence > 0.9 and reasons == ()


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ([opinion(5, 11, 0.9), opinion(10, 23, 0.8)], "the views disagree: 11.0 and 23.0"),
        ([half_open()], "from 14.0 to 16.2 s it is unclear whether the motion repeats (gate 0.50)"),
        ([replace(opinion(10, 8, 0.9), sharpness=np.full(300, 0.31, np.float32))], "vague (sharpness 0.31 of 1)"),
        ([opinion(10, 8, 0.9)], "of such answers 4% are within one of the truth"),  # 0.0474, shown as 0.04
    ],
    ids=["views", "gate", "period", "nothing that stands out"],
)
def test_an_answer_that_is_not_sure_says_why(views: list[Evidence], words: str) -> None:
    never = Calibration(weights=(-3.0, *(0.0,) * 8))
    decision = decide(views, never, start=10.0)
    assert decision.unsure and words in " ".join(decision.reasons)


def footage(*, moving: bool = True, pictures: float = 30.0, frames: int = 300) -> Footage:
    return Footage(np.full(frames, moving), pictures)


@pytest.mark.parametrize(("alternates", "sure"), [(0.12, False), (0.08, True)])
def test_a_motion_that_alternates_with_more_than_a_tenth_is_not_sure(alternates: float, sure: bool) -> None:
    logit = math.log(alternates / (1 - alternates))
    sides = replace(SURE, repeats=(5.0, 0.0, 0.0, 0.0), alternates=(logit, 0.0))
    decision = decide([saying(3.0, sure=0.9)], sides)
    named = [one.unit for one in decision.hypotheses if one.live]
    assert decision.unsure != sure and ("side" in named) != sure and decision.count == 8


def test_a_motion_that_happens_once_is_beside_nothing_and_not_sure() -> None:
    once = replace(SURE, repeats=(1.0, 0.0, 0.0, 0.0))
    views = [saying(3.0, count=1.0, sure=0.9)]
    decision = decide(views, once, footage=footage())
    assert decision.count == 0 and [one.count for one in decision.hypotheses[:2]] == [0, 1]
    assert decision.unsure and decision.reasons == ("something moves; a motion that happens once looks no different",)
    still = decide(views, once, footage=footage(moving=False))
    assert still.count == 0 and not still.unsure, "a photograph repeats nothing, surely"


def test_a_motion_that_clearly_happens_once_is_one_and_not_sure() -> None:
    clear = replace(SURE, repeats=(1.2, 0.0, 0.0, 0.0))
    decision = decide([saying(3.0, count=1.0, sure=0.9)], clear, footage=footage())
    assert decision.count == 1 and [one.count for one in decision.hypotheses[:2]] == [1, 0]
    assert decision.unsure and decision.reasons == ("the motion is seen once: nothing is known to repeat",)
    half = decide([saying(3.0, count=0.4, sure=0.9)], clear, footage=footage())
    assert half.count == 0, "less than half of a repetition is none"


@pytest.mark.parametrize(
    ("pictures", "marked", "sure"), [(2, 0.0, False), (15, 0.0, True), (2, 1.0, False), (2, 2.0, True)]
)
def test_with_few_pictures_per_second_nobody_is_sure_and_the_fastest_motion_is_named(
    pictures: float, marked: float, sure: bool
) -> None:
    """Three pictures show a repetition: two per second show one of 1.5 s."""
    view = [opinion(10, 8, 0.9)]
    asked = Asked(exemplars=1, marked=(30 * marked,), without=view) if marked else None
    decision = decide(view, SURE, asked=asked, footage=footage(pictures=pictures))
    assert decision.unsure != sure
    if not sure:
        words = "different pictures per second: 2; a motion faster than 0.7 repetitions per second is not seen"
        assert decision.reasons == (words,)


def test_a_stretch_that_moves_and_is_not_counted_lowers_the_certainty_of_the_whole() -> None:
    """Ten seconds with eight repetitions, and ten in which the gate is half open and nothing is counted."""
    clear, vague = opinion(10, 8, 0.9), replace(opinion(10, 0.0, 0.5))
    joined = Evidence(
        10, *(np.r_[getattr(clear, name), getattr(vague, name)] for name in ("density", "gate", "sharpness"))
    )
    doubtful = replace(SURE, nothing_weights=(0.0, 0.0, 3.0, *(0.0,) * 6))  # sure of nothing where gates are shut
    both = decide([joined], doubtful, footage=footage(frames=600), start=5.0)
    assert not decide([clear], doubtful, footage=footage()).unsure
    assert both.count == 8 and both.unsure
    assert both.reasons == ("from 15.0 to 25.0 s something moves and nothing is counted",)
    shut = replace(joined, gate=np.where(np.arange(600) < 300, joined.gate, 0).astype(np.float32))
    assert not decide([shut], doubtful, footage=footage(frames=600)).unsure, "surely nothing repeats there"
    still = Footage(np.arange(600) < 300, 30.0)
    assert not decide([joined], doubtful, footage=still).unsure, "nothing moves there"


@pytest.mark.parametrize(("seconds", "sure"), [(2, True), (3, False)])
def test_a_clip_of_three_seconds_that_is_not_counted_lowers_the_certainty_of_what_follows(
    seconds: int, sure: bool
) -> None:
    """Shorter than a scene, so that no cut is seen before the set that is counted."""
    vague, clear = opinion(10, 0.0, 0.5, frames=30 * seconds), opinion(10, 8, 0.9)
    doubtful = replace(SURE, nothing_weights=(0.0, 0.0, 3.0, *(0.0,) * 6))
    parts = ("density", "gate", "sharpness")
    joined = Evidence(10, *(np.r_[getattr(vague, name), getattr(clear, name)] for name in parts))
    found = decide([joined], doubtful, footage=footage(frames=30 * (10 + seconds)))
    assert found.count == 8 and found.unsure != sure


def test_a_range_that_a_person_gives_cuts_no_repetition_off() -> None:
    """4.6 repetitions at an even rate: a video that begins and ends within them holds four, a marked set five."""
    views = [saying(3.0, count=4.6, sure=0.9)]
    video, marked = (decide(views, SURE, asked=Asked(ranged=ranged)) for ranged in (False, True))
    assert (video.count, marked.count) == (4, 5) and marked.rest == 1.0


def test_a_scene_that_is_not_surely_without_repetitions_lowers_the_certainty_of_the_film() -> None:
    """Joined to a clear clip, one of "no repetitions, not sure" stays not sure: its gate opens here and there."""
    clear, open_now_and_then = opinion(10, 8, 0.9), opinion(10, 0.0, 0.5)
    doubtful = replace(SURE, nothing_weights=(0.0, 0.0, 3.0, *(0.0,) * 6))
    parts = ("density", "gate", "sharpness")
    film = Evidence(10, *(np.r_[getattr(clear, name), getattr(open_now_and_then, name)] for name in parts))
    film.density[300::60] = 0.05  # no stretch of it is quiet for long
    joined = decide([film], doubtful, footage=Footage(np.full(600, True), 30.0, (300,)))
    assert joined.count == 8 and joined.unsure
    assert joined.reasons == ("the scene from 10.0 to 20.0 s has no repetitions by itself, but not surely",)
    assert not decide([film], doubtful, footage=footage(frames=600)).unsure
