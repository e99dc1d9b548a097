"""The encoders by name: to add one, write its file beside this one and give it a line here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from escounts.errors import ModelError
from escounts.nn.encoders import i3d, masked_autoencoders, resnets, swin3d
from escounts.nn.encoders.interface import Encoder, PatchesEncoder
from escounts.nn.encoders.lite import LiteConfig, LiteEncoder
from escounts.nn.encoders.public import PublicWeights, Tensors
from escounts.system.config_codec import tuples


def _lite(**options: Any) -> Encoder:
    return LiteEncoder(LiteConfig(**options))


ENCODERS: dict[str, Callable[..., Encoder]] = {
    "lite": _lite,
    "patches": PatchesEncoder,
    "mae-vit-b": masked_autoencoders.mae_vit_b,
    "videomae-s": partial(masked_autoencoders.videomae, "videomae-s"),
    "videomae-b": partial(masked_autoencoders.videomae, "videomae-b"),
    "videomae-l": partial(masked_autoencoders.videomae, "videomae-l"),
    "swin3d-t": swin3d.swin3d_t,
    "r2plus1d-18": resnets.r2plus1d_18,
    "resnext3d-101": resnets.resnext3d_101,
    "i3d": i3d.i3d,
}
PUBLIC: tuple[PublicWeights, ...] = (
    *masked_autoencoders.PUBLIC,
    *swin3d.PUBLIC,
    *resnets.PUBLIC,
    *i3d.PUBLIC,
)
"""Every public weights format an encoder can be loaded from."""


def build_encoder(name: str, **options: Any) -> Encoder:
    """The encoder of that name with fresh weights; options are its builder's (lists become tuples)."""
    if name not in ENCODERS:
        raise ModelError(f"unknown encoder {name!r}; known: {', '.join(ENCODERS)}")
    try:
        return ENCODERS[name](**tuples(options))
    except TypeError as error:
        raise ModelError(f"encoder {name!r} does not take these options: {error}") from error


def recognise(tensors: Tensors) -> PublicWeights | None:
    """The public format these tensors are in, judged by names and shapes; None when it is none of them."""
    return next((weights for weights in PUBLIC if weights.recognises(tensors)), None)
