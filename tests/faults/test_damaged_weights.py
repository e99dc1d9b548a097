"""Weights that are damaged or made to harm: one line each, and one bad file spoils nothing else."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command import run

from escounts.errors import ModelError
from escounts.models import catalogue, store
from escounts.models.checkpoint import load_network, save_network, tensors_sha256, write_checkpoint
from escounts.models.conversion import add
from escounts.nn.network import LITE_TINY, Network

Header = dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_network(path, Network(LITE_TINY))
    return path.read_bytes()


def parts(whole: bytes) -> tuple[Header, bytes]:
    length = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8 : 8 + length]), whole[8 + length :]


def assembled(header: Any, body: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def config(header: Header, change: Callable[[Any], Any]) -> Header:
    header["__metadata__"]["config"] = json.dumps(change(json.loads(header["__metadata__"]["config"])))
    return header


def first(header: Header) -> str:
    return next(name for name in header if name != "__metadata__")


def with_entry(header: Header, **values: Any) -> Header:
    header[first(header)] |= values
    return header


def set_deep(values: Any, *path: str, to: Any) -> Any:
    inner = values
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return values


def with_metadata(header: Header, **values: Any) -> Header:
    header["__metadata__"] |= values
    return header


HEADERS: dict[str, Callable[[Header], Any]] = {
    "no metadata": lambda h: {k: v for k, v in h.items() if k != "__metadata__"},
    "metadata is a list": lambda h: h | {"__metadata__": [1, 2]},
    "metadata is text": lambda h: h | {"__metadata__": "x"},
    "metadata holds numbers": lambda h: with_metadata(h, licence=3),
    "header is a list": lambda h: [],
    "header is a number": lambda h: 7,
    "header is null": lambda h: None,
    "header is not JSON": lambda h: b"{" * 50,
    "header is deep": lambda h: b"[" * 100_000 + b"]" * 100_000,
    "header is not UTF-8": lambda h: b"\xff\xfe{}",
    "no offsets": lambda h: {k: ({} if k != "__metadata__" else v) for k, v in h.items()},
    "offsets are null": lambda h: with_entry(h, data_offsets=None),
    "offsets are text": lambda h: with_entry(h, data_offsets=["a", "b"]),
    "one offset": lambda h: with_entry(h, data_offsets=[0]),
    "negative offsets": lambda h: with_entry(h, data_offsets=[-5, 3]),
    "huge offsets": lambda h: with_entry(h, data_offsets=[0, 2**70]),
    "an entry is a list": lambda h: h | {first(h): []},
    "an entry is null": lambda h: h | {first(h): None},
    "unknown type": lambda h: with_entry(h, dtype="F7"),
    "another type": lambda h: with_entry(h, dtype="I8"),
    "shape is text": lambda h: with_entry(h, shape="big"),
    "shape is negative": lambda h: with_entry(h, shape=[-1, 4]),
    "shape is huge": lambda h: with_entry(h, shape=[2**40, 2**40]),
    "no config": lambda h: with_metadata(h, config=""),
    "config is a list": lambda h: config(h, lambda c: []),
    "config is null": lambda h: config(h, lambda c: None),
    "config is deep": lambda h: with_metadata(h, config="[" * 50_000 + "]" * 50_000),
    "config is empty": lambda h: config(h, lambda c: {}),
    "decoder is text": lambda h: config(h, lambda c: c | {"decoder": "x"}),
    "decoder is null": lambda h: config(h, lambda c: c | {"decoder": None}),
    "unknown encoder": lambda h: config(h, lambda c: c | {"encoder": "warp"}),
    "encoder is a number": lambda h: config(h, lambda c: c | {"encoder": 4}),
    "encoder is a list": lambda h: config(h, lambda c: c | {"encoder": []}),
    "encoder options are text": lambda h: config(h, lambda c: c | {"encoder_options": "x"}),
    "unknown encoder option": lambda h: config(h, lambda c: c | {"encoder_options": {"wings": 2}}),
    "channels are text": lambda h: config(h, lambda c: set_deep(c, "decoder", "channels", to="many")),
    "no heads": lambda h: config(h, lambda c: set_deep(c, "decoder", "heads", to=0)),
    "negative channels": lambda h: config(h, lambda c: set_deep(c, "decoder", "channels", to=-64)),
    "huge channels": lambda h: config(h, lambda c: set_deep(c, "decoder", "channels", to=2**40)),
    "large channels": lambda h: config(h, lambda c: set_deep(c, "decoder", "channels", to=65_536)),
    "a million blocks": lambda h: config(h, lambda c: set_deep(c, "decoder", "window_blocks", to=10**6)),
    "65000 blocks": lambda h: config(h, lambda c: set_deep(c, "decoder", "cross_blocks", to=65_000)),
    "a window of millions of cells": lambda h: config(h, lambda c: set_deep(c, "decoder", "window", to=[64, 64, 64])),
    "a grid of nothing": lambda h: config(h, lambda c: set_deep(c, "decoder", "grid", to=[0, 4])),
    "widths without end": lambda h: config(h, lambda c: set_deep(c, "encoder_options", "widths", to=[8] * 100_000)),
    "a vast image": lambda h: config(h, lambda c: set_deep(c, "encoder_options", "size", to=32_768)),
    "channels are NaN": lambda h: config(h, lambda c: set_deep(c, "decoder", "channels", to=float("nan"))),
    "periods are infinite": lambda h: config(
        h, lambda c: set_deep(c, "decoder", "head", to={"kind": "rate", "max_period": float("inf")})
    ),
    "periods of next to nothing": lambda h: config(
        h, lambda c: set_deep(c, "decoder", "head", to={"kind": "rate", "min_period": 1e-300})
    ),
    "grid is a number": lambda h: config(h, lambda c: set_deep(c, "decoder", "grid", to=3)),
    "grid of floats": lambda h: config(h, lambda c: set_deep(c, "decoder", "grid", to=[1.5, 2.5])),
    "window is text": lambda h: config(h, lambda c: set_deep(c, "decoder", "window", to="wide")),
    "head is text": lambda h: config(h, lambda c: set_deep(c, "decoder", "head", to="x")),
    "a flag is a number": lambda h: config(h, lambda c: set_deep(c, "decoder", "input_norm", to=65_000)),
    "a flag is text": lambda h: config(h, lambda c: set_deep(c, "decoder", "window_residual", to="x")),
    "unknown setting": lambda h: config(h, lambda c: set_deep(c, "decoder", "wings", to=2)),
    "sha256 is wrong": lambda h: with_metadata(h, sha256="0" * 64),
    "another format": lambda h: with_metadata(h, format="escounts-9"),
}


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))
    folder = store.store_folder()
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", HEADERS)
def test_malformed_headers_are_one_line(name: str, whole: bytes, tmp_path: Path, own_store: Path) -> None:
    header, body = parts(whole)
    path = tmp_path / "bad.safetensors"
    begun = time.process_time()
    path.write_bytes(assembled(HEADERS[name](header), body))
    for use in (load_network, add, lambda p: catalogue.build(str(p), "cpu")):
        with pytest.raises(ModelError) as raised:
            use(path)
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 600
    assert time.process_time() - begun < 5.0, "refused before anything is built: 65,000 blocks had taken 116 s"
    # The same file in the store, under the name of one of the paper's halves: everything else is still listed.
    (own_store / "mae-vit-b.safetensors").write_bytes(path.read_bytes())
    (own_store / "mine.safetensors").write_bytes(path.read_bytes())
    (own_store / "fine.safetensors").write_bytes(whole)
    listed = {entry.name: entry.state() for entry in catalogue.entries()}
    assert listed["lite"] == "ready" and listed["fine"] == "ready"


def test_weights_with_a_nan_are_refused(
    tmp_path: Path, own_store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(LITE_TINY)
    name, weight = next(iter(network.named_parameters()))
    with torch.no_grad():
        weight.view(-1)[0] = float("nan")
    path = tmp_path / "nan.safetensors"
    save_network(path, network)
    done = run(capsys, monkeypatch, "weights", "add", path)
    assert done.code == 2 and f"{name} holds values that are not finite" in done.err
    assert len(done.err.splitlines()) == 1 and list(own_store.iterdir()) == []
    with pytest.raises(ModelError, match="not finite"):
        load_network(path)


OUT_OF_RANGE = (
    '{"gate_bias": 1e308}', '{"gate_bias": NaN}', '{"gate_sharpness": 0}', '{"unsure_below": 7}',
    '{"choice": [1e300, 0, 0, 0, 0]}', '{"weights": [Infinity, 0, 0, 0, 0, 0, 0, 0, 0]}',
)  # fmt: skip


def test_calibration_that_is_not_one(tmp_path: Path, own_store: Path) -> None:
    for text in ("[]", "{", "7", '{"weights": 3}', '{"unsure_below": "x"}', *OUT_OF_RANGE):
        path = tmp_path / "odd.safetensors"
        save_network(path, Network(LITE_TINY), metadata={"calibration": text})
        with pytest.raises(ModelError, match="damaged"):
            catalogue.build(str(path), "cpu")


def test_truncated_anywhere(whole: bytes, tmp_path: Path, own_store: Path) -> None:
    path = tmp_path / "cut.safetensors"
    for length in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            add(path)


def test_a_checkpoint_without_tensors(tmp_path: Path, own_store: Path) -> None:
    path = tmp_path / "none.safetensors"
    write_checkpoint(path, {}, config={"encoder": "lite"})
    assert tensors_sha256({})
    with pytest.raises(ModelError):
        add(path)
