"""Generated videos on disk in the form of RepCount, so that the whole chain runs anywhere.

They come from the project's one generator (`escounts.synthetic`), drawn by code alone; each split has a seed of its
own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escounts.errors import DataError
from escounts.output.text import csv_text
from escounts.research.datasets import timed
from escounts.research.datasets.annotations import Dataset
from escounts.synthetic import Generator, synthetic_videos
from escounts.synthetic.generator import DATASET
from escounts.system.atomic_files import write_bytes

if TYPE_CHECKING:
    from escounts.synthetic import SyntheticVideo

SEEDS = {"train": 11, "valid": 22, "test": 33}
MADE = "made.json"


@dataclass(frozen=True)
class SyntheticSet:
    """What to draw: videos of each split, frames a second, height and width, shortest and longest in seconds.

    period: shortest and longest repetition in frames. calm: a still or gentle camera and one action per video.
    """

    train: int = 160
    valid: int = 16
    test: int = 48
    fps: float = 15.0
    size: tuple[int, int] = (128, 160)
    seconds: tuple[float, float] = (5.0, 12.0)
    period: tuple[float, float] = (6.0, 60.0)
    calm: bool = False
    seed: int = 0

    def seed_of(self, split: str) -> int:
        """The seed of a split's videos."""
        return SEEDS[split] + 1000 * self.seed

    def generator(self, split: str) -> Generator:
        """What decides the videos of a split."""
        config = replace(DATASET, period=self.period, **(CALM if self.calm else {}))
        return Generator(config, seed=self.seed_of(split))


QUICK = SyntheticSet(
    train=144, valid=8, test=40, fps=10.0, size=(96, 96), seconds=(8.0, 8.0), period=(4.0, 30.0), calm=True
)
"""Small, calm, and of one length, so that a quick table is quick."""

CALM: Mapping[str, Any] = {
    "camera_still": 0.6,
    "camera_gentle": 0.4,
    "camera_strong": 0.0,
    "camera_fast": 0.0,
    "shake": 0.1,
    "pan": 0.0,
    "zoom": 0.0,
    "second_action": 0.0,
}


def load_generated(root: Path) -> Dataset:
    """The generated dataset under root; make it first with create()."""
    if not (root / MADE).exists():
        raise DataError(
            f"{root} holds no generated dataset; make one with: escounts data make synthetic --root {root}"
        )
    return replace(timed.load_repcount(root), name="synthetic", published={})


def create(root: Path, what: SyntheticSet | None = None) -> Dataset:
    """Draw the videos and write them with their label tables; a finished set of the same kind is kept."""
    what = what or SyntheticSet()
    made = (json.dumps(asdict(what), sort_keys=True) + "\n").encode()
    if (root / MADE).exists() and (root / MADE).read_bytes() == made:
        return load_generated(root)
    begun = root / f"{MADE}.begun"
    if root.exists() and any(root.iterdir()) and not (root / MADE).exists() and not begun.exists():
        raise DataError(
            f"{root} holds files and no generated dataset; nothing was changed. Choose a new or empty folder"
        )
    write_bytes(begun, made)  # a run that was stopped goes on; somebody's own dataset has no such file
    (root / "annotation").mkdir(parents=True, exist_ok=True)
    for split in timed.REPCOUNT_SPLITS:
        folder = root / "video" / split
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        drawn = synthetic_videos(getattr(what, split), what.seed_of(split), generator=what.generator(split),
                                 fps=what.fps, size=what.size, seconds=what.seconds)  # fmt: skip
        for video in drawn:
            name = f"{split}_{video.name}.mp4"
            write_video(folder / name, video)
            rows.append(_row(name, video))
        write_bytes(root / "annotation" / f"{split}.csv", _table(rows))
    write_bytes(root / MADE, made)
    begun.unlink()
    return load_generated(root)


def write_video(path: Path, video: SyntheticVideo) -> None:
    """An H.264 file of the frames, whole or absent: the same bytes every time.

    x264's fastest instructions are not the same twice on noisy frames; "cpu-independent" does without them.
    """
    from escounts.output.mp4 import write_movie  # noqa: PLC0415 - PyAV: a machine that only trains need not have it

    height, width = video.frames.shape[1:3]
    write_movie(
        path,
        video.frames,
        size=(width, height),
        rate=Fraction(video.fps).limit_denominator(1001),
        options={"crf": "20", "preset": "veryfast", "threads": "1", "x264-params": "cpu-independent=1"},
    )


def _row(name: str, video: SyntheticVideo) -> dict[str, object]:
    frames = len(video.frames)
    row: dict[str, object] = {"type": video.action, "name": name, "count": len(video.spans)}
    edges = [edge for span in video.spans for edge in span]
    row |= {f"L{place}": round(edge * video.fps, 3) for place, edge in enumerate(edges, start=1)}
    return row | {"fps": video.fps, "duration": frames / video.fps, "num_frames": frames}


def _table(rows: list[dict[str, object]]) -> bytes:
    most = max((len([key for key in row if key.startswith("L")]) for row in rows), default=0)
    labels = [f"L{place}" for place in range(1, most + 1)]
    columns = ["type", "name", "count", *labels, "fps", "duration", "num_frames"]
    return csv_text(columns, ([row.get(column) for column in columns] for row in rows)).encode()
