"""docs/architecture.md says what the contracts of import-linter check."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
def test_the_table_of_rooms_is_the_contract() -> None:
    import tomllib

    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("## Rooms")[1].split("Further contracts")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert rows == [re.split(r" [|:] ", layer) for layer in layers]


def test_two_modules_start_processes() -> None:
    """`system/processes.py` starts interpreters and other programs; the generator, a library of its own, forks."""
    starts = re.compile(
        r"^\s*(?:import|from) (?:subprocess|multiprocessing)|ProcessPoolExecutor|os\.(?:fork|spawn)", re.M
    )
    package = REPOSITORY / "src" / "escounts"
    found = {
        path.relative_to(package).as_posix() for path in package.rglob("*.py") if starts.search(path.read_text())
    }
    assert found == {"system/processes.py", "synthetic/actions.py"}
