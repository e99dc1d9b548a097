"""The parsers written here, each as a function of bytes that may raise an EscountsError and nothing else.

python tests/fuzz/parsers.py NAME [libFuzzer options]     (guided by coverage, with atheris)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from escounts.datasets import folder as own_folder
from escounts.datasets import ovr
from escounts.datasets.labels import load_labels
from escounts.datasets.tokens import TokenStore
from escounts.errors import EscountsError
from escounts.exemplars import parse_exemplar
from escounts.zoo.checkpoint import load_network
from escounts.zoo.store import describe

PLACE = Path(tempfile.mkdtemp(prefix="escounts-fuzz-"))


def exemplar(data: bytes) -> None:
    parse_exemplar(data.decode("utf-8", "replace"))


def label_table(data: bytes) -> None:
    (PLACE / "labels.csv").write_bytes(data)
    own_folder.load(PLACE, duration=lambda path: 10.0)


def label_record(data: bytes) -> None:
    (PLACE / "labels.json").write_bytes(data)
    load_labels(PLACE)


def clip_list(data: bytes) -> None:
    (PLACE / "ovr_ego4d_release.json").write_bytes(data)
    ovr.load(PLACE)


def token_store(data: bytes) -> None:
    half = len(data) // 2
    (PLACE / "layout.json").write_bytes(data[:half])
    (PLACE / "index.json").write_bytes(data[half:])
    TokenStore(PLACE)


def checkpoint(data: bytes) -> None:
    path = PLACE / "weights.safetensors"
    path.write_bytes(data)
    with suppress(EscountsError):
        describe(path)
    load_network(path)


PARSERS: dict[str, Callable[[bytes], None]] = {
    parser.__name__: parser for parser in (exemplar, label_table, label_record, clip_list, token_store, checkpoint)
}


def fed(name: str, data: bytes) -> None:
    """Give bytes to a parser; an EscountsError of one line is a good answer."""
    try:
        PARSERS[name](data)
    except EscountsError as error:
        assert "\n" not in str(error), "an error is one line"


if __name__ == "__main__":
    import atheris  # the release check installs it

    name = sys.argv.pop(1)
    atheris.instrument_all()
    atheris.Setup(sys.argv, lambda data: fed(name, data))
    atheris.Fuzz()
