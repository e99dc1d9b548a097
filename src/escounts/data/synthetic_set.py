"""`synthetic`: generated videos on disk in the form of RepCount, so that the whole chain runs anywhere.

The videos come from the project's one generator (data/synthetic), drawn by code alone; train, valid and test
have seeds of their own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from escounts.data import repcount
from escounts.data.annotations import Dataset
from escounts.data.tokens import write_whole
from escounts.errors import DataError

if TYPE_CHECKING:
    from escounts.data.synthetic import SyntheticVideo

SIZES = {"train": 160, "valid": 16, "test": 48}
SEEDS = {"train": 11, "valid": 22, "test": 33}


def load(root: Path) -> Dataset:
    """The generated dataset under root; make it first with create()."""
    if not (root / "annotation").is_dir():
        raise DataError(f"{root} holds no generated dataset; make one with escounts data make synthetic")
    return replace(repcount.load(root), name="synthetic", published={})


def create(root: Path, *, sizes: Mapping[str, int] | None = None, seed: int = 0) -> Dataset:
    """Draw the videos and write them with their label tables; videos that are there already are kept."""
    sizes = sizes or SIZES
    for split in repcount.SPLITS:
        folder = root / "video" / split
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for video in _drawn(sizes.get(split, 0), SEEDS[split] + 1000 * seed):
            name = f"{split}_{video.name}.mp4"
            if not (folder / name).exists():
                write_video(folder / name, video)
            rows.append(_row(name, video))
        (root / "annotation").mkdir(exist_ok=True)
        write_whole(root / "annotation" / f"{split}.csv", _table(rows))
    return load(root)


def _drawn(number: int, seed: int) -> Iterator[SyntheticVideo]:
    from escounts.data.synthetic import synthetic_videos

    return iter(synthetic_videos(number, seed)) if number else iter(())


def write_video(path: Path, video: SyntheticVideo) -> None:
    """An H.264 file of the frames, whole or absent."""
    import av

    partial = path.with_suffix(".partial.mp4")
    height, width = video.frames.shape[1:3]
    with av.open(str(partial), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(video.fps).limit_denominator(1001))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"crf": "20", "preset": "veryfast", "threads": "1"}
        for image in video.frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    partial.replace(path)


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
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
