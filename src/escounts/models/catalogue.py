"""The models that have names: what each is, where its weights are, what they were trained on, and what is missing.

The package's own, the paper's configurations (a public encoder, and a decoder trained on its tokens, from the user's
store), and whatever the user added to the store under other names, or taught an own action. Imports no torch: listing
does not wait for it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from escounts.counting import CountingModel
from escounts.errors import ModelError
from escounts.exemplars import states_of_videos
from escounts.models import store
from escounts.models.store import StoredWeights
from escounts.nn.encoders.registry import ENCODERS, PublicFile, brings_weights
from escounts.system.sandbox import Sandbox, checked_sandbox

SHIPPED = Path(__file__).resolve().parent.parent / "weights"
"""Weights that travel with the package: the default model, and decoders whose encoder is fetched."""
LITE_WEIGHTS = SHIPPED / "lite.safetensors"
DESCRIPTION = "model.json"
"""The file of an exported model's folder that is written last."""

RELEASED_NAME, RELEASED_ENCODER = "escounts-repcount", "mae-vit-b"
RELEASED_DECODER = PublicFile(
    "repcount_trained.pyth",
    "sinhasaptarshi/EveryShotCounts, the decoder trained on RepCount-A",
    "as published by the ESCounts authors; trained on RepCount-A, whose terms apply",
)


@dataclass(frozen=True)
class ModelEntry:
    """One model that can be loaded by name. size_bytes: 0 for a model without weights, and where they are missing.

    checkpoint: the file of its decoder or network; None for a model without weights.
    state: "ready", or "missing: " or "damaged: " and what to do about it.
    """

    name: str
    summary: str
    source: str
    size_bytes: int = 0
    trained_on: str = "nothing"
    licence: str = "MIT"
    checkpoint: Path | None = None
    state: Callable[[], str] = lambda: "ready"


def entries() -> list[ModelEntry]:
    """Every model: the package's own, the paper's configurations, then the user's own."""
    return list(_all().values())


def default_name() -> str:
    """The best model that is here: `lite` where its weights are, else `spectral`."""
    return "lite" if LITE_WEIGHTS.is_file() else "spectral"


def find(name: str = "default") -> ModelEntry:
    """The entry of that name, or of a checkpoint's path; raises ModelError that lists the known names."""
    if name.endswith(".safetensors") and Path(name).is_file():
        return _own(store.describe(Path(name)))
    if (Path(name) / DESCRIPTION).is_file():
        return _exported(Path(name))
    models = _all()
    if name == "default":
        name = default_name()
    if name not in models:
        raise ModelError(f"unknown model {name!r}; known: {', '.join(['default', *models])}")
    return models[name]


def build(name: str = "default", device: str = "auto") -> CountingModel:
    """The model of that name on a device; raises ModelError for unknown names and missing weights."""
    entry = find(name)
    state = entry.state()
    if state != "ready":
        raise ModelError(f"model {entry.name!r} is {state}")
    if entry.checkpoint is None:
        from escounts.counting.spectral import Spectral  # noqa: PLC0415 - it reads videos; listing does not

        return Spectral()
    from escounts.models.from_checkpoint import build_model  # noqa: PLC0415 - torch: 2 s that spectral and listing do not need

    return build_model(entry.checkpoint, device)


def weights_sha256(name: str = "default") -> str:
    """What tells a model's weights from others of the same name; "" where it has none, or they are missing."""
    path = find(name).checkpoint
    if path is not None and path.is_dir():
        return hashlib.sha256((path / DESCRIPTION).read_bytes()).hexdigest()  # it has the sha256 of the other files
    if path is None or not os.path.isfile(path):
        return ""
    weights = store.describe(path)
    apart = weights.kind == "decoder" and not brings_weights(weights.encoder)
    encoder = store.find(weights.encoder) if apart else None
    return weights.sha256 + ("" if encoder is None else encoder.sha256)


def weight_places(name: str = "default") -> tuple[str, ...]:
    """Files and folders that loading the model reads: its own file, and the store, which may hold its encoder.

    The store is made where it is not there yet, so that a process that may read it sees what is added later.
    """
    folder = store.store_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        checkpoint = find(name).checkpoint
    except ModelError:  # whoever loads it says so
        checkpoint = None
    return (str(folder), *([] if checkpoint is None else [str(checkpoint)]))


@contextmanager
def counting_sandbox(
    model: str,
    exemplars: Iterable[str] = (),
    *,
    readable: Iterable[str | os.PathLike[str]],
    writable: Iterable[str | os.PathLike[str]] = (),
    network: bool = False,
) -> Iterator[Sandbox]:
    """What processes are confined to that count with a model, and a folder of theirs for as long as it lasts.

    Args:
        model: its name, or its file.
        exemplars: as text; the videos that they name may be read.
        readable: the videos.
        writable: folders for what the processes write.
        network: whether the videos come over it.

    Raises EscountsError where this machine cannot confine a process.
    """
    with tempfile.TemporaryDirectory(prefix="escounts-") as scratch:
        named = (str(state[0]) for state in states_of_videos(exemplars))
        reads = (*map(os.path.abspath, readable), *named, *weight_places(model))
        yield checked_sandbox(Sandbox(reads, (scratch, *map(os.path.abspath, writable)), network=network))


def _all() -> dict[str, ModelEntry]:
    of_encoders = [(name, *about) for name, entry in ENCODERS.items() for about in entry.models.items()]
    known = [_lite(), _spectral(), *(_paper_model(*about) for about in of_encoders)]
    found = {entry.name: entry for entry in known}
    for weights in store.stored():
        if weights.kind != "encoder" and weights.name not in found:
            found[weights.name] = _own(weights)
    return found


