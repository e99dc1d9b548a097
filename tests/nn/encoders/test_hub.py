"""Encoders of other libraries and of other packages, by name: small random ones, no hub."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command import run as command
from movies import bouncing, write_movie

from escounts.errors import ModelError
from escounts.models import catalogue
from escounts.nn.encoders import registry
from escounts.nn.encoders.hub import places
from escounts.nn.encoders.registry import build_encoder

transformers = pytest.importorskip("transformers")

SMALL: dict[str, Any] = {
    "hidden_size": 24,
    "num_attention_heads": 2,
    "num_hidden_layers": 0,
    "intermediate_size": 24,
    "image_size": 32,
    "patch_size": 8,
}
"""Without a layer tokens know nothing of each other, so that each can be seen to be of its own place and time."""
PREDICTOR = {"pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1}
MODELS: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "VideoMAE": ({"num_frames": 8, "tubelet_size": 2}, (8, 4, 4)),
    "VJEPA2": ({"frames_per_clip": 8, "crop_size": 32, "tubelet_size": 2} | PREDICTOR, (8, 4, 4)),
    "Timesformer": ({"num_frames": 8}, (8, 8, 4)),
    "Vivit": ({"num_frames": 8, "tubelet_size": [2, 8, 8]}, (8, 4, 4)),
    "Dinov2": ({"mlp_ratio": 1}, (16, 16, 4)),
}
"""Class → its own options; frames, cells and side of the grid."""


def saved(kind: str, folder: Path) -> str:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**(SMALL | MODELS[kind][0]))
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.mark.parametrize("kind", MODELS)
def test_every_token_is_of_its_own_place_and_time(kind: str, tmp_path: Path) -> None:
    frames, cells, side = MODELS[kind][1]
    encoder = build_encoder(saved(kind, tmp_path))
    spec = encoder.spec
    assert (spec.name, spec.window_frames, spec.cells, spec.grid) == (f"hf:{tmp_path}", frames, cells, (side, side))
    assert (spec.channels, spec.size, spec.every) == (24, 32, 64 // frames)
    before = torch.rand(1, frames, 3, 32, 32)
    after = before.clone()
    after[:, -1, :, :8, 24:] += 1  # the last frame's upper right corner
    with torch.no_grad():
        changed = (encoder(before) - encoder(after)).abs().amax(-1)[0] > 1e-4
    assert changed.shape == (cells, side, side) and changed.sum() == 1 and changed[-1, 0, -1]


PROCESSORS = {
    "VideoMAE": ("preprocessor_config.json", {"image_processor_type": "VideoMAEImageProcessor"}),
    "VJEPA2": ("video_preprocessor_config.json", {"video_processor_type": "VJEPA2VideoProcessor"}),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_size_mean_and_deviation_are_the_processors(kind: str, tmp_path: Path) -> None:
    """Also without torchvision, which alone builds the processors of videos."""
    name = saved(kind, tmp_path)
    file, about = PROCESSORS[kind]
    colours = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    sides = {"crop_size": {"height": 32, "width": 32}, "size": {"shortest_edge": 40}}
    (tmp_path / file).write_text(json.dumps({**about, **colours, **sides}))
    spec = build_encoder(name).spec
    assert (spec.size, spec.mean, spec.std) == (32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_hiera_sees_pictures_and_its_tokens_are_in_their_places(tmp_path: Path) -> None:
    torch.manual_seed(0)
    small = {"embed_dim": 16, "image_size": [64, 64], "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2]}
    transformers.HieraModel(transformers.HieraConfig(**small)).save_pretrained(tmp_path)
    encoder = build_encoder(f"hf:{tmp_path}")
    assert (encoder.spec.cells, encoder.spec.grid, encoder.spec.channels) == (16, (2, 2), 128)
    before = torch.rand(1, 2, 3, 64, 64)
    after = before.clone()
    after[:, 1, :, :24, 40:] += 1  # the second picture's upper right corner
    with torch.no_grad():
        changed = (encoder(before) - encoder(after)).abs().amax(-1)[0]
    assert not changed[0].any(), "the other picture is not touched"
    assert changed[1].argmax() == 1, "the token of that corner changes most"


def test_a_model_whose_tokens_are_no_square_is_refused_with_their_shape() -> None:
    assert places("x", torch.zeros(1, 4 * 9 + 1, 8), 4) == (1, 3)
    with pytest.raises(ModelError, match=r"\(1, 46, 8\)"):
        places("x", torch.zeros(1, 46, 8), 1)


def test_names_that_cannot_be_are_answered_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"known: .*i3d.*lite.*hf:NAME, timm:NAME"):
        build_encoder("i3e")
    with pytest.raises(ModelError, match="cannot be loaded"):
        build_encoder(f"hf:{tmp_path / 'nothing'}")


@pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_resnet"])
def test_timm_sees_one_picture_at_a_time(name: str) -> None:
    pytest.importorskip("timm")
    encoder = build_encoder(f"timm:{name}", pretrained=False)
    with torch.no_grad():
        tokens = encoder(torch.rand(1, 3, 3, encoder.spec.size, encoder.spec.size))
    assert tokens.shape == (1, 3, *encoder.spec.grid, encoder.spec.channels)


PLUG_IN = '''
import torch
from escounts.nn.encoders.interface import Encoder, EncoderSpec

class Mean(Encoder):
    """Mean colours of 2×2 parts of a frame."""

    def __init__(self):
        super().__init__(EncoderSpec("mean", 3, window_frames=8, every=2, size=16, cells=8, grid=(2, 2)))
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, frames_BTCHW):
        parts = frames_BTCHW.unflatten(3, (2, 8)).unflatten(5, (2, 8)).mean((4, 6))
        return parts.permute(0, 1, 3, 4, 2) * self.scale
'''


@pytest.fixture
def plug_in(tmp_path: Path) -> Iterator[str]:
    """An installed package with one encoder."""
    place = tmp_path / "site"
    about = place / "mean_encoder-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "mean_encoder.py").write_text(PLUG_IN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mean-encoder\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{registry.PLUG_INS}]\nmean = mean_encoder:Mean\n")
    sys.path.insert(0, str(place))
    registry.plug_ins.cache_clear()
    yield "mean"
    sys.path.remove(str(place))
    sys.modules.pop("mean_encoder", None)
    registry.plug_ins.cache_clear()


@pytest.mark.parametrize("whose", ["V-JEPA 2", "a package"])
def test_such_an_encoder_encodes_trains_evaluates_and_counts(
    whose: str, plug_in: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = plug_in if whose == "a package" else saved("VJEPA2", tmp_path / "vjepa2")
    clips, run = tmp_path / "clips", tmp_path / "run"
    clips.mkdir()
    rows = ["file,split,motion,count,t_start,t_end,rep_times"]
    for k in range(3):
        write_movie(clips / f"{k}.mp4", bouncing(2, 1.6))
        rows.append(f"{k}.mp4,{'train' if k < 2 else 'val'},block,2,0,1.6,0-0.8 0.8-1.6")
    (clips / "labels.csv").write_text("\n".join(rows) + "\n")

    def said(*arguments: object) -> str:
        outcome = command(capsys, monkeypatch, *arguments, "--device", "cpu")
        assert outcome.code == 0, outcome.err
        return outcome.out

    tokens = ("--tokens", run / "tokens")
    said("train", "folder", "--root", clips, "--encoder", name, "--out", run, "--steps", 1, "--batch", 2)
    assert "1 of 1 videos scored" in said("evaluate", run, "--split", "valid", *tokens)
    best = run / "best.safetensors"
    assert catalogue.find(str(best)).state() == "ready"
    assert "repetition" in said("count", clips / "2.mp4", "--model", best)
