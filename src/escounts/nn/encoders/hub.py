"""`hf:ORG/NAME` and `timm:NAME`: encoders of transformers and of timm, by name or by the folder they were saved to.

Window, size, mean and standard deviation are the model's own (its processor and its config say them); a video model
sees 64 raw frames, as the paper's do, where its window allows it. The grid of tokens is found out by running it once.
Models that know pictures alone (CLIP, DINOv2, Hiera, all of timm) see each sampled frame by itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from escounts.errors import ModelError
from escounts.nn.encoders.interface import IMAGENET_MEAN, IMAGENET_STD, Encoder, EncoderSpec

SPAN = 64
"""Raw frames that a window stands for, as in the paper."""
FRAMES = 16
"""Of a window of a model that sees one picture at a time."""
SPACE_FIRST = ("timesformer",)
"""Model types whose tokens are in the order of place, then time."""
PROCESSOR_FILES = ("video_preprocessor_config.json", "preprocessor_config.json")
MOST_EXTRA = 8
"""Class and register tokens before those of the picture."""


class HubEncoder(Encoder):
    """A frozen model of another library behind this one's interface.

    Args:
        run: calls the model with its frames, (B, T, 3, S, S) where it is for videos, (B, 3, S, S) where it is for
            pictures; its tokens.
        spec: its own; the channels, cells and grid are found out here. frames of a window: SPAN / every.
        video: whether it sees a window at once; tubelet: frames of a cell then.
    """

    def __init__(
        self,
        model: nn.Module,
        run: Callable[[nn.Module, Tensor], Tensor],
        spec: EncoderSpec,
        *,
        video: bool = False,
        tubelet: int = 1,
        space_first: bool = False,
    ) -> None:
        super().__init__(spec)
        self.model, self._run, self._video, self._space_first = model.eval(), run, video, space_first
        self._cells = spec.window_frames // tubelet
        with torch.no_grad():
            out = self._tokens(torch.zeros(1, spec.window_frames if video else 1, 3, spec.size, spec.size))
        self._extra, side = places(spec.name, out, self._cells if video else 1)
        self.spec = replace(spec, channels=out.shape[-1], cells=self._cells, grid=(side, side))

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        batch, time = frames_BTCHW.shape[:2]
        side, cells = self.spec.grid[0], self._cells if self._video else time
        tokens = self._tokens(frames_BTCHW)[:, self._extra :]
        if self._space_first:
            return tokens.reshape(batch, side, side, cells, -1).permute(0, 3, 1, 2, 4)
        return tokens.reshape(batch, cells, side, side, -1)

    def _tokens(self, frames_BTCHW: Tensor) -> Tensor:
        """Tokens (B, N, C), or of each picture (B·T, N, C); those before the picture's included."""
        tokens = self._run(self.model, frames_BTCHW if self._video else frames_BTCHW.flatten(0, 1))
        if tokens.ndim == 4:  # (B, C, H, W), or with channels last
            tokens = tokens if tokens.shape[1] == tokens.shape[2] else tokens.permute(0, 2, 3, 1)
            tokens = tokens.flatten(1, 2)
        return tokens


def places(name: str, tokens_BNC: Tensor, cells: int) -> tuple[int, int]:
    """How many tokens come before the picture's, and the side of the square grid of the others."""
    for extra in range(MOST_EXTRA + 1):
        area, rest = divmod(tokens_BNC.shape[1] - extra, cells)
        if tokens_BNC.ndim == 3 and rest == 0 and area > 0 and math.isqrt(area) ** 2 == area:
            return extra, math.isqrt(area)
    raise ModelError(f"{name} gives {tuple(tokens_BNC.shape)} for a window; expected {cells} cells of a square grid")


def hugging_face(place: str) -> HubEncoder:
    """The model of a hub id or folder, through transformers."""
    try:
        import transformers  # noqa: PLC0415 - optional, and 3 s that nothing else waits for
    except ImportError as error:
        raise ModelError(f"hf:{place} needs transformers: pip install transformers") from error
    try:
        model = transformers.AutoModel.from_pretrained(place)
    except Exception as error:  # the library raises its own, the hub's and the system's errors
        raise ModelError(f"hf:{place} cannot be loaded ({type(error).__name__}: {str(error)[:200]})") from error
    config = getattr(model.config, "vision_config", model.config)
    model = getattr(model, "vision_model", model)
    processor = _processor(transformers, place)
    frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
    tubelet = getattr(config, "tubelet_size", 1)
    options = {"skip_predictor": True} if config.model_type == "vjepa2" else {}

    def run(model: Any, frames: Tensor) -> Tensor:
        tokens: Tensor = model(**{model.main_input_name: frames}, **options).last_hidden_state
        return tokens

    return HubEncoder(
        model,
        run,
        _spec(
            f"hf:{place}",
            frames or FRAMES,
            _size(processor, config),
            getattr(processor, "image_mean", None) or IMAGENET_MEAN,
            getattr(processor, "image_std", None) or IMAGENET_STD,
        ),
        video=frames is not None,
        tubelet=1 if frames is None else tubelet if isinstance(tubelet, int) else tubelet[0],
        space_first=config.model_type in SPACE_FIRST,
    )


def _spec(name: str, window: int, size: int, mean: Sequence[float], std: Sequence[float]) -> EncoderSpec:
    """What is known before the model has run."""
    return EncoderSpec(
        name=name,
        channels=0,
        window_frames=window,
        every=max(1, SPAN // window),
        size=size,
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
        exemplar_frames=window,
    )


def _processor(transformers: Any, place: str) -> Any:
    """What prepares frames for the model; None where nothing was saved of it."""
    for kind in ("AutoVideoProcessor", "AutoImageProcessor"):
        try:
            return getattr(transformers, kind).from_pretrained(place)
        except Exception:
            continue
    for name in PROCESSOR_FILES:  # one for videos is built with torchvision alone; what it says can be read without
        try:
            return SimpleNamespace(**json.loads(Path(transformers.utils.cached_file(place, name)).read_text()))
        except Exception:
            continue
    return None


def _size(processor: Any, config: Any) -> int:
    sides = [getattr(processor, name, None) for name in ("crop_size", "size")]
    sides += [getattr(config, name, None) for name in ("crop_size", "image_size")]
    for side in filter(None, sides):  # a number; a dict of height and width or of the shortest edge; a list
        values = [side] if isinstance(side, int) else list(side.values() if hasattr(side, "values") else side)
        if known := [value for value in values if isinstance(value, int)]:
            return known[0]
    raise ModelError(f"a {config.model_type} states no size of its pictures; it cannot be used by name")


def timm(place: str, *, pretrained: bool = True, **options: Any) -> HubEncoder:
    """The model of that name, through timm. Options: of timm.create_model."""
    try:
        library = import_module("timm")  # optional
    except ImportError as error:
        raise ModelError(f"timm:{place} needs timm: pip install timm") from error
    try:
        model = library.create_model(place, pretrained=pretrained, num_classes=0, **options)
    except Exception as error:  # the library raises its own, the hub's and the system's errors
        raise ModelError(f"timm:{place} cannot be loaded ({type(error).__name__}: {str(error)[:200]})") from error
    about = library.data.resolve_model_data_config(model)
    spec = _spec(f"timm:{place}", FRAMES, about["input_size"][-1], about["mean"], about["std"])
    return HubEncoder(model, lambda model, frames: model.forward_features(frames), spec)  # type: ignore[operator]
