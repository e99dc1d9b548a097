"""Cost grows linearly: 1 to 120 minutes of one video, and 10 to 1,000 short videos in one batch.

    python benchmarks/growth.py [--model spectral] [--minutes 1 10 60 120] [--videos 10 100 1000]

Generated video of 320 × 176 pixels (low, so that hours fit into minutes), a repetition in two seconds; the short ones
last four seconds. Each measurement is a process of its own, written when it is done (benchmarks/results/growth.json);
what is there is not measured again, so a long list can be done in parts. Memory is the largest process's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from footage import FOLDER, in_child, looped, peak_megabytes, segment
from report import RESULTS, arguments, markdown, replace_section, write_json

RESULT = RESULTS / "growth.json"
SIZE, SHORT = (320, 176), 4


def main() -> None:
    parser = arguments(__doc__, model="spectral")
    parser.add_argument("--minutes", type=int, nargs="*", default=[1, 10, 60, 120])
    parser.add_argument("--videos", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--child", nargs=3, metavar=("MODEL", "KIND", "AMOUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        model, kind, amount = options.child
        print(json.dumps(measure(model, kind, int(amount))))
        return
    known: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    jobs = [("minutes", n) for n in options.minutes] + [("videos", n) for n in options.videos]
    for kind, amount in jobs:
        key = f"{options.model} {kind} {amount}"
        if key not in known:
            known[key] = in_child(__file__, options.model, kind, amount)
            write_json(RESULT, known)
    text = table(known)
    print(text)
    replace_section("growth", text)


def measure(model: str, kind: str, amount: int) -> dict[str, float]:
    """Count one long video, or a batch of short ones, and say what it took."""
    source = segment(FOLDER / "low.mp4", size=SIZE)
    short = segment(FOLDER / "low-short.mp4", size=SIZE, seconds=SHORT)
    import escounts
    from escounts.batching.tasks import Settings

    if kind == "minutes":
        video = looped(source, FOLDER / f"low-{amount}.mp4", 6 * amount)
        before, began = _processor(), time.perf_counter()
        counted = float(escounts.count(video, model=model, device="cpu").count)
        truth = 30.0 * amount
    else:
        with tempfile.TemporaryDirectory() as here:
            for index in range(amount):
                shutil.copy(short, Path(here) / f"{index:04}.mp4")
            before, began = _processor(), time.perf_counter()
            settings = Settings(model=model, device="cpu")
            rows = escounts.batch([here], out=Path(here) / "out", settings=settings, jobs=1)
            counted, truth = float(sum(rows["status"].to_numpy(zero_copy_only=False) == "counted")), float(amount)
    return {
        "wall": time.perf_counter() - began,
        "processor": _processor() - before,
        "peak_mb": max(peak_megabytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "found": counted,
        "truth": truth,
    }


def _processor() -> float:
    """Seconds of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def table(known: dict[str, Any]) -> str:
    """Markdown: what each amount took, in all and for one of it."""
    about = (
        f"`python benchmarks/growth.py`: generated video of {SIZE[0]} × {SIZE[1]} pixels at 30 frames a second; one "
        f"long video, or a batch of videos of {SHORT} s in one process. Loading the model is included."
    )
    rows = []
    for key in sorted(known, key=lambda key: (*key.split()[:2], int(key.split()[2]))):
        model, kind, amount = key.split()
        row = known[key]
        what = f"{int(amount):,} {kind if int(amount) > 1 else kind.rstrip('s')}"
        used = (f"{row['processor']:.1f}", f"{row['processor'] / int(amount):.3f}", f"{row['peak_mb']:.0f}")
        found = f"{row['found']:,.0f} {'repetitions' if kind == 'minutes' else 'rows'}"
        rows.append([f"`{model}`", what, *used, found, f"{row['truth']:,.0f}"])
    headers = ("model", "amount", "processor s", "for one minute or video", "peak MB", "found", "truth")
    return f"## Cost grows linearly\n\n{about}\n\n{markdown(headers, rows)}"


if __name__ == "__main__":
    main()
