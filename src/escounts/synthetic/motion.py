"""Motion capture: a bank of twenty joints over time and the stretches of it that can be repeated, and pose tracks
(F, 20, 3) from it: a performer's joints at every drawn moment."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from escounts.errors import DataError
from escounts.synthetic.actions import (
    Action,
    Mining,
    Row,
    Segments,
    by_processes,
    mine,
    pick_segment,
    progress,
    reaches,
)
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.timeline import AFTER, BEFORE, LEAD_STILL, Clock, Floats, chance, eased, smooth_noise

JOINTS = (
    "Hips", "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase", "RightUpLeg", "RightLeg", "RightFoot",
    "RightToeBase", "Spine", "Spine1", "Neck1", "Head", "Head_end", "LeftArm", "LeftForeArm", "LeftHand",
    "RightArm", "RightForeArm", "RightHand",
)  # fmt: skip
MIRROR = np.array([0, 5, 6, 7, 8, 1, 2, 3, 4, 9, 10, 11, 12, 13, 17, 18, 19, 14, 15, 16])
"""Where each joint goes when left and right are swapped."""
MOTION_MINING = Mining(moves=0.13, still=0.04, returns=0.35, per_recording=16)
TWO_SIDED_BELOW, ONE_SIDED_ABOVE = 0.7, 1.1
"""How unlike a cycle's halves are, the second mirrored (0 the same, 2 the opposite), as a part of the motion."""
TYPICAL = 1.0
"""Length of a pose's feature row the thresholds refer to, in body heights."""


