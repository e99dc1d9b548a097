"""`make release-check`: a suite that was stopped goes on, pieces run side by side and add up, and what failed or did
not run is never a good row."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).resolve().parents[1] / ".ci"
if not CI.is_dir():
    pytest.skip("needs a checkout: a package has no .ci", allow_module_level=True)
sys.path.insert(0, str(CI))
import lock  # type: ignore[import-not-found]  # noqa: E402
import release_check  # type: ignore[import-not-found]  # noqa: E402
import release_lanes  # type: ignore[import-not-found]  # noqa: E402
import release_packages  # type: ignore[import-not-found]  # noqa: E402
from release_rows import Row, merged, summary  # type: ignore[import-not-found]  # noqa: E402
from release_suites import Suite, kept, split  # type: ignore[import-not-found]  # noqa: E402

TESTS = """
import pathlib, pytest
HERE = pathlib.Path(__file__).parent

@pytest.mark.release
@pytest.mark.parametrize("part", range(2))
def test_figures(part):
    with (HERE / "runs").open("a") as file:
        file.write(f"{part}\\n")
    print('\\nRELEASE-ROW {"name": "kills", "cases": 10, "survived": 9, "lost": 0, "crash": 0, "hang": 0, '
          '"traceback": 1, "notes": {"killed": 8}}')
    assert part == 0 or (HERE / "mended").exists()
"""


@pytest.fixture(autouse=True)
def quick_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


CHECK = """
import json, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {ci!r})
import release_check
from release_lanes import Part
from release_rows import Row

HERE = release_check.ROOT = Path({root!r})
release_check.PAGE = HERE / "page.md"
files = "src/a.py\\0benchmarks/results/table.md"
release_check.git = lambda *arguments: files if "ls-files" in arguments else "c" * 40

{parts}

release_check.PARTS = PARTS
sys.argv = ["release_check.py"]
sys.exit(release_check.main())
"""


class Checkout:
    """A root with a page and one file of code, where the check finds itself."""

    def __init__(self, root: Path) -> None:
        self.root, self.code = root, root / "src" / "a.py"
        self.code.parent.mkdir()
        self.code.write_text("one")
        (root / "page.md").write_text(f"before\n{release_check.BEGIN}\nold\n{release_check.END}\nafter\n")

    @property
    def page(self) -> str:
        return (self.root / "page.md").read_text()

    def check(self, parts: str) -> tuple[int, str]:
        """Exit code and output of a check with other PARTS: in a fresh process, as ever. It forks, and a process that
        has run other tests has threads, which a fork does not survive."""
        program = CHECK.format(ci=str(CI), root=str(self.root), parts=parts)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def rows_of(folder: Path) -> list[Any]:
    return Suite((str(folder),)).run(0.5, 60, folder / "verdicts.jsonl")  # type: ignore[no-any-return]


def test_a_stopped_suite_goes_on_with_what_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    figures, tests = rows_of(tmp_path)
    assert (tests.cases, tests.survived, tests.good) == (2, 1, False)
    verdicts = tmp_path / "verdicts.jsonl"
    verdicts.write_text(verdicts.read_text() + '{"test": "torn by a ki')
    (tmp_path / "mended").touch()
    figures, tests = rows_of(tmp_path)
    assert (tests.cases, tests.survived, tests.good) == (2, 2, True)
    assert (tmp_path / "runs").read_text().split() == ["0", "1", "1"], "what has passed is not run again"
    assert (figures.name, figures.cases, figures.tracebacks, figures.figures) == ("kills", 20, 2, {"killed": 16})
    assert not figures.good and len(kept(verdicts)) == 2


def test_what_is_skipped_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.release\ndef test_it(): pytest.skip('no atheris')\n"
    )
    (row,) = rows_of(tmp_path)
    assert (row.cases, row.survived, row.good) == (1, 0, False) and "did not run (skipped): 1" in row.said


def test_every_test_is_in_one_slice(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_other(): pass\n"
        "@pytest.mark.release\n@pytest.mark.parametrize('n', range(5))\ndef test_it(n): pass\n"
    )
    found = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for run, verdicts in zip(split(Suite((str(tmp_path),)), 2), found, strict=True):
        (row,) = run(0.5, 60, verdicts)
        assert row.good
    assert [len(kept(verdicts)) for verdicts in found] == [3, 2] and not kept(found[0]).keys() & kept(found[1]).keys()


def test_other_code_runs_anew_and_the_page_keeps_what_is_around_the_table(checkout: Checkout) -> None:
    part = """
