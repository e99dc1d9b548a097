"""The token store: whole or absent, resumable, byte-identical, one writer, refused when it is another encoder's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stores import LAYOUT, store, tokens, video

from escounts.errors import DataError, OutputError
from escounts.research.datasets import tokens as token_module
from escounts.research.datasets.tokens import TokenLayout, TokenStore, TokenWriter, file_name, read_layout


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    annotation = video("folder/one video", count=4)
    made, _ = store(tmp_path, [annotation])
    written, read = tokens(annotation), made.load(annotation.name)
    assert set(read.sequences) == set(LAYOUT.offsets)
    for offset, sequence in written.sequences.items():
        assert sequence.dtype == torch.float16
        assert torch.equal(read.sequences[offset], sequence)
    assert torch.equal(read.exemplars, written.exemplars)
    np.testing.assert_allclose(read.exemplar_spans, annotation.spans[:3])
    shot, span = made.exemplar(annotation.name, 1)
    assert torch.equal(shot, written.exemplars[1])
    assert span == pytest.approx(annotation.spans[1])
    assert TokenLayout.from_plain(vars(read_layout(tmp_path))) == LAYOUT


def test_a_stopped_encoding_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    videos = [video(f"v{k}", count=k + 1) for k in range(4)]
    store(tmp_path / "whole", videos)
    with TokenWriter(tmp_path / "stopped", LAYOUT) as writer:
        for annotation in videos[:2]:
            writer.write(tokens(annotation))
    (tmp_path / "stopped/videos/.half.safetensors.0123abcd.partial").write_bytes(b"half")
    with pytest.raises(DataError, match="did not finish"):
        TokenStore(tmp_path / "stopped")
    with TokenWriter(tmp_path / "stopped", LAYOUT) as writer:
        done = [annotation.name for annotation in videos if writer.has(annotation.name)]
        assert done == ["v0", "v1"]
        for annotation in videos[2:]:
            writer.write(tokens(annotation))
        writer.finish()
    ours = contents(tmp_path / "stopped")
    theirs = contents(tmp_path / "whole")
    theirs.pop("labels-toy.json")
    assert ours == theirs


KILLED = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from stores import LAYOUT, tokens, video
from escounts.research.datasets.tokens import TokenWriter
with TokenWriter(Path({folder!r}), LAYOUT) as writer:
    for k in range(10_000):
        writer.write(tokens(video(f"v{{k % 6}}", count=k % 6 + 1)))
        print(k, flush=True)
"""


def test_killed_while_writing_nothing_is_half(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    code = KILLED.format(paths=[str(Path(__file__).resolve().parents[2])], folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with TokenWriter(folder, LAYOUT) as writer:  # the lock of a killed process is free
        for k in range(6):
            name = f"v{k}"
            if not writer.has(name):
                writer.write(tokens(video(name, count=k + 1)))
        made = writer.finish()
    assert made.verify() == []
    assert not list(folder.rglob("*.partial"))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with TokenWriter(tmp_path, LAYOUT), pytest.raises(DataError, match="another process"):
        TokenWriter(tmp_path, LAYOUT).__enter__()


def test_tokens_of_another_encoder_are_refused(tmp_path: Path) -> None:
    made, _ = store(tmp_path, [video("v")])
    other = replace(LAYOUT, encoder="mae-vit-b", identity="f" * 16)
    with pytest.raises(DataError, match="encoder: patches, not mae-vit-b"):
        made.require(other)
    with pytest.raises(DataError, match="identity"), TokenWriter(tmp_path, other):
        pass


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    made, _ = store(tmp_path, [video("a"), video("b")])
    path = tmp_path / "videos" / file_name("b")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert made.verify() == ["b"]
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="damaged or missing"):
        made.load("b")
    with pytest.raises(DataError, match="no tokens of c"):
        made.load("c")


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if "v1" in path.name:
            real(path, content[:10])
            raise OSError(28, "No space left on device")
        return real(path, content)

    with TokenWriter(tmp_path, LAYOUT) as writer:
        writer.write(tokens(video("v0")))
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OutputError, match=r"No space left.*run again to go on"):
            writer.write(tokens(video("v1")))
        monkeypatch.undo()
    with TokenWriter(tmp_path, LAYOUT) as writer:
        assert writer.has("v0")
        assert not writer.has("v1")
    assert not list(tmp_path.rglob("*.partial"))


def test_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a token store"):
        TokenStore(tmp_path)
    (tmp_path / token_module.LAYOUT).write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        TokenStore(tmp_path)


def test_size_estimate_is_close(tmp_path: Path) -> None:
    annotation = video("v", count=3, cells=400)
    made, _ = store(tmp_path, [annotation])
    assert annotation.duration is not None
    estimate = LAYOUT.video_bytes(annotation.duration, 8.0, 3)
    assert estimate == pytest.approx(made.bytes, rel=0.02)
    assert os.path.getsize(tmp_path / "videos" / file_name("v")) == made.bytes
