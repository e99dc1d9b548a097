"""What the entries of the encoders say of them."""

from __future__ import annotations

import pytest
import torch

from escounts.nn.encoders.registry import ENCODERS, EncoderEntry, PublicFile, brings_weights, build_encoder


@pytest.mark.parametrize("name", ENCODERS)
def test_an_entry_says_whether_its_encoder_needs_weights(name: str) -> None:
    with torch.device("meta"):
        learnt = any(parameter.requires_grad for parameter in build_encoder(name).parameters())
    assert ENCODERS[name].learnt == learnt and brings_weights(name) == (not learnt)


def test_models_of_an_encoder_need_a_public_file() -> None:
    with pytest.raises(ValueError, match="vit:Vit: its models escounts-new need a public file"):
        EncoderEntry("vit:Vit", models={"escounts-new": "A table."})


def test_a_public_file_of_an_encoder_needs_a_reader() -> None:
    with pytest.raises(ValueError, match=r"vit:Vit: new\.pyth needs a reader"):
        EncoderEntry("vit:Vit", files=(PublicFile("new.pyth", "somewhere", "MIT"),))
