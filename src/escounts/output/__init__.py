"""One writer per format. Each is called as (result, path, *, video): whole file or OutputError, nothing between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from escounts.errors import OutputError
from escounts.output import html, json, mp4, png, text
from escounts.results import CountResult


class Writer(Protocol):
    """Writes one result to one file. video: the counted video, where pictures of it are wanted and at hand."""

    def __call__(self, result: CountResult, path: Path, *, video: Path | None) -> None: ...


WRITERS: dict[str, Writer] = {
    "text": text.write,
    "json": json.write,
    "csv": text.write_csv,
    "srt": text.write_srt,
    "png": png.write,
    "mp4": mp4.write,
    "html": html.write,
}

SUFFIXES: dict[str, str] = {
    "text": ".txt",
    "json": ".json",
    "csv": ".csv",
    "srt": ".srt",
    "png": ".png",
    "mp4": ".counted.mp4",
    "html": ".html",
}
"""How each format's file ends; the counted mp4 never takes the name of the video itself."""


def save(result: CountResult, path: Path) -> None:
    """Write the format that a file's ending names."""
    kinds = {Path("result" + suffix).suffix: kind for kind, suffix in SUFFIXES.items()}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise OutputError(f"{path}: no format ends in {path.suffix!r}; known: {', '.join(kinds)}")
    source = Path(result.video)
    if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
        raise OutputError(f"{path}: this is the counted video itself; give another name")
    WRITERS[kind](result, path, video=source if os.path.exists(source) else None)