def _lite() -> ModelEntry:
    missing = f"missing: {LITE_WEIGHTS.name} is not in this installation; reinstall the package"
    return ModelEntry(
        name="lite",
        summary="The default: a small encoder, self-similarity and the exemplar decoder, for any motion.",
        source="in the package",
        size_bytes=LITE_WEIGHTS.stat().st_size if LITE_WEIGHTS.is_file() else 0,
        trained_on="generated repetitions of permissively licensed clips, motion capture and drawn motion",
        licence="MIT; see docs/models/lite.md",
        checkpoint=LITE_WEIGHTS,
        state=lambda: "ready" if LITE_WEIGHTS.is_file() else missing,
    )


def _spectral() -> ModelEntry:
    return ModelEntry(
        name="spectral",
        summary="Classical baseline: self-similarity of motion features, autocorrelation and spectrum.",
        source="no weights needed",
    )


def _paper_model(encoder: str, name: str, summary: str) -> ModelEntry:
    public = ENCODERS[encoder].files[0]
    here = {kept.name: kept for kept in store.stored()}  # whole ones: a damaged file is its own model's affair
    halves = [here[half] for half in (encoder, name) if half in here]
    released = name == RELEASED_NAME
    decoder, shipped = store.stored_path(name), SHIPPED / f"{name}.safetensors"
    told = (RELEASED_DECODER.file, "RepCount-A") if released else ("a decoder you train", "what its decoder was")
    # os.path: a store that this user may not look into holds nothing for them. One of the user's own comes first.
    if shipped.is_file() and not os.path.isfile(decoder):
        decoder, told = shipped, ("a decoder in the package", f"labelled clips; see docs/models/{name}.md")
        halves = [*halves, store.describe(shipped)]
    return ModelEntry(
        name=name,
        summary=summary,
        source=f"{public.file} and {told[0]}",
        size_bytes=sum(half.size_bytes for half in halves),
        trained_on=told[1],
        licence=public.licence,
        checkpoint=decoder,
        state=lambda: _state(encoder, decoder),
    )


def _exported(folder: Path) -> ModelEntry:
    """A folder that `escounts export` wrote."""
    return ModelEntry(
        name=str(folder),
        summary="An exported model, run by ONNX Runtime.",
        source=str(folder),
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
        trained_on="what the exported model was trained on",
        licence="that of the exported model",
        checkpoint=folder,
    )


def _own(weights: StoredWeights) -> ModelEntry:
    """The model that a decoder or network checkpoint is, wherever it lies."""
    if weights.kind == "encoder":
        raise ModelError(f"{weights.path} is an encoder; a model also needs a decoder trained on its tokens")
    apart = weights.kind == "decoder" and not brings_weights(weights.encoder)
    return ModelEntry(
        name=weights.name,
        summary=f"Your own {weights.kind} on {weights.encoder}.",
        source=str(weights.path),
        size_bytes=weights.size_bytes,
        trained_on=weights.source,
        licence=weights.licence,
        checkpoint=weights.path,
        state=lambda: _state(weights.encoder if apart else None, weights.path),
    )


def _state(encoder: str | None, decoder: Path) -> str:
    """ "ready", or what is missing or damaged; encoder None: the checkpoint at `decoder` holds both halves."""
    for path in [decoder, *([store.stored_path(encoder)] if encoder is not None else [])]:
        if os.path.isfile(path):
            try:
                store.describe(path)
            except ModelError as error:
                return f"damaged: {error}; add it again with `escounts weights add`"
    missing = []
    if encoder is not None and not os.path.isfile(store.stored_path(encoder)):
        missing.append(f"encoder {encoder}: {how_to_get_encoder(encoder)}")
    if not os.path.isfile(decoder):
        if decoder.stem == RELEASED_NAME:
            missing.append(f"decoder: {_how_to_get(RELEASED_NAME, RELEASED_DECODER)}")
        else:
            missing.append(
                "decoder: train one with `escounts train`, then "
                f"`escounts weights add CHECKPOINT --as {decoder.stem}`"
            )
    return f"missing: {'; '.join(missing)}" if missing else "ready"


def how_to_get_encoder(name: str) -> str:
    """Where an encoder's public weights are published and the command that adds them."""
    entry = ENCODERS.get(name)
    if entry is None or not entry.files:
        return "no package that is installed brings an encoder of that name"
    return _how_to_get(name, entry.files[0])


def _how_to_get(name: str, public: PublicFile) -> str:
    if public.package is not None:
        return f"`escounts weights add {name}`"
    if public.file == "model.safetensors":
        return f"`escounts weights add` with {public.origin}"
    return f"get {public.file} ({public.origin}), then `escounts weights add {public.file}`"


TAUGHT = "taught"
"""Entry of a checkpoint's metadata that holds the report of what it was taught."""


def own_model_path(name: str, *, replace_old: bool = False, folder: Path | None = None) -> Path:
    """Where a model of the user's own lies by name; a name that is taken raises a ModelError.

    replace_old: a model that was taught before may be written over; one that came otherwise never is. folder: of
    models that lie beside the store, the store's own when None.
    """
    path = store.stored_path(name)
    reserved = {"default", *(entry.name for entry in entries())}
    if folder is None:
        reserved -= {kept.name for kept in store.stored()}
    else:
        path = folder / path.name
    if name in reserved:
        raise ModelError(f"{name!r} is a model of its own already; choose another name")
    if path.exists() and not is_own_model(path):
        raise ModelError(f"{name!r} holds weights that were added; choose another name")
    if path.exists() and not replace_old:
        raise ModelError(f"there is a model called {name!r} already; choose another name, or replace it")
    return path


def is_own_model(path: Path) -> bool:
    """Whether a checkpoint was taught an own action."""
    return path.is_file() and TAUGHT in store.header_metadata(path)
