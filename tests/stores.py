"""A tiny dataset with tokens that are made up but can be learnt from: for tests of stores, tasks and runs."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from movies import bouncing, write_movie

from escounts.research.datasets.annotations import Dataset, VideoAnnotation, assemble
from escounts.research.datasets.stores import save_labels
from escounts.research.datasets.tokens import TokenLayout, TokenStore, TokenWriter, VideoTokens

LAYOUT = TokenLayout(
    encoder="patches",
    identity="0123456789abcdef",
    channels=8,
    grid=(2, 2),
    exemplar_grid=(2, 2),
    exemplar_cells=4,
    window_cells=8,
    every=4,
    fps=None,
    frames_per_cell=2,
    offsets=(0, 2, 4, 6),
    exemplars=3,
)
FPS = 8.0
STEP = LAYOUT.step(FPS)


def video(name: str, *, split: str = "train", action: str = "a", count: int = 3, cells: int = 24) -> VideoAnnotation:
    """Repetitions of even length over the whole video."""
    edges = np.linspace(0, cells * STEP, count + 1)
    spans = tuple((float(a), float(b)) for a, b in pairwise(edges))
    return VideoAnnotation(name, f"{name}.mp4", action, count, spans, FPS, cells * STEP, split)


def tokens(annotation: VideoAnnotation, *, seed: int = 0) -> VideoTokens:
    """A wave whose phase runs once through every repetition, on a little noise."""
    assert annotation.duration is not None
    cells = round(annotation.duration / STEP)
    rng = np.random.default_rng((seed, len(annotation.name), cells))
    phase = np.interp(
        (np.arange(cells) + 0.5) * STEP,
        [0.0, *(end for _, end in annotation.spans)],
        np.arange(annotation.count + 1),
    )
    waves = np.stack([np.sin(2 * np.pi * phase * (k // 2 + 1) + k % 2 * np.pi / 2) for k in range(8)], -1)
    values = waves[:, None, None, :] + 0.05 * rng.normal(size=(cells, 2, 2, 8))
    whole = torch.from_numpy(values.astype(np.float16))
    spans = annotation.exemplars[: LAYOUT.exemplars]
    shots = [
        whole[np.clip((np.linspace(a, b, 4, endpoint=False) / STEP).astype(int), 0, cells - 1)] for a, b in spans
    ]
    return VideoTokens(
        name=annotation.name,
        sequences={offset: whole[offset:] for offset in LAYOUT.offsets if offset < cells},
        exemplars=torch.stack(shots) if shots else torch.zeros(0, 4, 2, 2, 8, dtype=torch.float16),
        exemplar_spans=np.array(spans, dtype=np.float64).reshape(-1, 2),
        step=STEP,
        duration=annotation.duration,
    )


def store(folder: Path, videos: list[VideoAnnotation], *, name: str = "toy") -> tuple[TokenStore, Dataset]:
    """The videos' tokens on disk with their labels."""
    with TokenWriter(folder, LAYOUT) as writer:
        for annotation in videos:
            writer.write(tokens(annotation))
        made = writer.finish()
    rows = {split: sum(v.split == split for v in videos) for split in ("train", "valid", "test")}
    dataset = assemble(name, videos, rows)
    save_labels(folder, dataset)
    return made, dataset


def repcount(root: Path, lengths: dict[str, int], *, absent: tuple[str, ...] = ()) -> Path:
    """Files of RepCount's form: tables and test videos of so many frames, three repetitions each."""
    for split in ("train", "valid", "test"):
        (root / "annotation").mkdir(parents=True, exist_ok=True)
        (root / "video" / split).mkdir(parents=True, exist_ok=True)
        rows = lengths if split == "test" else {f"{split}1.mp4": 30}
        with (root / "annotation" / f"{split}.csv").open("w", newline="") as handle:
            writer = csv.writer(handle)
            labels = [f"L{k}" for k in range(1, 7)]
            writer.writerow(["", "type", "name", "count", *labels, "fps", "duration", "num_frames"])
            for place, (name, frames) in enumerate(rows.items()):
                edges = [round(k * frames / 3) for k in (0, 1, 1, 2, 2, 3)]
                writer.writerow([place, "squat", name, 3, *edges, 30, frames / 30, frames])
                if name not in absent:
                    write_movie(root / "video" / split / name, bouncing(3, frames / 30, size=(48, 32)), rate=30)
    return root