def part(share, limit, verdicts):
    with (HERE / "shares").open("a") as file:
        file.write(f"{share}\\n")
    (HERE / "benchmarks" / "results").mkdir(parents=True, exist_ok=True)
    (HERE / "benchmarks" / "results" / "table.md").write_text(str(verdicts))  # as relations does: no code
    return [Row("the part", 3, 3)]
PARTS = {"part": Part((part,), 60)}
"""
    for code in ("one", "one", "two"):
        checkout.code.write_text(code)
        assert checkout.check(part)[0] == 0
    assert (checkout.root / "shares").read_text().split() == ["1.0", "1.0"], "once for each code"
    text = checkout.page
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| the part | 3 | 3 | 0 | 0 | 0 |" in text and "cccccccc" in text and "min by the clock" in text
    record = json.loads((checkout.root / "build" / "release-check" / "whole" / "part.json").read_text())
    assert record["load"][0] <= record["load"][1]


def test_figures_of_code_that_changed_under_them_do_not_pass(checkout: Checkout) -> None:
    code, output = checkout.check("""
def part(share, limit, verdicts):
    (HERE / "src" / "a.py").write_text("another")
    return [Row("the part", 3, 3)]
PARTS = {"part": Part((part,), 60)}
""")
    assert code == 1 and "old" in checkout.page and "failed: the code stayed the same while it ran" in output


def test_pieces_run_side_by_side_and_what_is_measured_alone(checkout: Checkout) -> None:
    """Two at a time, each once, their figures in one row; after them, one by one, those that want to be alone."""
    code, output = checkout.check("""
def piece(share, limit, verdicts):
    began = time.monotonic()
    time.sleep(0.5)
    verdicts.write_text(json.dumps([began, time.monotonic()]))
    return [Row("tests", 2, 2, figures={"seconds": 3})]
PARTS = {"beside": Part((piece,) * 3, 60), "alone": Part((piece,) * 2, 60, alone=True)}
""")
    assert code == 0, output
    times: dict[str, list[list[float]]] = {}
    for path in (checkout.root / "build" / "release-check" / "whole").glob("*.jsonl"):
        times.setdefault(path.name.partition("-")[0], []).append(json.loads(path.read_text()))
    beside, alone = sorted(times["beside"]), sorted(times["alone"])
    assert beside[1][0] < beside[0][1], "two at a time"
    assert beside[2][0] > min(end for _, end in beside), "and no third"
    assert all(end <= begin for (_, end), (begin, _) in pairwise([[0.0, max(e for _, e in beside)], *alone]))
    assert (
        "| tests | 6 | 6 | 0 | 0 | 0 | seconds: 9 | beside: cccccccc" in checkout.page and "3 pieces" in checkout.page
    )


def test_a_piece_that_is_killed_is_no_verdict_and_runs_again(checkout: Checkout) -> None:
    parts = """
def piece(share, limit, verdicts):
    if not (HERE / "mended").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return [Row("tests", 2, 2)]

def other(share, limit, verdicts):
    assert not (HERE / "other").exists(), "has run"
    (HERE / "other").touch()
    return [Row("tests", 2, 2)]
