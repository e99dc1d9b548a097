"""The output formats, in the one list that command line, service and page read."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escounts.errors import OutputError

if TYPE_CHECKING:
    from escounts.results import CountResult


@dataclass(frozen=True)
class Format:
    """One kind of file.

    Args:
        suffix: how its files end; the counted mp4 never takes the name of the video itself.
        media_type: what a browser is told it is.
        title: its name on the page.
        writer: `module.function` of this package, loaded when it is first used; called as (result, path, *, video).
        drawn: shows frames of the video, so that the service has a worker make it.
        slow: its writer takes `progress`, too, and calls it with the seconds done and in all.
    """

    suffix: str
    media_type: str
    title: str
    writer: str
    drawn: bool = False
    slow: bool = False

    def write(
        self,
        result: CountResult,
        path: Path,
        *,
        video: Path | None = None,
        progress: Callable[[float, float], None] | None = None,
    ) -> None:
        """Write a result, whole or not at all (OutputError). video: where pictures of it are wanted and at hand."""
        module, _, function = self.writer.partition(".")
        write: Any = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        write(result, path, video=video, **({"progress": progress} if self.slow else {}))


FORMATS: dict[str, Format] = {
    "text": Format(".txt", "text/plain", "Text", "text.write"),
    "json": Format(".json", "application/json", "Data", "json.write"),
    "csv": Format(".csv", "text/csv", "Table", "text.write_csv"),
    "srt": Format(".srt", "application/x-subrip", "Subtitles", "text.write_srt"),
    "heat.png": Format(".heat.png", "image/png", "Heat map", "heat.write", drawn=True),
    "png": Format(".png", "image/png", "Picture", "png.write", drawn=True),
    "mp4": Format(".counted.mp4", "video/mp4", "Video", "mp4.write", drawn=True, slow=True),
    "html": Format(".html", "text/html", "Report", "png.write_html", drawn=True),
}


def save(result: CountResult, path: Path) -> None:
    """Write the format that a file's ending names, the longest that is one: .heat.png before .png."""
    kinds = {Path("result" + kind.suffix).suffix: kind for kind in FORMATS.values()}
    whole = {kind.suffix: kind for kind in FORMATS.values()}
    kind = whole.get("".join(path.suffixes[-2:]).lower()) or kinds.get(path.suffix.lower())
    if kind is None:
        raise OutputError(f"{path}: no format ends in {path.suffix!r}; known: {', '.join(kinds)}")
    source = Path(result.video)
    if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
        raise OutputError(f"{path}: this is the counted video itself; give another name")
    kind.write(result, path, video=source if os.path.exists(source) else None)
