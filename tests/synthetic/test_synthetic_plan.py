"""Plans: deterministic, in the shares of the recipe, true to their labels."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest

from escounts.synthetic import ClipBank, Generator, GeneratorConfig, MotionBank, Plan


@pytest.fixture(scope="module")
def many(generator: Generator) -> list[Plan]:
    """Ten batches of 24 videos of 96 frames."""
    return [plan for index in range(10) for plan in generator.plans(index, 24, 96)]


def test_the_same_seed_and_index_give_the_same_plan(generator: Generator, many: list[Plan]) -> None:
    again = generator.plans(4, 24, 96)
    assert pickle.dumps(again) == pickle.dumps(many[96:120])
    other = Generator(clips=generator.clips, motion=generator.motion, seed=4).plans(4, 24, 96)
    assert [plan.action for plan in other] != [plan.action for plan in again]
    assert pickle.dumps(generator.plan(7, 64)) == pickle.dumps(generator.plan(7, 64))


def test_shares_of_kinds_are_those_of_the_recipe(generator: Generator, many: list[Plan]) -> None:
    config = generator.config
    negative = np.mean([plan.kind.startswith("negative") for plan in many])
    assert abs(negative - config.negative) < 0.08
    assert abs(np.mean([plan.sibling >= 0 for plan in many]) - config.sibling) < 0.1
    source = {"clips": "clips", "sprite": "clips", "motion": "motion", "exercise": "code", "mechanism": "code"}
    counted = [source[plan.action.split(":")[0]] for plan in many]
    for name, share in (("clips", config.clips), ("motion", config.motion), ("code", config.procedural)):
        assert abs(counted.count(name) / len(many) - share) < 0.12


def test_negatives_have_no_spans_and_singles_one(many: list[Plan]) -> None:
    assert any(plan.kind.startswith("negative") for plan in many) and any(
        plan.kind.endswith(":single") for plan in many
    )
    for plan in many:
        if plan.kind.startswith("negative"):
            assert not plan.spans and not plan.side_spans
        if plan.kind.endswith(":single"):
            assert len(plan.spans) == 1
    repeating = [plan for plan in many if not plan.kind.startswith("negative")]
    assert np.mean([bool(plan.spans) for plan in repeating]) > 0.97


def test_siblings_share_the_action_and_differ_in_everything_else(many: list[Plan]) -> None:
    pairs = 0
    for start in range(0, len(many), 24):
        batch = many[start : start + 24]
        for index, plan in enumerate(batch):
            if plan.sibling < 0:
                continue
            pairs += 1
            other = batch[plan.sibling]
            assert other.sibling == index and other.action == plan.action
            assert not plan.kind.startswith("negative")
            assert plan.spans != other.spans and plan.seed != other.seed
            assert not np.array_equal(plan.backdrop.lens, other.backdrop.lens)
    assert pairs > 20


def test_alternating_plans_have_two_sides_a_repetition(many: list[Plan]) -> None:
    alternating = [plan for plan in many if ":alternating" in plan.kind]
    assert alternating
    for plan in alternating:
        assert len(plan.side_spans) == 2 * len(plan.spans)
    assert all(not plan.side_spans for plan in many if plan.kind.startswith(("clips:loop", "mechanism")))


def test_sides_are_known_of_everything_but_natural_cycles_of_footage(many: list[Plan]) -> None:
    for plan in many:
        if plan.kind.startswith("clips:cycle"):
            assert plan.alternates is None and not plan.side_spans
        elif plan.kind.startswith("negative"):
            assert plan.alternates is False
        elif not plan.kind.startswith("motion:cycle"):
            assert plan.alternates is (len(plan.side_spans) > 0)
    walked = [plan for plan in many if plan.action.startswith("motion:cycle:0:")]
    assert walked and all(plan.alternates is not False for plan in walked if plan.spans)
    assert any(plan.alternates and len(plan.side_spans) == 2 * len(plan.spans) for plan in walked)


def test_two_actions_of_which_one_alternates_are_not_learnt_from(clips: ClipBank, motion: MotionBank) -> None:
    recipe = GeneratorConfig(clips=0.0, motion=1.0, procedural=0.0, second_action=1.0, alternate_figures=0.0)
    often = Generator(recipe, clips=clips, motion=motion, seed=5)
    two = [plan for plan in (often.plan(index, 96) for index in range(150)) if plan.kind.endswith(":two")]
    steps_first = [plan for plan in two if plan.action.startswith("motion:cycle:0:")]
    assert any(plan.alternates is None for plan in steps_first)  # squats or kicks follow
    assert not any(plan.side_spans for plan in two if not plan.alternates)


def test_reversed_plans_mirror_their_spans(generator: Generator) -> None:
    plan = next(p for p in (generator.plan(i, 64) for i in range(50)) if p.spans and p.shapes is not None)
    back = plan.reversed()
    assert back.spans == tuple((64 - end, 64 - start) for start, end in plan.spans[::-1])
    assert back.shapes is not None and plan.shapes is not None
    np.testing.assert_array_equal(back.shapes.geometry, plan.shapes.geometry[::-1])
    assert pickle.dumps(back.reversed()) == pickle.dumps(replace(plan, spans=back.reversed().spans))


def test_a_second_action_follows_the_first(generator: Generator) -> None:
    config = GeneratorConfig(second_action=1.0, negative=0.0, single=0.0, procedural=0.0, reverse=0.0)
    two = Generator(config, clips=generator.clips, motion=generator.motion, seed=1)
    plans = [plan for plan in (two.plan(i, 128) for i in range(30)) if plan.kind.endswith(":two")]
    assert len(plans) > 10
    for plan in plans:
        starts = [start for start, _ in plan.spans]
        assert starts == sorted(starts)
    assert np.mean([len(plan.spans) >= 2 for plan in plans]) > 0.8


def test_absent_banks_are_made_up_for_by_code() -> None:
    alone = Generator(GeneratorConfig(procedural=0.0), seed=0)
    sources = {plan.action.split(":")[0] for plan in alone.plans(0, 16, 48)}
    assert sources <= {"exercise", "mechanism"}


def test_everything_is_finite(many: list[Plan]) -> None:
    for plan in many:
        assert np.isfinite(plan.backdrop.lens).all()
        if plan.shapes is not None:
            assert np.isfinite(plan.shapes.geometry).all() and np.abs(plan.shapes.geometry).max() < 50
        if plan.footage is not None:
            assert np.isfinite(plan.footage.lens).all()
            assert plan.footage.first.min() >= 0 and (plan.footage.fade <= 1).all()


def test_plans_are_cheap_and_small(generator: Generator) -> None:
    start = time.process_time()
    plans = generator.plans(0, 24, 128)
    assert (time.process_time() - start) / 24 < 0.04, "a plan should take a few milliseconds"
    assert len(pickle.dumps(plans)) / 24 < 400_000
