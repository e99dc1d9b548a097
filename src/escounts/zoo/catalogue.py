"""The models that have names: what each is, where its weights are, what they were trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from escounts.counting_model import CountingModel
from escounts.errors import ModelError

LITE_WEIGHTS = Path(__file__).resolve().parent.parent / "weights" / "lite.safetensors"
"""Weights that travel with the package."""


@dataclass(frozen=True)
class ModelEntry:
    """One model that can be loaded by name. size_bytes is 0 for a model without weights."""

    name: str
    summary: str
    source: str
    size_bytes: int
    trained_on: str
    licence: str
    state: Callable[[], str]
    """"ready", or "missing: " and what to do about it."""
    build: Callable[[str], CountingModel]
    """From a device ("auto", "cpu", "cuda") to the model."""


def _ready() -> str:
    return "ready"


def _spectral(device: str) -> CountingModel:
    from escounts.baselines.spectral import Spectral

    return Spectral()


def _lite_state() -> str:
    if LITE_WEIGHTS.is_file():
        return "ready"
    return f"missing: {LITE_WEIGHTS.name} is not in this installation; reinstall the package"


def _lite(device: str) -> CountingModel:
    from escounts.zoo import paper_models
    from escounts.zoo import store as weights

    return paper_models.build(weights.describe(LITE_WEIGHTS), device)


_ENTRIES: dict[str, ModelEntry] = {}


def register(entry: ModelEntry) -> None:
    """Add a model under its name."""
    _ENTRIES[entry.name] = entry


register(
    ModelEntry(
        name="lite",
        summary="The default: a small encoder, self-similarity and the exemplar decoder, for any motion.",
        source="in the package",
        size_bytes=LITE_WEIGHTS.stat().st_size if LITE_WEIGHTS.is_file() else 0,
        trained_on="generated repetitions of permissively licensed clips, motion capture and drawn motion",
        licence="MIT; see docs/models/lite.md",
        state=_lite_state,
        build=_lite,
    )
)
register(
    ModelEntry(
        name="spectral",
        summary="Classical baseline: self-similarity of motion features, autocorrelation and spectrum.",
        source="no weights needed",
        size_bytes=0,
        trained_on="nothing",
        licence="MIT",
        state=_ready,
        build=_spectral,
    )
)


def entries() -> list[ModelEntry]:
    """Every model, in the order they were added, then the paper's configurations and the user's own."""
    return list(_all().values())


def _all() -> dict[str, ModelEntry]:
    from escounts.zoo import paper_models

    added = paper_models.entries()
    return _ENTRIES | {name: entry for name, entry in added.items() if name not in _ENTRIES}


def default_name() -> str:
    """The best model that is here: `lite` where its weights are, else `spectral`."""
    lite = _ENTRIES.get("lite")
    return "lite" if lite is not None and lite.state() == "ready" else "spectral"


def find(name: str = "default") -> ModelEntry:
    """The entry of that name, or of a checkpoint's path; raises ModelError that lists the known names."""
    if name == "default":
        name = default_name()
    if name in _ENTRIES:
        return _ENTRIES[name]
    if name.endswith(".safetensors") and Path(name).is_file():
        from escounts.zoo import paper_models
        from escounts.zoo import store as weights

        return paper_models.entry_of(weights.describe(Path(name)))
    models = _all()
    if name not in models:
        raise ModelError(f"unknown model {name!r}; known: {', '.join(['default', *models])}")
    return models[name]


def build(name: str = "default", device: str = "auto") -> CountingModel:
    """The model of that name on a device; raises ModelError for unknown names and missing weights."""
    entry = find(name)
    state = entry.state()
    if state != "ready":
        raise ModelError(f"model {entry.name!r} is {state}")
    return entry.build(device)
