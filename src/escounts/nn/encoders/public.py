"""A public weights file an encoder can be loaded from: how to know it and convert it, its licence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from escounts.nn.encoders.public_sources import Source

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class PublicWeights:
    """One public format.

    source: the file's name, origin and licence. recognises: is this it, from the names and shapes alone?
    convert: the file's tensors → our names (a tensor it does not know keeps its name, so that strict loading
    reports it). options: encoder options the file implies. known_unneeded: glob patterns of tensors that
    belong to the file and not to the encoder.
    """

    source: Source
    recognises: Callable[[Tensors], bool]
    convert: Callable[[Tensors], dict[str, Tensor]]
    options: Callable[[Tensors], dict[str, Any]] = lambda tensors: {}
    known_unneeded: tuple[str, ...] = ()


def unchanged(tensors: Tensors) -> dict[str, Tensor]:
    """For the formats whose names are ours."""
    return dict(tensors)