PARTS = {"part": Part((piece, other), 60)}
"""
    code, output = checkout.check(parts)
    assert code == 1 and "failed: part-1" in output and "old" in checkout.page
    (checkout.root / "mended").touch()
    assert checkout.check(parts)[0] == 0
    assert "| tests | 4 | 4 | 0 |" in checkout.page


def test_two_checks_at_once_do_not_write_into_each_other(tmp_path: Path) -> None:
    one = release_lanes.only_one
    with one(tmp_path), pytest.raises(SystemExit, match="still runs"), one(tmp_path):
        pass
    with release_lanes.only_one(tmp_path):
        pass


def test_rows_of_pieces_add_up_and_what_was_not_checked_is_said() -> None:
    whole, holes = merged(
        [Row("a", 2, 2), Row("a", 3, 2, tracebacks=1), Row("holes", 5, 5, unchecked="torch, av"), Row("a", 1, 1)]
    )
    assert (whole.cases, whole.survived, whole.good) == (6, 5, False)
    assert holes.good and "**not checked**: torch, av" in holes.said
    assert summary([whole, holes]).splitlines() == [
        "1 of 2 rows passed",
        "failed: a",
        "not checked: holes: torch, av",
    ]


def test_every_stage_of_the_image_begins_with_one_digest(tmp_path: Path) -> None:
    text = (CI.parent / "Dockerfile").read_text()
    assert not release_packages.base_image(CI.parent)["failed"]
    tag = text.partition("@sha256:")[0] + "\n\nFROM ${BASE}\n"
    for worse in (tag, text + "\nFROM python:3.12-slim\n", "FROM python:3.12-slim\n"):
        (tmp_path / "Dockerfile").write_text(worse)
        assert release_packages.base_image(tmp_path)["failed"], worse[-60:]


def test_what_is_known_of_the_newest_release_is_said_of_no_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an index that lists no holes of a package that is full of them is not believed about the others."""
    told = {"old": ("2.0", []), "new": ("2.0", []), "bad": ("1.0", ["CVE-1"]), "pycrypto": ("2.6.1", ["CVE-0"])}

    def answer(address: str, timeout: float) -> io.BytesIO:
        version, ids = told[address.split("/")[-2]]
        listed = [{"id": one, "withdrawn": None} for one in ids] + [{"id": "CVE-9", "withdrawn": "2026-01-01"}]
        return io.BytesIO(json.dumps({"info": {"version": version}, "vulnerabilities": listed}).encode())

    monkeypatch.setattr(release_packages.urllib.request, "urlopen", answer)
    monkeypatch.setattr(release_packages, "run", lambda *_, **__: "index\n")
    shipped = {"old": "1.9", "new": "2.0", "bad": "1.0"}
    assert release_packages.holes_of_newest("python", shipped, 9.0) == {"new": [], "bad": ["CVE-1"]}
    told["pycrypto"] = ("2.6.1", [])
    assert release_packages.holes_of_newest("python", shipped, 9.0) == {}


def test_a_package_that_could_not_be_looked_up_is_said_and_is_no_hole() -> None:
    said = release_packages.said_of_holes({"a": [], "b": []}, ["torch"])
    row = Row("holes", **said)
    assert row.good and (row.cases, row.survived) == (2, 2)
    assert "looked up 2, of these with a known hole 0; not looked up 1; **not checked**: torch" in row.said
    for worse in (({"a": [], "b": ["CVE-1"]}, ["torch"]), ({}, ["a", "b"]), ({}, [])):
        assert not Row("holes", **release_packages.said_of_holes(*worse)).good


def test_every_package_of_ci_has_a_hash_torch_in_each_build() -> None:
    """In one line with two hashes, pip would take the public build of torch and its CUDA packages everywhere."""
    rest, torch = lock.LOCK.read_text(), lock.TORCH.read_text()
    builds = [line for line in torch.splitlines() if not line.startswith("#")]
    assert [build.count("--hash=sha256:") for build in builds] == [1, 1]
    assert "+cpu " in builds[0] and "+" not in builds[1] and "\ntorch==" not in rest
    assert lock.differences(rest + torch, lock.CONSTRAINTS.read_text()) == []
    assert lock.differences(torch, "torch==1.0") == [
        f"torch: constraints.txt 1.0, lock file {builds[1].split()[0][7:]}"
    ]
    wheel = {"metadata": {"name": "torch", "version": "2.13.0+cpu"}}
    found = {"install": [{**wheel, "download_info": {"archive_info": {"hashes": {"sha256": "ab"}}}}]}
    assert "torch==2.13.0+cpu --hash=sha256:ab" in lock.locked([found], torch=True)
    assert "torch==" not in lock.locked([found])


def test_what_the_release_check_runs_is_there() -> None:
    """A file of tests that was moved let every package fail."""
    tests = (*release_packages.WITH_A_PACKAGE, *release_check.KILLS, *release_check.MEASURED)
    tests += (release_check.PARSERS, release_check.VIDEOS)
    assert [name for name in tests if not (CI.parent / "tests" / name.removeprefix("tests/")).exists()] == []
