"""QUVA Repetition: 100 videos, each with a `.npy` of the frames at which its repetitions end.

As published: `QUVARepetitionDataset/videos/000_rope_beach.mp4` and `annotations/000_rope_beach.npy`, one whole
number per repetition. The dataset is for testing only: every video is in the split `test`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from escounts.datasets.annotations import Dataset, Problem, VideoAnnotation, assemble
from escounts.errors import DataError, VideoError

LABEL_FOLDERS = ("annotations", "annotation", "")
VIDEO_FOLDERS = ("videos/{file}", "video/{file}", "{file}")
PUBLISHED = {"test": 100}
FALLBACK_FPS = 25.0
"""Of a video that is not here; its labels are then listed and never used."""

FrameRate = Callable[[Path], float]


def load(root: Path, *, frame_rate: FrameRate | None = None) -> Dataset:
    """QUVA from `annotations/NAME.npy` and `videos/NAME.mp4`; frame_rate: frames a second of a video file.

    A video repeats from its first frame on: the first repetition starts at 0, each following one at the end before.
    """
    folder = next((root / name for name in LABEL_FOLDERS if _label_files(root / name)), None)
    if folder is None:
        looked = ", ".join(str(root / name) for name in LABEL_FOLDERS)
        raise DataError(f"no QUVA annotations (NAME.npy); looked in {looked}")
    files = _label_files(folder)
    found = [_video(path, root, frame_rate or video_fps) for path in files]
    return assemble("quva", found, {"test": len(files)}, published=PUBLISHED, video_folders=VIDEO_FOLDERS)


def video_fps(path: Path) -> float:
    """Frames a second of a video file, by opening it."""
    from escounts.video import Video  # noqa: PLC0415 - PyAV: reading labels without videos needs none

    return float(Video(path).info.fps)


def _label_files(folder: Path) -> list[Path]:
    """The annotations of a folder, without the `._NAME` files that macOS put into the published archive."""
    return sorted(path for path in folder.glob("*.npy") if not path.name.startswith("."))


def _video(path: Path, root: Path, frame_rate: FrameRate) -> VideoAnnotation | Problem:
    try:
        with path.open("rb") as opened:  # np.load would also take a zip, and look into it
            ends = np.sort(np.lib.format.read_array(opened, allow_pickle=False).astype(np.float64).ravel())
    except Exception as error:  # of a damaged header numpy raises whatever its parser of Python text meets
        return Problem("test", path.stem, f"{path.name} cannot be read: {error}", unusable=True)
    if not np.isfinite(ends).all() or (ends < 0).any():
        return Problem("test", path.stem, f"{path.name} holds a frame number that cannot be", unusable=True)
    file = f"{path.stem}.mp4"
    here = next((root / p.format(file=file) for p in VIDEO_FOLDERS if (root / p.format(file=file)).exists()), None)
    problems: tuple[str, ...] = ()
    fps = FALLBACK_FPS
    if here is not None:
        try:
            fps = frame_rate(here)
        except VideoError as error:
            problems = (f"its frame rate cannot be read ({error}): {FALLBACK_FPS:g} assumed",)
    edges = [0.0, *(float(end) / fps for end in ends)]
    return VideoAnnotation(
        name=path.stem,
        file=file,
        action=path.stem.split("_", 1)[-1],
        count=len(ends),
        spans=tuple(pairwise(edges)),
        fps=fps,
        duration=None,
        split="test",
        problems=problems,
    )
