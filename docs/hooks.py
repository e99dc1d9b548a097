"""What the build of the site fills in: the endpoints of the service, from the service itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from escounts.serve.app import create_app
from escounts.serve.settings import Settings

MARK = "<!-- endpoints -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return markdown.replace(MARK, endpoints()) if MARK in markdown else markdown


def endpoints() -> str:
    """A table of every request the service answers, grouped by its first word."""
    with tempfile.TemporaryDirectory() as folder:
        description = create_app(Settings(data=Path(folder))).openapi()
    rows: dict[str, list[str]] = {}
    for path, requests in description["paths"].items():
        group = path.removeprefix("/api/").strip("/").split("/")[0]
        for method, request in requests.items():
            says = " ".join((request.get("description") or request.get("summary") or "").split()).replace("|", "\\|")
            rows.setdefault(group, []).append(f"| `{method.upper()} {path}` | {says} |")
    head = "| request | what it does |\n|---|---|\n"
    return "\n\n".join(f"### {group}\n\n{head}" + "\n".join(lines) for group, lines in rows.items())
