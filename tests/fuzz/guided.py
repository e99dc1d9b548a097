"""One parser fed by atheris, guided by which lines of this package each input reaches.

    python tests/fuzz/guided.py NAME FOLDER [libFuzzer options]

FOLDER: inputs to begin with; those that reach something new are added. An input that raises anything but an
EscountsError ends the run and is left in a file.
"""

from __future__ import annotations

import sys

import atheris
import torch  # noqa: F401 - before the instrumented imports: only lines of this package guide

with atheris.instrument_imports(include=["escounts", "fuzz.parsers"]):
    from fuzz.parsers import fed

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, lambda data: fed(name, data))
    atheris.Fuzz()
