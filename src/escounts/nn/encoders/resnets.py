"""`r2plus1d-18` and `resnext3d-101`: residual networks of convolutions over space and time, 4×7×7 tokens.

`r2plus1d-18`: R(2+1)D of Tran et al., 18 layers; a 3-D convolution as one over space, then one over time. 32 frames
every 2 at 112² → tokens of 512, so that a window spans 64 raw frames like every other encoder and frames come at the
rate (about 15 a second) the public weights were trained at. Modules are named as in torchvision's state dict.

`resnext3d-101`: the 3-D ResNeXt-101 of Hara et al., 32 groups, the 64-frame Kinetics model. 64 frames in a row at
224² → tokens of 2048 (exemplars: 64 frames too, 196 tokens). Modules are named as in the authors' state dict, without
its `module.` prefix.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from escounts.nn.encoders.interface import Encoder, EncoderSpec
from escounts.nn.encoders.public import R2PLUS1D_18, RESNEXT3D_101, PublicWeights, unchanged

KINETICS_MEAN = (0.43216, 0.394666, 0.37645)
KINETICS_STD = (0.22803, 0.22145, 0.216989)


class R2Plus1D(Encoder):
    """Stem and four stages; `blocks` residual blocks a stage, channels doubling from `width`."""

    def __init__(
        self, *, blocks: tuple[int, ...] = (2, 2, 2, 2), width: int = 64, frames: int = 32, size: int = 112
    ) -> None:
        channels = width * 2 ** (len(blocks) - 1)
        shrink = 2 ** (len(blocks) - 1)
        super().__init__(
            EncoderSpec(
                name="r2plus1d-18",
                channels=channels,
                window_frames=frames,
                every=2,
                size=size,
                mean=KINETICS_MEAN,
                std=KINETICS_STD,
                cells=frames // shrink,
                grid=(size // (2 * shrink), size // (2 * shrink)),
                exemplar_frames=16,
            )
        )
        self.stem = nn.Sequential(
            nn.Conv3d(3, 45, (1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False),
            nn.BatchNorm3d(45),
            nn.ReLU(inplace=True),
            nn.Conv3d(45, width, (3, 1, 1), padding=(1, 0, 0), bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
        )
        self.stages = len(blocks)
        inside = width
        for stage, depth in enumerate(blocks):
            outside, stride = width * 2**stage, 1 if stage == 0 else 2
            rest = [ResidualBlock(outside, outside, 1) for _ in range(depth - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(ResidualBlock(inside, outside, stride), *rest))
            inside = outside

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        features_BCTHW = self.stem(frames_BTCHW.transpose(1, 2))
        for stage in range(1, self.stages + 1):
            features_BCTHW = self.get_submodule(f"layer{stage}")(features_BCTHW)
        out: Tensor = features_BCTHW.permute(0, 2, 3, 4, 1)
        return out


class ResidualBlock(nn.Module):
    """Two (2+1)-D convolutions with a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        # as many channels between space and time as keep the weights of a full 3-D convolution
        middle = (inside * outside * 27) // (inside * 9 + 3 * outside)
        self.conv1 = nn.Sequential(
            _split_convolution(inside, outside, middle, stride),
            nn.BatchNorm3d(outside),
            nn.ReLU(inplace=True),
        )
        self.conv2 = nn.Sequential(_split_convolution(outside, outside, middle, 1), nn.BatchNorm3d(outside))
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv3d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm3d(outside)
            )

    def forward(self, features_BCTHW: Tensor) -> Tensor:
        changed = self.conv2(self.conv1(features_BCTHW))
        out: Tensor = self.relu(changed + self.downsample(features_BCTHW))
        return out


def _split_convolution(inside: int, outside: int, middle: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inside, middle, (1, 3, 3), stride=(1, stride, stride), padding=(0, 1, 1), bias=False),
        nn.BatchNorm3d(middle),
        nn.ReLU(inplace=True),
        nn.Conv3d(middle, outside, (3, 1, 1), stride=(stride, 1, 1), padding=(1, 0, 0), bias=False),
    )


