"""`lite`: the default model's encoder. Small, trained with the decoder, fast on a CPU.

Two stages. The frame stage looks at one frame and its change to the next, so it runs once a frame however
many windows share it. The window stage takes the still scene out (mean over the window) and mixes over time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from escounts.nn.device import autocast_type, to_device
from escounts.nn.encoders.interface import Encoder, EncoderSpec

_GREY, _CONTRAST = 127, 64
"""Of the normalisation, in levels of 8 bits."""

_DIFFERENCE_GAIN = 3.0
"""Frame differences are small beside the frames; this brings both to one scale."""

_LEAST_SPREAD = 0.02
"""Standard deviation of a window's features below which they are not made larger: nothing moves."""
_LARGE_MAP = 1024
"""Places of a map from which on torch normalises bf16 on a CPU as fast as float32; smaller ones take three times as
long, longer than to cast them."""
_COMMON_SPREAD = 0.3
"""About what it is where a person moves; only sets the zero of what the tokens say about it."""


@dataclass(frozen=True)
class LiteConfig:
    """widths: channels of the four strided stages of the frame stage; residual: extra residual blocks in each
    of stages 2 to 4; channels, dilations: width and temporal dilations of the window stage's blocks; amount: the
    tokens also say how much moves in their window, which is otherwise scaled away; look: numbers that say what a
    frame looks like, 0 for none."""

    widths: tuple[int, int, int, int] = (32, 48, 80, 112)
    residual: tuple[int, int, int] = (0, 0, 0)
    channels: int = 192
    dilations: tuple[int, ...] = (1, 1, 2)
    size: int = 128
    window_frames: int = 128
    amount: bool = False
    look: int = 0


class LiteEncoder(Encoder):
    """Frames (B, T, 3, S, S) → tokens (B, T, S/32, S/32, channels): one time cell a frame."""

    def __init__(self, config: LiteConfig | None = None) -> None:
        config = config or LiteConfig()
        grid = config.size // 32
        spec = EncoderSpec(
            name="lite",
            channels=config.channels,
            window_frames=config.window_frames,
            every=1,
            size=config.size,
            mean=(_GREY / 255,) * 3,
            std=(_CONTRAST / 255,) * 3,
            cells=config.window_frames,
            grid=(grid, grid),
            fps=10.0,
        )
        super().__init__(spec)
        self.config = config
        self.frame_stage = _frame_stage(config)
        self.reduce = nn.Conv2d(config.widths[-1], config.channels, 3, stride=2, padding=1)
        self.amount = nn.Parameter(torch.zeros(config.channels)) if config.amount else None
        self.look = nn.Linear(2 * config.widths[-1], config.look, bias=False) if config.look else None
        self.blocks = nn.ModuleList([WindowBlock(config.channels, d) for d in config.dilations])

    def compile_frame_stage(self, backend: str = "inductor") -> None:
        """Fuse the frame stage. It is compiled once for each number of frames that a batch brings it: keep that the
        same (the lengths of PixelConfig divide the frames of a step).

        (`nn.Sequential.compile()` is accepted and does nothing.)
        """
        stage = self.frame_stage
        stage.forward = torch.compile(stage.forward, dynamic=False, backend=backend)  # type: ignore[method-assign]

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        return self.window_tokens(self.frame_features(frames_BTCHW))

    def frame_features(self, frames_BTCHW: Tensor, following_BCHW: Tensor | None = None) -> Tensor:
        """Per-frame features (B, T, C, S/16, S/16) of normalised frames.

        following: the frame after the last, when the video goes on; without it the last change is zero.
        """
        last_B1CHW = frames_BTCHW[:, -1:] if following_BCHW is None else following_BCHW[:, None]
        change_BTCHW = torch.cat([frames_BTCHW[:, 1:], last_B1CHW], 1) - frames_BTCHW
        x_BTCHW = torch.cat([frames_BTCHW, _DIFFERENCE_GAIN * change_BTCHW], 2)
        x = x_BTCHW.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        features: Tensor = self.frame_stage(x)
        return features.view(*frames_BTCHW.shape[:2], *features.shape[1:])

    def image_features(self, images_THWC: Tensor, count: int) -> Tensor:
        """Per-frame features (count, C, S/16, S/16) of uint8 images; the one after `count`, if any, follows.

        The same as normalise and frame_features, but whole numbers as long as pixels are moved about, which costs
        a CPU half as much, and the scale of the first convolution's input in its weights.
        """
        x_THWC = to_device(images_THWC, self.reduce.weight.device).short()
        now_THWC, next_THWC = x_THWC[:count], x_THWC[1 : count + 1]
        if len(next_THWC) < count:
            next_THWC = torch.cat([next_THWC, x_THWC[-1:]])
        pair_THWC2 = torch.stack([now_THWC - _GREY, next_THWC - now_THWC], -1)
        first, *others = self.frame_stage
        assert isinstance(first, nn.Conv2d)
        gain_2 = first.weight.new_tensor([1 / _CONTRAST, _DIFFERENCE_GAIN / _CONTRAST])
        weight_O2CHW = first.weight.reshape(-1, 2, 3, *first.kernel_size) * gain_2[:, None, None, None]
        weight = weight_O2CHW.transpose(1, 2).flatten(1, 2)
        kind = x_THWC.device.type
        x = pair_THWC2.flatten(3).to(autocast_type(kind) or torch.float32).permute(0, 3, 1, 2)  # whole numbers: exact
        x = F.conv2d(x, weight, first.bias, first.stride, first.padding)
        for layer in others:
            if kind == "cpu" and isinstance(layer, nn.GroupNorm) and x.shape[2] * x.shape[3] < _LARGE_MAP:
                x = x.float()
            x = layer(x)
        return x

    def look_features(self, features_TCHW: Tensor) -> Tensor:
        """What each frame looks like, (T, look) float32: the still scene is kept, the place in the picture is not."""
        if self.look is None:
            return features_TCHW.new_zeros((len(features_TCHW), 0), dtype=torch.float32)
        look_TD: Tensor = self.look(pooled(features_TCHW).to(self.look.weight.dtype))
        return look_TD.float()

    def window_tokens(self, features_BTCHW: Tensor) -> Tensor:
        """Tokens (B, T, H, W, C) of windows of per-frame features; the window's still content is removed."""
        x_BTHWC = features_BTCHW.float().permute(0, 1, 3, 4, 2)  # as the frame stage leaves them in memory
        x_BTHWC = x_BTHWC - x_BTHWC.mean(1, keepdim=True)
        variance_B = x_BTHWC.square().sum((1, 2, 3, 4)) / (x_BTHWC[0].numel() - 1)
        spread_B1111 = variance_B.clamp_min(_LEAST_SPREAD**2).sqrt()[:, None, None, None, None]
        x_BTHWC = x_BTHWC / spread_B1111
        batch, cells = x_BTHWC.shape[:2]
        reduced: Tensor = self.reduce(x_BTHWC.flatten(0, 1).permute(0, 3, 1, 2))
        tokens_BTHWC: Tensor = reduced.permute(0, 2, 3, 1).reshape(batch, cells, *reduced.shape[2:], -1)
        if self.amount is not None:
            # A codec's pulse on a still picture, made as large as a person's motion, would look like one.
            tokens_BTHWC = tokens_BTHWC + self.amount * (spread_B1111 / _COMMON_SPREAD).log().to(tokens_BTHWC.dtype)
        for block in self.blocks:
            tokens_BTHWC = block(tokens_BTHWC)
        return tokens_BTHWC


