"""`resnext3d-101`: the 3-D ResNeXt-101 of Hara et al., 32 groups, the 64-frame Kinetics model.

64 frames in a row at 224² → 4×7×7 tokens of 2048 (exemplars: 64 frames too, 196 tokens). Modules are named as
in the authors' state dict, without its `module.` prefix.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from escounts.nn.encoders.interface import Encoder, EncoderSpec
from escounts.nn.encoders.public import RESNEXT3D_101, PublicWeights, unchanged

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


PUBLIC = (
    PublicWeights(
        source=RESNEXT3D_101,
        recognises=lambda tensors: (
            "layer1.0.bn3.weight" in tensors and "conv1.weight" in tensors and tensors["conv1.weight"].ndim == 5
        ),
        convert=unchanged,
        known_unneeded=("fc.*",),
    ),
)
