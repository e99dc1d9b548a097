"""Weights of the decoder's blocks in autocast's type, all of them in one go.

Autocast casts each weight by itself before its layer and each gradient by itself after it: a hundred small kernels
a step, which cost the host more to issue than the GPU to run. The arithmetic here is the same. Gradients are there
when backward ends, not as it goes: several processes exchange them then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from escounts.nn.attention import CrossBlock
from escounts.nn.decoder import WindowBlock
from escounts.nn.device import autocast_type


class _Narrowed(torch.autograd.Function):
    """Tensors in another type; their gradients come back in their own."""

    @staticmethod
    def forward(ctx: Any, kind: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.kind = weights[0].dtype
        return _cast(weights, kind)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        cast = iter(_cast([grad for grad in grads if grad is not None], ctx.kind))
        return None, *(None if grad is None else next(cast) for grad in grads)


def _cast(tensors: Sequence[Tensor], kind: torch.dtype) -> tuple[Tensor, ...]:
    """The tensors in another type, one after another in one piece of memory."""
    if not tensors:
        return ()
    sizes = [tensor.numel() for tensor in tensors]
    parts = torch.split(torch.empty(sum(sizes), dtype=kind, device=tensors[0].device), sizes)
    cast = tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))
    torch._foreach_copy_(list(cast), list(tensors))
    return cast


class NarrowWeights:
    """The linear layers of a network's cross and window blocks, dressed for one pass after another.

    Not of other parts: some (self-similarity) turn autocast off where they need every digit.
    """

    def __init__(self, network: nn.Module) -> None:
        blocks = [block for block in network.modules() if isinstance(block, (CrossBlock, WindowBlock))]
        layers = [layer for block in blocks for layer in block.modules() if isinstance(layer, nn.Linear)]
        self._places: list[tuple[dict[str, Any], str]] = [
            (layer._parameters, name)
            for layer in layers
            for name, weight in layer.named_parameters(recurse=False)
            if weight.requires_grad
        ]

    @contextmanager
    def worn(self) -> Iterator[None]:
        """Within, where autocast is on, the layers have their weights in its type; gradients reach the real ones."""
        weights = [layer[name] for layer, name in self._places]
        kind = autocast_type(weights[0].device.type) if weights else None
        if kind is None:
            yield
            return
        self._dress(_Narrowed.apply(kind, *weights))  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self._dress(weights)

    def _dress(self, weights: Sequence[Any]) -> None:
        for (layer, name), weight in zip(self._places, weights, strict=True):
            layer[name] = weight