class MotionBank:
    """joints (N, 20, 3) positions in body heights, y up, 15 a second; trial i is offsets[i]:offsets[i + 1]."""

    def __init__(
        self,
        joints: npt.NDArray[np.float32],
        offsets: Sequence[int],
        names: Sequence[str],
        descriptions: Sequence[str],
        segments: Segments | None = None,
    ):
        self.joints = joints
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.names = list(names)
        self.descriptions = list(descriptions)
        self.walking = [i for i, text in enumerate(descriptions) if text.strip().lower().startswith("walk")]
        """The trials in which somebody walks somewhere."""
        if joints.shape[1:] != (len(JOINTS), 3) or self.offsets[-1] != len(joints):
            raise DataError(
                f"joints have the shape {joints.shape} and offsets end at {self.offsets[-1]}, "
                f"expected (N, {len(JOINTS)}, 3) and N"
            )
        self.segments = segments if segments is not None else self._mine(1)

    @classmethod
    def from_npz(cls, npz: str | Path, table: str | Path, *, workers: int = 1) -> MotionBank:
        """Read positions stored as int16 steps of 1/1000 body height (delta, offsets, joints) and their table.

        table: CSV with the columns trial and description. workers: processes that mine.
        """
        for path in (npz, table):
            if not Path(path).is_file():
                raise DataError(f"no motion capture at {path}: expected motions.npz and motions.csv")
        with np.load(npz) as stored:
            if tuple(str(name) for name in stored["joints"]) != JOINTS:
                raise DataError(f"{npz} has other joints than the {len(JOINTS)} that figures are drawn from")
            delta, offsets = stored["delta"], stored["offsets"].astype(np.int64)
        joints = np.empty(delta.shape, np.float32)
        for first, last in pairwise(offsets):
            joints[first:last] = np.cumsum(delta[first:last], axis=0, dtype=np.int32) / 1000
        with open(table, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if len(rows) != len(offsets) - 1:
            raise DataError(f"{table} lists {len(rows)} trials, {npz} holds {len(offsets) - 1}: not one pair")
        names = [row["trial"] for row in rows]
        bank = cls(joints, list(offsets), names, [row["description"] for row in rows], Segments.joined([]))
        bank.segments = bank._mine(workers)
        return bank

    def _mine(self, workers: int) -> Segments:
        bounds = [row for row in enumerate(pairwise(self.offsets)) if row[1][1] - row[1][0] >= 12]

        def one(index: int) -> Segments:
            trial, (first, last) = bounds[index]
            return mine(trial, pose_features(self.joints[first:last]), MOTION_MINING, TYPICAL)

        return Segments.joined(by_processes(one, len(bounds), workers))


def pose_features(joints: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(n, 60) joints relative to where the hips are over the floor; the height stays, for jumps."""
    centred = joints.copy()
    centred[:, :, (0, 2)] -= joints[:, :1, (0, 2)]
    return centred.reshape(len(joints), -1)


Joints = npt.NDArray[np.float64]


def at_positions(bank: MotionBank, at: Floats) -> Joints:
    """(F, 20, 3) joints at fractional positions in the bank."""
    at = np.clip(at, 0, len(bank.joints) - 1)
    left = np.minimum(at.astype(np.int64), len(bank.joints) - 2)
    part = (at - left)[:, None, None]
    between: Joints = bank.joints[left] * (1 - part) + bank.joints[left + 1] * part
    return between


def settled(joints: Joints, by: Joints) -> Joints:
    """Joints moved and turned as a whole so that in the pose `by` (20, 3) the body is over the origin, facing z.

    Left is +x then, which is what swapping the sides relies on.
    """
    across = by[1] - by[5]
    angle = np.arctan2(across[2], across[0])
    cos, sin = np.cos(angle), np.sin(angle)
    moved: Joints = joints - by[0] * np.array([1.0, 0.0, 1.0])
    x, z = moved[..., 0].copy(), moved[..., 2].copy()
    moved[..., 0], moved[..., 2] = cos * x + sin * z, cos * z - sin * x
    return moved


def on_the_spot(joints: Joints) -> Joints:
    """Every pose with its hips over the origin."""
    still: Joints = joints - joints[:, :1] * np.array([1.0, 0.0, 1.0])
    return still


def mirrored(joints: Joints) -> Joints:
    """Left and right limbs swapped, seen from the same side: x changes its sign about the hips."""
    swapped = joints[:, MIRROR].copy()
    swapped[..., 0] = 2 * joints[:, :1, 0] - swapped[..., 0]
    return swapped


def alternate(joints: Joints, rest: Joints, side: npt.NDArray[np.int64]) -> Joints:
    """Do the motion to the one side and then the other, without a jump: deviations from a symmetric rest."""
    even = 0.5 * (rest + mirrored(rest))
    moved = joints - rest
    other = moved[:, MIRROR] * np.array([-1.0, 1.0, 1.0])
    result: Joints = even + np.where((side == 1)[:, None, None], other, moved)
    return result


def one_sidedness(bank: MotionBank, segment: Row) -> float:
    """How much a stretch differs from its mirror image: 0 the same, √2 only one side moves, 2 the opposite."""
    first = int(bank.offsets[segment[0]]) + segment[1]
    rest = bank.joints[first].astype(np.float64)
    ends = settled(bank.joints[[first, first + segment[2]]].astype(np.float64), rest)
    moved = ends[1] - ends[0]
    other = moved[MIRROR] * np.array([-1.0, 1.0, 1.0])
    return float(np.linalg.norm(moved - other) / (np.linalg.norm(moved) + 1e-6))


def is_two_sided(bank: MotionBank, segment: Row) -> bool | None:
    """Whether a natural cycle does on the right in its second half what it did on the left in its first, as walking
    does; None between. Of 400 cycles of the CMU trials a third are two-sided, almost all of them steps."""
    first, length = float(bank.offsets[segment[0]]) + segment[1], segment[2]
    poses = on_the_spot(at_positions(bank, first + length * np.arange(16) / 16))
    facing = poses.mean(0)
    moved = settled(poses, facing)
    moved = moved - moved.mean(0)
    other = np.roll(moved, 8, axis=0)[:, MIRROR] * np.array([-1.0, 1.0, 1.0])
    unlike = float(np.linalg.norm(moved - other) / (np.linalg.norm(moved) + 1e-6))
    return True if unlike < TWO_SIDED_BELOW else False if unlike > ONE_SIDED_ABOVE else None


def action_poses(
    rng: np.random.Generator, config: GeneratorConfig, bank: MotionBank, action: Action, clock: Clock
) -> Joints:
    """The performer doing the action, at rest outside repetitions; hips start over the origin."""
    trial, start, length = action.segment
    low = float(bank.offsets[trial])
    begin = low + start
    along = progress(action, clock)
    if action.way == "back":
        along = along * reaches(rng, config, clock)
    start_pose = at_positions(bank, np.array([begin]))[0]
    poses = settled(at_positions(bank, begin + length * along), start_pose)
    rest = settled(start_pose[None], start_pose)
    if action.way != "back":
        # Close the loop: take the drift out, then spread what is left of the gap over the repetition's end.
        gap = settled(at_positions(bank, np.array([begin + length])), start_pose) - rest
        drift = gap[:, :1].copy()
        drift[..., 1] = 0
        poses = poses - along[:, None, None] * drift
        if clock.position is None:
            late = eased(np.clip((along - 0.65) / 0.35, 0, 1))
            poses = poses - late[:, None, None] * (gap - drift)
    if action.alternating:
        poses = alternate(poses, np.broadcast_to(rest, poses.shape), clock.side)
    return poses


def lead_poses(rng: np.random.Generator, bank: MotionBank, action: Action, clock: Clock, poses: Joints) -> Joints:
    """Other motion before the first and after the last repetition, blended in over a few frames."""
    trial, start, _ = action.segment
    low, high = float(bank.offsets[trial]), float(bank.offsets[trial + 1] - 1)
    walks = bank.walking
    for stage in (BEFORE, AFTER):
        where = clock.stage == stage
        draw = rng.random()
        if where.sum() < 3 or chance(rng, LEAD_STILL):
            continue
        away = clock.away(stage)
        sign = -1.0 if stage == BEFORE else 1.0
        if draw < 0.35:  # the trial as it really goes on
            at = np.clip(low + start + sign * away, low, high)
            other = settled(at_positions(bank, at), bank.joints[int(low) + start])
        elif draw < 0.75 or not walks:  # somebody does something else first
            rows = bank.segments.once if len(bank.segments.once) and chance(rng, 0.6) else bank.segments.back
            segment = pick_segment(rng, rows, float(where.sum()))
            begin = float(bank.offsets[segment[0]] + segment[1])
            other = at_positions(bank, begin + np.minimum(away * rng.uniform(0.5, 1.3), segment[2]))
            other = settled(other, bank.joints[int(begin)])
        else:  # walking in or out
            walk = int(walks[int(rng.integers(len(walks)))])
            begin, end = float(bank.offsets[walk]), float(bank.offsets[walk + 1] - 1)
            other = settled(
                at_positions(bank, np.clip(begin + away * rng.uniform(0.7, 1.4), begin, end)), bank.joints[int(begin)]
            )
            other = on_the_spot(other) + np.stack([away * rng.normal() * 0.05, 0 * away, 0 * away], -1)[:, None]
        blend = eased(np.clip(away / rng.uniform(4, 10), 0, 1) * where)[:, None, None]
        poses = poses * (1 - blend) + other * blend
    return poses


def passing_poses(rng: np.random.Generator, bank: MotionBank, times: Floats, *, walk: bool = False) -> Joints:
    """Something that does not repeat, played as it is; walk: somebody who crosses the picture."""
    walks = bank.walking
    if walk and walks:
        trial = walks[int(rng.integers(len(walks)))]
        begin, end = float(bank.offsets[trial]), float(bank.offsets[trial + 1] - 1)
        poses = on_the_spot(at_positions(bank, np.clip(begin + times * rng.uniform(0.6, 1.5), begin, end)))
        across = (times - rng.uniform(0.3, 0.7) * times.max()) * rng.uniform(0.015, 0.06) * rng.choice([-1, 1])
        crossing: Joints = poses + np.stack([across, 0 * across, 0 * across], -1)[:, None]
        return crossing
    rows = bank.segments.once if len(bank.segments.once) else bank.segments.back
    trial, start, length = pick_segment(rng, rows, float(np.ptp(times)))
    begin = float(bank.offsets[trial] + start)
    speed = min(rng.uniform(0.5, 1.4), length / (float(np.ptp(times)) + 1))
    poses = at_positions(bank, begin + np.clip(times * speed, 0, length))
    return settled(poses, poses[0])


def sway(rng: np.random.Generator, config: GeneratorConfig, clock: Clock, poses: Joints, period: float) -> Joints:
    """No repetition is like another: joints wander a little, slower than the repetitions."""
    size, far = rng.uniform(*config.sway), rng.uniform(*config.shuffle)
    drift = smooth_noise(rng, clock.times, 60, max(period, 8.0)).T.reshape(-1, 20, 3) * size
    body = smooth_noise(rng, clock.times, 3, max(2 * period, 20.0)).T[:, None] * far
    moved: Joints = poses + drift + body * np.array([1.0, 0.2, 1.0])
    return moved
