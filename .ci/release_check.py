"""What a release must pass, in one table: the long suites, the service under attack, the packages and their parts.

    make release-check                              every part, under an hour on two cores
    make release-check PARTS="fuzz packages"        some of them
    make release-check SHARE=0.02                   everything in small: a fiftieth of the cases

Pieces run two at a time, each with a time limit; those that measure time or memory run alone, after the others. Their
figures are kept in build/release-check/, tests one by one: a run that was stopped goes on with the tests that it was
in, as long as the code is the same (--again starts anew). When every part has run on this code the table goes to
benchmarks/results/release-check.md. Exit code 1 where anything was lost, hung, ended in a traceback or did not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from release_lanes import Part, Piece, Run, only_one, side_by_side
from release_packages import packages, supply
from release_rows import Row, rows_of, summary, table
from release_suites import Suite, bounded, split

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "release-check.md"
BEGIN, END = "<!-- the table of make release-check -->", "<!-- its end -->"
CODE = (
    "src",
    "tests",
    "benchmarks",
    "examples",
    ".ci",
    "pyproject.toml",
    "constraints.txt",
    "Makefile",
    "Dockerfile",
)
"""What a part's figures are of: where one of these has changed, it runs anew."""
WRITTEN = "benchmarks/results/"
"""What parts write themselves: figures, no code."""
CLIPS = ROOT.parent / "shared" / "clips"
KILLS = ("tests/faults", "tests/serve/test_serve_kills.py")
MEASURED = ("tests/test_long_video.py", "tests/test_live.py")
"""Tests that hold a peak of memory, or a stream as it comes, against a limit."""
PARSERS, VIDEOS = "tests/fuzz/test_parsers.py", "tests/fuzz/test_video_fuzz.py"


def attacks(share: float, limit: float, _: Path) -> list[Row]:
    """The service under attack: a row for each attack."""
    out = ROOT / "build" / "release-check" / "attacks.json"
    out.unlink(missing_ok=True)  # of a run before
    small = ["--idle", "30", "--kills", "1"] if share < 1 else []
    code, output = bounded([sys.executable, "benchmarks/serve_attacks.py", "--out", str(out), *small], limit)
    if code is None or not out.is_file():
        print(output[-4000:])
        return [Row("the service under attack", 1, 0, hangs=int(code is None), failed=True)]
    rows = []
    for one in json.loads(out.read_text()):
        note = f"{one['honest']} counts of other clients beside it, slowest answer {one['slowest']:.1f} s"
        bad = bool({"500", "leaked", "wrong"} & one["answers"].keys())
        row = Row(
            f"service: {one['attack']}", one["cases"], one["cases"], one["lost"], 0, one["tracebacks"], note, bad
        )
        rows.append(row)
    return rows


def relations(share: float, limit: float, counts: Path) -> list[Row]:
    """What must not change a count, and stretches without repetitions; needs the clips."""
    if not CLIPS.is_dir():
        return [Row("metamorphic relations", 0, 0, note=f"not run: no clips in {CLIPS.name}/", failed=share == 1)]
    small = ["--quick"] if share < 1 else []
    code, output = bounded([sys.executable, "benchmarks/metamorphic.py", "--out", str(counts), *small], limit)
    found = re.findall(
        r"^\| (.+?) \| \d+ \| (\d+) \((\d+)%\) \| \d+ \| (.+?) \| (holds|\*\*falls short\*\*) \|$", output, re.M
    )
    if code != 0 or not found:
        print(output[-4000:])
        return [Row("metamorphic relations", 1, 0, hangs=int(code is None), failed=True)]
    clips = int(re.search(r"^(\d+) clips, each", output, re.M)[1])  # type: ignore[index]  # the table's first line
    rows = [
        Row(
            f"relation: {name}",
            clips,
            int(held),
            note=f"{rate} % within one, largest change {worst}",
            failed=verdict != "holds",
        )
        for name, held, rate, worst, verdict in found
    ]
    for what in ("stills", "fresh stills"):
        stills = re.search(
            rf"^\| \*\*{what} over five codecs\*\* \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", output, re.M
        )
        number, counted, sure = map(int, stills.groups()[:3]) if stills else (1, 1, 1)
        per_minute = float(stills[4]) if stills else math.inf
        note = f"{sure} called sure, {per_minute:g} false counts per minute (at most 1, none sure)"
        rows.append(
            Row(f"{what} over five codecs", number, number - counted, note=note, failed=bool(sure or per_minute > 1))
        )
    return rows


