"""One writer a format. Each is `write(result, path, *, video)`: whole file or OutputError, nothing between."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from escounts.output import csv, html, json, mp4, png, srt, text
from escounts.results import CountResult


class Writer(Protocol):
    """Writes one result to one file. video: the counted video, where pictures of it are wanted and at hand."""

    def __call__(self, result: CountResult, path: Path, *, video: Path | None) -> None: ...


WRITERS: dict[str, Writer] = {
    "text": text.write,
    "json": json.write,
    "csv": csv.write,
    "srt": srt.write,
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
