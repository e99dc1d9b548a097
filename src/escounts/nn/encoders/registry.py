"""The encoders by name. One of this package is a file beside this one and nothing else: it says its builders
(ENCODERS) and its public weights (PUBLIC). Others bring their weights: `hf:` and `timm:` names, and packages with an
entry point `escounts.encoders`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from escounts.errors import ModelError
from escounts.nn import encoders
from escounts.nn.encoders import hub
from escounts.nn.encoders.interface import Encoder
from escounts.nn.encoders.public import PublicWeights, Tensors, brings_weights, plug_ins
from escounts.system.config_codec import tuples

_MODULES = [import_module(f"{encoders.__name__}.{found.name}") for found in pkgutil.iter_modules(encoders.__path__)
            if found.name != "registry"]  # fmt: skip
ENCODERS: dict[str, Callable[..., Encoder]] = {
    name: build for module in _MODULES for name, build in getattr(module, "ENCODERS", {}).items()
}
PUBLIC: tuple[PublicWeights, ...] = tuple(one for module in _MODULES for one in getattr(module, "PUBLIC", ()))
"""Every public weights format an encoder can be loaded from."""
LIBRARIES: dict[str, Callable[..., Encoder]] = {"hf": hub.hugging_face, "timm": hub.timm}
"""By what stands before the colon of a name."""


def check_known(name: str) -> None:
    """Raise a ModelError that lists the known ones, where there is no encoder of that name."""
    if name not in ENCODERS and not brings_weights(name):
        known = ", ".join([*ENCODERS, *plug_ins(), *(f"{library}:NAME" for library in LIBRARIES)])
        raise ModelError(f"unknown encoder {name!r}; known: {known}")


def build_encoder(name: str, **options: Any) -> Encoder:
    """The encoder of that name with fresh weights, or with its own where it brings them; options are its builder's
    (lists become tuples)."""
    check_known(name)
    library, _, place = name.partition(":")
    try:
        if name in ENCODERS:
            return ENCODERS[name](**tuples(options))
        found = LIBRARIES[library](place, **options) if place else plug_ins()[name].load()(**tuples(options))
    except TypeError as error:
        raise ModelError(f"encoder {name!r} does not take these options: {error}") from error
    found.spec = replace(found.spec, name=name)  # what tokens and decoders are known by
    return found


def recognise(tensors: Tensors) -> PublicWeights | None:
    """The public format these tensors are in, judged by names and shapes; None when it is none of them."""
    return next((weights for weights in PUBLIC if weights.recognises(tensors)), None)
