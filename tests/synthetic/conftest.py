"""Small banks made by code, so that the generator's tests need no footage."""

from __future__ import annotations

import numpy as np
import pytest

from escounts.synthetic import ClipBank, Generator, MotionBank
from escounts.synthetic.exercises import exercise_poses


@pytest.fixture(scope="session")
def clips() -> ClipBank:
    """Three clips of 72 frames, 48 × 48: a soft ball that passes, one that circles every 24 frames, a still."""
    rng = np.random.default_rng(0)
    texture = rng.integers(40, 120, (48, 48, 1)).astype(float)
    rows, columns = np.mgrid[0:48, 0:48]

    def with_ball(x: float, y: float) -> np.ndarray:
        cover = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / 120.0)[..., None]
        return np.repeat(texture * (1 - cover) + 240 * cover, 3, 2)

    turns = np.arange(72) / 24 * 2 * np.pi
    frames = [with_ball(4 + i * 40 / 71, 24) for i in range(72)]
    frames += [with_ball(24 + 14 * np.cos(turn), 24 + 14 * np.sin(turn)) for turn in turns]
    frames += [np.repeat(texture, 3, 2)] * 72
    return ClipBank(np.stack(frames).astype(np.uint8), [0, 72, 144, 216], ["passes", "circles", "still"])


@pytest.fixture(scope="session")
def motion() -> MotionBank:
    """Four trials of 60 frames: somebody walks, squats three times, bows slowly once, kicks twice."""
    time = np.arange(60)
    tracks = [
        exercise_poses("run", (time / 12.0) % 1.0),
        exercise_poses("squat", 0.5 - 0.5 * np.cos(time / 20 * 2 * np.pi)),
        exercise_poses("bow", time / 59.0),
        exercise_poses("kick", 0.5 - 0.5 * np.cos(time / 30 * 2 * np.pi)),
    ]
    tracks[0][:, :, 2] += 0.03 * time[:, None]
    joints = np.concatenate(tracks).astype(np.float32)
    return MotionBank(joints, [0, 60, 120, 180, 240], ["a", "b", "c", "d"], ["walk", "squat", "bow", "kick"])


@pytest.fixture(scope="session")
def generator(clips: ClipBank, motion: MotionBank) -> Generator:
    return Generator(clips=clips, motion=motion, seed=3)
