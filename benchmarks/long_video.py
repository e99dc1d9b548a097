"""Two hours of 720p30 against ten minutes of it: memory stays, time grows in proportion, the count is right.

    python benchmarks/long_video.py [--model spectral] [--rounds 1]

The long video is the short one's packets again and again (remuxed with PyAV). Writes to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from footage import REPETITIONS_A_SEGMENT, Cost, answer, counting, looped, measured, replace_section, segment

SEGMENTS = {"10 minutes": 60, "2 hours": 720}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="spectral")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "VIDEO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer(counting(options.child[1], options.child[0], "cpu"))
        return
    folder = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    folder.mkdir(exist_ok=True)
    source = segment(folder / "segment.mp4")
    videos = {name: looped(source, folder / f"{turns}.mp4", turns) for name, turns in SEGMENTS.items()}
    costs: dict[str, list[Cost]] = {name: [] for name in videos}
    for _ in range(options.rounds):
        for name, video in videos.items():
            costs[name].append(measured(Path(__file__), options.model, video))
    text = table(options.model, costs)
    print(text)
    replace_section(f"long-video-{options.model}", text)


def table(model: str, costs: dict[str, list[Cost]]) -> str:
    """Markdown: both lengths and their ratio."""
    best = {name: min(rounds, key=lambda cost: cost.cpu) for name, rounds in costs.items()}
    short, long = best.values()
    lines = [
        f"## Two hours of 720p30 with `{model}`",
        "",
        "`python benchmarks/long_video.py`; fastest round of "
        f"{len(next(iter(costs.values())))}. Asked for: under 1,024 MB, ratio 12 ± 20 %.",
        "",
        "| | wall s | processor s | peak MB | count | truth |",
        "|---|---|---|---|---|---|",
    ]
    for (name, cost), turns in zip(best.items(), SEGMENTS.values(), strict=True):
        truth = turns * REPETITIONS_A_SEGMENT
        lines.append(
            f"| {name} | {cost.wall:.1f} | {cost.cpu:.1f} | {cost.peak_mb:.0f} | {cost.answer:.0f} | {truth} |"
        )
    lines.append(f"| ratio | {long.wall / short.wall:.1f} | {long.cpu / short.cpu:.1f} | | | 12 |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
