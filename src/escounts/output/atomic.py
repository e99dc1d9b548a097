"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from escounts.errors import OutputError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` (same ending) that takes its place when the block ends well.

    Whatever goes wrong, the temporary file goes away and an older `path` stays as it was; an OSError (no
    space, no permission) becomes an OutputError that names the file.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """A whole text file, UTF-8."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
