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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from footage import looped, peak_megabytes, replace_section, segment

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "growth.json"
SIZE, SHORT = (320, 176), 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="spectral")
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
            command = [sys.executable, __file__, "--child", options.model, kind, str(amount)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            known[key] = json.loads(done.stdout.splitlines()[-1])
            RESULT.write_text(json.dumps(known, indent=1) + "\n")
    text = table(known)
    print(text)
    replace_section("growth", text)


def measure(model: str, kind: str, amount: int) -> dict[str, float]:
    """Count one long video, or a batch of short ones, and say what it took."""
    folder = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    folder.mkdir(exist_ok=True)
    source = segment(folder / "low.mp4", size=SIZE)
    short = segment(folder / "low-short.mp4", size=SIZE, seconds=SHORT)
    import escounts
    from escounts.batching.tasks import Settings

    if kind == "minutes":
        video = looped(source, folder / f"low-{amount}.mp4", 6 * amount)
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
    lines = [
        "## Cost grows linearly",
        "",
        f"`python benchmarks/growth.py`: generated video of {SIZE[0]} × {SIZE[1]} pixels at 30 frames a second; one "
        f"long video, or a batch of videos of {SHORT} s in one process. Loading the model is included.",
        "",
        "| model | amount | processor s | for one minute or video | peak MB | found | truth |",
        "|---|---|---|---|---|---|---|",
    ]
    order = sorted(known, key=lambda key: (key.split()[0], key.split()[1], int(key.split()[2])))
    for key in order:
        model, kind, amount = key.split()
        row = known[key]
        what = f"{int(amount):,} {kind if int(amount) > 1 else kind.rstrip('s')}"
        found = f"{row['found']:,.0f} {'repetitions' if kind == 'minutes' else 'rows'}"
        lines.append(
            f"| `{model}` | {what} | {row['processor']:.1f} | {row['processor'] / int(amount):.3f} "
            f"| {row['peak_mb']:.0f} | {found} | {row['truth']:,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
