"""What is drawn: deterministic, of the right shape, and repeating where the labels say so."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from escounts.synthetic import ClipBank, Generator, GeneratorConfig, MotionBank
from escounts.synthetic.actions import Action
from escounts.synthetic.camera import finish_frames
from escounts.synthetic.coded import squeeze_frames
from escounts.synthetic.composition import Composer
from escounts.synthetic.exercises import CYCLES
from escounts.synthetic.mechanisms import MECHANISMS, RIPPLE
from escounts.synthetic.plan import Finish, Plan
from escounts.synthetic.render import render
from escounts.synthetic.strokes import draw_strokes

STEADY = GeneratorConfig(
    jitter=(0.0, 0.0), drift=0.0, pause=0.0, lead=0.0, tail=0.0, few=0.0, cut_inside=0.0, reach=0.0,
    camera_still=1.0, camera_gentle=0.0, camera_strong=0.0, camera_fast=0.0, shake=0.0, pan=0.0, zoom=0.0,
    shot_change=0.0, composite=0.0, clip_background=0.0, blur=0.0, upper_body=0.0, second_action=0.0,
    sway=(0.0, 0.0), shuffle=(0.0, 0.0), turning=0.0,
)  # fmt: skip
"""Nothing but the repetitions moves."""


def check_repeats(frames_TCHW: torch.Tensor, plan: Plan, least: float = 0.02) -> None:
    """One repetition apart frames are alike; half a repetition apart, somewhere, they are not."""
    video = frames_TCHW.float().numpy()
    period = round(plan.spans[0][1] - plan.spans[0][0])
    whole = [span for span in plan.spans if span[1] + period < plan.length]
    assert whole
    begin = int(whole[0][0])
    same = np.abs(video[begin : begin + period] - video[begin + period : begin + 2 * period]).mean()
    other = max(np.abs(video[begin] - video[begin + k]).mean() for k in range(1, period))
    assert other > least
    assert same < 0.35 * other


@pytest.mark.parametrize("name", [*MECHANISMS, RIPPLE])
def test_mechanisms_repeat_once_a_span(name: str) -> None:
    stage = Composer(STEADY, None, None)
    action = Action("mechanism", f"mechanism:{name}:11", "cycle", 12.0, 11, False, 0.5, 0.5, (0.0, 0.0))
    plan = fixed_period(stage, action, 12)
    check_repeats(render([plan], device="cpu", size=64).frames_BTCHW[0], plan)


def fixed_period(stage: Composer, action: Action, period: int, length: int = 48) -> Plan:
    """The first performance whose tempo is near a whole number of frames, so that frames can be compared."""
    for seed in range(400):
        plan = stage.perform(np.random.default_rng(seed), action, length)
        lasts = plan.spans[0][1] - plan.spans[0][0]
        if abs(lasts - round(lasts)) < 0.03 and abs(lasts - period) <= 3 and plan.spans[0][0] == 0:
            return replace(plan, finish=Finish())
    raise AssertionError(f"no performance of {action.name} has a period near {period}")


@pytest.mark.parametrize("name", ["squat", "push-up", "jumping-jack", "sit-up", "run", "rope-jump", "battle-rope"])
def test_exercises_repeat_once_a_span(name: str) -> None:
    way = "cycle" if name in CYCLES else "back"
    action = Action("exercise", f"exercise:{name}:5", way, 12.0, 5, False, 0.5, 0.5, (0.0, 0.0))
    plan = fixed_period(Composer(STEADY, None, None), action, 12)
    check_repeats(render([plan], device="cpu", size=64).frames_BTCHW[0], plan)


def test_alternating_sides_differ_and_cycles_do_not() -> None:
    action = Action("exercise", "exercise:kick:5:alternating", "back", 16.0, 5, True, 0.5, 0.5, (0.0, 0.0))
    stage = Composer(STEADY, None, None)
    differs = []
    for seed in range(6):
        plan = replace(stage.perform(np.random.default_rng(seed), action, 64), finish=Finish())
        video = render([plan], device="cpu", size=64).frames_BTCHW[0].float().numpy()
        cycles = [span for span in plan.spans if span[1] <= 63]
        peaks = [[int((a + b) / 2) for a, b in plan.side_spans[2 * i : 2 * i + 2]] for i in range(len(cycles))]
        (left, right), (again, _) = peaks[0], peaks[1]
        sides = np.abs(video[left] - video[right]).mean()
        cycle = np.abs(video[left] - video[again]).mean()
        differs.append(sides > 1.5 * cycle)
    assert np.mean(differs) > 0.6


def test_footage_repeats_once_a_span(clips: ClipBank) -> None:
    row = clips.segments.cycle[0]
    segment = (int(row[0]), int(row[1]), int(row[2]))
    action = Action("clips", "clips:cycle:test", "cycle", 12.0, 4, False, 0.5, 0.5, (0.0, 0.0), segment)
    plan = fixed_period(Composer(STEADY, clips, None), action, 12)
    check_repeats(render([plan], device="cpu", size=64, bank_NHWC=clips.on("cpu")).frames_BTCHW[0], plan)


def test_motion_repeats_once_a_span(motion: MotionBank) -> None:
    row = motion.segments.cycle[motion.segments.cycle[:, 0] == 1][0]
    segment = (int(row[0]), int(row[1]), int(row[2]))
    action = Action("motion", "motion:cycle:test", "cycle", 12.0, 4, False, 0.5, 0.5, (0.0, 0.0), segment)
    plan = fixed_period(Composer(STEADY, None, motion), action, 12)
    check_repeats(render([plan], device="cpu", size=64).frames_BTCHW[0], plan)


def test_frozen_negatives_do_not_move() -> None:
    stage = Composer(STEADY, None, None)
    action = Action("mechanism", "mechanism:wheel:3", "cycle", 12.0, 3, False, 0.5, 0.5, (0.0, 0.0))
    plans = [stage.negative(np.random.default_rng(seed), action, 16) for seed in range(80)]
    plan = next(plan for plan in plans if plan.kind == "negative:frozen")
    video = render([replace(plan, finish=Finish())], device="cpu", size=48).frames_BTCHW[0].float()
    assert (video - video[:1]).abs().max() <= 1


def test_batch_has_the_promised_form_and_is_deterministic(generator: Generator) -> None:
    batch = generator.batch(2, 6, 20, device="cpu", size_px=48)
    assert batch.frames_BTCHW.shape == (6, 20, 3, 48, 48) and batch.frames_BTCHW.dtype == torch.uint8
    assert len(batch.spans) == len(batch.side_spans) == len(batch.actions) == len(batch.kinds) == 6
    assert batch.sibling_B.dtype == torch.long and batch.sibling_B.shape == (6,)
    assert batch.frames_BTCHW.float().std() > 10
    again = generator.batch(2, 6, 20, device="cpu", size_px=48)
    assert torch.equal(batch.frames_BTCHW, again.frames_BTCHW)


def test_a_video_does_not_depend_on_its_neighbours(generator: Generator) -> None:
    plans = generator.plans(1, 6, 16)
    together = generator.render(plans, device="cpu", size=48).frames_BTCHW
    for index, plan in enumerate(plans):
        alone = generator.render([plan], device="cpu", size=48).frames_BTCHW[0]
        assert (together[index].int() - alone.int()).abs().max() <= 1


def test_a_squeezed_video_does_not_depend_on_its_neighbours() -> None:
    """Blocks and key frames of its own, too: 4 or 8 pixels, every 8 or 16 frames."""
    generator = Generator(GeneratorConfig(clips=0.0, motion=0.0, procedural=1.0, squeeze=1.0), seed=2)
    plans = generator.plans(1, 8, 16)
    together = generator.render(plans, device="cpu", size=48).frames_BTCHW
    for index, plan in enumerate(plans):
        assert plan.finish.squeeze > 0
        alone = generator.render([plan], device="cpu", size=48).frames_BTCHW[0]
        # The drawing itself may round otherwise; a quantiser shows that as one step here and there.
        assert (together[index].int() - alone.int()).abs().float().mean() < 0.2


def test_any_size_shows_the_same_scene(generator: Generator) -> None:
    plan = replace(next(p for p in generator.plans(0, 12, 8) if p.shapes is not None), finish=Finish())
    small = generator.render([plan], device="cpu", size=48).frames_BTCHW[0].float()
    large = generator.render([plan], device="cpu", size=(96, 96)).frames_BTCHW[0].float()
    shrunk = torch.nn.functional.avg_pool2d(large, 2)
    assert (small - shrunk).abs().mean() < 6


def test_motion_blur_is_the_mean_of_sub_frames() -> None:
    fast = GeneratorConfig(blur=1.0, negative=0.0, single=0.0, period=(2.4, 5.0))
    plans = [Generator(fast, seed=0).plan(i, 12) for i in range(6)]
    assert all(plan.subframes == fast.subframes for plan in plans)
    assert render(plans, device="cpu", size=32).frames_BTCHW.shape == (6, 12, 3, 32, 32)


def test_a_disc_is_round_and_where_it_should_be() -> None:
    from escounts.synthetic.plan import Canvas

    canvas = Canvas(1)
    canvas.dot((0.25, -0.5), 0.25, colour=(1.0, 0.0, 0.0))
    view = torch.zeros(1, 3, 128, 128)
    draw_strokes([canvas.shapes(np.array([[[1.0, 0, 0], [0, 1.0, 0]]], np.float32))], view)
    inside = view[0, 0] > 100
    assert inside.sum().item() == pytest.approx(np.pi * 16**2, rel=0.03)
    rows, columns = torch.nonzero(inside, as_tuple=True)
    assert rows.float().mean().item() == pytest.approx(31.5, abs=0.6)
    assert columns.float().mean().item() == pytest.approx(79.5, abs=0.6)
    assert view[0, 1:].max() == 0


def test_half_precision_draws_the_same_strokes() -> None:
    plans = [Generator(seed=2).plan(i, 8) for i in range(12)]
    for plan in plans:
        if plan.shapes is not None:
            moments = len(plan.shapes.lens)
            exact, half = torch.full((moments, 3, 64, 64), 90.0), torch.full((moments, 3, 64, 64), 90.0).half()
            draw_strokes([plan.shapes], exact)
            draw_strokes([plan.shapes], half)
            assert torch.isfinite(half).all()
            assert (exact - half.float()).abs().mean() < 0.5


def test_footage_needs_its_bank(clips: ClipBank) -> None:
    plans = Generator(GeneratorConfig(motion=0, procedural=0), clips=clips).plans(0, 4, 8)
    with pytest.raises(ValueError, match="no clip bank"):
        render(plans, device="cpu", size=32)
    with pytest.raises(ValueError, match="expected one length"):
        render([*plans, Generator(seed=0).plan(0, 9)], device="cpu", size=32)


def test_the_cpu_is_fast_enough_for_tests_and_samples() -> None:
    generator = Generator(seed=0)
    plans = generator.plans(0, 4, 32)
    start = time.process_time()
    generator.render(plans, device="cpu", size=64)
    assert (time.process_time() - start) / (4 * 32) < 0.05, "seconds a frame of 64 × 64"


def test_filmed_repetitions_are_played_one_after_another_and_back(clips: ClipBank, tmp_path: Path) -> None:
    table = tmp_path / "filmed.csv"
    table.write_text("file,borders_s\ncircles,0 1.6 3.2\n")
    bank = clips.with_filmed_repetitions(table)
    config = replace(STEADY, clips=1.0, motion=0.0, procedural=0.0, filmed=1.0, sprite_from_clip=0.0, negative=0.0)
    maker = Generator(config, clips=bank, seed=5)
    plans = [plan for index in range(40) if (plan := maker.plan(index, 96)).kind == "clips:filmed" and plan.footage]
    assert len(plans) > 20
    shown = set()
    for plan in plans:
        assert plan.alternates is None and not plan.side_spans
        at = plan.footage.first[:: plan.subframes] - 72  # type: ignore[union-attr]
        for (start, end), (later, _) in zip(plan.spans, plan.spans[1:], strict=False):
            if end - start > 6 and plan.subframes == 1 and end == later and end < 95:
                film = at[int(np.ceil(start)) : int(end)]
                steps = np.diff(film)
                assert (steps >= 0).all() or (steps <= 0).all(), "a repetition runs one way through the film"
                passed = abs(float(film[-1] - film[0]))
                assert abs(passed - 24 * (len(film) - 1) / (end - start)) <= 2, "a whole one in the time it has"
                shown.add(bool((steps >= 0).all()))
    assert shown == {True, False}, "where the film is over it runs back"


def test_a_coarse_codec_keeps_large_motion_and_drops_small() -> None:
    frames = torch.full((2, 16, 3, 16, 16), 100.0)
    for t in range(16):
        frames[0, t, :, 4:8, t : t + 4] = 220.0  # a bright square passes
        frames[1, t, :, 4:8, 4:8] += t % 2  # one level of flicker
    coded = squeeze_frames(frames, torch.tensor([40.0, 40.0]), seeds=[1, 1])
    assert coded.shape == frames.shape
    assert (coded[0] - frames[0]).abs().mean() < 12 and (coded[0] - frames[0]).abs().max() > 3
    assert (coded[1, 1:8] - coded[1, :7]).abs().max() < 1e-3, "too small a change is not shown"
    fine = squeeze_frames(frames, torch.tensor([0.5, 0.5]), seeds=[1, 1])
    assert (fine - frames).abs().max() < 1.5


def test_squeezed_videos_are_drawn_where_the_recipe_asks_for_them() -> None:
    config = GeneratorConfig(clips=0.0, motion=0.0, procedural=1.0, negative=0.0)
    plain, squeezed = (Generator(replace(config, squeeze=share), seed=2).plan(7, 32) for share in (0.0, 1.0))
    assert plain.finish.squeeze == 0.0 and 12.0 <= squeezed.finish.squeeze <= 70.0
    assert plain.spans == squeezed.spans, "nothing else about the video is drawn anew"
    before, after = (render([plan], device="cpu", size=32).frames_BTCHW.float() for plan in (plain, squeezed))
    assert (before - after).abs().mean() > 0.5


def test_a_light_that_flashes_is_no_repetition_and_stays_in_its_place() -> None:
    config = GeneratorConfig(
        clips=0.0, motion=0.0, procedural=1.0, negative=0.9, single=0.0, sibling=0.0, negative_light=1e6, noise=0.0
    )
    plain, flashing = (Generator(replace(config, flash=share), seed=2) for share in (0.0, 1.0))
    for index in range(12):
        before, plan = plain.plan(index, 64), flashing.plan(index, 64)
        assert plan.spans == before.spans, "nothing else about the video is drawn anew"
        assert len(before.finish.flash) == 0
    lit = [plan for plan in (flashing.plan(index, 64) for index in range(12)) if plan.kind == "negative:light"]
    lit = [plan for plan in lit if len(plan.finish.flash)]
    assert lit and all(plan.spans == () for plan in lit)
    for plan in lit:
        on = plan.finish.flash > 0
        lengths = np.diff(np.flatnonzero(np.diff(on.astype(int))))
        assert 0 < on.mean() < 1 and (len(lengths) < 4 or np.std(lengths) > 0), "no rhythm"
    still = replace(
        lit[0].finish, flicker=np.zeros(0, np.float32), spot=(0.25, 0.25, 0.05), shown=lit[0].finish.shown[:0]
    )
    grey = torch.full((1, 64, 3, 64, 64), 40.0)
    frames = finish_frames([replace(still, boxes=still.boxes[:0], noise=0.0, squeeze=0.0)], [1], grey).float()
    brighter = (frames.amax(1) - frames.amin(1))[0, 0]
    assert brighter[16, 16] > 3 * brighter[48, 48] > 0
