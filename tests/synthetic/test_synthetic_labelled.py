"""Labelled clips: every span of a reel shows one labelled repetition, whatever the reel is made of."""

import math

import numpy as np
import pytest

from escounts.errors import DataError
from escounts.synthetic import ClipBank, Generator, GeneratorConfig
from escounts.synthetic.labelled import LabelledClip, LabelledSet, labelled_plan, read_labels, siblings_of

PLAIN = GeneratorConfig(labelled=1.0, labelled_sibling=1.0)
SQUATS = LabelledClip(216, 120, (LabelledSet(((10.0, 30.0), (30.0, 52.0), (60.0, 84.0)), False),), "squat")
OTHERS = LabelledClip(336, 90, (LabelledSet(((5.0, 25.0), (25.0, 41.0)), False),), "squat")
BOTH = LabelledClip(
    426, 100, (LabelledSet(((0.0, 12.0), (12.0, 24.0)), True), LabelledSet(((50.0, 90.0),), False)), "two things"
)
NOTHING = LabelledClip(526, 60, (), "none")
ALL = (SQUATS, OTHERS, BOTH, NOTHING)


@pytest.fixture(scope="module")
def bank(clips: ClipBank) -> ClipBank:
    more = np.zeros((370, 48, 48, 3), np.uint8)
    offsets = [*clips.offsets.tolist(), *(clip.first + clip.frames for clip in ALL)]
    names = [*clips.names, *(clip.motion for clip in ALL)]
    return ClipBank(np.concatenate([clips.frames, more]), offsets, names, clips.segments, ALL)


def test_every_span_shows_one_repetition(bank: ClipBank) -> None:
    known = {(clip.first + start, clip.first + end) for clip in ALL for one in clip.sets for start, end in one.spans}
    several = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        plan = labelled_plan(rng, PLAIN, bank, 96)
        shown = plan.footage.first if plan.footage is not None else plan.backdrop.frames
        assert shown is not None and len(plan.parts) == len(plan.spans)
        several += len(set(plan.parts)) > 1
        for start, end in plan.spans:
            inside = shown[max(0, math.ceil(start)) : max(0, math.floor(end))]
            assert any((inside >= low - 1).all() and (inside <= high).all() for low, high in known), (seed, start)
        assert plan.kind == ("labelled" if plan.spans else "negative:labelled")
    assert several > 20


def test_what_counts_is_all_that_is_shown(bank: ClipBank) -> None:
    """No labelled repetition is in sight that has no span: its middle would be shown."""
    for seed in range(100):
        plan = labelled_plan(np.random.default_rng(seed), PLAIN, bank, 96, clip=SQUATS)
        shown = plan.footage.first if plan.footage is not None else plan.backdrop.frames
        assert shown is not None
        covered = np.zeros(96, bool)
        for start, end in plan.spans:
            covered[max(0, round(start)) : max(0, round(end))] = True
        moving = np.append(np.diff(shown) != 0, True)  # a picture that stands still is no repetition
        squat = (shown >= 216 + 33) & (shown < 216 + 49) & moving
        assert covered[squat].mean() > 0.95 if squat.any() else True


def test_clips_of_one_motion_are_siblings(bank: ClipBank) -> None:
    assert siblings_of(SQUATS, ALL) == [OTHERS] and siblings_of(BOTH, ALL) == []
    plans = Generator(PLAIN, clips=bank, seed=2).plans(0, 12, 48)
    assert len(plans) == 12 and {plan.kind.split(":")[-1] for plan in plans} == {"labelled"}
    for index, plan in enumerate(plans):
        if plan.sibling >= 0:
            assert plans[plan.sibling].sibling == index and plans[plan.sibling].action == plan.action
    assert any(plan.sibling >= 0 for plan in plans)


def test_a_bank_without_labels_draws_what_it_drew(clips: ClipBank) -> None:
    with_share, without = (Generator(GeneratorConfig(labelled=share), clips=clips, seed=3) for share in (0.5, 0.0))
    one, other = with_share.plans(1, 4, 32), without.plans(1, 4, 32)
    assert [(plan.seed, plan.spans) for plan in one] == [(plan.seed, plan.spans) for plan in other]


def test_label_rows_become_sets() -> None:
    row = {
        "file": "a.mp4",
        "motion": "squat",
        "count": "2",
        "rep_times": "1-2 2-3.5",
        "alternates": "",
        "sure": "sure",
    }
    doubted = {**row, "file": "b.mp4", "sure": "unsure"}
    other = {**row, "motion": "lunge", "alternates": "sides", "count": "1", "rep_times": "4-5"}
    labels = read_labels([row, doubted, other], 10.0)
    assert labels == {
        "a.mp4": ((LabelledSet(((10, 20), (20, 35)), False), LabelledSet(((40, 50),), True)), "squat"),
    }
    with pytest.raises(DataError, match="count is 3"):
        read_labels([{**row, "count": "3"}], 10.0)
