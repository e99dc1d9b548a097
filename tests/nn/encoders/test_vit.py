"""`videomae-*` equals the transformers library's VideoMAEModel on random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from escounts.models.checkpoint import strict_load
from escounts.nn.encoders.registry import ENCODERS, build_encoder, read_public
from escounts.nn.encoders.vit import from_hugging_face

transformers = pytest.importorskip("transformers", reason="the test extra brings transformers")

SIZE_OPTIONS = {"width": "hidden_size", "depth": "num_hidden_layers", "heads": "num_attention_heads"}


def reference(name: str, *, final_norm: bool, **changes: Any) -> Any:
    """VideoMAEModel of one of our sizes with random weights, biases and norms included."""
    sizes = {**ENCODERS[name].options, **changes}
    config = transformers.VideoMAEConfig(
        **{theirs: sizes[ours] for ours, theirs in SIZE_OPTIONS.items()},
        intermediate_size=4 * sizes["width"],
        image_size=sizes.get("size", 224),
        use_mean_pooling=not final_norm,
    )
    torch.manual_seed(0)
    model = transformers.VideoMAEModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def values_in(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def check_equal(name: str, *, final_norm: bool = True, **changes: Any) -> None:
    model = reference(name, final_norm=final_norm, **changes)
    tensors = model.state_dict()
    encoder = build_encoder(name, final_norm=final_norm, **changes).eval()
    read = from_hugging_face(tensors, width=encoder.spec.channels)
    assert read is not None
    strict_load(encoder, read[0])
    frames_BTCHW = torch.randn(2, 16, 3, encoder.spec.size, encoder.spec.size)
    with torch.inference_mode():
        theirs_BNC = model(frames_BTCHW).last_hidden_state
        ours_BNC = encoder(frames_BTCHW).flatten(1, 3)
    assert theirs_BNC.std() > 0.1
    assert (ours_BNC - theirs_BNC).abs().max() < 1e-4
    assert values_in(encoder) == values_in(model)


@pytest.mark.parametrize("final_norm", [True, False])
def test_small_config_equals_transformers(final_norm: bool) -> None:
    check_equal("videomae-s", final_norm=final_norm, depth=3, width=96, heads=3, size=64)


def test_small_size_equals_transformers() -> None:
    check_equal("videomae-s", depth=2)


@pytest.mark.release
def test_base_size_equals_transformers() -> None:
    """One network of this one size: there is no smaller share of it; 25 processor seconds, mostly imports."""
    check_equal("videomae-b")


def test_fine_tuned_weights_imply_no_final_norm() -> None:
    tensors = reference("videomae-s", final_norm=False, depth=1).state_dict()
    public = read_public(tensors)
    assert public is not None and (public[0], public[3]) == ("videomae-s", {"final_norm": False})
    public = read_public(reference("videomae-s", final_norm=True, depth=1).state_dict())
    assert public is not None and public[3] == {"final_norm": True}


def test_base_counts_as_transformers_does() -> None:
    config = transformers.VideoMAEConfig()
    with torch.device("meta"):
        ours, theirs = build_encoder("videomae-b", final_norm=False), transformers.VideoMAEModel(config)
    assert values_in(ours) == values_in(theirs)
