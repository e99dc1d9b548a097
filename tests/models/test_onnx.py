"""The exported model counts as the network does: any length, any number of exemplars. Random weights, tiny."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from command import run
from movies import levels, write_movie

import escounts
from escounts.counting import multi_rate_encoding
from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import ModelError
from escounts.models import catalogue
from escounts.models.from_checkpoint import build_onnx_model
from escounts.nn.network import LITE_TINY, Network
from escounts.serve.training_api import _initial


@pytest.fixture(scope="module")
def model() -> MultiRateModel:
    """What was exported."""
    torch.manual_seed(0)
    return MultiRateModel("tiny", Network(LITE_TINY))


@pytest.fixture(scope="module")
def folder(exported: Path) -> Path:
    return exported


def moving_square(frames: int) -> list[np.ndarray]:
    images = []
    for t in range(frames):
        image = np.full((64, 64, 3), 40, np.uint8)
        x = int(20 + 15 * np.sin(t / 5))
        image[20:40, x : x + 12] = 220
        images.append(image)
    return images


@pytest.mark.parametrize("frames", [23, 431])
@pytest.mark.parametrize("exemplars", [0, 1, 2])
def test_the_folder_counts_as_the_network(
    model: MultiRateModel, folder: Path, frames: int, exemplars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two periods that are equally likely either may win, and to a network that learnt nothing all are.
    monkeypatch.setattr(multi_rate_encoding, "ONE_PERIOD", None)
    counted = []
    for each in (model, escounts.load(str(folder)).model):
        assert isinstance(each, MultiRateModel)
        encoding = each.encode_images(moving_square(frames))
        marked = [encoding.encode_exemplar(0.1 * k, 0.6 + 0.1 * k) for k in range(exemplars)]
        counted.append(encoding.estimate(marked).density.values)
    np.testing.assert_allclose(counted[1], counted[0], atol=1e-3)


def test_lengths_and_numbers_of_exemplars_are_free_and_no_convolution_is_3d(folder: Path) -> None:
    free = {"images": [0, 1], "tokens": [0, 1], "similarity": [0, 1], "exemplars": [0], "cells": [0]}
    for name in ("encoder.onnx", "decoder.onnx"):
        graph = onnx.load(folder / name).graph
        for value in graph.input:
            shape = value.type.tensor_type.shape.dim
            assert [axis for axis, dim in enumerate(shape) if dim.dim_param] == free.get(value.name, [])
        weights = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
        convolutions = [weights[node.input[1]] for node in graph.node if node.op_type == "Conv"]
        assert all(axes <= 4 for axes in convolutions) and (convolutions or name == "decoder.onnx")


def test_a_changed_or_missing_file_is_refused(folder: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(folder, tmp_path / "changed")
    (changed / "decoder.onnx").write_bytes((folder / "decoder.onnx").read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match="not the file that was exported"):
        build_onnx_model(changed)
    (changed / "decoder.onnx").unlink()
    with pytest.raises(ModelError, match="not a whole exported model"):
        build_onnx_model(changed)
    described = json.loads((changed / "model.json").read_text())
    (changed / "model.json").write_text(json.dumps({**described, "format": "escounts-onnx-9"}))
    with pytest.raises(ModelError, match="this version reads escounts-onnx-1"):
        build_onnx_model(changed)


def test_an_exported_folder_counts_into_files_and_is_known_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = shutil.copytree(folder, tmp_path / "out" / "onnx")
    write_movie(tmp_path / "a.mp4", levels(40, step=40))
    asked = ("count", "--model", exported, tmp_path / "a.mp4", "-o", tmp_path / "results")
    first = run(capsys, monkeypatch, *asked)
    assert first.code == 0 and "wrote" in first.err, first.err
    assert "finished already" in run(capsys, monkeypatch, *asked).out
    os.utime(exported / "model.json", (1, 1))  # exported again
    assert "wrote" in run(capsys, monkeypatch, *asked).err


def test_a_server_of_an_exported_folder_teaches_from_the_default(folder: Path) -> None:
    assert _initial(str(folder)) == "default"


def test_a_gpu_is_refused_with_what_to_do(folder: Path) -> None:
    with pytest.raises(ModelError, match="use --device cpu or auto"):
        catalogue.build(str(folder), "cuda")
