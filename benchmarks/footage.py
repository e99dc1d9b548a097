"""What the benchmarks share: the package's footage and costs, children that are timed alone, tables in the docs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

from escounts.benchmarking.measuring import (
    FAST_REPETITIONS_A_SEGMENT,
    REPETITIONS_A_SEGMENT,
    decode,
    looped,
    peak_megabytes,
    segment,
    timed,
)

__all__ = [
    "FAST_REPETITIONS_A_SEGMENT",
    "REPETITIONS_A_SEGMENT",
    "Cost",
    "answer",
    "counting",
    "decode",
    "looped",
    "measured",
    "peak_megabytes",
    "replace_section",
    "segment",
]


@dataclass(frozen=True)
class Cost:
    """What a child took: seconds on the wall, seconds of processor, megabytes at the peak; and what it said."""

    wall: float
    cpu: float
    peak_mb: float
    answer: float


def measured(script: Path, *arguments: object) -> Cost:
    """Run this script again as a child: `python script --child arguments`; it answers with `answer()`."""
    command = [sys.executable, str(script), "--child", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def answer(work: Callable[[], float]) -> None:
    """In the child: do the work, print its cost."""
    value, wall, cpu = timed(lambda: float(work()))
    print(json.dumps(asdict(Cost(wall, cpu, peak_megabytes(), value))))


def counting(path: str, model: str, device: str, *, thorough: bool = False) -> Callable[[], float]:
    """The work of counting a video with a model: `escounts count`. On a GPU loading and a first count are done
    before."""
    if device == "cpu":
        options = ["--model", model, "--device", device, *["--thorough"] * thorough]
        return lambda: _command("count", path, "--json", *options)
    from escounts.counter import load

    counter = load(model, device=device)
    counter.count(path, thorough=thorough)
    return lambda: counter.count(path, thorough=thorough).count


def _command(*arguments: str) -> float:
    """The count that the command prints."""
    from escounts.cli import app

    with redirect_stdout(io.StringIO()) as printed:
        app(list(arguments), standalone_mode=False)
    return float(json.loads(printed.getvalue())["count"])


def replace_section(name: str, text: str) -> None:
    """Write a table to benchmarks/results/ and show it on docs/benchmarks.md, where it stays in its place."""
    root = Path(__file__).resolve().parent.parent
    file = f"benchmarks/results/{name.replace(' ', '-')}.md"
    (root / file).write_text(text.strip() + "\n", encoding="utf-8")
    page = root / "docs" / "benchmarks.md"
    shown = page.read_text(encoding="utf-8")
    if f'--8<-- "{file}"' not in shown:
        page.write_text(shown.rstrip("\n") + f'\n\n--8<-- "{file}"\n', encoding="utf-8")
