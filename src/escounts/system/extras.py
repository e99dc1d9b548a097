"""How to install what an optional part needs, with a command that works where escounts was installed from."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path


def install_command(extra: str) -> str:
    """`pip install -e '.[serve]'` for a checkout (with its folder), or the packages themselves for a wheel.
    Without -e a copy would take the checkout's place, and what is changed there would do nothing.

    >>> install_command("serve")
    "pip install 'fastapi>=0.115' 'uvicorn>=0.30' 'python-multipart>=0.0.9'"
    """
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file():
        here = checkout == Path.cwd()
        return f"pip install -e '{'.' if here else checkout}[{extra}]'"
    try:
        wanted = importlib.metadata.requires("escounts") or []
    except importlib.metadata.PackageNotFoundError:
        wanted = []
    needs = [re.split(r"\s*;", line)[0] for line in wanted if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    return "pip install " + " ".join(f"'{need}'" for need in needs) if needs else f"pip install 'escounts[{extra}]'"
