"""The lock files of CI: every package of `.[test]`, its version and the hashes of its files; torch's builds apart.

    python .ci/lock.py              write it anew, after a change of pyproject.toml or constraints.txt
    python .ci/lock.py --fits       exit code 0 where this Python and machine are those it was written for
    python .ci/lock.py --check      exit code 1, and what differs, where it is older than constraints.txt

A file's hash is taken from where pip finds it here and, with --public, from the public index alone: a machine may
keep copies of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / ".ci" / "requirements.lock"
TORCH = ROOT / ".ci" / "torch.lock"
CONSTRAINTS = ROOT / "constraints.txt"
HEAD = """\
# Written by .ci/lock.py for {target}; other Pythons and machines take constraints.txt, without hashes.
#   pip install --no-deps --require-hashes -r .ci/requirements.lock
# Not here: escounts itself; setuptools, which pip fetches to build it; torch, which has .ci/torch.lock.
"""
TORCH_HEAD = """\
# Written by .ci/lock.py for {target}: the builds of torch. .ci/run installs the first that can be had.
# The one without CUDA has some hundred megabytes, the public one with its CUDA packages gigabytes. In one line, with
# the hashes of both, pip would take the public one everywhere.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--public", action="store_true", help="add the public index's hashes, where they differ")
    parser.add_argument("--reports", type=Path, nargs="*", help="pip's own reports, instead of asking pip")
    options = parser.parse_args()
    if options.fits:
        return 0 if LOCK.is_file() and f"for {target()};" in LOCK.read_text() else 1
    if options.check:
        stale = differences(LOCK.read_text() + TORCH.read_text(), CONSTRAINTS.read_text())
        print("\n".join(stale) or "the lock file agrees with constraints.txt")
        return 1 if stale else 0
    reports = [json.loads(path.read_text()) for path in options.reports or []]
    if not reports:
        reports = [report("-c", str(CONSTRAINTS), ".[test]")]
        if options.public:
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
                pins.write("".join(f"{name}=={version}\n" for name, version, _ in packages(reports[0])))
                pins.flush()
                reports.append(report("--no-deps", "-r", pins.name, PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS=""))
    for path in (LOCK, TORCH):
        path.write_text(locked(reports, torch=path == TORCH), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def target() -> str:
    return f"CPython {sys.version_info.major}.{sys.version_info.minor}, {platform.system()} {platform.machine()}"


def report(*arguments: str, **env: str) -> dict[str, list[dict[str, dict[str, str]]]]:
    """What pip would install into an empty environment; nothing is installed."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", file.name, *arguments], cwd=ROOT, check=True, env={**os.environ, **env})
        return dict(json.load(file))


def packages(found: dict) -> Iterable[tuple[str, str, str]]:  # type: ignore[type-arg]
    """(name, version, sha256) of a report's packages; escounts itself has no hash."""
    for one in found["install"]:
        hashes = one["download_info"].get("archive_info", {}).get("hashes", {})
        name = re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower()
        if "sha256" in hashes:
            yield name, one["metadata"]["version"], hashes["sha256"]


def locked(reports: list[dict], *, torch: bool = False) -> str:  # type: ignore[type-arg]
    """The text of a lock file: of torch's, its builds without CUDA first, or of the one of everything else."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, version, digest in (one for each in reports for one in packages(each)):
        if (name == "torch") != torch:
            continue
        digests = found.setdefault((name, version), [])
        if digest not in digests:
            digests.append(digest)
    lines = [(TORCH_HEAD if torch else HEAD).format(target=target())]
    for (name, version), digests in sorted(found.items(), key=lambda one: (one[0][0], "+" not in one[0][1])):
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(digests))
        lines.append(f"{name}=={version} {hashes}\n")
    return "".join(lines)


def differences(lock: str, constraints: str) -> list[str]:
    """Packages that constraints.txt pins to another version than the lock files, whichever build they name."""
    versions = dict(re.findall(r"^([a-z0-9-]+)==([^\s+]+)", lock, re.M))
    pinned = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", constraints, re.M)
    names = [(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in pinned]
    return [
        f"{name}: constraints.txt {version}, lock file {versions[name]}"
        for name, version in names
        if name in versions and versions[name] != version
    ]


if __name__ == "__main__":
    sys.exit(main())
