"""What a release must pass, in one table: the long suites, the service under attack, the packages and their parts.

    make release-check                              every part, hours on two cores
    make release-check PARTS="fuzz packages"        some of them
    make release-check SHARE=0.02                   everything in small: a fiftieth of the cases

Parts run one after the other, each with a time limit, and keep their figures in build/release-check/, tests one by
one: a run that was stopped goes on with the test that it was in, as long as the code is the same (--again starts
anew). When every part has run on this code the table goes to docs/release-check.md. Exit code 1 where anything was
lost, hung, ended in a traceback or did not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from release_packages import packages, supply
from release_suites import Row, Suite, bounded

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "release-check.md"
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
CLIPS = ROOT.parent / "shared" / "clips"
KILLS = ("tests/faults", "tests/serve/test_serve_kills.py")
PARSERS, VIDEOS = "tests/fuzz/test_parsers.py", "tests/fuzz/test_video_fuzz.py"


@dataclass(frozen=True)
class Part:
    """run: from the share of cases, the limit and a file for verdicts to rows. limit: seconds."""

    run: Callable[[float, float, Path], list[Row]]
    limit: float


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


def relations(share: float, limit: float, _: Path) -> list[Row]:
    """What must not change a count, and stretches without repetitions; needs the clips."""
    if not CLIPS.is_dir():
        return [Row("metamorphic relations", 0, 0, note=f"not run: no clips in {CLIPS.name}/", failed=share == 1)]
    out = ROOT / "build" / "release-check" / "metamorphic.json"
    small = ["--quick"] if share < 1 else []
    code, output = bounded([sys.executable, "benchmarks/metamorphic.py", "--out", str(out), *small], limit)
    verdicts = re.findall(r"^\| (.+?) \|.*\| (holds|\*\*falls short\*\*) \|$", output, re.M)
    short = [name for name, verdict in verdicts if verdict != "holds"]
    if code != 0 or not verdicts:
        print(output[-4000:])
        return [Row("metamorphic relations", 1, 0, hangs=int(code is None), failed=True)]
    note = f"falls short: {', '.join(short)}" if short else "each on at least 90 % of the clips"
    rows = [Row("metamorphic relations", len(verdicts), len(verdicts) - len(short), note=note, failed=bool(short))]
    for what in ("stills", "fresh stills"):
        found = re.search(
            rf"^\| \*\*{what} over five codecs\*\* \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", output, re.M
        )
        number, counted, sure = map(int, found.groups()[:3]) if found else (1, 1, 1)
        rate = float(found[4]) if found else math.inf
        note = f"{sure} called sure, {rate:g} false counts per minute (at most 1, none sure)"
        rows.append(
            Row(f"{what} over five codecs", number, number - counted, note=note, failed=bool(sure or rate > 1))
        )
    return rows


def supplied(kind: Callable[[Path, float], list[dict[str, object]]]) -> Callable[[float, float, Path], list[Row]]:
    return lambda share, limit, _: [Row(**row) for row in kind(ROOT, limit)]  # type: ignore[arg-type]


HOUR = 3600.0
PARTS = {
    "inputs": Part(Suite(("tests/faults", "tests/fuzz"), "not release").run, HOUR),
    "fuzz": Part(Suite((VIDEOS,)).run, 3 * HOUR),
    "parsers": Part(Suite((PARSERS,)).run, 2 * HOUR),
    "kills": Part(Suite(KILLS).run, 6 * HOUR),
    "others": Part(Suite(("tests",), without=(VIDEOS, PARSERS, *KILLS)).run, 3 * HOUR),
    "attacks": Part(attacks, HOUR),
    "relations": Part(relations, 3 * HOUR),
    "packages": Part(supplied(packages), HOUR),
    "supply": Part(supplied(supply), HOUR),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help=f"{', '.join(PARTS)}; all when none is named")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases; below 1 nothing goes into the docs")
    parser.add_argument("--again", action="store_true", help="run parts that have run on this commit already, too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and what was started ends with it
    commit, code = git("rev-parse", "HEAD").strip(), code_digest()
    place = ROOT / "build" / "release-check" / (f"share-{options.share:g}" if options.share < 1 else "whole")
    place.mkdir(parents=True, exist_ok=True)
    wanted = options.parts or list(PARTS)
    for name in wanted:
        kept, verdicts = place / f"{name}.json", place / f"{name}-{code}.jsonl"
        if options.again:
            kept.unlink(missing_ok=True)
            verdicts.unlink(missing_ok=True)
        if kept.is_file() and json.loads(kept.read_text())["code"] == code:
            print(f"{name}: has run on this code ({kept.relative_to(ROOT)}); --again runs it anew", flush=True)
            continue
        print(f"{name} …", flush=True)
        record = {
            "commit": commit,
            "code": code,
            "date": time.strftime("%Y-%m-%d %H:%M"),
            **measured(name, options.share, verdicts),
        }
        kept.write_text(json.dumps(record, indent=1) + "\n")
    records = {name: json.loads(path.read_text()) for name in PARTS if (path := place / f"{name}.json").is_file()}
    text = table(records)
    print(text)
    if len(records) == len(PARTS) and options.share == 1 and {r["code"] for r in records.values()} == {code}:
        put_into_page(text)
    return 0 if all(Row(**row).good for name in wanted for row in records[name]["rows"]) else 1


def measured(name: str, share: float, verdicts: Path) -> dict[str, Any]:
    """What one part of the check found, and what it cost."""
    began, busy = time.time(), children_seconds()
    loads = [os.getloadavg()[0]]
    try:
        rows = PARTS[name].run(share, PARTS[name].limit, verdicts)
    except Exception as error:  # one part that cannot run is a failed part, not the end of the others
        rows = [Row(name, 1, 0, note=f"did not run: {type(error).__name__}: {error}"[:300], failed=True)]
    loads += os.getloadavg()
    return {
        "seconds": round(time.time() - began),
        "processor_seconds": round(children_seconds() - busy),
        "load": [round(min(loads), 1), round(max(loads), 1)],
        "rows": [asdict(row) for row in rows],
    }


def children_seconds() -> float:
    """Processor time of everything that was started here and is over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def code_digest() -> str:
    """Of every file that a part may run, as it lies there, committed or not."""
    digest = hashlib.sha256()
    for name in sorted(git("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *CODE).split("\0")):
        if name and (ROOT / name).is_file():
            digest.update(f"{name}\0".encode() + hashlib.sha256((ROOT / name).read_bytes()).digest())
    return digest.hexdigest()[:16]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def table(records: dict[str, dict[str, Any]]) -> str:
    """Every row that there is, with the day, the commit and the load that it was measured at."""
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        f"{machine}. Minutes by the clock and of the processor, and the machine's load, are of the whole part.",
        "",
        "| | cases | survived | lost | hangs | tracebacks | | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, record in records.items():
        low, high = record["load"]
        minutes = f"{record['seconds'] / 60:.0f} min, {record['processor_seconds'] / 60:.0f} of the processor"
        when = f"{name}: {record['date']}, {record['commit'][:8]}, {minutes}, load {low:g} to {high:g}"
        for row in (Row(**row) for row in record["rows"]):
            figures = " | ".join(str(n) for n in (row.cases, row.survived, row.lost, row.hangs, row.tracebacks))
            note = row.note if row.good else f"**failed** {row.note}"
            lines.append(f"| {row.name} | {figures} | {note} | {when} |")
            when = name
    return "\n".join(lines)


def put_into_page(text: str) -> None:
    """Between the two marks of the page; what is written around them stays."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
