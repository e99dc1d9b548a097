"""Any model on any dataset, by name: what `escounts evaluate` does. A model is a run, a checkpoint or a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from escounts.counter import Counter
from escounts.errors import DataError, ModelError
from escounts.models import catalogue, store
from escounts.models.checkpoint import load_decoder, tensors_sha256
from escounts.nn.encoders.interface import Encoder
from escounts.nn.network import Network
from escounts.research.datasets.annotations import Dataset
from escounts.research.datasets.encoding import layout_for
from escounts.research.datasets.registry import dataset_entry, load_dataset
from escounts.research.datasets.stores import (
    encode_command,
    encoder_identity,
    find_store,
    label_path,
    load_labels,
    open_encoder,
)
from escounts.research.datasets.tokens import LAYOUT, TokenLayout, TokenStore
from escounts.research.evaluation.evaluate import (
    Evaluation,
    EvaluationProcess,
    EvaluationTask,
    Progress,
    count_video,
    evaluate_model,
)
from escounts.research.evaluation.models import (
    EvalSpec,
    EvaluatedModel,
    FileModel,
    TokenModel,
    TokenSource,
    mean_count,
)
from escounts.research.training.run_folder import ABOUT
from escounts.research.training.token_run import RunMetadata, load_trained, refuse_leakage
from escounts.system.config_codec import to_plain
from escounts.system.task_processes import divided

MODELS = "models"
"""Where the predictions of models that are not trained here lie under the tables' folder."""


@dataclass(frozen=True)
class ModelPlace:
    """Where a model finds what it counts. root: folder with the videos; tokens: folder with token stores; either may
    be missing. padding, shifts: of tokens that a decoder counts. checkpoint: which of a run's, best or last."""

    dataset: Dataset
    root: Path | None = None
    tokens: Path | None = None
    padding: Literal["last", "mean"] = "last"
    shifts: int = 4
    checkpoint: str = "best"
    device: str = "cpu"


Opener = Callable[..., EvaluatedModel]
"""What makes a model of its name, as open_model does."""


def open_model(name: str, place: ModelPlace, *, split: str) -> EvaluatedModel:
    """The model: a run folder, a .safetensors checkpoint, `mean`, or a name of `escounts models`.

    A head on tokens (a run folder, a decoder) takes the store where it fits, and encodes videos that are not in it.
    Everything else counts video files. Videos that a run trained on are refused.
    """
    known = [entry.name for entry in catalogue.entries()]
    if (Path(name) / ABOUT).is_file() or (Path(name).is_dir() and name not in known):
        return _run_model(Path(name), place, split)
    if name == "mean":
        return mean_count(place.dataset)
    kept = _kept(name)
    if kept is not None and kept.kind == "decoder":
        return _decoder_model(name, kept, place, split)
    entry = catalogue.find(name)
    if place.root is None:
        raise DataError(f"{entry.name} counts video files: give the folder of {place.dataset.name} with --root")
    counter = Counter(catalogue.build(name, place.device))
    return FileModel(entry.name, counter, place.dataset, place.root, identity=_file_identity(name))


def _kept(name: str) -> store.StoredWeights | None:
    """The checkpoint behind a name or a path; None for a model without one of its own."""
    if name.endswith(".safetensors"):
        return store.describe(Path(name))
    entry = catalogue.find(name)
    state = entry.state()
    if state != "ready":
        raise ModelError(f"model {entry.name!r} is {state}")
    return store.find(name)


def _file_identity(name: str) -> Mapping[str, Any]:
    weights = catalogue.LITE_WEIGHTS if name in ("lite", "default") else Path(name)
    kept = store.describe(weights) if weights.is_file() else store.find(name) if name != "spectral" else None
    if kept is None:
        return {"name": name, "sha256": ""}
    calibration = store.header_metadata(kept.path).get("calibration", "")  # of no tensor, and it decides counts, too
    return {"name": name, "sha256": kept.sha256, "calibration": calibration}


