"""The parsers written here, each as a function of bytes that may raise an EscountsError and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

from escounts.errors import EscountsError
from escounts.exemplars import parse_exemplar
from escounts.models.checkpoint import load_network
from escounts.models.store import describe
from escounts.research.datasets import counted, timed
from escounts.research.datasets import folder as own_folder
from escounts.research.datasets.annotation_formats import FORMATS, read_labels
from escounts.research.datasets.stores import load_labels
from escounts.research.datasets.tokens import TokenStore

PLACE = Path(tempfile.mkdtemp(prefix="escounts-fuzz-"))
TABLES = Path(tempfile.mkdtemp(prefix="escounts-fuzz-"))


def exemplar(data: bytes) -> None:
    parse_exemplar(data.decode("utf-8", "replace"))


def label_table(data: bytes) -> None:
    (PLACE / "labels.csv").write_bytes(data)
    with mock.patch.object(own_folder, "video_seconds", return_value=10.0):
        own_folder.load_folder(PLACE)


def label_record(data: bytes) -> None:
    (PLACE / "labels-x.json").write_bytes(data)
    load_labels(PLACE)


def annotation_file(data: bytes) -> None:
    """A file of BORIS, ELAN, Label Studio or a plain table, as it is sent to the page: read as what it seems to be,
    and as each of the formats."""
    for name, format in (("labels", None), *((f"labels{entry.suffix}", key) for key, entry in FORMATS.items())):
        (PLACE / name).write_bytes(data)
        with suppress(EscountsError):
            read_labels(PLACE / name, format=format, fps=25.0)
    text = data.decode("utf-8", "replace")  # a page sends text, whose line ends nobody has made alike
    for entry in FORMATS.values():
        with suppress(EscountsError):
            entry.read(text, None, 25.0)


def dataset_table(data: bytes) -> None:
    """Every table of the published datasets that are tables."""
    for name in ("train.csv", "valid.csv", "val.csv", "test.csv"):
        (TABLES / name).write_bytes(data)
    for load in (timed.load_repcount, timed.load_ucfrep, counted.load_countix):
        with suppress(EscountsError):
            load(TABLES)
    for form in ("frames", "av"):
        with suppress(EscountsError):
            counted.load_countix(TABLES, form=form)


def frame_numbers(data: bytes) -> None:
    """QUVA's .npy."""
    (TABLES / "annotations").mkdir(exist_ok=True)
    (TABLES / "annotations" / "a.npy").write_bytes(data)
    with mock.patch.object(timed, "video_fps", return_value=25.0):
        timed.load_quva(TABLES)


def clip_list(data: bytes) -> None:
    (PLACE / "ovr_ego4d_release.json").write_bytes(data)
    counted.load_ovr(PLACE)


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
    parser.__name__: parser
    for parser in (
        exemplar, annotation_file, dataset_table, frame_numbers, label_table, label_record, clip_list, token_store,
        checkpoint,
    )
}  # fmt: skip


def fed(name: str, data: bytes) -> None:
    """Give bytes to a parser; an EscountsError of one line is a good answer."""
    try:
        PARSERS[name](data)
    except EscountsError as error:
        assert "\n" not in str(error), "an error is one line"
