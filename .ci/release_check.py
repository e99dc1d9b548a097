"""What a release must pass, in one table: the long suites, the service under attack, the packages and their parts.

    make release-check                              every part, hours on two cores
    make release-check PARTS="fuzz packages"        some of them
    make release-check SHARE=0.02                   everything in small: a fiftieth of the cases

Parts run one after the other, each with a time limit, and keep their figures in build/release-check/: a run that was
stopped goes on with the part that it was in (--again starts anew). When every part has run on this commit the table
goes to docs/release-check.md. Exit code 1 where anything was lost, hung, ended in a traceback or did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from release_packages import packages, supply

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "release-check.md"
CLIPS = ROOT.parent / "shared" / "clips"
KILLS = ("tests/faults", "tests/serve/test_serve_kills.py")
PARSERS, VIDEOS = "tests/fuzz/test_parsers.py", "tests/fuzz/test_video_fuzz.py"


@dataclass
class Row:
    """One line of the table. failed: what it asks for was not met, though nothing was lost."""

    name: str
    cases: int
    survived: int
    lost: int = 0
    hangs: int = 0
    tracebacks: int = 0
    note: str = ""
    failed: bool = False

    @property
    def good(self) -> bool:
        return not (self.failed or self.lost or self.hangs or self.tracebacks)


@dataclass(frozen=True)
class Part:
    """run: from the share of cases to rows. limit: seconds."""

    run: Callable[[float, float], list[Row]]
    limit: float


def suite(*paths: str, marker: str = "release", without: Sequence[str] = ()) -> Callable[[float, float], list[Row]]:
    """Tests under these paths: their own rows of figures, and one for pytest's verdicts."""

    def run(share: float, limit: float) -> list[Row]:
        command = [sys.executable, "-m", "pytest", "-m", marker, "-s", "-p", "no:cacheprovider", *paths]
        command += [f"--ignore={path}" for path in without]
        code, output = bounded(command, limit, {"ESCOUNTS_RELEASE_SHARE": str(share)})
        rows = published(output)
        verdicts = {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", output)}
        passed, bad = verdicts.get("passed", 0), verdicts.get("failed", 0) + verdicts.get("error", 0)
        hung = int(code is None)
        if bad or hung or (code not in (0, 5)):
            print(output[-8000:], flush=True)
        skipped = f"{verdicts['skipped']} skipped" if "skipped" in verdicts else ""
        name = f"tests of {', '.join(paths) or 'everything else'}, marked {marker}"
        rows.append(Row(name, passed + bad + hung, passed, hangs=hung, note=skipped, failed=bool(bad or code != 0)))
        return rows

    return run


def published(output: str) -> list[Row]:
    """The rows that suites printed (tests/release_figures.py); those of one name are one row."""
    rows: dict[str, Row] = {}
    notes: dict[str, dict[str, int]] = {}
    for line in re.findall(r"RELEASE-ROW (\{.*\})", output):
        found = json.loads(line)
        row = rows.setdefault(found["name"], Row(found["name"], 0, 0))
        row.cases += found["cases"]
        row.survived += found["survived"]
        row.lost += found["lost"] + found["crash"]
        row.hangs += found["hang"]
        row.tracebacks += found["traceback"]
        told = notes.setdefault(row.name, {})
        for what, number in found["notes"].items():
            told[what] = told.get(what, 0) + number
        row.note = ", ".join(f"{what}: {number}" for what, number in told.items())
    return list(rows.values())


def attacks(share: float, limit: float) -> list[Row]:
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
        row = Row(f"service: {one['attack']}", one["cases"], one["cases"], one["lost"], 0, one["tracebacks"], note, bad)
        rows.append(row)
    return rows


def relations(share: float, limit: float) -> list[Row]:
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
    return [Row("metamorphic relations", len(verdicts), len(verdicts) - len(short), note=note, failed=bool(short))]


def supplied(kind: Callable[[Path, float], list[dict[str, object]]]) -> Callable[[float, float], list[Row]]:
    return lambda share, limit: [Row(**row) for row in kind(ROOT, limit)]  # type: ignore[arg-type]


HOUR = 3600.0
PARTS = {
    "inputs": Part(suite("tests/faults", "tests/fuzz", marker="not release"), HOUR),
    "fuzz": Part(suite(VIDEOS), 3 * HOUR),
    "parsers": Part(suite(PARSERS), 2 * HOUR),
    "kills": Part(suite(*KILLS), 6 * HOUR),
    "others": Part(suite("tests", without=(VIDEOS, PARSERS, *KILLS)), 3 * HOUR),
    "attacks": Part(attacks, HOUR),
    "relations": Part(relations, 3 * HOUR),
    "packages": Part(supplied(packages), HOUR),
    "supply": Part(supplied(supply), HOUR),
}


def bounded(command: Sequence[str], limit: float, env: dict[str, str] | None = None) -> tuple[int | None, str]:
    """Exit code (None past the limit, with all that it started) and what was printed."""
    started = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, **(env or {})}, start_new_session=True,
    )  # fmt: skip
    try:
        output = started.communicate(timeout=limit)[0]
        return started.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        return None, started.communicate()[0]
    except KeyboardInterrupt:
        os.killpg(started.pid, signal.SIGKILL)
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help=f"{', '.join(PARTS)}; all when none is named")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases; below 1 nothing goes into the docs")
    parser.add_argument("--again", action="store_true", help="run parts that have run on this commit already, too")
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    place = ROOT / "build" / "release-check" / (f"share-{options.share:g}" if options.share < 1 else "whole")
    place.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        kept = place / f"{name}.json"
        if kept.is_file() and json.loads(kept.read_text())["commit"] == commit and not options.again:
            print(f"{name}: has run on this commit ({kept.relative_to(ROOT)}); --again runs it anew", flush=True)
            continue
        print(f"{name} …", flush=True)
        began = time.time()
        try:
            rows = PARTS[name].run(options.share, PARTS[name].limit)
        except Exception as error:  # one part that cannot run is a failed part, not the end of the others
            rows = [Row(name, 1, 0, note=f"did not run: {type(error).__name__}: {error}"[:300], failed=True)]
        about = {"commit": commit, "date": time.strftime("%Y-%m-%d"), "seconds": round(time.time() - began)}
        kept.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    records = {name: json.loads(path.read_text()) for name in PARTS if (path := place / f"{name}.json").is_file()}
    text = table(records)
    print(text)
    if len(records) == len(PARTS) and options.share == 1 and {r["commit"] for r in records.values()} == {commit}:
        PAGE.write_text(text + "\n", encoding="utf-8")
    return 0 if all(Row(**row).good for record in records.values() for row in record["rows"]) else 1


def table(records: dict[str, dict[str, Any]]) -> str:
    """The page: every row that there is, with the day and the commit that it was measured on."""
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        "# Release check",
        "",
        f"`make release-check` runs the long suites and writes this page. {machine}.",
        "",
        "| | cases | survived | lost | hangs | tracebacks | | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in records.values():
        for row in (Row(**row) for row in record["rows"]):
            figures = " | ".join(str(n) for n in (row.cases, row.survived, row.lost, row.hangs, row.tracebacks))
            note = row.note if row.good else f"**failed** {row.note}"
            lines.append(f"| {row.name} | {figures} | {note} | {record['date']}, {record['commit'][:8]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
