"""Two clips side by side: are both places found and counted, is one clip one place, and what does it cost?

    python benchmarks/places.py --clips DIR [--pairs 60] [--list FILE.csv] [--keep FOLDER]

DIR holds dev.csv (file, count, duration_s) and the clips it names; --list names another table of the same columns.
Each clip and the next longer one are drawn side by side at one height; the shorter one rests on its last frame. Each
pair and each clip is counted with `each=True` and without. Prints a table and writes benchmarks/results/places.json,
of another list places-LIST.json.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from labelled import read_sets
from report import RESULTS, arguments, markdown, write_json

import escounts
from escounts.output.mp4 import even_size, write_movie
from escounts.system.arrays import Image
from escounts.video.files import Video

HEIGHT = 240
"""Pixels of a pair."""
RATE = 30.0
"""Pictures a second of a pair."""


def main() -> None:
    parser = arguments(__doc__, clips=True)
    parser.add_argument("--list", type=Path, help="table of clips (default: dev.csv of --clips)")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="keep the pairs' videos in this folder")
    parser.add_argument("--out", type=Path, help="JSON file of the rows")
    options = parser.parse_args()
    named = f"places-{options.list.stem}" if options.list else "places"
    table = read_sets(options.list or options.clips / "dev.csv", options.clips)
    clips = sorted(table, key=lambda clip: clip.duration)[: options.pairs]
    counter = escounts.load("lite")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for left, right in zip(clips, clips[1:] + clips[:1], strict=True):
            path = folder / f"{left.path.stem}+{right.path.stem}.mp4"
            if not path.exists():
                beside(left.path, right.path, path)
            rows.append(measured(counter, path, [left.count, right.count]))
            rows.append(measured(counter, left.path, [left.count]))
            print(json.dumps(rows[-2]), json.dumps(rows[-1]), sep="\n", flush=True)
    print(shares(rows))
    write_json(options.out or RESULTS / f"{named}.json", rows)


def beside(left: Path, right: Path, path: Path) -> None:
    """Two videos side by side, as long as the longer one."""
    videos = [Video(left), Video(right)]
    sizes = [even_size(video.info.width * HEIGHT / video.info.height, HEIGHT) for video in videos]
    seconds = max(video.info.duration for video in videos)

    def held(video: Video, size: tuple[int, int]) -> Iterator[Image]:
        image = np.zeros((size[1], size[0], 3), np.uint8)
        for frame in video.frames(size=size, rate=RATE):
            image = frame.image
            yield image
        yield from repeat(image)

    pictures = zip(*(held(video, size) for video, size in zip(videos, sizes, strict=True)), strict=False)
    images = (np.concatenate(pair, axis=1) for _, pair in zip(range(round(seconds * RATE)), pictures, strict=False))
    write_movie(
        path,
        images,
        size=(sum(size[0] for size in sizes), HEIGHT),
        rate=Fraction(round(RATE)),
        options={"crf": "20", "preset": "veryfast"},
    )


def measured(counter: escounts.Counter, path: Path, truth: list[int]) -> dict[str, Any]:
    """One video counted by its places and as a whole; processor seconds of both, in this run."""
    seconds = []
    results = []
    for each in (True, False):
        began = time.process_time()
        results.append(counter.count(path, each=each))
        seconds.append(round(time.process_time() - began, 3))
    tracks = results[0].tracks
    return {
        "video": path.stem,
        "truth": truth,
        "counts": [track.count for track in tracks],
        "regions": [track.region for track in tracks],
        "whole": results[1].count,
        "seconds_each": seconds[0],
        "seconds_whole": seconds[1],
    }


def shares(rows: list[dict[str, Any]]) -> str:
    """Markdown: shares of pairs and of single clips, and the cost."""
    pairs = [row for row in rows if len(row["truth"]) == 2]
    alone = [row for row in rows if len(row["truth"]) == 1]

    def share(found: list[bool]) -> str:
        return f"{100 * sum(found) / len(found):.0f} % of {len(found)}"

    def cost(some: list[dict[str, Any]]) -> float:
        return float(sum(row["seconds_each"] for row in some) / sum(row["seconds_whole"] for row in some))

    fair = [row for row in pairs if _alone(row, alone)]
    lines = [
        ("a pair is two places", share([len(row["counts"]) == 2 for row in pairs])),
        ("both counts of a pair within one", share([right(row) for row in pairs])),
        ("both counts of its two clips alone within one", share([_alone(row, alone) for row in pairs])),
        ("both counts of such a pair within one", share([right(row) for row in fair])),
        ("a clip alone is one place", share([len(row["counts"]) <= 1 for row in alone])),
        ("cost of a pair, ordinary count = 1", f"{cost(pairs):.2f}"),
        ("cost of a clip alone, ordinary count = 1", f"{cost(alone):.2f}"),
    ]
    return markdown(("", ""), lines)


def right(row: dict[str, Any]) -> bool:
    """Two places, each within one of the truth."""
    counts, truth = row["counts"], row["truth"]
    return len(counts) == 2 and all(abs(count - true) <= 1 for count, true in zip(counts, truth, strict=True))


def _alone(pair: dict[str, Any], alone: list[dict[str, Any]]) -> bool:
    """What no division can better: both clips, each counted by itself."""
    names = pair["video"].split("+")
    found = [row for name in names for row in alone if row["video"] == name]
    return all(abs(row["whole"] - row["truth"][0]) <= 1 for row in found)


if __name__ == "__main__":
    main()
