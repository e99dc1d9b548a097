"""A bank of motion capture: twenty joints over time, and the stretches of it that can be repeated."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from escounts.errors import DataError
from escounts.synthetic.segments import Mining, Segments, mine

JOINTS = (
    "Hips", "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase", "RightUpLeg", "RightLeg", "RightFoot",
    "RightToeBase", "Spine", "Spine1", "Neck1", "Head", "Head_end", "LeftArm", "LeftForeArm", "LeftHand",
    "RightArm", "RightForeArm", "RightHand",
)  # fmt: skip
MIRROR = np.array([0, 5, 6, 7, 8, 1, 2, 3, 4, 9, 10, 11, 12, 13, 17, 18, 19, 14, 15, 16])
"""Where each joint goes when left and right are swapped."""
MOTION_MINING = Mining(moves=0.13, still=0.04, returns=0.35, per_recording=16)
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
        self._walking = [i for i, text in enumerate(descriptions) if text.strip().lower().startswith("walk")]
        if joints.shape[1:] != (len(JOINTS), 3) or self.offsets[-1] != len(joints):
            raise DataError(
                f"joints have the shape {joints.shape} and offsets end at {self.offsets[-1]}, "
                f"expected (N, {len(JOINTS)}, 3) and N"
            )
        self.segments = segments if segments is not None else self._mine()

    @classmethod
    def from_npz(cls, npz: str | Path, table: str | Path, *, segments: str | Path | None = None) -> MotionBank:
        """Read positions stored as int16 steps of 1/1000 body height (delta, offsets, joints) and their table.

        table: CSV with the columns trial and description. segments: rows saved before, to save the mining.
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
        known = Segments.load(segments, names) if segments is not None else None
        return cls(joints, list(offsets), names, [row["description"] for row in rows], known)

    def save(self, path: str | Path) -> None:
        """Write the mined segments, not the motion."""
        self.segments.save(path, self.names)

    def walking(self) -> list[int]:
        """The trials in which somebody walks somewhere."""
        return self._walking

    def _mine(self) -> Segments:
        return Segments.joined(
            mine(trial, pose_features(self.joints[first:last]), MOTION_MINING, TYPICAL)
            for trial, (first, last) in enumerate(pairwise(self.offsets))
            if last - first >= 12
        )


def pose_features(joints: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(n, 60) joints relative to where the hips are over the floor; the height stays, for jumps."""
    centred = joints.copy()
    centred[:, :, (0, 2)] -= joints[:, :1, (0, 2)]
    return centred.reshape(len(joints), -1)
