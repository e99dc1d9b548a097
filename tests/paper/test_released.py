"""The released evaluation of RepCount, reproduced: every count, every metric, and the rows on which it fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from escounts.errors import DataError
from escounts.research.datasets.registry import load_dataset
from escounts.research.metrics import obo, obz, released_mae, rmse, rounded_counts
from paper.released import frame_count, kept_cells, released_truth, stitch

FACTS = json.loads((Path(__file__).parents[1] / "golden" / "official_evaluation.json").read_text())
VIDEOS = {entry["name"]: entry for entry in FACTS["videos"]}


def stored_value(window: int, cells: int, row: int) -> np.ndarray:
    """What the golden file's rule puts into the cells of a window."""
    a = 16 * window // 8 + np.arange(cells)
    return 0.08 + 0.06 * np.sin(0.37 * a + 0.9 * ((window % 4) / 2) + 0.01 * row)  # type: ignore[no-any-return]


def map_of(frames: int, row: int) -> np.ndarray:
    """The stitched map of a video whose model is the identity."""
    windows = len(range(0, frames - 1, 16))
    maps = []
    for first, cells in zip((0, 2), kept_cells(frames), strict=True):
        whole = [stored_value(window, 8, row) for window in range(first, windows, 4)]
        maps.append((np.concatenate(whole) if whole else np.zeros(0))[:cells])
    return stitch(*maps)


@pytest.fixture(scope="module")
def order(shared: Path) -> list[str]:
    return [video.name for video in load_dataset("repcount", shared / "annotations").split("test")]


def test_every_count_and_metric_is_the_released_codes(order: list[str]) -> None:
    counts, truths = [], []
    for name, entry in VIDEOS.items():
        first, second = kept_cells(entry["num_frames"])
        assert (first, second) == (entry["cells_first"], entry["cells_second"]), name
        raw = float(map_of(entry["num_frames"], order.index(name)).sum(dtype=np.float64))
        assert raw == pytest.approx(entry["raw_count"], abs=1e-3), name
        assert rounded_counts([raw])[0] == entry["count"], name
        counts.append(raw)
        truths.append(entry["truth"])
    figures = FACTS["metrics"]
    assert len(counts) == figures["videos"] == 149
    assert released_mae(truths, counts) == pytest.approx(figures["MAE"], abs=1e-6)
    assert obo(truths, counts) == pytest.approx(figures["OBO"], abs=1e-9)
    assert obz(truths, counts) == pytest.approx(figures["OBZ"], abs=1e-9)
    assert rmse(truths, counts) == pytest.approx(figures["RMSE"], abs=1e-6)


def test_the_truth_is_the_loaders_own_and_it_fails_where_the_loader_fails(shared: Path, order: list[str]) -> None:
    dataset = load_dataset("repcount", shared / "annotations")
    differing = {}
    failing = {name: kind for name, kind, _ in FACTS["failed_in_the_released_code"]}
    for video in dataset.split("test"):
        if video.name not in VIDEOS:
            frames = frame_count(video)
            with pytest.raises(DataError, match="the released code fails here"):
                released_truth(video)
                stitch(*(np.zeros(cells) for cells in kept_cells(frames)))
            assert video.name in failing
            continue
        assert frame_count(video) == VIDEOS[video.name]["num_frames"]
        truth = released_truth(video)
        assert truth == pytest.approx(VIDEOS[video.name]["truth"], abs=1e-6), video.name
        if round(truth) != video.count:
            differing[video.name] = round(truth)
    assert differing == {"stu4_5.mp4": 41, "stu6_68.mp4": 4}
    assert len(failing) == 3


def test_the_first_cells_of_a_video_count_half() -> None:
    both = stitch(np.ones(12), np.ones(8))
    assert both.tolist() == [0.5] * 4 + [1.0] * 8
    with pytest.raises(DataError, match="two maps have 12 and 13 cells"):
        stitch(np.ones(12), np.ones(9))
