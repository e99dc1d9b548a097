"""Training on a dataset's stored tokens, or on your own folder of videos, by name: what `escounts train` does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from escounts.datasets.annotations import Problem
from escounts.datasets.encoding import Progress, encode_dataset, layout_for
from escounts.datasets.registry import load_dataset
from escounts.datasets.stores import find_store, load_labels, network_encoder, open_encoder, save_labels, store_path
from escounts.datasets.tokens import TokenLayout, TokenStore
from escounts.errors import DataError
from escounts.nn.device import Precision
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import NARROW_DECODER, NetworkConfig
from escounts.training.objective import RateObjectiveConfig
from escounts.training.optimisation import TrainConfig
from escounts.training.recipes import Recipe
from escounts.training.stored_tokens import StoredTokensConfig
from escounts.training.token_run import TokenRun, train_on_tokens
from escounts.training.trainer import Report
from escounts.zoo.catalogue import LITE_WEIGHTS
from escounts.zoo.checkpoint import read_checkpoint

OWN_TRAIN = TrainConfig(
    steps=400,
    batch_size=8,
    lr=1e-4,
    betas=(0.9, 0.98),
    schedule="cosine",
    warmup_steps=20,
    ema=0.99,
    validate_every=50,
    checkpoint_every=50,
)
"""For your own videos: few of them, so that it starts from the default model and trains gently."""


@dataclass(frozen=True)
class TrainOptions:
    """What a person changes of a recipe's training; None keeps the recipe's own. epochs or steps, not both."""

    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    ema: float | None = None
    precision: Precision = "auto"

    def applied(self, run: TokenRun) -> TokenRun:
        """The run with these changes."""
        given = {name: getattr(self, name) for name in ("epochs", "steps", "batch_size", "lr", "ema")}
        changes = {name: value for name, value in given.items() if value is not None}
        if self.epochs is not None:
            changes.setdefault("steps", None)
        train = replace(run.train, **changes, precision=self.precision)
        return replace(run, train=train, tokens=replace(run.tokens, batch_size=train.batch_size))


def train_dataset(
    recipe: Recipe,
    tokens: Path,
    out: Path,
    *,
    encoder: str | None = None,
    seed: int = 0,
    options: TrainOptions | None = None,
    device: str = "cpu",
    report: Report | None = None,
) -> dict[str, float]:
    """Train a recipe on its dataset's tokens into a run folder; the last validation's figures.

    encoder: whose tokens, when the folder holds several.

    >>> train_dataset(Recipe(dataset="ucfrep", method="repnet"), Path("tokens"), Path("runs/repnet"))
    """
    path = find_store(tokens, recipe.dataset, encoder)
    store, dataset = TokenStore(path), load_labels(path, recipe.dataset)
    run = (options or TrainOptions()).applied(recipe.paper_run(store.layout, seed))
    return train_on_tokens(run, dataset, store, out, device=device, report=report)


def train_folder(
    root: Path,
    out: Path,
    *,
    tokens: Path | None = None,
    initial: str = "lite",
    seed: int = 0,
    options: TrainOptions | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    report: Report | None = None,
) -> tuple[dict[str, float], list[Problem]]:
    """Encode and train on your own videos; the last validation's figures, and every video that was left out.

    initial: `lite`, a checkpoint, or `none`. tokens: where they are kept (None: in the run's folder).
    """
    dataset = load_dataset("folder", root)
    start = {"lite": LITE_WEIGHTS, "none": None}.get(initial, Path(initial))
    if start is not None and not start.exists():
        raise DataError(f"no checkpoint {start} to start from; --init none trains from nothing")
    encoder, identity = (
        open_encoder("patches", device=device) if start is None else network_encoder(start, device=device)
    )
    layout = layout_for(encoder.spec, identity, shifts=2)
    path = store_path(tokens or out / "tokens", "folder", encoder.spec.name)
    store, problems = encode_dataset(dataset, root, path, encoder, layout, progress=progress)
    save_labels(path, dataset)
    run = (options or TrainOptions()).applied(folder_run(layout, start, seed=seed))
    figures = train_on_tokens(run, dataset, store, out, device=device, initial=start, report=report)
    return figures, [*dataset.problems, *problems]


def folder_run(layout: TokenLayout, initial: Path | None, *, seed: int = 0) -> TokenRun:
    """The run for a folder of own videos. initial: the network it starts from, None to start from nothing."""
    if initial is None:
        decoder = replace(NARROW_DECODER, in_channels=layout.channels)
    else:
        decoder = NetworkConfig.from_plain(read_checkpoint(initial)[1]).decoder
    assert isinstance(decoder.head, RateHeadConfig)
    train = replace(OWN_TRAIN, seed=seed, lr=2e-3 if initial is None else OWN_TRAIN.lr)
    tokens = StoredTokensConfig(
        seed=seed, batch_size=train.batch_size, target="rate", by_window=True, shifts=2, validation_shifts=2
    )
    return TokenRun(decoder, train, tokens, RateObjectiveConfig(head=decoder.head))
