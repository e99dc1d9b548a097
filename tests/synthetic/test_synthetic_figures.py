"""Bodies: parametric exercises, sides, pose tracks, viewpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from escounts.synthetic import MotionBank
from escounts.synthetic.actions import Action
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.exercises import (
    CYCLES,
    FOREARM,
    ONE_SIDED,
    SHIN,
    THERE_AND_BACK,
    THIGH,
    TWO_SIDED,
    exercise_poses,
)
from escounts.synthetic.figures import View, _limb_colour, draw_body, draw_view, project, proportioned
from escounts.synthetic.motion import (
    JOINTS,
    MIRROR,
    action_poses,
    alternate,
    is_two_sided,
    mirrored,
    one_sidedness,
    settled,
)
from escounts.synthetic.timeline import Timeline, clock_of, frame_times, seeded

ALONG = np.linspace(0, 1, 21)
EVERY = [*THERE_AND_BACK, *CYCLES]


@pytest.mark.parametrize("name", EVERY)
def test_bones_keep_their_length(name: str) -> None:
    joints = exercise_poses(name, ALONG)
    for first, last, length in ((1, 2, THIGH), (2, 3, SHIN), (5, 6, THIGH), (15, 16, FOREARM), (18, 19, FOREARM)):
        np.testing.assert_allclose(np.linalg.norm(joints[:, first] - joints[:, last], axis=1), length, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_exercises_move_and_stay_above_the_floor(name: str) -> None:
    joints = exercise_poses(name, ALONG)
    assert np.ptp(joints, axis=0).max() > 0.04
    assert joints[..., 1].min() > -0.12
    if name in CYCLES:
        np.testing.assert_allclose(joints[0], joints[-1], atol=1e-6)


def test_unknown_exercise_lists_the_known() -> None:
    with pytest.raises(ValueError, match="squat"):
        exercise_poses("levitate", ALONG)


def test_swapping_sides_twice_changes_nothing() -> None:
    joints = exercise_poses("punch", ALONG)
    np.testing.assert_allclose(mirrored(mirrored(joints)), joints, atol=1e-12)
    assert [JOINTS[i].replace("Left", "Right") for i in range(1, 5)] == [JOINTS[MIRROR[i]] for i in range(1, 5)]


@pytest.mark.parametrize("name", ONE_SIDED)
def test_alternating_has_no_jump_at_rest_and_mirrors_the_sides(name: str) -> None:
    rest = exercise_poses(name, np.zeros(1))
    moving = exercise_poses(name, ALONG)
    full = np.broadcast_to(rest, moving.shape)
    left, right = (alternate(moving, full, np.full(21, side)) for side in (0, 1))
    np.testing.assert_allclose(left[0], right[0], atol=1e-9)
    np.testing.assert_allclose(mirrored(left), right, atol=1e-6)


def test_settled_bodies_face_forward_over_the_origin(motion: MotionBank) -> None:
    pose = motion.joints[70].astype(np.float64)
    turn = np.array([[np.cos(2.0), 0, np.sin(2.0)], [0, 1, 0], [-np.sin(2.0), 0, np.cos(2.0)]])
    turned = pose @ turn.T + np.array([3.0, 0.0, -1.0])
    upright = settled(turned[None], turned)[0]
    np.testing.assert_allclose(upright[0, (0, 2)], 0, atol=1e-9)
    across = upright[1] - upright[5]
    assert across[0] > 0 and abs(across[2]) < 1e-6
    np.testing.assert_allclose(upright, settled(pose[None], pose)[0], atol=1e-6)


def test_cycles_of_motion_close(motion: MotionBank) -> None:
    walk = motion.segments.cycle[motion.segments.cycle[:, 0] == 0][0]
    segment = (int(walk[0]), int(walk[1]), int(walk[2]))
    action = Action("motion", "motion:cycle:x", "cycle", 12.0, 0, False, 0.5, 0.5, (0.0, 0.0), segment)
    timeline = Timeline(48, 12.0, tuple((12.0 * i, 12.0 * (i + 1)) for i in range(4)))
    clock = clock_of(timeline, frame_times(48, 1, 1.0))
    poses = action_poses(seeded(0), GeneratorConfig(reach=0.0), motion, action, clock)
    np.testing.assert_allclose(poses[:12], poses[12:24], atol=1e-9)
    steps = np.abs(np.diff(poses, axis=0)).max((1, 2))
    assert steps[11] < 2.5 * np.median(steps), "no jump where one repetition ends and the next begins"


def test_viewpoints_keep_the_performer_in_the_picture() -> None:
    joints = exercise_poses("jumping-jack", ALONG)
    for seed in range(30):
        aspect = float(seeded(seed, 1).uniform(0.6, 1.7))
        view = draw_view(seeded(seed), joints, config=GeneratorConfig(upper_body=0.0), times=ALONG, aspect=aspect)
        x, y, _ = project(view, joints)
        half = np.sqrt(aspect), 1 / np.sqrt(aspect)
        inside = (np.abs(x) < 1.1 * half[0]) & (np.abs(y) < 1.1 * half[1])
        assert inside.mean() > 0.9


def test_bodies_differ_but_stand_on_the_same_floor() -> None:
    joints = exercise_poses("squat", ALONG)
    shapes = [proportioned(draw_body(seeded(seed), GeneratorConfig()), joints) for seed in range(5)]
    for shape in shapes:
        np.testing.assert_allclose(shape[0, 3, 1], joints[0, 3, 1], atol=0.03)
    assert np.abs(shapes[0] - shapes[1]).max() > 0.005


def test_kicks_are_one_sided_and_squats_are_not(motion: MotionBank) -> None:
    assert one_sidedness(motion, (3, 0, 15)) > 1.2
    assert one_sidedness(motion, (1, 0, 10)) < 0.1


def test_steps_are_two_sided_cycles_and_kicks_are_not(motion: MotionBank) -> None:
    assert is_two_sided(motion, (0, 3, 12)) is True
    assert is_two_sided(motion, (3, 0, 30)) is False  # the same leg every time
    assert is_two_sided(motion, (1, 0, 20)) is False  # both at once


@pytest.mark.parametrize("name", TWO_SIDED)
def test_the_second_half_is_the_first_on_the_other_side(name: str) -> None:
    half = np.linspace(0, 0.5, 11)
    left, right = exercise_poses(name, half), exercise_poses(name, half + 0.5)
    np.testing.assert_allclose(right, mirrored(left), atol=1e-6)
    assert np.abs(right - left).max() > 0.05  # the sides can be told apart


def test_the_far_leg_is_darker() -> None:
    joints = exercise_poses("pedal", ALONG)
    body = replace(draw_body(seeded(1), GeneratorConfig(odd_limb=0.0)), far_shade=0.4)
    view = View(azimuth=np.pi / 2, elevation=0.1, size=1.0, x=0.0, y=0.0, middle=(0.0, 0.0, 0.0))
    _, _, depth = project(view, joints)
    left, right = _limb_colour(body, 5, depth), _limb_colour(body, 8, depth)
    near, far = (left, right) if depth[:, 2].mean() < depth[:, 6].mean() else (right, left)
    np.testing.assert_allclose(far, 0.6 * np.array(near), atol=1e-6)
    assert near == body.colours["trousers"]
