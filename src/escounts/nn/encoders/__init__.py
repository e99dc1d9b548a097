"""The encoders by name. One file each; a builder imports its file only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from escounts.config_codec import tuples
from escounts.errors import ModelError
from escounts.nn.encoders.interface import Encoder, EncoderSpec
from escounts.nn.encoders.public import PublicWeights, Tensors

__all__ = [
    "ENCODERS",
    "Encoder",
    "EncoderSpec",
    "PublicWeights",
    "build_encoder",
    "public_weights",
    "recognise",
]

Builder = Callable[..., Encoder]


def _lite(**options: Any) -> Encoder:
    from escounts.nn.encoders.lite import LiteConfig, LiteEncoder

    return LiteEncoder(LiteConfig(**options))


def _patches(**options: Any) -> Encoder:
    from escounts.nn.encoders.patches import PatchesEncoder

    return PatchesEncoder(**options)


def _mae_vit_b(**options: Any) -> Encoder:
    from escounts.nn.encoders.mae_vit import mae_vit_b

    return mae_vit_b(**options)


def _videomae(name: str) -> Builder:
    def build(**options: Any) -> Encoder:
        from escounts.nn.encoders.videomae import videomae

        return videomae(name, **options)

    return build


def _swin3d_t(**options: Any) -> Encoder:
    from escounts.nn.encoders.swin3d import swin3d_t

    return swin3d_t(**options)


def _r2plus1d_18(**options: Any) -> Encoder:
    from escounts.nn.encoders.r2plus1d import r2plus1d_18

    return r2plus1d_18(**options)


def _resnext3d_101(**options: Any) -> Encoder:
    from escounts.nn.encoders.resnext3d import resnext3d_101

    return resnext3d_101(**options)


ENCODERS: dict[str, Builder] = {
    "lite": _lite,
    "patches": _patches,
    "mae-vit-b": _mae_vit_b,
    "videomae-s": _videomae("videomae-s"),
    "videomae-b": _videomae("videomae-b"),
    "videomae-l": _videomae("videomae-l"),
    "swin3d-t": _swin3d_t,
    "r2plus1d-18": _r2plus1d_18,
    "resnext3d-101": _resnext3d_101,
}


def build_encoder(name: str, **options: Any) -> Encoder:
    """The encoder of that name with fresh weights; options are its builder's (lists become tuples)."""
    if name not in ENCODERS:
        raise ModelError(f"unknown encoder {name!r}; known: {', '.join(ENCODERS)}")
    try:
        return ENCODERS[name](**tuples(options))
    except TypeError as error:
        raise ModelError(f"encoder {name!r} does not take these options: {error}") from error


def public_weights() -> tuple[PublicWeights, ...]:
    """Every public weights format an encoder can be loaded from."""
    modules = ("mae_vit", "videomae", "swin3d", "r2plus1d", "resnext3d")
    return tuple(weights for module in modules for weights in import_module(f"{__name__}.{module}").PUBLIC)


def recognise(tensors: Tensors) -> PublicWeights | None:
    """The public format these tensors are in, judged by names and shapes; None when it is none of them."""
    return next((weights for weights in public_weights() if weights.recognises(tensors)), None)
