"""The part of release_check.py that looks at what is shipped: wheel, sdist, and everything that comes with them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TOOLS = ("build", "pip-audit", "pip-licenses", "cyclonedx-bom")
COPYLEFT = re.compile(r"\b(A?GPL|GNU (Affero )?General Public)", re.I)
NEVER_SHIPPED = {"escounts"}
NEVER_MENDED = "pycrypto"  # its last release has holes that are public since 2017
WITH_A_PACKAGE = ("video/test_files.py", "test_counter.py", "test_results.py", "output")
"""Of tests/, what an installed package passes: reading, counting, and what is written."""


def packages(root: Path, limit: float) -> list[dict[str, Any]]:
    """Wheel and sdist: the same bytes twice; both count the sample and pass tests in empty environments."""
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        place = Path(folder)
        source = committed(root, place / "source")
        when = run("git", "log", "-1", "--format=%ct", cwd=root, limit=limit).strip()
        tools = environment(place / "tools", "build", limit=limit)
        digests = []
        for turn in ("first", "second"):
            run(tools, "-m", "build", "--outdir", str(place / turn), str(source), limit=limit, SOURCE_DATE_EPOCH=when)
            built = sorted((place / turn).iterdir())
            digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built})
        for name, digest in digests[0].items():
            same = int(digests[1].get(name) == digest)
            what, note = "bytes", f"sha256 {digest}"
            if name.endswith(".tar.gz"):  # setuptools writes today's time into the archive
                same, what, note = (
                    int(_members(place / "first" / name) == _members(place / "second" / name)),
                    "files",
                    "",
                )
            rows.append({"name": f"{name} built twice: the same {what}", "cases": 1, "survived": same, "note": note,
                         "failed": not same})  # fmt: skip
            rows.append(installed(root, place, place / "first" / name, limit))
    return rows


def _members(archive: Path) -> dict[str, bytes]:
    """What is in an sdist: names and contents."""
    with tarfile.open(archive) as opened:
        files = [member for member in opened.getmembers() if member.isfile()]
        return {member.name: read.read() for member in files if (read := opened.extractfile(member)) is not None}


def committed(root: Path, source: Path) -> Path:
    """What is committed, and nothing that lies about beside it."""
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True)
    subprocess.run(["tar", "x", "-C", str(source)], input=archive.stdout, check=True)
    return source


def installed(root: Path, place: Path, package: Path, limit: float) -> dict[str, Any]:
    """Install a package into an empty environment; count the sample there and run the tests of reading and counting.

    The tests are those of the checkout, the code is what was installed: the checkout's src/ is not on the path.
    """
    python = environment(
        place / f"with-{package.name}",
        f"{package}[plot]",
        "pytest",
        "hypothesis",
        "-c",
        str(root / "constraints.txt"),
        limit=limit,
    )
    elsewhere = place / f"tests-{package.name}"
    run("cp", "-r", str(root / "tests"), str(elsewhere), cwd=root, limit=limit)
    said = run(python, "-m", "escounts", "count", str(root / "examples" / "sample.mp4"), "-q", cwd=place, limit=limit)
    tests = [str(elsewhere / name) for name in WITH_A_PACKAGE]
    ended = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=place, capture_output=True, text=True, timeout=limit,
    )  # fmt: skip
    if ended.returncode != 0:
        print((ended.stdout + ended.stderr)[-8000:], flush=True)
    verdict = ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ended.stderr[-200:]
    return {
        "name": f"{package.name} in an empty environment: the sample, the tests of reading and counting",
        "cases": 1, "survived": int(ended.returncode == 0), "failed": ended.returncode != 0,
        "note": f"{said.strip().splitlines()[0]}; {verdict}",
    }  # fmt: skip


def supply(root: Path, limit: float) -> list[dict[str, Any]]:
    """Of the wheel with all its extras in an empty environment: licences, SBOM, known holes. Files go to dist/."""
    out = root / "dist"
    out.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        tools = environment(place / "tools", *TOOLS, limit=limit)
        source = committed(root, place / "source")
        python = environment(place / "shipped", f"{source}[all]", "-c", str(root / "constraints.txt"), limit=limit)
        return [
            licences(tools, python, out, limit),
            sbom(tools, python, out, limit),
            holes(tools, python, place, limit),
            lock_file(root, limit),
            base_image(root),
        ]


def licences(tools: str, python: str, out: Path, limit: float) -> dict[str, Any]:
    """dist/licences.json: name, version and licence of every package; one without is a failure."""
    text = run(tools, "-m", "piplicenses", "--python", python, "--format=json", "--with-urls", limit=limit)
    (out / "licences.json").write_text(text)
    found = [one for one in json.loads(text) if one["Name"] not in NEVER_SHIPPED]
    unknown = [one["Name"] for one in found if one["License"] == "UNKNOWN"]
    copyleft = [one["Name"] for one in found if COPYLEFT.search(one["License"]) and "Lesser" not in one["License"]]
    note = f"GPL among them: {', '.join(copyleft)}" if copyleft else "no GPL; dist/licences.json"
    if unknown:
        note = f"without a stated licence: {', '.join(unknown)}; {note}"
    return {"name": "packages with a licence", "cases": len(found), "survived": len(found) - len(unknown),
            "note": note, "failed": bool(unknown or copyleft)}  # fmt: skip


def sbom(tools: str, python: str, out: Path, limit: float) -> dict[str, Any]:
    """dist/sbom.json, CycloneDX."""
    path = out / "sbom.json"
    run(tools, "-m", "cyclonedx_py", "environment", python, "--output-reproducible", "-o", str(path), limit=limit)
    components = len(json.loads(path.read_text())["components"])
    return {"name": "SBOM (CycloneDX)", "cases": components, "survived": components, "note": "dist/sbom.json"}


def holes(tools: str, python: str, place: Path, limit: float) -> dict[str, Any]:
    """What pip-audit knows of the packages. Where it cannot ask, nothing is known, and that is said."""
    frozen = place / "frozen.txt"
    listed = run(python, "-m", "pip", "freeze", limit=limit).splitlines()
    lines = [line.split("+")[0] for line in listed if "==" in line]
    frozen.write_text("".join(f"{line}\n" for line in lines))
    command = [tools, "-m", "pip_audit", "-r", str(frozen), "--no-deps", "--disable-pip", "-f", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    row = "packages without a known hole (pip-audit)"
    try:
        found = json.loads(ended.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (ended.stderr.strip().splitlines() or ["no answer"])[-1]
        return {"name": row, "cases": len(lines), "survived": 0, "note": f"could not be asked: {reason}"[:200],
                "failed": True}  # fmt: skip
    versions = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in (one.split("==") for one in lines)}
    skipped = {one["name"]: versions[one["name"]] for one in found if "skip_reason" in one}
    known = {one["name"]: [hole["id"] for hole in one["vulns"]] for one in found if "vulns" in one}
    known |= holes_of_newest(tools, skipped, limit)
    return {"name": row, **said_of_holes(known, sorted(skipped.keys() - known.keys()))}


def said_of_holes(known: dict[str, list[str]], unknown: list[str]) -> dict[str, Any]:
    """The figures of the row: what is known of the packages that were looked up, and those that could not be.

    A package that nobody could be asked about is not one with a hole, nor one without: it is said, and does not fail
    the row as long as others could be looked up.
    """
    bad = {name: ids for name, ids in known.items() if ids}
    note = f"looked up {len(known)}, of these with a known hole {len(bad)}; not looked up {len(unknown)}"
    holes = "; ".join(f"{name} {', '.join(ids)}" for name, ids in bad.items())
    return {"cases": len(known), "survived": len(known) - len(bad), "note": f"{note}; {holes}" if holes else note,
            "failed": bool(bad) or not known, "unchecked": ", ".join(unknown)}  # fmt: skip


def holes_of_newest(tools: str, versions: dict[str, str], limit: float) -> dict[str, list[str]]:
    """Holes of each package whose version is the newest release, for an index that answers for projects alone.

    pip-audit asks for a version by name; a mirror may not have that answer and still pass on the project's own, which
    says what is known of the newest release and nothing of older ones. What it says is believed where it says that
    NEVER_MENDED has holes: an answer whose list was emptied on the way looks like a clean one.
    """
    index = run(tools, "-c", "from pip._internal.models.index import PyPI; print(PyPI.pypi_url)", limit=limit).strip()

    def asked(name: str) -> tuple[str, list[str]] | None:
        try:
            with urllib.request.urlopen(f"{index}/{name}/json", timeout=30) as answer:
                told = json.load(answer)
            return told["info"]["version"], [one["id"] for one in told["vulnerabilities"] if not one.get("withdrawn")]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    control = asked(NEVER_MENDED)
    if not versions or control is None or not control[1]:
        return {}
    with ThreadPoolExecutor(4) as four:
        answers = dict(zip(versions, four.map(asked, versions), strict=True))
    return {name: told[1] for name, told in answers.items() if told and told[0] == versions[name]}


def lock_file(root: Path, limit: float) -> dict[str, Any]:
    """Whether the lock file of CI is of today's constraints."""
    check = [sys.executable, str(root / ".ci" / "lock.py"), "--check"]
    ended = subprocess.run(check, capture_output=True, text=True, timeout=limit)
    texts = [path.read_text() for path in sorted((root / ".ci").glob("*.lock"))]
    locked = [line for text in texts for line in text.splitlines() if "--hash=sha256:" in line]
    said = "; ".join(ended.stdout.strip().splitlines())
    return {"name": "packages of CI locked by hash", "cases": len(locked), "survived": len(locked), "note": said,
            "failed": ended.returncode != 0}  # fmt: skip


def base_image(root: Path) -> dict[str, Any]:
    """Whether every stage of the Dockerfile begins with BASE, and BASE is named by a digest."""
    text = (root / "Dockerfile").read_text()
    by_digest = re.search(r"^ARG BASE=(\S+@sha256:[0-9a-f]{64})$", text, re.M)
    stages = re.findall(r"^\s*FROM\s+(\S+)", text, re.M | re.I)
    good = bool(by_digest and stages and set(stages) == {"${BASE}"})
    note = by_digest[1] if by_digest and good else "missing: the Dockerfile says how one is found"
    return {"name": "base image by digest", "cases": 1, "survived": int(good), "note": note, "failed": not good}


def environment(place: Path, *install: str, limit: float) -> str:
    """A new virtual environment with packages in it; its Python."""
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *install, limit=limit)
    return python


def run(*command: str, limit: float, cwd: Path | None = None, **env: str) -> str:
    """What a command prints; its error names what it said."""
    ended = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=limit, env={**os.environ, "PYTHONPATH": "", **env}
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:6])} …: {(ended.stderr or ended.stdout).strip()[-600:]}")
    return ended.stdout