def r2plus1d_18(**options: Any) -> R2Plus1D:
    """R(2+1)D-18. Options: keywords of R2Plus1D."""
    return R2Plus1D(**options)


_R2PLUS1D = (
    PublicWeights(
        source=R2PLUS1D_18,
        recognises=lambda tensors: "stem.3.weight" in tensors and "layer1.0.conv1.0.3.weight" in tensors,
        convert=unchanged,
        known_unneeded=("fc.*",),
    ),
)


# published for pixels of 0..255 with only a mean taken off
ACTIVITYNET_MEAN = (114.7748 / 255, 107.7354 / 255, 99.4750 / 255)
UNIT_STD = (1 / 255, 1 / 255, 1 / 255)


class ResNeXt3D(Encoder):
    """A 7×7×7 convolution, a max pool and four stages of grouped bottlenecks."""

    def __init__(
        self,
        *,
        blocks: tuple[int, int, int, int] = (3, 4, 23, 3),
        width: int = 128,
        groups: int = 32,
        frames: int = 64,
        size: int = 224,
    ) -> None:
        super().__init__(
            EncoderSpec(
                name="resnext3d-101",
                channels=16 * width,
                window_frames=frames,
                every=1,
                size=size,
                mean=ACTIVITYNET_MEAN,
                std=UNIT_STD,
                cells=frames // 16,
                grid=(-(-size // 32), -(-size // 32)),
                exemplar_frames=frames,
            )
        )
        self.conv1 = nn.Conv3d(3, 64, 7, stride=(1, 2, 2), padding=3, bias=False)
        self.bn1 = nn.BatchNorm3d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool3d(3, stride=2, padding=1)
        inside = 64
        for stage, depth in enumerate(blocks):
            middle, stride = width * 2**stage, 1 if stage == 0 else 2
            first = Bottleneck(inside, middle, groups, stride)
            inside = 2 * middle
            rest = [Bottleneck(inside, middle, groups, 1) for _ in range(depth - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        features_BCTHW = self.maxpool(self.relu(self.bn1(self.conv1(frames_BTCHW.transpose(1, 2)))))
        for stage in range(1, 5):
            features_BCTHW = self.get_submodule(f"layer{stage}")(features_BCTHW)
        out: Tensor = features_BCTHW.permute(0, 2, 3, 4, 1)
        return out


class Bottleneck(nn.Module):
    """1×1×1, grouped 3×3×3, 1×1×1 to twice the channels, with a shortcut."""

    def __init__(self, inside: int, middle: int, groups: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inside, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm3d(middle)
        self.conv2 = nn.Conv3d(middle, middle, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm3d(middle)
        self.conv3 = nn.Conv3d(middle, 2 * middle, 1, bias=False)
        self.bn3 = nn.BatchNorm3d(2 * middle)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inside != 2 * middle:
            self.downsample = nn.Sequential(
                nn.Conv3d(inside, 2 * middle, 1, stride=stride, bias=False), nn.BatchNorm3d(2 * middle)
            )

    def forward(self, features_BCTHW: Tensor) -> Tensor:
        changed = self.relu(self.bn1(self.conv1(features_BCTHW)))
        changed = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(changed)))))
        out: Tensor = self.relu(changed + self.downsample(features_BCTHW))
        return out


def resnext3d_101(**options: Any) -> ResNeXt3D:
    """3-D ResNeXt-101. Options: keywords of ResNeXt3D."""
    return ResNeXt3D(**options)


_RESNEXT3D = (
    PublicWeights(
        source=RESNEXT3D_101,
        recognises=lambda tensors: (
            "layer1.0.bn3.weight" in tensors and "conv1.weight" in tensors and tensors["conv1.weight"].ndim == 5
        ),
        convert=unchanged,
        known_unneeded=("fc.*",),
    ),
)

PUBLIC = (*_R2PLUS1D, *_RESNEXT3D)
ENCODERS = {"r2plus1d-18": r2plus1d_18, "resnext3d-101": resnext3d_101}