def _run_model(folder: Path, place: ModelPlace, split: str) -> EvaluatedModel:
    about = RunMetadata.read(folder)
    refuse_leakage(about, place.dataset.name, place.dataset.split(split))
    network = load_trained(folder, which=place.checkpoint, device=place.device)
    encoder = network.encoder if isinstance(network, Network) else None
    source = _source(place, about.layout, encoder, split)
    identity = {"run": to_plain(about.run), "weights": tensors_sha256(network.state_dict())}
    return TokenModel(
        folder.name,
        network,
        source,
        identity=identity | {"layout": asdict(source.layout)},
        by_window=about.run.tokens.by_window,
        device=place.device,
    )


def _decoder_model(name: str, kept: store.StoredWeights, place: ModelPlace, split: str) -> EvaluatedModel:
    decoder, encoder_name, _ = load_decoder(kept.path, place.device)
    grid = decoder.config.grid
    found = _fitting_store(place, encoder_name, place.padding)
    if found is not None and found.layout.grid >= grid:
        source = _stored(place, found, None, split)
    else:
        encoder, identity = open_encoder(encoder_name, device=place.device)
        pool = min(encoder.spec.grid, grid)
        layout = layout_for(encoder.spec, identity, pool=pool, padding=place.padding, shifts=place.shifts)
        source = _streamed(place, layout, encoder)
    told = {"name": kept.name, "sha256": kept.sha256, "layout": asdict(source.layout)}
    return TokenModel(kept.name, decoder, source, identity=told, device=place.device)


def _source(place: ModelPlace, layout: TokenLayout, encoder: Encoder | None, split: str) -> TokenSource:
    """Tokens of the kind a run was trained on: from the store that fits, else encoded from the videos."""
    found = _fitting_store(place, layout.encoder, layout.padding)
    if found is not None:
        found.require(layout)
        return _stored(place, found, encoder, split)
    return _streamed(place, layout, _encoder_of(layout, place.device, encoder))


def _stored(place: ModelPlace, found: TokenStore, encoder: Encoder | None, split: str) -> TokenSource:
    """Tokens of a store. Videos that are here and not in it (another split was encoded, or not all of them yet) are
    encoded as they are needed, where the encoder is here, too."""
    absent = [video for video in place.dataset.split(split) if video.name not in found]
    made_by = None
    if place.root is not None and any(place.dataset.locate(place.root, video) for video in absent):
        with suppress(ModelError):
            made_by = _encoder_of(found.layout, place.device, encoder)
    return TokenSource(place.dataset, found.layout, store=found, encoder=made_by, root=place.root)


def _encoder_of(layout: TokenLayout, device: str, own: Encoder | None) -> Encoder:
    """The encoder that made such tokens, a run's own or the one of that name; ModelError where it is not here or has
    other weights."""
    every = None if layout.fps is not None else layout.every
    encoder = own or open_encoder(layout.encoder, every=every, device=device)[0]
    if encoder_identity(encoder) != layout.identity:
        raise ModelError(
            f"the encoder {layout.encoder!r} that is here has other weights than the one whose tokens the run learnt "
            "from; add that one with `escounts weights add`"
        )
    return encoder.to(torch.device(device)).eval()


def _streamed(place: ModelPlace, layout: TokenLayout, encoder: Encoder) -> TokenSource:
    if place.root is None:
        command = encode_command(place.dataset.name, layout.encoder)
        raise DataError(
            f"no tokens of {place.dataset.name} by {layout.encoder} under {place.tokens}: give the videos with "
            f"--root, or encode them once with: {command}"
        )
    encoder = encoder.to(torch.device(place.device)).eval()
    return TokenSource(place.dataset, layout, encoder=encoder, root=place.root)