def pooled(features_TCHW: Tensor) -> Tensor:
    """Mean and spread over space of every channel, (T, 2 C) float32."""
    spread_TC, mean_TC = torch.std_mean(features_TCHW.float(), (2, 3))
    return torch.cat([mean_TC, spread_TC], 1)


class WindowBlock(nn.Module):
    """Residual: normalise, mix over space, mix over time, project."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.space = nn.Conv2d(channels, channels, 3, padding=1, groups=4)
        self.time = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, groups=4)
        self.project = nn.Linear(channels, channels)

    def forward(self, tokens_BTHWC: Tensor) -> Tensor:
        batch, cells, height, width, channels = tokens_BTHWC.shape
        x = self.norm(tokens_BTHWC).flatten(0, 1).permute(0, 3, 1, 2)
        x_BTHWC = self.space(x).permute(0, 2, 3, 1).reshape(batch, cells, height, width, channels)
        mixed_BTHWC: Tensor = tokens_BTHWC + self.project(F.gelu(self._over_time(x_BTHWC)))
        return mixed_BTHWC

    def _over_time(self, x_BTHWC: Tensor) -> Tensor:
        """The convolution over time, at every place."""
        batch, cells, height, width, channels = x_BTHWC.shape
        if x_BTHWC.device.type == "cpu":
            # Channels stay last and nothing is moved: moving them to and fro costs more than the convolution.
            conv, x_BCTN = self.time, x_BTHWC.flatten(2, 3).permute(0, 3, 1, 2)
            (reach,) = conv.dilation
            weight, padding, dilation = conv.weight[..., None], (reach, 0), (reach, 1)
            x_BCTN = F.conv2d(x_BCTN, weight, conv.bias, padding=padding, dilation=dilation, groups=conv.groups)
            return x_BCTN.permute(0, 2, 3, 1).reshape(x_BTHWC.shape)
        x: Tensor = self.time(x_BTHWC.permute(0, 2, 3, 4, 1).flatten(0, 2))  # (B·H·W, C, T)
        return x.reshape(batch, height, width, channels, cells).permute(0, 4, 1, 2, 3)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(8, channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(8, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


def _frame_stage(config: LiteConfig) -> nn.Sequential:
    """Four strided stages, S×S → S/16×S/16; 5×5 kernel first, a second 3×3 in each later stage."""
    layers: list[nn.Module] = []
    inputs = 6
    for stage, width in enumerate(config.widths):
        kernel = 5 if stage == 0 else 3
        layers += _convolution(inputs, width, kernel, stride=2)
        if stage > 0:
            layers += _convolution(width, width, 3, stride=1)
            layers += [ResidualBlock(width) for _ in range(config.residual[stage - 1])]
        inputs = width
    return nn.Sequential(*layers)


def _convolution(inputs: int, outputs: int, kernel: int, *, stride: int) -> list[nn.Module]:
    # ReLU, not GELU: on a CPU the activation of the first stages costs as much as a convolution.
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2)
    return [conv, nn.GroupNorm(8, outputs), nn.ReLU(inplace=True)]


def lite(**options: Any) -> LiteEncoder:
    """The default model's encoder. Options: fields of LiteConfig."""
    return LiteEncoder(LiteConfig(**options))
