"""What a message advises exists."""

from __future__ import annotations

import re
from pathlib import Path

import escounts

SOURCE = Path(escounts.__file__).parent
ELSEWHERE = {"--help", "--data-binary"}
"""click's own, and one of curl's."""
PIP_CALLS = "conversion.py"
"""Its options are pip's."""


def test_every_option_that_a_message_names_exists() -> None:
    declared = set(ELSEWHERE)
    named: dict[str, str] = {}
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for option in re.finditer(r'click\.option\(\s*((?:"[^"]+"\s*,\s*)+)', text):
            declared |= set(re.findall(r"--[a-z][a-z-]*", option[1]))
        if file.name != PIP_CALLS:
            named |= {name: file.name for name in re.findall(r"--[a-z][a-z-]+", text)}
    assert {name: file for name, file in named.items() if name not in declared} == {}