def supplied(kind: Callable[[Path, float], list[dict[str, object]]]) -> Run:
    return lambda share, limit, _: [Row(**row) for row in kind(ROOT, limit)]  # type: ignore[arg-type]


HOUR = 3600.0
PARTS = {  # begun in this order: long pieces first, so that the last ones of the lanes end together
    "relations": Part((relations,), 3 * HOUR),
    "others": Part((Suite(("tests",), without=(VIDEOS, PARSERS, *KILLS, *MEASURED)).run,), 3 * HOUR),
    "kills": Part(split(Suite(KILLS), 4), 3 * HOUR),
    "parsers": Part(split(Suite((PARSERS,)), 9), HOUR),
    "packages": Part((supplied(packages),), HOUR),
    "supply": Part((supplied(supply),), HOUR),
    "inputs": Part((Suite(("tests/faults", "tests/fuzz"), "not release").run,), HOUR),
    "fuzz": Part((Suite((VIDEOS,)).run,), 3 * HOUR),
    "measured": Part((Suite(MEASURED).run,), HOUR, alone=True),
    "attacks": Part((attacks,), HOUR, alone=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help=f"{', '.join(PARTS)}; all when none is named")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases; below 1 nothing goes into the docs")
    parser.add_argument("--again", action="store_true", help="run parts that have run on this code already, too")
    parser.add_argument("--lanes", type=int, default=2, help="pieces at a time; 2 when not given")
    options = parser.parse_args()
    commit, code = git("rev-parse", "HEAD").strip(), code_digest()
    place = ROOT / "build" / "release-check" / (f"share-{options.share:g}" if options.share < 1 else "whole")
    place.mkdir(parents=True, exist_ok=True)
    pieces = [
        Piece(name, number, part, place, code, commit, options.share)
        for name, part in PARTS.items()
        for number in range(len(part.pieces))
    ]
    wanted = [piece for piece in pieces if piece.part in (options.parts or PARTS)]
    with only_one(place):
        for piece in wanted:
            if options.again:
                piece.forget()
            elif piece.record():
                print(f"{piece.name}: has run on this code ({piece.kept}); --again runs it anew", flush=True)
        side_by_side([piece for piece in wanted if not piece.record()], options.lanes)
    records = {piece: record for piece in pieces if (record := piece.record())}
    by_part = {name: [record for piece, record in records.items() if piece.part == name] for name in PARTS}
    by_part = {name: found for name, found in by_part.items() if found}
    print(text := table(by_part))
    changed = code_digest() != code
    if len(records) == len(pieces) and options.share == 1 and not changed:
        put_into_page(text)
    missing = [piece.name for piece in wanted if piece not in records]
    rows = [row for name in dict.fromkeys(piece.part for piece in wanted) for row in rows_of(by_part.get(name, []))]
    rows += [Row(name, 1, 0, note="did not run", failed=True) for name in missing]
    if changed:  # some of it ran on other code than it says, and nobody knows what
        rows.append(Row("the code stayed the same while it ran", 1, 0, failed=True))
    print(f"\n{summary(rows)}")
    return 0 if all(row.good for row in rows) else 1


def code_digest() -> str:
    """Of every file that a part may run, as it lies there, committed or not."""
    digest = hashlib.sha256()
    for name in sorted(git("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *CODE).split("\0")):
        if name and not name.startswith(WRITTEN) and (ROOT / name).is_file():
            digest.update(f"{name}\0".encode() + hashlib.sha256((ROOT / name).read_bytes()).digest())
    return digest.hexdigest()[:16]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def put_into_page(text: str) -> None:
    """Between the two marks of the page; what is written around them stays."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # and what was started ends with it
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
