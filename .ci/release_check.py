"""What a release must pass, in one table: the long suites, the packages, what they are made of.

    make release-check          (hours on two cores; --only suites|packages|supply for a part)

Runs `pytest -m release`, whose suites print a line `RELEASE-ROW name {figures}` each; builds wheel and sdist twice
and compares them byte by byte; installs both into empty environments and counts the sample there; lists licences,
writes the SBOM (CycloneDX) and asks pip-audit for known holes. The table goes to docs/release-check.md with date and
machine. Exit code 1 where anything was lost, hung or ended in a traceback.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "release-check.md"
COLUMNS = ("cases", "survived", "lost", "hangs", "tracebacks")
TOOLS = ("build", "pip-audit", "pip-licenses", "cyclonedx-bom")
Row = tuple[str, dict[str, int], str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("suites", "packages", "supply"))
    only = parser.parse_args().only
    rows: list[Row] = []
    if only in (None, "suites"):
        rows += suites()
    with tempfile.TemporaryDirectory() as place:
        tools = environment(Path(place) / "tools", *TOOLS) if only != "suites" else ""
        if only in (None, "packages"):
            rows += packages(Path(place), tools)
        if only in (None, "supply"):
            rows += supply(Path(place), tools)
    text = table(rows)
    print(text)
    if only is None:
        PAGE.write_text(text + "\n", encoding="utf-8")
    return 1 if any(figures["lost"] + figures["hangs"] + figures["tracebacks"] for _, figures, _ in rows) else 0


def suites() -> list[Row]:
    """The release suites of the tests: one row each, and one for all of pytest's own verdicts."""
    command = [sys.executable, "-m", "pytest", "-m", "release", "-s", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows: list[Row] = []
    for name, figures in re.findall(r"RELEASE-ROW (.+?) (\{.*?\})", ended.stdout):
        found = ast.literal_eval(figures)
        lost = found.get("crash", 0) + found.get("lost", 0)
        rows.append((name, figured(found["cases"], found["survived"], lost, found["hang"], found["traceback"]), ""))
    verdicts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", ended.stdout)}
    passed, failed = verdicts.get("passed", 0), verdicts.get("failed", 0) + verdicts.get("error", 0)
    note = f"{verdicts.get('skipped', 0)} skipped" if verdicts.get("skipped") else ""
    if failed:
        print(ended.stdout[-8000:])
    return [*rows, ("release tests", figured(passed + failed, passed, failed), note)]


def packages(place: Path, tools: str) -> list[Row]:
    """Wheel and sdist: the same bytes twice, and both count the sample in an empty environment."""
    committed = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    epoch = {"SOURCE_DATE_EPOCH": committed.stdout.strip() or "1700000000"}
    source = place / "source"  # what is committed, and nothing that lies about beside it
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x", "-C", str(source)], input=archive.stdout, check=True)
    digests = []
    for turn in ("first", "second"):
        run(tools, "-m", "build", "--outdir", str(place / turn), str(source), env=epoch)
        digests.append(
            {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (place / turn).iterdir()}
        )
    rows: list[Row] = []
    for name, digest in sorted(digests[0].items()):
        same = digests[1].get(name) == digest
        rows.append((f"{name} built twice, the same bytes", figured(1, int(same), int(not same)), digest[:16]))
        python = environment(place / name, str(place / "first" / name), "-c", str(ROOT / "constraints.txt"))
        video = str(ROOT / "examples" / "sample.mp4")
        done = subprocess.run(
            [python, "-m", "escounts", "count", video, "-q"], cwd=place, capture_output=True, text=True
        )
        works = done.returncode == 0
        says = (done.stdout or done.stderr).strip().splitlines()[-1:]
        rows.append((f"{name} in an empty environment", figured(1, int(works), int(not works)), "".join(says)))
    return rows


def supply(place: Path, tools: str) -> list[Row]:
    """Licences, SBOM and known holes of what is installed here."""
    rows: list[Row] = []
    prefix = str(Path(sys.prefix) / "bin" / "python")
    licences = run(tools, "-m", "piplicenses", "--python", prefix, "--format=csv").splitlines()[1:]
    names = [line.split(",")[0].strip('"') for line in licences]
    copyleft = [name for name, line in zip(names, licences, strict=True) if re.search(r"\bA?GPL", line)]
    rows.append(("packages with a licence", figured(len(licences), len(licences)), ", ".join(copyleft) or "no GPL"))
    sbom = place / "sbom.json"
    run(tools, "-m", "cyclonedx_py", "environment", prefix, "-o", str(sbom))
    (ROOT / "dist").mkdir(exist_ok=True)
    (ROOT / "dist" / "sbom.json").write_bytes(sbom.read_bytes())
    rows.append(("SBOM (CycloneDX), dist/sbom.json", figured(1, 1), f"{sbom.stat().st_size // 1024} kB"))
    frozen = place / "frozen.txt"
    listed = subprocess.run([prefix, "-m", "pip", "freeze", "--exclude-editable"], capture_output=True, text=True)
    frozen.write_text("".join(f"{line.split('+')[0]}\n" for line in listed.stdout.splitlines() if "==" in line))
    audit = subprocess.run(
        [tools, "-m", "pip_audit", "-r", str(frozen), "--no-deps", "--disable-pip"], capture_output=True, text=True
    )
    skipped = audit.stdout.count("could not be audited")
    total = len(frozen.read_text().splitlines())
    holes = len(re.findall(r"(?:PYSEC|GHSA|CVE)-", audit.stdout))
    note = f"{skipped} could not be looked up here" if skipped else ""
    rows.append(("packages without a known hole (pip-audit)", figured(total, total - skipped - holes, holes), note))
    return rows


def environment(place: Path, *install: str) -> str:
    """A new virtual environment with packages in it; its Python."""
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *install)
    return python


def run(*command: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ).stdout


def figured(cases: int, survived: int, lost: int = 0, hangs: int = 0, tracebacks: int = 0) -> dict[str, int]:
    return dict(zip(COLUMNS, (cases, survived, lost, hangs, tracebacks), strict=True))


def table(rows: list[Row]) -> str:
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        "# Release check",
        "",
        f"`make release-check`, {time.strftime('%Y-%m-%d')}, {machine}.",
        "",
        f"| | {' | '.join(COLUMNS)} | |",
        "|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    lines += [f"| {name} | {' | '.join(str(figures[c]) for c in COLUMNS)} | {note} |" for name, figures, note in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