def _fitting_store(place: ModelPlace, encoder: str, padding: str) -> TokenStore | None:
    """The dataset's store by that encoder, None when there is none padded so."""
    if place.tokens is None:
        return None
    try:
        found = TokenStore(find_store(place.tokens, place.dataset.name, encoder))
    except DataError:
        return None
    return found if found.layout.padding == padding and found.layout.encoder == encoder else None


def evaluation_work(
    opener: Opener, model: str, place: ModelPlace, split: str
) -> Callable[[EvaluationTask], dict[str, Any]]:
    """In a process: opens the model; each task is then a video's rows."""
    opened = opener(model, place, split=split)

    def work(task: EvaluationTask) -> dict[str, Any]:
        counted = count_video(opened, *task)
        return {str(at): row if isinstance(row, str) else asdict(row) for at, row in counted.items()}

    return work


def evaluate_named(
    model: str,
    data: str | None = None,
    *,
    root: Path | None = None,
    videos: Path | None = None,
    tokens: Path | None = None,
    split: str | None = None,
    specs: Sequence[EvalSpec] = (EvalSpec(),),
    out: Path | None = None,
    checkpoint: str = "best",
    device: str = "cpu",
    limit_videos: int | None = None,
    form: str = "csv",
    progress: Progress | None = None,
    jobs: int = 1,
    devices: Sequence[str] = (),
    opener: Opener = open_model,
) -> list[Evaluation]:
    """Any model on any dataset: what `escounts evaluate` does.

    model: a run folder, a checkpoint, `mean` or a name of `escounts models`. data: a dataset's name; None for the one
    a run was trained on. root: its folder with labels and videos (videos: where these lie elsewhere); without it the
    labels beside the stored tokens are used. split: None for the one that published numbers are of, and for every
    video of a folder that the model did not learn from. out: where predictions go; None for the run's own folder, or
    a place where `escounts table` finds them. jobs: processes that share the videos, on the devices in turn (on
    `device` where none is given). opener: what makes a model of its name, a function of a module.

    >>> (found,) = evaluate_named("lite", "quva", root=Path("QUVA"))
    >>> found.coverage.text(), [row.predicted for row in found.rows]
    """
    run = Path(model) if (Path(model) / ABOUT).is_file() else None
    name = data or (RunMetadata.read(run).dataset if run else None)
    if name is None:
        raise DataError(f"{model} was trained on no dataset that is known: name the one to evaluate on with --data")
    dataset = labels_of(name, root, tokens)
    chosen = split or ("all" if name == "folder" and run is None else dataset_entry(name).test)
    files = videos or (root.parent if root is not None and root.is_file() else root)
    place = ModelPlace(dataset, files, tokens, checkpoint=checkpoint, device=device)
    opened = opener(model, place, split=chosen)
    folder = out or (run / "predictions" if run else Path("tables") / MODELS / Path(model).stem)
    processes: Sequence[EvaluationProcess] = ()
    if jobs > 1 or devices:
        processes = divided(
            evaluation_work,
            devices or (device,),
            jobs,
            lambda name: (opener, model, replace(place, device=name), chosen),
        )
    return evaluate_model(
        opened,
        dataset,
        specs,
        folder,
        split=chosen,
        limit_videos=limit_videos,
        form=form,
        progress=progress,
        processes=processes,
    )


def labels_of(name: str, root: Path | None, tokens: Path | None) -> Dataset:
    """A dataset's labels: from its folder, else from beside its tokens."""
    if root is not None:
        return load_dataset(name, root)
    if tokens is None:
        raise DataError(f"no labels of {name}: give its folder with --root, or its tokens with --tokens")
    entry = dataset_entry(name)
    shared = entry.tokens or name
    stores = [tokens] if (tokens / LAYOUT).exists() else sorted(tokens.glob(f"{shared}-*"))
    for path in stores:
        if label_path(path, name).exists():
            return load_labels(path, name)
    raise DataError(
        f"no labels of {name} under {tokens}: give its folder with --root, or {encode_command(name, None)}"
    )
