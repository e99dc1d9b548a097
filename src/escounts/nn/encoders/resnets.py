"""`r2plus1d-18` and `resnext3d-101`: residual networks of convolutions over space and time, 4×7×7 tokens.

`r2plus1d-18`: R(2+1)D of Tran et al., 18 layers; a 3-D convolution as one over space, then one over time. 32 frames
every 2 at 112² → tokens of 512, so that a window spans 64 raw frames like every other encoder and frames come at the
rate (about 15 a second) the public weights were trained at. Modules are named as in torchvision's state dict.

`resnext3d-101`: the 3-D ResNeXt-101 of Hara et al., 32 groups, the 64-frame Kinetics model. 64 frames in a row at
224² → tokens of 2048 (exemplars: 64 frames too, 196 tokens). Modules are named as in the authors' state dict, without
its `module.` prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.encoders.interface import Encoder, EncoderSpec, Read, Tensors, without

KINETICS_MEAN = (0.43216, 0.394666, 0.37645)
KINETICS_STD = (0.22803, 0.22145, 0.216989)


class ResNet3D(Encoder):
    """A chain of layers over (B, C, T, H, W), by name."""

    def __init__(self, spec: EncoderSpec, layers: dict[str, nn.Module]) -> None:
        super().__init__(spec)
        self.chain = tuple(layers)
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        features_BCTHW = frames_BTCHW.transpose(1, 2)
        for name in self.chain:
            features_BCTHW = self.get_submodule(name)(features_BCTHW)
        return features_BCTHW.permute(0, 2, 3, 4, 1)


class Residual(nn.Module):
    """A chain of layers, by name, with a shortcut, then ReLU."""

    def __init__(self, layers: dict[str, nn.Module], inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.chain = tuple(layers)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv3d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm3d(outside)
            )

    def forward(self, features_BCTHW: Tensor) -> Tensor:
        changed = features_BCTHW
        for name in self.chain:
            changed = self.get_submodule(name)(changed)
        return F.relu_(changed + self.downsample(features_BCTHW))


def stages(
    blocks: tuple[int, ...], inside: int, outside: int, block: Callable[[int, int, int], Residual]
) -> dict[str, nn.Module]:
    """A stage for each number of blocks; all but the first halve space and time and double the channels."""
    made: dict[str, nn.Module] = {}
    for stage, depth in enumerate(blocks):
        first = block(inside, outside, 1 if stage == 0 else 2)
        made[f"layer{stage + 1}"] = nn.Sequential(first, *(block(outside, outside, 1) for _ in range(depth - 1)))
        inside, outside = outside, 2 * outside
    return made


def split_block(inside: int, outside: int, stride: int) -> Residual:
    """Two (2+1)-D convolutions."""
    # as many channels between space and time as keep the weights of a full 3-D convolution
    middle = (inside * outside * 27) // (inside * 9 + 3 * outside)
    first = [_split_convolution(inside, outside, middle, stride), nn.BatchNorm3d(outside), nn.ReLU(inplace=True)]
    second = [_split_convolution(outside, outside, middle, 1), nn.BatchNorm3d(outside)]
    return Residual({"conv1": nn.Sequential(*first), "conv2": nn.Sequential(*second)}, inside, outside, stride)


def _split_convolution(inside: int, outside: int, middle: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inside, middle, (1, 3, 3), stride=(1, stride, stride), padding=(0, 1, 1), bias=False),
        nn.BatchNorm3d(middle),
        nn.ReLU(inplace=True),
        nn.Conv3d(middle, outside, (3, 1, 1), stride=(stride, 1, 1), padding=(1, 0, 0), bias=False),
    )


def r2plus1d(
    *, blocks: tuple[int, ...] = (2, 2, 2, 2), width: int = 64, frames: int = 32, size: int = 112
) -> ResNet3D:
    """Stem and four stages; `blocks` residual blocks a stage, channels doubling from `width`."""
    shrink = 2 ** (len(blocks) - 1)
    stem = nn.Sequential(
        nn.Conv3d(3, 45, (1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False),
        nn.BatchNorm3d(45),
        nn.ReLU(inplace=True),
        nn.Conv3d(45, width, (3, 1, 1), padding=(1, 0, 0), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    )
    layers = {"stem": stem} | stages(blocks, width, width, split_block)
    spec = EncoderSpec(
        name="r2plus1d-18",
        channels=width * shrink,
        window_frames=frames,
        every=2,
        size=size,
        mean=KINETICS_MEAN,
        std=KINETICS_STD,
        cells=frames // shrink,
        grid=(size // (2 * shrink), size // (2 * shrink)),
    )
    return ResNet3D(spec, layers)


def r2plus1d_weights(tensors: Tensors, **options: Any) -> Read | None:
    """torchvision's names, which are ours."""
    if "stem.3.weight" not in tensors or "layer1.0.conv1.0.3.weight" not in tensors:
        return None
    return without(tensors, "fc.*"), {}


# published for pixels of 0..255 with only a mean taken off
ACTIVITYNET_MEAN = (114.7748 / 255, 107.7354 / 255, 99.4750 / 255)
UNIT_STD = (1 / 255, 1 / 255, 1 / 255)


def bottleneck(inside: int, outside: int, stride: int, *, groups: int) -> Residual:
    """1×1×1, grouped 3×3×3, 1×1×1 to twice the channels."""
    middle = outside // 2
    layers = {
        "conv1": nn.Conv3d(inside, middle, 1, bias=False),
        "bn1": nn.BatchNorm3d(middle),
        "relu1": nn.ReLU(inplace=True),
        "conv2": nn.Conv3d(middle, middle, 3, stride=stride, padding=1, groups=groups, bias=False),
        "bn2": nn.BatchNorm3d(middle),
        "relu2": nn.ReLU(inplace=True),
        "conv3": nn.Conv3d(middle, outside, 1, bias=False),
        "bn3": nn.BatchNorm3d(outside),
    }
    return Residual(layers, inside, outside, stride)


def resnext3d(
    *,
    blocks: tuple[int, int, int, int] = (3, 4, 23, 3),
    width: int = 128,
    groups: int = 32,
    frames: int = 64,
    size: int = 224,
) -> ResNet3D:
    """A 7×7×7 convolution, a max pool and four stages of grouped bottlenecks."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv3d(3, 64, 7, stride=(1, 2, 2), padding=3, bias=False),
        "bn1": nn.BatchNorm3d(64),
        "relu": nn.ReLU(inplace=True),
        "maxpool": nn.MaxPool3d(3, stride=2, padding=1),
    }
    layers |= stages(blocks, 64, 2 * width, lambda *shape: bottleneck(*shape, groups=groups))
    spec = EncoderSpec(
        name="resnext3d-101",
        channels=2 * width * 2 ** (len(blocks) - 1),
        window_frames=frames,
        every=1,
        size=size,
        mean=ACTIVITYNET_MEAN,
        std=UNIT_STD,
        cells=frames // 16,
        grid=(-(-size // 32), -(-size // 32)),
        exemplar_frames=frames,
    )
    return ResNet3D(spec, layers)


def resnext3d_weights(tensors: Tensors, **options: Any) -> Read | None:
    """The authors' names, which are ours."""
    if "layer1.0.bn3.weight" not in tensors or "conv1.weight" not in tensors or tensors["conv1.weight"].ndim != 5:
        return None
    return without(tensors, "fc.*"), {}
