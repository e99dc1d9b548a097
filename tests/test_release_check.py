"""`make release-check`: a suite that was stopped goes on, and what failed or did not run is never a good row."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).resolve().parents[1] / ".ci"
if not CI.is_dir():
    pytest.skip("needs a checkout: a package has no .ci", allow_module_level=True)
sys.path.insert(0, str(CI))
import release_check  # type: ignore[import-not-found]  # noqa: E402
import release_packages  # type: ignore[import-not-found]  # noqa: E402
from release_suites import Suite, kept  # type: ignore[import-not-found]  # noqa: E402

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
    assert (figures.name, figures.cases, figures.tracebacks, figures.note) == ("kills", 20, 2, "killed: 16")
    assert not figures.good and len(kept(verdicts)) == 2


def test_what_is_skipped_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.release\ndef test_it(): pytest.skip('no atheris')\n"
    )
    (row,) = rows_of(tmp_path)
    assert (row.cases, row.survived, row.good, row.note) == (1, 0, False, "1 did not run (skipped)")


def test_other_code_runs_anew_and_the_page_keeps_what_is_around_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, shares = tmp_path / "page.md", list[float]()
    page.write_text(f"before\n{release_check.BEGIN}\nold\n{release_check.END}\nafter\n")

    def part(share: float, limit: float, verdicts: Path) -> list[Any]:
        shares.append(share)
        return [release_check.Row("the part", 3, 3)]

    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    monkeypatch.setattr(release_check, "PAGE", page)
    monkeypatch.setattr(release_check, "PARTS", {"part": release_check.Part(part, 60)})
    monkeypatch.setattr(release_check, "git", lambda *arguments: "src/a.py" if "ls-files" in arguments else "c" * 40)
    monkeypatch.setattr(sys, "argv", ["release_check.py"])
    (tmp_path / "src").mkdir()
    for code in ("one", "one", "two"):
        (tmp_path / "src" / "a.py").write_text(code)
        assert release_check.main() == 0
    assert shares == [1.0, 1.0], "once for each code"
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| the part | 3 | 3 | 0 | 0 | 0 |" in text and "cccccccc" in text
    record = json.loads((tmp_path / "build" / "release-check" / "whole" / "part.json").read_text())
    assert record["load"][0] <= record["load"][1]


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
